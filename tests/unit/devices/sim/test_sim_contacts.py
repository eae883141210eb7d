"""Contacts: looking people up, calling and writing to them, and keeping the list."""

from __future__ import annotations

import pytest

from support.sims import Finger, names


def someone(finger: Finger, **fields: object) -> str:
    return finger.first("contacts.person", **fields)  # type: ignore[arg-type]


def test_everyone_is_listed_by_name() -> None:
    finger = Finger("contacts")
    shown = [finger.text(id) for id in finger.ids("person:")]
    assert shown == sorted(names(finger.table("contacts.person").values()))
    assert len(shown) == 24


def test_the_list_is_longer_than_the_screen() -> None:
    finger = Finger("contacts")
    assert finger.shown.overflow > 0
    assert len(finger.in_sight()) < len(finger.ids())


@pytest.mark.parametrize("change", [str.upper, str.lower, lambda name: name[1:-1], lambda name: f" {name} "])
def test_a_search_finds_parts_of_names_whatever_the_case(change) -> None:
    finger = Finger("contacts")
    id = someone(finger)
    finger.type("search", change(str(finger.table("contacts.person")[id]["name"])))
    assert finger.ids("person:") == [f"person:{id}"]


def test_a_search_for_a_surname_finds_the_whole_family() -> None:
    finger = Finger("contacts", phone=3)
    surnames = [name.split()[-1] for name in names(finger.table("contacts.person").values())]
    shared = next(surname for surname in surnames if surnames.count(surname) > 1)
    finger.type("search", shared)
    assert [finger.text(id).split()[-1] for id in finger.ids("person:")] == [shared] * surnames.count(shared)


def test_a_search_for_nobody_leaves_the_list_empty_and_emptying_the_page_brings_all_back() -> None:
    finger = Finger("contacts").type("search", "Nobody At All")
    assert finger.ids("person:") == []
    finger.back().tap("tab:all")
    assert len(finger.ids("person:")) == 24


def test_favourites_have_a_tab_of_their_own() -> None:
    finger = Finger("contacts").tap("tab:favourites")
    starred = {f"person:{id}" for id, person in finger.table("contacts.person").items() if person["favourite"]}
    assert set(finger.ids("person:")) == starred
    assert finger.widgets()["tab:favourites"].checked
    assert not finger.widgets()["tab:all"].checked


def test_a_star_puts_someone_on_the_tab_and_a_second_one_takes_them_off() -> None:
    finger = Finger("contacts")
    id = someone(finger, favourite=False)
    finger.tap(f"person:{id}", "favourite")
    assert finger.changes() == [("contacts.person", {**finger.start.tables["contacts.person"][id], "favourite": True})]
    finger.back().tap("tab:favourites")
    assert f"person:{id}" in finger.ids()
    finger.tap(f"person:{id}", "favourite")
    assert finger.changes() == []


def test_a_search_among_favourites_finds_favourites_alone() -> None:
    finger = Finger("contacts").tap("tab:favourites").type("search", "a")
    people = finger.table("contacts.person")
    assert all(people[id.removeprefix("person:")]["favourite"] for id in finger.ids("person:"))


def test_a_page_tells_number_address_and_company() -> None:
    finger = Finger("contacts")
    id = someone(finger)
    person = finger.table("contacts.person")[id]
    finger.tap(f"person:{id}")
    assert finger.title == person["name"]
    assert [finger.text(field) for field in ("phone", "email", "company")] == [
        person["phone"],
        person["email"],
        person["company"],
    ]


def test_a_call_is_recorded_once_and_hanging_up_leads_back() -> None:
    finger = Finger("contacts")
    id = someone(finger)
    person = finger.table("contacts.person")[id]
    finger.tap(f"person:{id}", "call")
    assert finger.screen == "contacts/calling"
    assert finger.text("who") == person["name"]
    assert finger.changes() == [("contacts.call", {"who": person["name"], "phone": person["phone"]})]
    finger.tap("hang-up")
    assert finger.screen == "contacts/person"
    assert len(finger.table("contacts.call")) == 1


def test_two_calls_are_two_records() -> None:
    finger = Finger("contacts")
    finger.tap(f"person:{someone(finger)}", "call", "hang-up", "call")
    assert len(finger.table("contacts.call")) == 2


def test_a_message_from_a_page_has_its_recipient() -> None:
    finger = Finger("contacts")
    id = someone(finger)
    finger.tap(f"person:{id}", "message")
    assert finger.screen == "messages/compose"
    finger.type("text", "hello").tap("send")
    assert finger.changes() == [("messages.sent", {"to": finger.table("contacts.person")[id]["name"], "text": "hello"})]


def test_a_new_person_is_saved_with_what_was_typed_and_blanks_otherwise() -> None:
    finger = Finger("contacts").tap("new").type("name", "Zoe Test").type("phone", "123 456").tap("save")
    assert finger.screen == "contacts/home"
    assert finger.changes() == [
        ("contacts.person", {"name": "Zoe Test", "phone": "123 456", "email": "", "company": "", "favourite": False})
    ]
    assert f"person:{finger.made('contacts.person')}" in finger.ids()


def test_a_new_person_without_a_name_is_not_saved() -> None:
    finger = Finger("contacts").tap("new").type("phone", "123").tap("save")
    assert finger.screen == "contacts/edit"
    assert finger.changes() == []


def test_leaving_the_form_forgets_what_was_typed() -> None:
    finger = Finger("contacts").tap("new").type("name", "Zoe Test").back(2)
    assert finger.screen == "contacts/home"
    assert finger.changes() == []
    assert finger.tap("new").text("name") == ""


@pytest.mark.parametrize("field", ["name", "phone", "email", "company"])
def test_editing_changes_the_field_that_was_typed_into_alone(field: str) -> None:
    finger = Finger("contacts")
    id = someone(finger)
    before = finger.table("contacts.person")[id]
    finger.tap(f"person:{id}", "edit")
    assert finger.text(field) == before[field]
    finger.type(field, "something new").tap("save")
    assert finger.changes() == [("contacts.person", {**before, field: "something new"})]
    assert finger.screen == "contacts/person"


def test_someone_goes_only_after_a_yes() -> None:
    finger = Finger("contacts")
    id = someone(finger)
    finger.tap(f"person:{id}", "delete")
    assert str(finger.table("contacts.person")[id]["name"]) in finger.title
    finger.tap("confirm:no")
    assert finger.changes() == []
    assert finger.screen == "contacts/person"
    finger.tap("delete", "confirm:yes")
    assert finger.changes() == [("contacts.person", None)]
    assert finger.screen == "contacts/home"
    assert f"person:{id}" not in finger.ids()

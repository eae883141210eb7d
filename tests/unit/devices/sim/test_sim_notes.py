"""Notes: plain ones and checklists, written, pinned, edited and deleted."""

from __future__ import annotations

from distrl.types import Press
from support.sims import Finger

NOTE, ITEM = "notes.note", "notes.item"


def test_all_notes_and_checklists_are_listed() -> None:
    finger = Finger("notes")
    assert finger.ids("note:") == [f"note:{id}" for id in finger.table(NOTE)]
    assert sum(bool(note["list"]) for note in finger.table(NOTE).values()) == 3


def test_a_plain_note_shows_its_text() -> None:
    finger = Finger("notes")
    id = finger.first(NOTE, list=False)
    finger.tap(f"note:{id}")
    assert (finger.title, finger.text("text")) == (finger.table(NOTE)[id]["title"], finger.table(NOTE)[id]["text"])


def test_a_search_finds_titles_and_not_texts() -> None:
    finger = Finger("notes")
    id = finger.first(NOTE, list=False)
    note = finger.table(NOTE)[id]
    assert finger.type("search", str(note["title"]).upper()).ids("note:") == [f"note:{id}"]
    assert finger.type("search", str(note["text"])).ids("note:") == []


def test_a_new_note_is_kept_with_what_was_typed() -> None:
    finger = Finger("notes").tap("new").type("title", "Keys").type("text", "under the mat").tap("save")
    assert finger.changes() == [(NOTE, {"title": "Keys", "text": "under the mat", "pinned": False, "list": False})]
    assert f"note:{finger.made(NOTE)}" in finger.ids()


def test_an_empty_note_is_not_kept() -> None:
    finger = Finger("notes").tap("new", "save")
    assert (finger.screen, finger.changes()) == ("notes/edit", [])


def test_a_note_may_have_a_title_alone() -> None:
    finger = Finger("notes").tap("new").type("title", "Keys").tap("save")
    assert finger.table(NOTE)[finger.made(NOTE)]["text"] == ""


def test_an_edit_shows_what_is_there_and_changes_what_is_typed() -> None:
    finger = Finger("notes")
    id = finger.first(NOTE, list=False)
    before = finger.table(NOTE)[id]
    finger.tap(f"note:{id}", "edit")
    assert (finger.text("title"), finger.text("text")) == (before["title"], before["text"])
    finger.type("text", "in the shed").tap("save")
    assert finger.changes() == [(NOTE, {**before, "text": "in the shed"})]
    assert finger.text("text") == "in the shed"


def test_a_pinned_note_comes_first() -> None:
    finger = Finger("notes")
    last = finger.ids("note:")[-1]
    finger.tap(last, "pin").back()
    assert finger.ids("note:")[0] == last
    assert finger.widgets()[last].detail == "pinned"
    finger.tap(last, "pin")
    assert finger.changes() == []


def test_a_note_goes_after_a_yes() -> None:
    finger = Finger("notes")
    id = finger.first(NOTE, list=False)
    finger.tap(f"note:{id}", "delete", "confirm:no")
    assert finger.changes() == []
    finger.tap("delete", "confirm:yes")
    assert (finger.screen, finger.changes()) == ("notes/home", [(NOTE, None)])


def test_a_checklist_shows_its_own_entries_with_their_ticks() -> None:
    finger = Finger("notes").tap("note:l1")
    own = {id: item for id, item in finger.table(ITEM).items() if item["note"] == "l1"}
    assert finger.ids("item:") == [f"item:{id}" for id in own]
    for id, item in own.items():
        assert (finger.text(f"item:{id}"), finger.widgets()[f"item:{id}"].checked) == (item["text"], item["done"])


def test_a_tick_is_set_and_taken_away() -> None:
    finger = Finger("notes").tap("note:l0")
    id = next(id for id, item in finger.table(ITEM).items() if item["note"] == "l0" and not item["done"])
    finger.tap(f"item:{id}")
    assert finger.changes() == [(ITEM, {**finger.start.tables[ITEM][id], "done": True})]
    assert finger.tap(f"item:{id}").changes() == []


def test_entries_are_added_one_after_the_other() -> None:
    finger = Finger("notes").tap("note:l0").enter("item", "Wellington boots").enter("item", "Umbrella")
    made = [record for _, record in finger.changes()]
    assert {"note": "l0", "text": "Wellington boots", "done": False} in made
    assert {"note": "l0", "text": "Umbrella", "done": False} in made
    assert len(made) == 2
    assert finger.text("item") == ""
    assert finger.back().screen == "notes/home"


def test_an_entry_without_words_is_not_added() -> None:
    finger = Finger("notes").tap("note:l0", "item")
    finger.act(Press("enter"))
    assert finger.changes() == []


def test_a_checklist_has_a_title_to_edit_and_no_text() -> None:
    finger = Finger("notes").tap("note:l0", "edit")
    assert finger.ids() == ["save", "title"]


def test_a_checklist_goes_with_all_of_its_entries_and_no_others() -> None:
    finger = Finger("notes").tap("note:l0", "delete", "confirm:yes")
    assert {item["note"] for item in finger.table(ITEM).values()} == {"l1", "l2"}
    assert "l0" not in finger.table(NOTE)

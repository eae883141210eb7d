"""The everyday apps, driven as a finger drives them: by touching what is on the screen."""

from __future__ import annotations

import time

import pytest

from distrl.devices.sim.apps import APPS, INCIDENTAL
from distrl.devices.sim.layout import elements_of
from distrl.devices.sim.phone import perform, show
from distrl.devices.sim.state import PhoneState, diff
from distrl.devices.sim.world import start_state
from distrl.types import Action, Goal, LongPress, Press, Swipe, Tap, Task, TypeText, Value

MINE = ("contacts", "messages", "mail", "calendar", "clock", "notes")


class Finger:
    """A phone on an app's first screen, and someone who touches things by their id."""

    def __init__(self, app: str, seed: int = 7) -> None:
        task = Task(
            id="t",
            suite="s",
            template="t",
            split="train",
            instruction="",
            phone=seed,
            seed=seed,
            goal=Goal(impossible=True),
        )
        self.start = start_state(task)
        self.state: PhoneState = self.start
        self.open(app)

    def open(self, app: str) -> None:
        self.act(Press("home"))
        if f"app:{app}" not in self.ids():
            self.act(Swipe(0.8, 0.45, 0.2, 0.45))
        self.tap(f"app:{app}")

    def act(self, action: Action) -> None:
        self.state = perform(self.state, show(self.state), action).state

    def ids(self) -> set[str]:
        return {placed.widget.id for placed in show(self.state).placed}

    def texts(self) -> list[str]:
        return [element.text for element in elements_of(show(self.state), self.state.focus)]

    def tap(self, *ids: str) -> None:
        for id in ids:
            self.act(Tap(*self._centre(id)))

    def hold(self, id: str) -> None:
        self.act(LongPress(*self._centre(id)))

    def type(self, id: str, text: str) -> None:
        self.tap(id)
        self.act(TypeText(text))

    def _centre(self, id: str) -> tuple[float, float]:
        for _ in range(6):
            found = [placed for placed in show(self.state).placed if placed.widget.id == id]
            if found:
                return found[0].bounds.centre
            self.act(Swipe(0.5, 0.6, 0.5, 0.25))
        raise AssertionError(f"{id} is not to be found among {sorted(self.ids())}")

    def first(self, table: str) -> tuple[str, dict[str, Value]]:
        return next(iter(self.state.tables[table].items()))

    def changes(self) -> list[tuple[str, dict[str, Value] | None]]:
        """What differs from the start, apart from marks of mere use."""
        return [(c.table, c.after) for c in diff(self.start, self.state) if c.table not in INCIDENTAL]


@pytest.mark.parametrize("app", MINE)
def test_an_app_opens_from_the_home_screen_and_shows_its_content(app: str) -> None:
    finger = Finger(app)
    assert finger.state.place.app == app
    assert len(finger.ids()) > 5
    assert finger.changes() == []


@pytest.mark.parametrize("app", ["contacts", "messages", "mail", "calendar", "notes"])
def test_a_list_is_longer_than_the_screen(app: str) -> None:
    assert show(Finger(app).state).overflow > 0


@pytest.mark.parametrize("app", MINE)
def test_touching_every_widget_of_every_first_screen_never_raises(app: str) -> None:
    start = Finger(app)
    for id in start.ids():
        finger = Finger(app)
        finger.tap(id)
        for deeper in finger.ids():
            place = finger.state
            finger.tap(deeper)
            finger.state = place


def test_ids_on_a_screen_are_unique() -> None:
    for app in MINE:
        placed = [item.widget.id for item in show(Finger(app).state).placed]
        assert len(placed) == len(set(placed))


def test_a_new_contact_is_saved_with_what_was_typed() -> None:
    finger = Finger("contacts")
    finger.tap("new")
    finger.type("name", "Zoe Test")
    finger.type("phone", "123 456")
    finger.tap("save")
    assert finger.changes() == [
        ("contacts.person", {"name": "Zoe Test", "phone": "123 456", "email": "", "company": "", "favourite": False})
    ]


def test_a_contact_without_a_name_is_not_saved() -> None:
    finger = Finger("contacts")
    finger.tap("new", "save")
    assert finger.state.place.screen == "edit"
    assert finger.changes() == []


def test_a_contact_goes_only_after_the_dialog_is_agreed_to() -> None:
    finger = Finger("contacts")
    id, _ = finger.first("contacts.person")
    finger.tap(f"person:{id}", "delete", "confirm:no")
    assert finger.changes() == []
    finger.tap("delete", "confirm:yes")
    assert finger.changes() == [("contacts.person", None)]
    assert finger.state.place.screen == "home"


def test_searching_contacts_narrows_the_list() -> None:
    finger = Finger("contacts")
    id, person = finger.first("contacts.person")
    finger.type("search", str(person["name"]).upper())
    assert {name for name in finger.ids() if name.startswith("person:")} == {f"person:{id}"}


def test_the_favourites_tab_shows_starred_people_alone() -> None:
    finger = Finger("contacts")
    finger.tap("tab:favourites")
    starred = {f"person:{id}" for id, person in finger.state.tables["contacts.person"].items() if person["favourite"]}
    assert {name for name in finger.ids() if name.startswith("person:")} == starred


def test_reading_a_thread_is_no_side_effect_and_an_answer_is_recorded() -> None:
    finger = Finger("messages")
    who, thread = finger.first("messages.thread")
    finger.tap(f"thread:{who}")
    assert str(thread["lines"]).split("\n")[-1] in finger.texts()
    assert finger.changes() == []
    finger.type("reply", "on my way")
    finger.act(Press("enter"))
    assert finger.changes() == [("messages.sent", {"to": who, "text": "on my way"})]
    assert "You: on my way" in finger.texts()


def test_a_new_message_needs_a_recipient_and_then_shows_up_in_the_list() -> None:
    finger = Finger("messages")
    finger.tap("new")
    finger.type("text", "hello")
    finger.tap("send")
    assert finger.changes() == []
    finger.type("to", "Zoe Test")
    finger.tap("send")
    finger.act(Press("back"))
    assert "thread:Zoe Test" in finger.ids()


def test_a_long_press_pins_mutes_and_deletes_threads() -> None:
    finger = Finger("messages")
    last = list(finger.state.tables["messages.thread"])[-1]
    finger.hold(f"thread:{last}")
    finger.tap("pin")
    finger.act(Swipe(0.5, 0.3, 0.5, 0.65))
    rows = [placed.widget.id for placed in show(finger.state).placed if placed.widget.id.startswith("thread:")]
    assert rows[0] == f"thread:{last}"
    finger.hold(f"thread:{last}")
    finger.tap("delete", "confirm:yes")
    assert finger.changes() == [("messages.thread", None)]


def test_a_contact_page_leads_to_a_message_with_the_recipient_filled_in() -> None:
    finger = Finger("contacts")
    id, person = finger.first("contacts.person")
    finger.tap(f"person:{id}", "message")
    finger.type("text", "hello")
    finger.tap("send")
    assert finger.changes() == [("messages.sent", {"to": person["name"], "text": "hello"})]


def test_a_mail_is_answered_archived_and_brought_back() -> None:
    finger = Finger("mail")
    id, mail = finger.first("mail.mail")
    finger.tap(f"mail:{id}", "reply")
    finger.type("body", "thank you")
    finger.tap("send", "archive")
    assert ("mail.mail", {**mail, "folder": "archive"}) in finger.changes()
    assert f"mail:{id}" not in finger.ids()
    finger.tap("folders", "folder:archive", f"mail:{id}", "restore")
    assert [table for table, _ in finger.changes()] == ["mail.sent"]


def test_reading_a_mail_is_no_side_effect_and_search_finds_sender_and_subject() -> None:
    finger = Finger("mail")
    id, mail = finger.first("mail.mail")
    for words in (mail["from"], mail["subject"]):
        finger.open("mail")
        finger.tap("find")
        finger.type("query", str(words))
        finger.tap(f"mail:{id}")
        assert {mail["from"], mail["reference"], mail["when"]} <= set(finger.texts())
    assert finger.changes() == []


def test_an_event_gets_its_day_and_time_from_lists() -> None:
    finger = Finger("calendar")
    finger.tap("new", "save")
    assert finger.state.place.screen == "edit"
    finger.type("title", "Picnic")
    finger.act(Press("back"))
    finger.tap("day", "option:Friday", "time", "option:19:00", "save")
    assert finger.changes() == [("calendar.event", {"title": "Picnic", "day": "Friday", "time": "19:00", "place": ""})]


def test_moving_an_event_changes_its_day_alone() -> None:
    finger = Finger("calendar")
    id, event = finger.first("calendar.event")
    day = "Monday" if event["day"] != "Monday" else "Tuesday"
    finger.tap(f"event:{id}", "edit", "day", f"option:{day}", "save")
    assert finger.changes() == [("calendar.event", {**event, "day": day})]
    assert day in finger.texts()


def test_an_alarm_is_set_switched_and_deleted() -> None:
    finger = Finger("clock")
    finger.tap("new", "hour", "option:23", "minute", "option:45", "save")
    assert finger.changes() == [("clock.alarm", {"time": "23:45", "name": "", "on": True})]
    (id,) = finger.state.tables["clock.alarm"].keys() - finger.start.tables["clock.alarm"].keys()
    finger.tap(f"alarm:{id}")
    assert finger.state.tables["clock.alarm"][id]["on"] is False
    finger.hold(f"alarm:{id}")
    finger.tap("confirm:yes")
    assert finger.changes() == []


def test_cities_are_added_by_search_and_removed_from_their_page() -> None:
    finger = Finger("clock")
    city, _ = finger.first("clock.city")
    finger.tap("tab:world", f"city:{city}", "remove", "confirm:yes")
    assert finger.changes() == [("clock.city", None)]
    assert finger.state.place.screen == "world"
    finger.tap("add")
    finger.type("search", city)
    finger.tap(f"add:{city}")
    assert finger.changes() == []


def test_the_timer_runs_until_it_is_stopped() -> None:
    finger = Finger("clock")
    finger.tap("tab:timer", "preset:5")
    assert finger.changes() == [("clock.timer", {"minutes": 5, "running": True})]
    finger.tap("stop")
    assert finger.changes() == []


def test_notes_are_written_edited_and_thrown_away() -> None:
    finger = Finger("notes")
    finger.tap("new")
    finger.type("title", "Keys")
    finger.type("text", "under the mat")
    finger.tap("save")
    (id,) = finger.state.tables["notes.note"].keys() - finger.start.tables["notes.note"].keys()
    finger.tap(f"note:{id}", "edit")
    finger.type("text", "in the shed")
    finger.tap("save")
    assert "in the shed" in finger.texts()
    finger.tap("delete", "confirm:yes")
    assert finger.changes() == []


def test_a_checklist_takes_new_entries_and_goes_with_all_of_them() -> None:
    finger = Finger("notes")
    finger.tap("note:l0")
    finger.type("item", "Wellington boots")
    finger.act(Press("enter"))
    assert finger.changes() == [("notes.item", {"note": "l0", "text": "Wellington boots", "done": False})]
    finger.tap("delete", "confirm:yes")
    assert not [item for item in finger.state.tables["notes.item"].values() if item["note"] == "l0"]


def test_content_is_the_same_for_the_same_seed() -> None:
    assert Finger("notes", seed=3).start.tables == Finger("notes", seed=3).start.tables
    assert Finger("notes", seed=3).start.tables != Finger("notes", seed=4).start.tables


@pytest.mark.parametrize("app", MINE)
def test_a_step_on_a_first_screen_is_cheap(app: str) -> None:
    """Measured at 60 to 130 µs; the bound is wide so that a busy machine does not fail it."""
    state, best = Finger(app).state, 1.0
    for _ in range(30):
        began = time.perf_counter()
        screen = show(state)
        elements_of(screen, "")
        perform(state, screen, Tap(0.5, 0.5))
        best = min(best, time.perf_counter() - began)
    assert best < 1e-3


def test_every_app_of_this_set_is_installed() -> None:
    assert set(MINE) <= set(APPS)

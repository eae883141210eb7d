"""Calendar: the week's events, new ones with a day and a time from lists, changes and deletions."""

from __future__ import annotations

import pytest

from distrl.devices.sim.apps.calendar import DAYS, TIMES
from support.sims import Finger

EVENT = "calendar.event"


def test_events_stand_under_their_days_in_order_of_time() -> None:
    finger = Finger("calendar")
    day, shown = "", list[tuple[str, str]]()
    for id, widget in finger.widgets().items():
        if id.startswith("day:"):
            day = widget.text
        elif id.startswith("event:"):
            shown.append((day, widget.detail))
            assert finger.table(EVENT)[id.removeprefix("event:")]["day"] == day
    assert shown == sorted(shown, key=lambda slot: (DAYS.index(slot[0]), slot[1]))
    assert len(shown) == 12


def test_days_without_events_have_no_heading() -> None:
    finger = Finger("calendar")
    assert {finger.text(id) for id in finger.ids("day:")} == {event["day"] for event in finger.table(EVENT).values()}


def test_a_search_finds_titles() -> None:
    finger = Finger("calendar")
    id = finger.first(EVENT)
    title = str(finger.table(EVENT)[id]["title"])
    assert finger.type("search", title.upper()).ids("event:") == [f"event:{id}"]
    assert finger.type("search", "nothing like that").ids("day:") == []


def test_an_event_tells_day_time_and_place() -> None:
    finger = Finger("calendar")
    id = finger.first(EVENT)
    event = finger.table(EVENT)[id]
    finger.tap(f"event:{id}")
    assert finger.title == event["title"]
    assert [finger.text(name) for name in ("day", "time", "place")] == [event[n] for n in ("day", "time", "place")]


def test_a_new_event_needs_title_day_and_time() -> None:
    finger = Finger("calendar").tap("new", "save").type("title", "Picnic").tap("save")
    assert finger.screen == "calendar/edit"
    finger.tap("day", "option:Friday", "save")
    assert finger.changes() == []
    finger.tap("time", "option:19:00", "save")
    assert finger.changes() == [(EVENT, {"title": "Picnic", "day": "Friday", "time": "19:00", "place": ""})]
    assert finger.screen == "calendar/home"


def test_a_place_is_optional() -> None:
    finger = Finger("calendar").tap("new").type("title", "Picnic").type("place", "Old mill")
    finger.tap("day", "option:Sunday", "time", "option:08:30", "save")
    assert finger.table(EVENT)[finger.made(EVENT)]["place"] == "Old mill"


def test_the_form_shows_what_was_chosen_and_lists_tick_it() -> None:
    finger = Finger("calendar").tap("new")
    assert (finger.widgets()["day"].detail, finger.widgets()["time"].detail) == ("Choose", "Choose")
    finger.tap("day", "option:Tuesday")
    assert finger.widgets()["day"].detail == "Tuesday"
    finger.tap("day")
    assert [id for id in finger.ids("option:") if finger.widgets()[id].checked] == ["option:Tuesday"]


def test_every_half_hour_of_the_day_can_be_reached_by_scrolling() -> None:
    finger = Finger("calendar").tap("new", "time")
    assert [finger.text(id) for id in finger.ids("option:")] == list(TIMES)
    assert finger.shown.overflow > 0
    finger.tap(f"option:{TIMES[-1]}")
    assert finger.widgets()["time"].detail == TIMES[-1]


def test_typed_text_is_kept_while_a_day_is_chosen() -> None:
    finger = Finger("calendar").tap("new").type("title", "Picnic").tap("day", "option:Monday")
    assert finger.text("title") == "Picnic"


@pytest.mark.parametrize(("field", "value"), [("day", "Monday"), ("time", "12:30")])
def test_an_edit_changes_what_was_chosen_alone(field: str, value: str) -> None:
    finger = Finger("calendar")
    id = next(id for id, event in finger.table(EVENT).items() if event[field] != value)
    before = finger.table(EVENT)[id]
    finger.tap(f"event:{id}", "edit", field, f"option:{value}", "save")
    assert finger.changes() == [(EVENT, {**before, field: value})]
    assert finger.screen == "calendar/event"
    assert finger.text(field) == value


def test_saving_an_unchanged_event_changes_nothing() -> None:
    finger = Finger("calendar")
    finger.tap(f"event:{finger.first(EVENT)}", "edit", "save")
    assert finger.changes() == []


def test_an_event_goes_after_a_yes() -> None:
    finger = Finger("calendar")
    id = finger.first(EVENT)
    finger.tap(f"event:{id}", "delete", "confirm:no")
    assert (finger.screen, finger.changes()) == ("calendar/event", [])
    finger.tap("delete", "confirm:yes")
    assert (finger.screen, finger.changes()) == ("calendar/home", [(EVENT, None)])

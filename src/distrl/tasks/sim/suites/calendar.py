"""Tasks in the calendar app."""

from __future__ import annotations

from distrl.devices.sim.apps.calendar import DAYS, EVENT, TIMES
from distrl.devices.sim.apps.contacts import CALL, PERSON
from distrl.devices.sim.apps.messages import SENT, THREAD
from distrl.devices.sim.content_pools import EVENTS, PLACES, TEXTS
from distrl.tasks.sim.templates import Draft, Templates, column, enter, open_app, spoken_time, tap, type_in, unused

templates = Templates()


def _event(t: Draft) -> tuple[str, str]:
    id, record = t.row(EVENT)
    return id, str(record["title"])


def _other(t: Draft, options: tuple[str, ...], now: object) -> str:
    return t.random.choice([option for option in options if option != now])


@templates.add
def calendar_new(t: Draft) -> None:
    """Add an event on a day at a time."""
    title, day, time = unused(t, EVENTS, column(t, EVENT, "title")), t.one_of(*DAYS), t.one_of(*TIMES)
    at = spoken_time(t, time)
    t.say(
        f"Put {title} in my calendar on {day} at {at}",
        f"Create an event called {title} for {day} at {at}",
        f"Schedule {title} on {day} at {at}",
        f"I have {title} on {day} at {at} so note it in the calendar",
        f"Book {title} for {day} {at}",
    )
    t.want(EVENT, title=title, day=day, time=time)
    t.route(open_app("calendar"), tap("new"), type_in("title", title), tap("day"), tap(f"option:{day}"))
    t.route(tap("time"), tap(f"option:{time}"), tap("save"))


@templates.add
def calendar_new_with_place(t: Draft) -> None:
    """Add an event with a place, on a day at a time."""
    title, day, time, place = (
        unused(t, EVENTS, column(t, EVENT, "title")),
        t.one_of(*DAYS),
        t.one_of(*TIMES[:10]),
        t.choose(PLACES),
    )
    t.say(
        f"Put {title} at {place} in my calendar on {day} at {time}", f"Create an event called {title} located at {place} for {day} at {time}",
        f"Schedule {title} on {day} at {time} with {place} as the place", f"Plan {title} for {day} {time} at the location {place}",
    )  # fmt: skip
    t.want(EVENT, title=title, day=day, time=time, place=place)
    t.route(
        open_app("calendar"),
        tap("new"),
        type_in("title", title),
        type_in("place", place),
        tap("day"),
        tap(f"option:{day}"),
    )
    t.route(tap("time"), tap(f"option:{time}"), tap("save"))


@templates.add
def calendar_delete(t: Draft) -> None:
    """Delete an event."""
    id, title = _event(t)
    t.say(
        f"Delete {title} from my calendar",
        f"Cancel the appointment {title}",
        f"Remove {title} from the agenda",
        f"{title} is off so take it out of the calendar",
        f"Get rid of the event {title}",
    )
    t.want_gone(EVENT, id)
    t.route(open_app("calendar"), tap(f"event:{id}"), tap("delete"), tap("confirm:yes"))


@templates.add
def calendar_move_day(t: Draft) -> None:
    """Move an event to another day."""
    id, title = _event(t)
    day = _other(t, DAYS, t.tables[EVENT][id]["day"])
    t.say(
        f"Move {title} to {day}",
        f"Reschedule {title} for {day}",
        f"{title} takes place on {day} instead",
        f"Shift the appointment {title} to {day}",
        f"Put {title} off until {day}",
    )
    t.want(EVENT, id, day=day)
    t.route(open_app("calendar"), tap(f"event:{id}"), tap("edit"), tap("day"), tap(f"option:{day}"), tap("save"))


@templates.add_for_test
def calendar_move_time(t: Draft) -> None:
    """Move an event to another time."""
    id, title = _event(t)
    time = _other(t, TIMES, t.tables[EVENT][id]["time"])
    t.say(
        f"Move {title} to {time} on the same day",
        f"{title} starts at {time} instead so correct the calendar",
        f"Reschedule {title} for {time}",
    )
    t.want(EVENT, id, time=time)
    t.route(open_app("calendar"), tap(f"event:{id}"), tap("edit"), tap("time"), tap(f"option:{time}"), tap("save"))


@templates.add
def calendar_delete_and_tell(t: Draft) -> None:
    """Delete an event and write to someone."""
    (id, title), (who, _), text = _event(t), t.row(THREAD), t.choose(TEXTS)
    t.say(
        f"Cancel the appointment {title} and reply to {who} with {text}",
        f"Delete {title} from the calendar and then write {text} in the chat with {who}",
        f"{title} is off so remove it and answer the text from {who} with {text}",
        f"Take {title} out of the agenda and after that tell {who} in our chat {text}",
    )
    t.want_gone(EVENT, id)
    t.want(SENT, to=who, text=text)
    t.route(open_app("calendar"), tap(f"event:{id}"), tap("delete"), tap("confirm:yes"))
    t.route(open_app("messages"), tap(f"thread:{who}"), type_in("reply", text), tap("send"))


@templates.add_for_test
def calendar_delete_and_call(t: Draft) -> None:
    """Delete an event and call someone."""
    (id, title), (person, record) = _event(t), t.row(PERSON)
    t.say(
        f"Cancel the appointment {title} and call {record['name']}",
        f"Take {title} out of the agenda and then ring {record['name']}",
        f"{title} is off so remove it and phone {record['name']}",
    )
    t.want_gone(EVENT, id)
    t.want(CALL, who=record["name"])
    t.route(open_app("calendar"), tap(f"event:{id}"), tap("delete"), tap("confirm:yes"))
    t.route(open_app("contacts"), tap(f"person:{person}"), tap("call"))


def _ask(t: Draft, field: str) -> str:
    id, title = _event(t)
    t.want_answer(str(t.tables[EVENT][id][field]))
    t.route(open_app("calendar"), tap(f"event:{id}"))
    return title


@templates.add
def calendar_ask_time(t: Draft) -> None:
    """Say when an event starts."""
    title = _ask(t, "time")
    t.say(
        f"At what time is {title}?",
        f"When in the day does {title} start?",
        f"What o'clock is {title} planned for?",
        f"Tell me the hour of {title}",
        f"Look up the starting time of {title}",
    )


@templates.add
def calendar_ask_place(t: Draft) -> None:
    """Say where an event takes place."""
    title = _ask(t, "place")
    t.say(
        f"Where is {title}?",
        f"Where does {title} take place?",
        f"Tell me the location of {title}",
        f"Which place do I have to go to for {title}?",
        f"Look up where {title} is held",
    )


@templates.add
def calendar_absent(t: Draft) -> None:
    """Cancel an event that is not in the calendar: impossible."""
    title = unused(t, EVENTS, column(t, EVENT, "title"))
    t.say(
        f"Cancel the appointment {title}",
        f"Move {title} to another place",
        f"Where does {title} take place?",
        f"Delete {title} from the agenda",
        f"Look up the starting time of {title}",
    )
    t.cannot_be_done()
    t.route(open_app("calendar"), type_in("search", title), enter())

"""Tasks in the clock app."""

from __future__ import annotations

from distrl.devices.sim.apps.clock import ALARM, CITY, HOURS, MINUTES, NOW
from distrl.devices.sim.content_pools import ALARMS, CITY_HOURS
from distrl.tasks.sim.templates import Draft, Templates, column, hold, open_app, spoken_time, tap, type_in, unused

templates = Templates()


def _alarm(t: Draft) -> tuple[str, str]:
    """An alarm, and how the user calls it."""
    id, alarm = t.row(ALARM)
    return id, t.one_of(f"at {alarm['time']}", f"called {alarm['name']}")


@templates.add
def clock_alarm_switch(t: Draft) -> None:
    """Turn an alarm on or off."""
    (id, which), on = _alarm(t), t.random.random() < 0.5
    wordings = {
        True: (f"Turn on the alarm {which}", f"Activate the alarm {which}", f"Make sure that the alarm {which} rings", f"Arm the alarm {which}"),
        False: (f"Turn off the alarm {which}", f"Disable the alarm {which} but keep it", f"I do not want the alarm {which} to ring", f"Silence the alarm {which}"),
    }  # fmt: skip
    t.say(*wordings[on])
    t.given(ALARM, id, on=not on)
    t.want(ALARM, id, on=on)
    t.route(open_app("clock"), tap(f"alarm:{id}"))


def _new_time(t: Draft) -> str:
    return unused(t, [f"{t.one_of(*HOURS)}:{t.one_of(*MINUTES)}"], column(t, ALARM, "time"))


@templates.add
def clock_new_alarm(t: Draft) -> None:
    """Set an alarm for a time."""
    time = _new_time(t)
    at = spoken_time(t, time)
    t.say(
        f"Set an alarm for {at}",
        f"Wake me at {at}",
        f"Add a new alarm at {at}",
        f"I have to get up at {at} so set the alarm",
        f"Let the phone ring at {at}",
    )
    t.want(ALARM, time=time, on=True)
    t.route(
        open_app("clock"),
        tap("new"),
        tap("hour"),
        tap(f"option:{time[:2]}"),
        tap("minute"),
        tap(f"option:{time[3:]}"),
        tap("save"),
    )


@templates.add
def clock_new_named_alarm(t: Draft) -> None:
    """Set an alarm with a name for a time."""
    time, name = _new_time(t), unused(t, ALARMS, column(t, ALARM, "name"))
    t.say(
        f"Set an alarm called {name} for {time}",
        f"Add an alarm at {time} with the label {name}",
        f"Remind me of {name} by an alarm at {time}",
        f"Create an alarm named {name} that rings at {time}",
    )
    t.want(ALARM, time=time, name=name, on=True)
    t.route(
        open_app("clock"), tap("new"), tap("hour"), tap(f"option:{time[:2]}"), tap("minute"), tap(f"option:{time[3:]}")
    )
    t.route(type_in("name", name), tap("save"))


@templates.add
def clock_delete_alarm(t: Draft) -> None:
    """Delete an alarm."""
    id, which = _alarm(t)
    t.say(
        f"Delete the alarm {which}",
        f"Get rid of the alarm {which}",
        f"Remove the alarm {which} for good",
        f"Erase the alarm {which}",
        f"I never need the alarm {which} again so bin it",
    )
    t.want_gone(ALARM, id)
    t.route(open_app("clock"), hold(f"alarm:{id}"), tap("confirm:yes"))


@templates.add_for_test
def clock_replace_alarm(t: Draft) -> None:
    """Delete an alarm and set another."""
    (id, which), time = _alarm(t), _new_time(t)
    t.say(
        f"Delete the alarm {which} and set one for {time}",
        f"Replace the alarm {which} by a new one at {time}",
        f"Get rid of the alarm {which} and wake me at {time}",
    )
    t.want_gone(ALARM, id)
    t.want(ALARM, time=time, on=True)
    t.route(open_app("clock"), hold(f"alarm:{id}"), tap("confirm:yes"))
    t.route(tap("new"), tap("hour"), tap(f"option:{time[:2]}"), tap("minute"), tap(f"option:{time[3:]}"), tap("save"))


@templates.add
def clock_add_city(t: Draft) -> None:
    """Add a city to the world clock."""
    city = unused(t, CITY_HOURS, t.tables[CITY])
    t.say(
        f"Add {city} to the world clock",
        f"Show the time of {city} among my cities",
        f"Put {city} on the list of world times",
        f"I want to see {city} in the clock app",
        f"Include {city} in my world clocks",
    )
    t.want(CITY, city)
    t.route(open_app("clock"), tap("tab:world"), tap("add"), type_in("search", city), tap(f"add:{city}"))


@templates.add_for_test
def clock_remove_city(t: Draft) -> None:
    """Remove a city from the world clock."""
    city, _ = t.row(CITY)
    t.say(
        f"Remove {city} from the world clock",
        f"Take {city} off the list of world times",
        f"Delete the clock of {city}",
        f"I no longer care what time it is in {city} so drop it",
        f"Get rid of {city} among my cities",
    )
    t.want_gone(CITY, city)
    t.route(open_app("clock"), tap("tab:world"), hold(f"city:{city}"), tap("confirm:yes"))


@templates.add
def clock_ask_city(t: Draft) -> None:
    """Say what time it is in a city."""
    city, _ = t.row(CITY)
    minutes = (int(t.tables[NOW]["now"]["minutes"]) + 60 * CITY_HOURS[city]) % (24 * 60)
    t.say(
        f"What time is it in {city}?",
        f"How late is it in {city} now?",
        f"Tell me the local time of {city}",
        f"Look up what the clocks show in {city}",
        f"If I called {city} now what time would it be there?",
    )
    t.want_answer(f"{minutes // 60:02d}:{minutes % 60:02d}")
    t.route(open_app("clock"), tap("tab:world"), tap(f"city:{city}"))


@templates.add
def clock_ask_alarm(t: Draft) -> None:
    """Say when an alarm rings."""
    _, alarm = t.row(ALARM)
    t.say(
        f"At what time does the alarm {alarm['name']} ring?",
        f"When is the alarm for {alarm['name']} set?",
        f"Tell me the time of the {alarm['name']} alarm",
        f"Look up when the phone rings for {alarm['name']}",
    )
    t.start_on("clock")
    t.want_answer(str(alarm["time"]))


@templates.add
def clock_absent_alarm(t: Draft) -> None:
    """Say when an alarm rings that does not exist: impossible."""
    name = unused(t, ALARMS, column(t, ALARM, "name"))
    t.say(
        f"Delete the alarm called {name}",
        f"Turn off the alarm called {name}",
        f"Get rid of the {name} alarm",
        f"When does the alarm {name} ring?",
        f"Disable the alarm for {name}",
    )
    t.cannot_be_done()
    t.route(open_app("clock"))

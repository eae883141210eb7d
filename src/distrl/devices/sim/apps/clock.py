"""Clock: alarms, cities of the world, a timer and a stopwatch."""

from __future__ import annotations

from distrl.devices.sim.app import App, Seeder, Ui, back, do, erase, flip, go, pop, swap, write
from distrl.devices.sim.content_pools import ALARMS, CITY_HOURS
from distrl.devices.sim.patterns import confirm, options
from distrl.devices.sim.state import PhoneState, Tables, next_id, put
from distrl.devices.sim.widgets import View, Widget, button, heading, icon, label, row

app = App("clock", "Clock", icon="clock", colour="#3c4a8a")

ALARM, CITY, TIMER, WATCH, NOW = "clock.alarm", "clock.city", "clock.timer", "clock.watch", "clock.now"
HOURS = tuple(f"{hour:02d}" for hour in range(24))
MINUTES = ("00", "05", "10", "15", "20", "30", "40", "45", "50", "55")
PRESETS = (1, 2, 3, 5, 8, 10, 12, 15, 20, 25, 30, 40, 45, 60, 90)
TABS = {
    "home": ("Alarms", "Wake-up"),
    "world": ("World", "Cities"),
    "timer": ("Timer", "Countdown"),
    "watch": ("Stopwatch", "Lap timer"),
}
TAB_SIGNS = {"home": "alarm", "world": "globe", "timer": "timer", "watch": "clock"}


@app.content
def content(seeder: Seeder) -> Tables:
    """Seven alarms, six cities, and a timer and a stopwatch that stand still."""
    random, names = seeder.random, seeder.sample(ALARMS, 7)
    times = random.sample([f"{hour}:{minute}" for hour in HOURS for minute in MINUTES], len(names))
    alarms = zip(names, sorted(times), strict=True)
    return {
        ALARM: {
            f"a{n}": {"time": time, "name": name, "on": random.random() < 0.5} for n, (name, time) in enumerate(alarms)
        },
        CITY: {name: {"shown": True} for name in seeder.sample(CITY_HOURS, 6)},
        TIMER: {"timer": {"minutes": 0, "running": False}},
        WATCH: {"watch": {"running": False}},
        NOW: {"now": {"minutes": random.randrange(24 * 60)}},
    }


def _tabs(ui: Ui, here: str) -> tuple[Widget, ...]:
    tabs = (
        Widget(
            kind="tab",
            id=f"tab:{name}",
            text=ui.pick(*words),
            checked=name == here,
            tap=swap("clock", name),
            icon=TAB_SIGNS[name],
        )
        for name, words in TABS.items()
    )
    return ui.arrange(tabs)


@app.screen("home")
def home(ui: Ui) -> View:
    """The alarms in order of time, each with its switch; holding one asks to delete it."""
    alarms = sorted((str(alarm["time"]), id, alarm) for id, alarm in ui.table(ALARM).items())
    body = tuple(
        Widget(
            kind="switch", id=f"alarm:{id}", text=time, detail=str(alarm["name"]), checked=bool(alarm["on"]),
            tap=flip(ALARM, id, "on"), hold=go("clock", "delete", id=id),
        )
        for time, id, alarm in alarms
    )  # fmt: skip
    new = icon("new", "plus", ui.pick("New alarm", "Add alarm"), tap=go("clock", "alarm"))
    return View(title=ui.pick(*TABS["home"]), body=body, top=(new,), bottom=_tabs(ui, "home"), style="alarms")


@app.screen("delete")
def delete(ui: Ui) -> View:
    """The question before an alarm is deleted."""
    id = ui.args["id"]
    question = f"{ui.pick('Delete', 'Remove')} the alarm at {ui.record(ALARM, id)['time']}?"
    return confirm(ui, question, yes=ui.pick("Delete", "Remove", "Yes"), effect=do(back(), erase(ALARM, id)))


@app.screen("alarm")
def alarm(ui: Ui) -> View:
    """The form of a new alarm."""
    hour, minute = ui.draft("hour", "08"), ui.draft("minute", "00")
    choices = (
        row("hour", ui.pick("Hour", "Hours"), hour, tap=go("clock", "choose", what="hour", now=hour)),
        row("minute", ui.pick("Minute", "Minutes"), minute, tap=go("clock", "choose", what="minute", now=minute)),
    )
    body = (label("time", f"{hour}:{minute}"), *choices, ui.field("name", ui.pick("Label", "Name of the alarm")))
    save = icon("save", "check", ui.pick("Save", "Done", "Set"), tap=_save)
    return View(title=ui.pick("New alarm", "Add alarm"), body=body, top=(save,), picture=f"dial:{hour}:{minute}")


def _save(state: PhoneState) -> PhoneState:
    drafts = state.place.drafts
    time = f"{drafts.get('hour', '08')}:{drafts.get('minute', '00')}"
    id = next_id(state.tables[ALARM], "a")
    return pop(put(state, ALARM, id, time=time, name=drafts.get("name", ""), on=True))


@app.screen("choose")
def choose(ui: Ui) -> View:
    """The hours or minutes to choose from."""
    what, now = ui.args["what"], ui.args["now"]
    if what == "hour":
        return View(title=ui.pick("Hour", "Which hour?"), body=options(what, HOURS, now))
    return View(title=ui.pick("Minute", "Which minute?"), body=options(what, MINUTES, now), shape="dialog")


@app.screen("world")
def world(ui: Ui) -> View:
    """The cities that are shown."""
    rows = (
        row(
            f"city:{name}",
            name,
            tap=go("clock", "city", name=name),
            hold=go("clock", "drop", name=name),
            icon=f"photo:{name} town",
        )
        for name in ui.table(CITY)
    )
    add = icon("add", "plus", ui.pick("Add city", "New place"), tap=go("clock", "cities"))
    return View(title=ui.pick(*TABS["world"]), body=tuple(rows), top=(add,), bottom=_tabs(ui, "world"))


def local_time(ui: Ui, city: str) -> str:
    """The time of day in a city, as 07:05."""
    minutes = (int(ui.record(NOW, "now")["minutes"]) + 60 * CITY_HOURS[city]) % (24 * 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


@app.screen("city")
def city(ui: Ui) -> View:
    """The local time of one city and how far it is ahead of London."""
    name = ui.args["name"]
    gap = f"{CITY_HOURS[name]:+d} h"
    body = (
        heading("time:title", ui.pick("Local time", "Clock there")), label("time", local_time(ui, name)),
        heading("gap:title", ui.pick("From London", "Ahead of London")), label("gap", gap),
    )  # fmt: skip
    return View(
        title=name,
        body=body,
        top=(icon("remove", "trash", ui.pick("Remove", "Delete"), tap=go("clock", "drop", name=name)),),
        style="group",
        picture=f"dial:{local_time(ui, name)}",
    )


@app.screen("drop")
def drop_city(ui: Ui) -> View:
    """The question before a city is removed."""
    name = ui.args["name"]
    question = f"{ui.pick('Remove', 'Delete')} {name}?"
    return confirm(ui, question, yes=ui.pick("Remove", "Delete", "Yes"), effect=do(erase(CITY, name), _leave))


def _leave(state: PhoneState) -> PhoneState:
    """Close the dialog, and the city's page where it was asked from there."""
    state = pop(state)
    return pop(state) if state.place.screen == "city" else state


@app.screen("cities")
def cities(ui: Ui) -> View:
    """The cities that can be added, with a search field."""
    query, shown = ui.draft("search").casefold(), ui.table(CITY)
    rows = (
        row(f"add:{name}", name, tap=do(write(CITY, name, shown=True), back()))
        for name in CITY_HOURS
        if name not in shown and query in name.casefold()
    )
    return View(
        title=ui.pick("Add city", "Choose a place"), body=(ui.field("search", ui.pick("Search", "City name")), *rows)
    )


@app.screen("timer")
def timer(ui: Ui) -> View:
    """The presets of the timer, or the one that runs."""
    now = ui.record(TIMER, "timer")
    if now["running"]:
        stop = button(
            "stop", ui.pick("Cancel", "Stop"), tap=write(TIMER, "timer", minutes=0, running=False), look="danger"
        )
        body: tuple[Widget, ...] = (label("left", f"{now['minutes']} min"), stop)
    else:
        body = tuple(
            row(f"preset:{n}", f"{n} min", tap=write(TIMER, "timer", minutes=n, running=True), icon=f"ring:{n}")
            for n in PRESETS
        )
    running = f"ring:{now['minutes']}" if now["running"] else ""
    return View(title=ui.pick(*TABS["timer"]), body=body, bottom=_tabs(ui, "timer"), picture=running)


@app.screen("watch")
def watch(ui: Ui) -> View:
    """The stopwatch and its button."""
    running = bool(ui.record(WATCH, "watch")["running"])
    word = ui.pick("Stop", "Halt") if running else ui.pick("Start", "Go")
    body = (
        label("state", "Running" if running else "Stopped"),
        button("toggle", word, tap=flip(WATCH, "watch", "running"), icon="pause" if running else "play"),
    )
    return View(title=ui.pick(*TABS["watch"]), body=body, bottom=_tabs(ui, "watch"), picture="watch:" + "run" * running)

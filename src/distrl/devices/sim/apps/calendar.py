"""Calendar: the week's events by day, and new ones whose day and time are chosen from lists."""

from __future__ import annotations

from distrl.devices.sim.app import App, Seeder, Ui, back, do, erase, go, pop
from distrl.devices.sim.content_pools import EVENTS, PLACES
from distrl.devices.sim.patterns import confirm, options
from distrl.devices.sim.state import PhoneState, Tables, next_id, put
from distrl.devices.sim.widgets import View, Widget, heading, icon, label, row

app = App("calendar", "Calendar", icon="calendar", colour="#4285f4")

EVENT = "calendar.event"
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
TIMES = tuple(f"{hour:02d}:{minute}" for hour in range(8, 20) for minute in ("00", "30"))


@app.content
def content(seeder: Seeder) -> Tables:
    """Twelve events of the week."""
    events = seeder.sample(EVENTS, 12)
    places = seeder.sample(PLACES, 12)
    slots = seeder.random.sample([(day, time) for day in DAYS for time in TIMES], 12)
    return {
        EVENT: {
            f"e{number}": {"title": title, "place": place, "day": day, "time": time}
            for number, (title, place, (day, time)) in enumerate(zip(events, places, slots, strict=True))
        }
    }


@app.screen("home")
def home(ui: Ui) -> View:
    """The week's events by day, with a search field."""
    query = ui.draft("search").casefold()
    days: dict[str, list[tuple[str, str, str]]] = {day: [] for day in DAYS}
    for id, event in ui.table(EVENT).items():
        if query in str(event["title"]).casefold():
            days[str(event["day"])].append((str(event["time"]), str(event["title"]), id))
    body: list[Widget] = [ui.field("search", ui.pick("Search events", "Find an entry"))]
    for day, events in days.items():
        if events:
            body.append(heading(f"day:{day}", day))
            body += [
                row(f"event:{id}", title, time, tap=go("calendar", "event", id=id))
                for time, title, id in sorted(events)
            ]
    new = icon("new", "plus", ui.pick("New event", "Add entry", "Create"), tap=go("calendar", "edit"))
    return View(title=ui.pick("Calendar", "Agenda", "This week"), body=tuple(body), top=(new,), style="agenda")


@app.screen("event")
def event(ui: Ui) -> View:
    """One event: day, time and place, with icons to edit and delete it."""
    id, record = ui.args["id"], ui.record(EVENT, ui.args["id"])
    body: list[Widget] = []
    for name, words in (("day", ("Day", "Date")), ("time", ("Time", "Starts")), ("place", ("Place", "Location"))):
        body += [heading(f"{name}:title", ui.pick(*words)), label(name, str(record[name]))]
    tools = (
        icon("edit", "edit", ui.pick("Edit", "Change"), tap=go("calendar", "edit", id=id)),
        icon("delete", "trash", ui.pick("Delete", "Remove"), tap=go("calendar", "delete", id=id)),
    )
    return View(
        title=str(record["title"]),
        body=tuple(body),
        top=ui.arrange(tools),
        style="group",
        picture=f"week:{record['day']}",
    )


@app.screen("edit")
def edit(ui: Ui) -> View:
    """The form of a new event or of one that is changed."""
    record = ui.record(EVENT, ui.args.get("id", ""))
    day, time = (ui.draft(name, str(record.get(name, ""))) for name in ("day", "time"))
    fields = (
        ui.field("title", ui.pick("Title", "What"), str(record.get("title", ""))),
        ui.field("place", ui.pick("Place", "Location"), str(record.get("place", ""))),
    )
    choices = (
        row("day", ui.pick("Day", "Date"), day or "Choose", tap=go("calendar", "days", now=day), icon="calendar"),
        row("time", ui.pick("Time", "Starts"), time or "Choose", tap=go("calendar", "times", now=time), icon="clock"),
    )
    title = ui.pick("Edit event", "Change entry") if record else ui.pick("New event", "New entry")
    save = icon("save", "check", ui.pick("Save", "Done"), tap=_save)
    return View(title=title, body=(*fields, *ui.arrange(choices)), top=(save,))


def _save(state: PhoneState) -> PhoneState:
    drafts = {name: text for name, text in state.place.drafts.items() if text}
    if id := state.place.args.get("id"):
        return pop(put(state, EVENT, id, **drafts))
    if not {"title", "day", "time"} <= drafts.keys():
        return state
    return pop(put(state, EVENT, next_id(state.tables[EVENT], "e"), **{"place": "", **drafts}))


@app.screen("days")
def days(ui: Ui) -> View:
    """The days of the week to choose from."""
    return View(title=ui.pick("Day", "Which day?"), body=options("day", DAYS, ui.args["now"]), shape="dialog")


@app.screen("times")
def times(ui: Ui) -> View:
    """All half hours of the day: too many for a dialog, so a page that scrolls."""
    return View(title=ui.pick("Time", "What time?"), body=options("time", TIMES, ui.args["now"]))


@app.screen("delete")
def delete(ui: Ui) -> View:
    """The question before an event is deleted."""
    id = ui.args["id"]
    question = f"{ui.pick('Delete', 'Remove')} {ui.record(EVENT, id)['title']}?"
    return confirm(ui, question, yes=ui.pick("Delete", "Remove", "Yes"), effect=do(back(2), erase(EVENT, id)))

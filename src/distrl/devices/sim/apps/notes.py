"""Notes: plain ones and checklists, pinned, edited and thrown away."""

from __future__ import annotations

from distrl.devices.sim.app import App, Seeder, Ui, back, do, flip, go, pop, swap
from distrl.devices.sim.content_pools import FACTS, ITEMS, LISTS, NOTES
from distrl.devices.sim.patterns import confirm
from distrl.devices.sim.state import PhoneState, Record, Table, Tables, drop, next_id, put
from distrl.devices.sim.widgets import Effect, View, Widget, check, icon, label, row

app = App("notes", "Notes", icon="note", colour="#f5b400")

NOTE, ITEM = "notes.note", "notes.item"


@app.content
def content(seeder: Seeder) -> Tables:
    """Thirteen notes and three checklists of six entries, in a shuffled order."""
    plain = zip(seeder.sample(NOTES, 13), seeder.sample(FACTS, 13), strict=True)
    notes: Table = {
        f"n{n}": {"title": title, "text": text, "pinned": False, "list": False} for n, (title, text) in enumerate(plain)
    }
    items: Table = {}
    for number, title in enumerate(seeder.sample(LISTS, 3)):
        notes[f"l{number}"] = {"title": title, "text": "", "pinned": False, "list": True}
        for place, text in enumerate(seeder.sample(ITEMS, 6)):
            items[f"l{number}.{place}"] = {"note": f"l{number}", "text": text, "done": seeder.random.random() < 0.3}
    shuffled = list(notes)
    seeder.random.shuffle(shuffled)
    return {NOTE: {id: notes[id] for id in shuffled}, ITEM: items}


@app.screen("home")
def home(ui: Ui) -> View:
    """The notes, pinned ones first, with a search field."""
    notes, query = ui.table(NOTE), ui.draft("search").casefold()
    rows = (
        row(
            f"note:{id}",
            str(notes[id]["title"]),
            "pinned" if notes[id]["pinned"] else "",
            tap=go("notes", "note", id=id),
            icon="note",
        )
        for id in sorted(notes, key=lambda note: not notes[note]["pinned"])
        if query in str(notes[id]["title"]).casefold()
    )
    return View(
        title=ui.pick("Notes", "All notes", "My notes"),
        body=(ui.field("search", ui.pick("Search notes", "Find a note")), *rows),
        top=(icon("new", "plus", ui.pick("New note", "Add note", "Write"), tap=go("notes", "edit")),),
        style="paper",
    )


@app.screen("note")
def note(ui: Ui) -> View:
    """One note or checklist, with icons to pin, edit and delete it."""
    id, record = ui.args["id"], ui.record(NOTE, ui.args["id"])
    pin = ui.pick("Unpin", "Release from top") if record["pinned"] else ui.pick("Pin", "Keep at top")
    tools = (
        icon("pin", "pin", pin, tap=flip(NOTE, id, "pinned")),
        icon("edit", "edit", ui.pick("Edit", "Change"), tap=go("notes", "edit", id=id)),
        icon("delete", "trash", ui.pick("Delete", "Throw away"), tap=go("notes", "delete", id=id)),
    )
    body = _items(ui, id) if record["list"] else (label("text", str(record["text"])),)
    return View(title=str(record["title"]), body=body, top=ui.arrange(tools), style="paper", picture="lines:")


def _items(ui: Ui, note: str) -> tuple[Widget, ...]:
    items = (
        check(f"item:{id}", str(item["text"]), bool(item["done"]), tap=flip(ITEM, id, "done"))
        for id, item in ui.table(ITEM).items()
        if item["note"] == note
    )
    return (*items, ui.field("item", ui.pick("Add item", "New entry"), submit=_add_item))


def _add_item(state: PhoneState) -> PhoneState:
    """Put the typed entry at the end of the list and empty the field."""
    note, text = state.place.args["id"], state.place.drafts.get("item")
    if not text:
        return state
    state = put(state, ITEM, next_id(state.tables[ITEM], "i"), note=note, text=text, done=False)
    return swap("notes", "note", id=note)(state)


@app.screen("edit")
def edit(ui: Ui) -> View:
    """The form of a new note or of one that is changed."""
    record = ui.record(NOTE, ui.args.get("id", ""))
    body = [ui.field("title", ui.pick("Title", "Heading"), str(record.get("title", "")))]
    if not record.get("list"):
        body.append(ui.field("text", ui.pick("Note", "Write here"), str(record.get("text", ""))))
    title = ui.pick("Edit note", "Change note") if record else ui.pick("New note", "Add note")
    return View(title=title, body=tuple(body), top=(icon("save", "check", ui.pick("Save", "Done", "Keep"), tap=_save),))


def _save(state: PhoneState) -> PhoneState:
    drafts = state.place.drafts
    if id := state.place.args.get("id"):
        return pop(put(state, NOTE, id, **drafts))
    if not drafts:
        return state
    blank: Record = {"title": "", "text": "", "pinned": False, "list": False}
    return pop(put(state, NOTE, next_id(state.tables[NOTE], "n"), **{**blank, **drafts}))


@app.screen("delete")
def delete(ui: Ui) -> View:
    """The question before a note is deleted."""
    id = ui.args["id"]
    question = f"{ui.pick('Delete', 'Throw away')} {ui.record(NOTE, id)['title']}?"
    return confirm(ui, question, yes=ui.pick("Delete", "Throw away", "Yes"), effect=do(back(2), _erase(id)))


def _erase(id: str) -> Effect:
    """Remove a note, and with a checklist its entries."""

    def run(state: PhoneState) -> PhoneState:
        for item, record in state.tables[ITEM].items():
            state = drop(state, ITEM, item) if record["note"] == id else state
        return drop(state, NOTE, id)

    return run

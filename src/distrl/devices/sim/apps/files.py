"""Files: folders of documents to open, rename, move, sort and delete. A file names its folder by the folder's name."""

from __future__ import annotations

from random import Random

from distrl.devices.sim.app import App, Seeder, Ui, back, do, erase, flip, go, push, swap, write
from distrl.devices.sim.content_pools import FILE_NAMES, FOLDERS, between
from distrl.devices.sim.patterns import confirm, facts, hits, or_none, prompt, typed
from distrl.devices.sim.state import PhoneState, Place, Record, Tables, next_id, put
from distrl.devices.sim.widgets import Look, View, Widget, button, choice, icon, label, row
from distrl.types import Value

app = App("files", "Files", icon="folder", colour="#f29900", permission="files")
app.incidental = {"files.pref"}

FILE, FOLDER, PREFS = "files.file", "files.folder", "files.pref"
SORTS = {
    "name": ("Name", "Alphabetical"),
    "size": ("Size", "Largest first"),
    "changed": ("Date changed", "Newest first"),
}
TYPES = ("PDF", "Text", "Spreadsheet", "Slides", "Picture")
LOOKS: dict[str, Look] = {"rename": "quiet", "move": "quiet", "delete": "danger", "erase": "danger"}
SIGNS = {"rename": "edit", "move": "folder", "delete": "bin", "erase": "bin"}
BUSY = "Downloads"
"""The folder that is longer than a screen."""


@app.content
def content(seeder: Seeder) -> Tables:
    """Thirty files in a few folders; one of the folders is longer than a screen."""
    names = seeder.sample(FILE_NAMES, 30)
    files = {f"f{number}": _file(seeder.random, name, number) for number, name in enumerate(names)}
    folders: dict[str, Record] = {f"d{number}": {"name": name} for number, name in enumerate(FOLDERS, 1)}
    return {FILE: files, FOLDER: folders, PREFS: {"sort": {"by": seeder.random.choice(list(SORTS))}}}


def _file(random: Random, name: str, number: int) -> Record:
    # The number keeps sizes and days apart, so that there is always one largest and one newest file.
    return {
        "name": name,
        "kind": TYPES[between(random, 0, 4)],
        "size": 50 * between(random, 1, 18) + number,
        "changed": f"20{between(random, 19, 25)}-{between(random, 1, 12):02d}-{number % 28 + 1:02d}",
        "folder": BUSY if number % 5 < 2 else FOLDERS[number % len(FOLDERS)],
        "starred": random.random() < 0.2,
    }


def in_order(files: list[tuple[str, Record]], by: str) -> list[tuple[str, Record]]:
    """Files as a folder shows them: names from A, sizes and dates from the top."""
    return sorted(files, key=lambda entry: _rank(entry[1][by]), reverse=by != "name")


def _rank(value: Value) -> tuple[float, str]:
    return (0.0, value) if isinstance(value, str) else (value, "")


@app.screen("home")
def home(ui: Ui) -> View:
    """The folders, and a row that leads to the starred files."""
    rows = (
        row(f"folder:{id}", str(r["name"]), tap=go("files", "folder", folder=id), icon="folder:")
        for id, r in ui.table(FOLDER).items()
    )
    top = (
        icon("find", "search", ui.pick("Search", "Find files"), tap=go("files", "search")),
        icon("new", "plus", ui.pick("New folder", "Create a folder"), tap=go("files", "new")),
    )
    starred = row("starred", ui.pick("Starred", "Marked files"), tap=go("files", "starred"), icon="star")
    return View(title="Files", body=(starred, *ui.arrange(rows)), top=top)


@app.screen("folder")
def folder(ui: Ui) -> View:
    """The files of one folder in the chosen order."""
    name = ui.record(FOLDER, ui.args["folder"])["name"]
    inside = [entry for entry in ui.table(FILE).items() if entry[1]["folder"] == name]
    rows = tuple(_row(id, file) for id, file in in_order(inside, str(ui.record(PREFS, "sort")["by"])))
    top = (icon("sort", "list", ui.pick("Sort", "Order by"), tap=go("files", "sort")),)
    return View(title=str(name), body=rows or (label("nothing", ui.pick("Nothing here", "Empty folder")),), top=top)


@app.screen("sort")
def sort(ui: Ui) -> View:
    """The orders to choose from."""
    now = ui.record(PREFS, "sort")["by"]
    body = (
        choice(f"by:{by}", ui.pick(*words), by == now, tap=do(write(PREFS, "sort", by=by), back()))
        for by, words in SORTS.items()
    )
    return View(title=ui.pick("Sort by", "Order"), body=ui.arrange(body), shape="dialog")


@app.screen("starred")
def starred(ui: Ui) -> View:
    """The starred files of all folders."""
    rows = (_row(id, file) for id, file in ui.table(FILE).items() if file["starred"])
    return View(title=ui.pick("Starred", "Marked files"), body=or_none(ui, rows))


@app.screen("search")
def search(ui: Ui) -> View:
    """The field to search for a file by name."""
    submit = typed(
        "search", lambda state, text: push(state, Place(app="files", screen="results", args={"query": text}))
    )
    return View(title="Search", body=(ui.field("search", ui.pick("File name", "Find a file"), submit=submit),))


@app.screen("results")
def results(ui: Ui) -> View:
    """The files that a search found."""
    rows = (_row(id, file) for id, file in ui.table(FILE).items() if hits(str(file["name"]), ui.args["query"]))
    return View(title=ui.pick("Results", "Files found"), body=or_none(ui, rows))


def _row(id: str, file: Record) -> Widget:
    menu = go("files", "menu", file=id)
    return row(
        f"file:{id}",
        str(file["name"]),
        str(file["kind"]),
        tap=go("files", "file", file=id),
        hold=menu,
        icon=f"file:{file['kind']}",
    )


@app.screen("file")
def file(ui: Ui) -> View:
    """One file: type, size, date and folder, with buttons to rename, move and delete it."""
    id = ui.args["file"]
    record = ui.record(FILE, id)
    about = facts(
        ("kind", ui.pick("Type", "Format"), record["kind"]),
        ("size", ui.pick("Size", "Takes up"), f"{record['size']} KB"),
        ("changed", ui.pick("Last changed", "Edited on"), record["changed"]),
        ("folder", ui.pick("Folder", "Kept in"), record["folder"]),
    )
    star = ui.pick("Remove star", "Unmark") if record["starred"] else ui.pick("Add star", "Mark")
    top = (icon("star", "star", star, tap=flip(FILE, id, "starred")),)
    return View(
        title=str(record["name"]),
        body=(*about, *_actions(ui, id)),
        top=top,
        style="group",
        picture=f"file:{record['kind']}",
        picture_at="aside",
    )


def _actions(ui: Ui, id: str) -> tuple[Widget, ...]:
    words = {"rename": ("Rename", "Change name"), "move": ("Move", "Put elsewhere"), "delete": ("Delete", "Throw away")}
    return ui.arrange(
        button(what, ui.pick(*texts), tap=go("files", what, file=id), look=LOOKS[what], icon=SIGNS[what])
        for what, texts in words.items()
    )


@app.screen("menu")
def menu(ui: Ui) -> View:
    """What can be done with a file of a list."""
    id = ui.args["file"]
    words = {"rename": ("Rename", "Change name"), "move": ("Move", "Put elsewhere"), "erase": ("Delete", "Throw away")}
    body = (
        button(f"menu:{what}", ui.pick(*texts), tap=swap("files", what, file=id), look=LOOKS[what], icon=SIGNS[what])
        for what, texts in words.items()
    )
    return View(title=str(ui.record(FILE, id)["name"]), body=ui.arrange(body), shape="dialog", style="menu")


@app.screen("rename")
def rename(ui: Ui) -> View:
    """The dialog that asks for a file's new name."""
    id = ui.args["file"]
    return prompt(
        ui,
        ui.pick("Rename", "New name"),
        str(ui.record(FILE, id)["name"]),
        lambda state, text: put(state, FILE, id, name=text),
    )


@app.screen("move")
def move(ui: Ui) -> View:
    """The folders that a file can be moved to."""
    id = ui.args["file"]
    now = ui.record(FILE, id)["folder"]
    folders = ((key, str(record["name"])) for key, record in ui.table(FOLDER).items())
    body = (
        choice(f"to:{key}", name, name == now, tap=do(write(FILE, id, folder=name), back())) for key, name in folders
    )
    return View(title=ui.pick("Move to", "Choose a folder"), body=tuple(body), shape="dialog")


@app.screen("delete")
def delete(ui: Ui) -> View:
    """Asked on the file's own page, which goes with it."""
    return _confirm_delete(ui, leave=2)


@app.screen("erase")
def erase_listed(ui: Ui) -> View:
    """Asked over a list, which stays."""
    return _confirm_delete(ui, leave=1)


def _confirm_delete(ui: Ui, leave: int) -> View:
    id = ui.args["file"]
    question = f"Delete {ui.record(FILE, id)['name']}?"
    return confirm(ui, question, yes=ui.pick("Delete", "Yes, throw away"), effect=do(erase(FILE, id), back(leave)))


@app.screen("new")
def new(ui: Ui) -> View:
    """The dialog that asks for the name of a new folder."""
    return prompt(ui, ui.pick("New folder", "Name the folder"), "", _create)


def _create(state: PhoneState, name: str) -> PhoneState:
    return put(state, FOLDER, next_id(state.tables[FOLDER], "d"), name=name)

"""Tasks in the files app."""

from __future__ import annotations

from distrl.devices.sim.apps.files import FILE, FOLDER, PREFS, SORTS, in_order
from distrl.devices.sim.content_pools import FILE_NAMES, NEW_FOLDERS
from distrl.devices.sim.state import next_id
from distrl.tasks.sim.templates import Draft, NoInstance, Templates, enter, hold, open_app, tap, type_in
from distrl.types import Move

templates = Templates()

SPOKEN_ORDER = {
    "name": ("by name", "alphabetically"),
    "size": ("by size", "with the biggest on top"),
    "changed": ("by date", "with the newest on top"),
}


class _File:
    """A file that a task is about."""

    def __init__(self, t: Draft) -> None:
        self.id, record = t.row(FILE)
        self.name, self.folder = str(record["name"]), str(record["folder"])
        self.way = (open_app("files"), tap(f"folder:{_folder_id(t, self.folder)}"), tap(f"file:{self.id}"))


def _folder_id(t: Draft, name: str) -> str:
    return next(id for id, record in t.tables[FOLDER].items() if record["name"] == name)


def _other_folder(t: Draft, file: _File) -> tuple[str, str]:
    id, record = t.row(FOLDER, lambda folder: folder["name"] != file.folder)
    return id, str(record["name"])


def _new_name(t: Draft) -> str:
    """A name that no file of the phone has."""
    name = t.choose(FILE_NAMES)
    if any(file["name"] == name for file in t.tables[FILE].values()):
        raise NoInstance(f"this phone has a file {name}")
    return name


def _search(name: str) -> tuple[Move, ...]:
    return (open_app("files"), tap("find"), type_in("search", name), enter())


@templates.add
def files_rename(t: Draft) -> None:
    """Rename a file."""
    file, name = _File(t), _new_name(t)
    t.say(
        f"Rename {file.name} in {file.folder} to {name}",
        f"The file {file.name} in {file.folder} should be called {name} from now on",
        f"Change the name of {file.name} in the folder {file.folder} to {name}",
        f"Open {file.folder} and give {file.name} the new name {name}",
    )
    t.want(FILE, file.id, name=name)
    t.route(*file.way, tap("rename"), type_in("name", name), enter())


@templates.add
def files_move(t: Draft) -> None:
    """Move a file to another folder."""
    file = _File(t)
    id, folder = _other_folder(t, file)
    t.say(
        f"Move {file.name} from {file.folder} to {folder}",
        f"Put the file {file.name}, now in {file.folder}, into the folder {folder}",
        f"{file.name} belongs in {folder}, not in {file.folder}",
        f"Take {file.name} out of {file.folder} and store it in {folder}",
    )
    t.want(FILE, file.id, folder=folder)
    t.route(*file.way, tap("move"), tap(f"to:{id}"))


def _say_delete(t: Draft, name: str) -> None:
    t.say(
        f"Delete the file {name}",
        f"Throw away the document {name}",
        f"I no longer need the file {name}, erase it",
        f"Remove the document {name} from this phone",
        f"Find the file {name} and get rid of it",
    )


@templates.add
def files_delete(t: Draft) -> None:
    """Delete a file."""
    file = _File(t)
    _say_delete(t, file.name)
    t.want_gone(FILE, file.id)
    t.route(*_search(file.name), hold(f"file:{file.id}"), tap("menu:erase"), tap("confirm:yes"))


@templates.add
def files_delete_unknown(t: Draft) -> None:
    """The words are those of a task that can be done: only looking tells them apart."""
    name = _new_name(t)
    _say_delete(t, name)
    t.cannot_be_done()
    t.route(*_search(name))


@templates.add
def files_star(t: Draft) -> None:
    """Star a file."""
    file = _File(t)
    t.say(
        f"Star the file {file.name} in {file.folder}",
        f"Mark {file.name} in the folder {file.folder} with a star",
        f"Give the document {file.name} from {file.folder} a star",
        f"Open {file.folder} and flag {file.name} as important",
    )
    t.given(FILE, file.id, starred=False)
    t.want(FILE, file.id, starred=True)
    t.route(*file.way, tap("star"))


@templates.add
def files_new_folder(t: Draft) -> None:
    """Make a folder."""
    name = t.choose(NEW_FOLDERS)
    t.say(
        f"Create a folder called {name}",
        f"Make a new folder named {name} for my files",
        f"I need a folder with the name {name}",
        f"Add the folder {name} to my files",
        f"Set up a place for files titled {name}",
    )
    t.want(FOLDER, name=name)
    t.route(open_app("files"), tap("new"), type_in("name", name), enter())


@templates.add
def files_move_to_new_folder(t: Draft) -> None:
    """Make a folder and move a file there."""
    file, name = _File(t), t.choose(NEW_FOLDERS)
    t.say(
        f"Create a folder called {name} and move {file.name} from {file.folder} into it",
        f"Make a new folder {name}, then put {file.name} from {file.folder} there",
        f"{file.name} in {file.folder} should go into a new folder named {name}",
        f"Set up the folder {name} and store {file.name} in it, which is in {file.folder} now",
    )
    t.want(FOLDER, name=name)
    t.want(FILE, file.id, folder=name)
    make = (tap("new"), type_in("name", name), enter())
    t.route(file.way[0], *make, *file.way[1:], tap("move"), tap(f"to:{next_id(t.tables[FOLDER], 'd')}"))


@templates.add
def files_sort(t: Draft) -> None:
    """Show a folder in another order."""
    folder_id, folder = t.row(FOLDER)
    by, other = t.random.sample(list(SORTS), 2)
    order = t.one_of(*SPOKEN_ORDER[by])
    t.say(
        f"Sort the files in {folder['name']} {order}",
        f"Show the folder {folder['name']} {order}",
        f"List what is in {folder['name']} {order}",
        f"Order {folder['name']} {order}",
    )
    t.given(PREFS, "sort", by=other)
    t.want(PREFS, "sort", by=by)
    t.want_showing("files", "folder", folder=folder_id)
    t.route(open_app("files"), tap(f"folder:{folder_id}"), tap("sort"), tap(f"by:{by}"))


@templates.add
def files_ask_first(t: Draft) -> None:
    """Say which file of a folder is the largest or newest."""
    folder_id, folder = t.row(FOLDER)
    by = t.one_of("size", "changed")
    inside = [entry for entry in t.tables[FILE].items() if entry[1]["folder"] == folder["name"]]
    if len(inside) < 2:
        raise NoInstance("one file cannot be compared")
    most = t.one_of(*{"size": ("largest", "biggest"), "changed": ("newest", "most recently changed")}[by])
    t.say(
        f"Which file in {folder['name']} is the {most}?",
        f"What is the {most} file in the folder {folder['name']}?",
        f"Tell me the name of the {most} document in {folder['name']}",
        f"Look in {folder['name']} for the {most} file",
    )
    t.given(PREFS, "sort", by="name")
    t.want_answer(str(in_order(inside, by)[0][1]["name"]))
    t.route(open_app("files"), tap(f"folder:{folder_id}"), tap("sort"), tap(f"by:{by}"))


@templates.add
def files_ask_size(t: Draft) -> None:
    """Say how large a file is."""
    file = _File(t)
    t.say(
        f"How big is {file.name} in {file.folder}?",
        f"What size does the file {file.name} in {file.folder} have?",
        f"How much space does {file.name} in the folder {file.folder} take up?",
        f"Check the size of {file.name}, it is in {file.folder}",
    )
    t.want_answer(f"{t.tables[FILE][file.id]['size']} KB")
    t.route(*file.way)


@templates.add
def files_ask_folder(t: Draft) -> None:
    """Say which folder a file is in."""
    file = _File(t)
    t.say(
        f"In which folder is the file {file.name}?",
        f"Where did I put the document {file.name}?",
        f"Find the file {file.name} and tell me its folder",
        f"Which folder holds {file.name}?",
    )
    t.want_answer(file.folder)
    t.route(*_search(file.name), tap(f"file:{file.id}"))


@templates.add_for_test
def files_rename_and_move(t: Draft) -> None:
    """Rename a file and move it to another folder."""
    file, name = _File(t), _new_name(t)
    id, folder = _other_folder(t, file)
    t.say(
        f"Rename {file.name} in {file.folder} to {name} and move it to {folder}",
        f"Give {file.name} in {file.folder} the new name {name} and store it in {folder}",
        f"Take {file.name} from {file.folder}, change its name to {name} and put it into {folder}",
    )
    t.want(FILE, file.id, name=name, folder=folder)
    t.route(*file.way, tap("rename"), type_in("name", name), enter(), tap("move"), tap(f"to:{id}"))


@templates.add_for_test
def files_ask_changed(t: Draft) -> None:
    """Say when a file was last changed."""
    file = _File(t)
    t.say(
        f"When was {file.name} in {file.folder} last changed?",
        f"On which day was the file {file.name} in {file.folder} edited?",
        f"What is the date of the last change to {file.name} in {file.folder}?",
    )
    t.want_answer(str(t.tables[FILE][file.id]["changed"]))
    t.route(*file.way)

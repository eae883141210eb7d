"""Photos: pictures in albums to look at, mark, rename, send and delete. A picture names its album by the album's name."""

from __future__ import annotations

from random import Random

from distrl.devices.sim.app import App, Seeder, Ui, back, do, erase, flip, go, write
from distrl.devices.sim.content_pools import ALBUMS, CAPTIONS, SCREENS_NEARBY, TOWNS, between
from distrl.devices.sim.patterns import confirm, facts, or_none, prompt, tabs
from distrl.devices.sim.state import PhoneState, Record, Tables, next_id, put
from distrl.devices.sim.widgets import Effect, View, Widget, button, card, icon, row

app = App("photos", "Photos", icon="picture", colour="#4285f4")

PHOTO, ALBUM, SENT = "photos.photo", "photos.album", "photos.sent"
MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)


@app.content
def content(seeder: Seeder) -> Tables:
    """Twenty-two pictures in five albums, none of them sent."""
    names, towns = seeder.sample(CAPTIONS, 22), seeder.sample(TOWNS, 11)
    photos = {f"i{n}": _photo(seeder.random, name, ALBUMS[n % 5], towns[n % 11]) for n, name in enumerate(names)}
    albums: dict[str, Record] = {f"k{number}": {"name": name} for number, name in enumerate(ALBUMS, 1)}
    return {PHOTO: photos, ALBUM: albums, SENT: {}}


def _photo(random: Random, name: str, album: str, town: str) -> Record:
    taken = f"{between(random, 1, 28)} {MONTHS[between(random, 0, 11)]} {between(random, 2018, 2025)}"
    return {"name": name, "taken": taken, "town": town, "album": album, "liked": random.random() < 0.2}


@app.screen("home")
def home(ui: Ui) -> View:
    """All pictures."""
    cards = (_card(id, photo) for id, photo in ui.table(PHOTO).items())
    return View(
        title=ui.pick("Photos", "All pictures"), body=ui.arrange(cards), bottom=_tabs(ui, "home"), style="tiles"
    )


@app.screen("liked")
def liked(ui: Ui) -> View:
    """The favourite pictures."""
    cards = (_card(id, photo) for id, photo in ui.table(PHOTO).items() if photo["liked"])
    return View(title=ui.pick("Favourites", "Loved"), body=or_none(ui, cards), bottom=_tabs(ui, "liked"), style="tiles")


@app.screen("albums")
def albums(ui: Ui) -> View:
    """The albums, and an icon that makes a new one."""
    rows = (
        row(f"album:{id}", str(r["name"]), tap=go("photos", "album", album=id), icon=f"photo:{r['name']}")
        for id, r in ui.table(ALBUM).items()
    )
    top = (icon("new", "plus", ui.pick("New album", "Create an album"), tap=go("photos", "new")),)
    return View(title="Albums", body=ui.arrange(rows), top=top, bottom=_tabs(ui, "albums"))


def _tabs(ui: Ui, here: str) -> tuple[Widget, ...]:
    names = (
        ("home", ui.pick("Photos", "Pictures"), "image"),
        ("albums", "Albums", "folder"),
        ("liked", ui.pick("Favourites", "Loved"), "heart"),
    )
    return tabs("photos", here, names)


def _card(id: str, photo: Record) -> Widget:
    return card(f"photo:{id}", str(photo["name"]), tap=go("photos", "photo", photo=id), icon=f"photo:{photo['name']}")


@app.screen("album")
def album(ui: Ui) -> View:
    """The pictures of one album."""
    name = ui.record(ALBUM, ui.args["album"])["name"]
    cards = (_card(id, photo) for id, photo in ui.table(PHOTO).items() if photo["album"] == name)
    return View(title=str(name), body=or_none(ui, cards), style="tiles")


@app.screen("photo")
def photo(ui: Ui) -> View:
    """One picture: date, town and album, with buttons to move and rename it."""
    id = ui.args["photo"]
    record = ui.record(PHOTO, id)
    about = facts(
        ("taken", ui.pick("Taken on", "Date"), record["taken"]),
        ("town", ui.pick("Place", "Taken in"), record["town"]),
        ("album", ui.pick("Album", "Kept in"), record["album"]),
    )
    words = {"move": ("Move to album", "Change album"), "caption": ("Edit caption", "Rename")}
    actions = ui.arrange(
        button(what, ui.pick(*texts), tap=go("photos", what, photo=id), look="quiet") for what, texts in words.items()
    )
    return View(
        title=str(record["name"]),
        body=(*actions, *about),
        top=_icons(ui, id, liked=bool(record["liked"])),
        style="group",
        picture=f"photo:{record['name']}",
    )


def _icons(ui: Ui, id: str, *, liked: bool) -> tuple[Widget, ...]:
    like = ui.pick("Remove from favourites", "Unlike") if liked else ui.pick("Add to favourites", "Love it")
    return ui.arrange(
        (
            icon("like", "heart" if liked else "heart-outline", like, tap=flip(PHOTO, id, "liked")),
            icon("share", "share", ui.pick("Share", "Send to"), tap=go("photos", "share", photo=id)),
            icon("delete", "bin", ui.pick("Delete", "Throw away"), tap=go("photos", "delete", photo=id)),
        )
    )


@app.screen("caption")
def caption(ui: Ui) -> View:
    """The dialog that asks for a picture's new caption."""
    id = ui.args["photo"]
    now = str(ui.record(PHOTO, id)["name"])
    return prompt(
        ui, ui.pick("Caption", "Name this picture"), now, lambda state, text: put(state, PHOTO, id, name=text)
    )


@app.screen("move")
def move(ui: Ui) -> View:
    """The albums that a picture can be moved to."""
    id = ui.args["photo"]
    names = ((key, str(record["name"])) for key, record in ui.table(ALBUM).items())
    body = (
        button(f"to:{key}", name, tap=do(write(PHOTO, id, album=name), back()), icon="folder") for key, name in names
    )
    return View(title=ui.pick("Move to", "Which album?"), body=tuple(body), shape="dialog", style="menu")


@app.screen("share")
def share(ui: Ui) -> View:
    """The nearby screens that a picture can be sent to."""
    name = str(ui.record(PHOTO, ui.args["photo"])["name"])
    body = (button(f"send:{screen}", screen, tap=_send(name, screen), icon="share") for screen in SCREENS_NEARBY)
    return View(title=ui.pick("Send to", "Nearby devices"), body=ui.arrange(body), shape="dialog", style="menu")


def _send(name: str, screen: str) -> Effect:
    return lambda state: back()(put(state, SENT, next_id(state.tables[SENT], "n"), photo=name, to=screen))


@app.screen("delete")
def delete(ui: Ui) -> View:
    """The question before a picture is deleted."""
    id = ui.args["photo"]
    question = ui.pick("Delete this picture?", "Throw this picture away?")
    return confirm(ui, question, yes=ui.pick("Delete", "Yes, throw away"), effect=do(erase(PHOTO, id), back(2)))


@app.screen("new")
def new(ui: Ui) -> View:
    """The dialog that asks for the name of a new album."""
    return prompt(ui, ui.pick("New album", "Name the album"), "", _create)


def _create(state: PhoneState, name: str) -> PhoneState:
    return put(state, ALBUM, next_id(state.tables[ALBUM], "k"), name=name)

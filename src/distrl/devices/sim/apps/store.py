"""App store: apps to search, install, update, remove and wish for."""

from __future__ import annotations

from random import Random

from distrl.devices.sim.app import App, Seeder, Ui, back, do, flip, go, push, write
from distrl.devices.sim.content_pools import APP_NAMES, DEVELOPERS, between
from distrl.devices.sim.patterns import confirm, facts, hits, or_none, tabs, typed
from distrl.devices.sim.state import PhoneState, Place, Record, Tables, put
from distrl.devices.sim.widgets import Effect, View, Widget, button, card, icon, label, row, switch

app = App("store", "App Store", icon="bag", colour="#0f9d8a")

ITEMS, PREFS = "store.app", "store.pref"
AUTO = {
    "auto": ("Update automatically", "Automatic updates"),
    "mobile": ("Download over mobile data", "Use mobile data"),
}


@app.content
def content(seeder: Seeder) -> Tables:
    """Twenty-two apps, about half of them installed and some of those out of date."""
    names, makers = seeder.sample(APP_NAMES, 22), seeder.sample(DEVELOPERS, 11)
    items = {f"a{n}": _item(seeder.random, name, makers[n % 11]) for n, name in enumerate(names)}
    prefs: dict[str, Record] = {name: {"on": seeder.random.random() < 0.5} for name in AUTO}
    return {ITEMS: items, PREFS: prefs}


def _item(random: Random, name: str, developer: str) -> Record:
    installed = random.random() < 0.5
    return {
        "name": name,
        "developer": developer,
        "rating": f"{between(random, 2, 4)}.{between(random, 0, 9)} of 5",
        "size": f"{between(random, 3, 480)} MB",
        "installed": installed,
        "stale": installed and random.random() < 0.4,
        "wished": random.random() < 0.1,
    }


@app.screen("home")
def home(ui: Ui) -> View:
    """A search field and apps that are not installed."""
    search = ui.field("search", ui.pick("Search for apps", "Find an app", "Search"), submit=typed("search", _find))
    new = [(id, item) for id, item in ui.table(ITEMS).items() if not item["installed"]]
    cards = (
        card(f"item:{id}", str(item["name"]), str(item["rating"]), tap=_open(id), icon=f"app:{item['name']}")
        for id, item in new[:8]
    )
    top = (icon("settings", "gear", ui.pick("Store settings", "Preferences"), tap=go("store", "settings")),)
    return View(title="App Store", body=(search, *ui.arrange(cards)), top=top, bottom=_tabs(ui, "home"))


@app.screen("updates")
def updates(ui: Ui) -> View:
    """The apps that are out of date, and a button that updates them all."""
    rows = [_row(id, item) for id, item in ui.table(ITEMS).items() if item["stale"]]
    every = (button("update:all", ui.pick("Update all", "Install all updates"), tap=_update_all),) if rows else ()
    return View(
        title=ui.pick("Updates", "New versions"), body=(*every, *or_none(ui, rows)), bottom=_tabs(ui, "updates")
    )


@app.screen("installed")
def installed(ui: Ui) -> View:
    """The installed apps."""
    rows = (_row(id, item) for id, item in ui.table(ITEMS).items() if item["installed"])
    return View(title=ui.pick("Installed apps", "On this phone"), body=or_none(ui, rows), bottom=_tabs(ui, "installed"))


@app.screen("results")
def results(ui: Ui) -> View:
    """The apps that a search found."""
    query = ui.args["query"]
    rows = (_row(id, item) for id, item in ui.table(ITEMS).items() if hits(str(item["name"]), query))
    return View(title=ui.pick("Results", "Apps found"), body=or_none(ui, rows), bottom=_tabs(ui, ""))


@app.screen("settings")
def settings(ui: Ui) -> View:
    """The store's switches."""
    body = (
        switch(id, ui.pick(*words), bool(ui.record(PREFS, id)["on"]), tap=flip(PREFS, id, "on"))
        for id, words in AUTO.items()
    )
    return View(title=ui.pick("Store settings", "Preferences"), body=ui.arrange(body), style="group")


def _tabs(ui: Ui, here: str) -> tuple[Widget, ...]:
    mine = ui.pick("My apps", "Installed")
    names = (
        ("home", ui.pick("Apps", "Browse"), "bag"),
        ("updates", "Updates", "refresh"),
        ("installed", mine, "phone-app"),
    )
    return tabs("store", here, names)


def _row(id: str, item: Record) -> Widget:
    return row(f"item:{id}", str(item["name"]), str(item["size"]), tap=_open(id), icon=f"app:{item['name']}")


def _open(id: str) -> Effect:
    return go("store", "item", item=id)


def _find(state: PhoneState, query: str) -> PhoneState:
    return push(state, Place(app="store", screen="results", args={"query": query}))


def _update_all(state: PhoneState) -> PhoneState:
    for id, item in state.tables[ITEMS].items():
        if item["stale"]:
            state = put(state, ITEMS, id, stale=False)
    return state


@app.screen("item")
def item(ui: Ui) -> View:
    """One app: developer, rating and size, with buttons to install, update or remove it."""
    id = ui.args["item"]
    record = ui.record(ITEMS, id)
    about = facts(
        ("developer", ui.pick("Developer", "Made by"), record["developer"]),
        ("rating", ui.pick("Rating", "Users say"), record["rating"]),
        ("size", ui.pick("Download size", "Takes up"), record["size"]),
    )
    wish = (
        ui.pick("Remove from wishlist", "Forget")
        if record["wished"]
        else ui.pick("Add to wishlist", "Remember for later")
    )
    top = (icon("wish", "heart" if record["wished"] else "heart-outline", wish, tap=flip(ITEMS, id, "wished")),)
    return View(
        title=str(record["name"]),
        body=(*_actions(ui, id, record), *about),
        top=top,
        style="group",
        picture=f"app:{record['name']}",
        picture_at="aside",
    )


def _actions(ui: Ui, id: str, record: Record) -> tuple[Widget, ...]:
    if not record["installed"]:
        return (button("install", ui.pick("Install", "Get"), tap=go("store", "install", item=id)),)
    new = button("update", ui.pick("Update", "Get new version"), tap=write(ITEMS, id, stale=False))
    remove = button(
        "uninstall", ui.pick("Uninstall", "Remove app"), tap=go("store", "uninstall", item=id), look="danger"
    )
    return (
        ui.arrange((new, remove))
        if record["stale"]
        else (remove, label("current", ui.pick("Up to date", "Newest version")))
    )


@app.screen("install")
def install(ui: Ui) -> View:
    """The question before an app is installed."""
    id = ui.args["item"]
    question = f"{ui.pick('Install', 'Download')} {ui.record(ITEMS, id)['name']}?"
    return confirm(
        ui,
        question,
        yes=ui.pick("Accept", "Yes, install"),
        effect=do(write(ITEMS, id, installed=True), back()),
        look="",
    )


@app.screen("uninstall")
def uninstall(ui: Ui) -> View:
    """The question before an app is removed."""
    id = ui.args["item"]
    question = f"{ui.pick('Uninstall', 'Remove')} {ui.record(ITEMS, id)['name']}?"
    return confirm(
        ui,
        question,
        yes=ui.pick("Uninstall", "Yes, remove"),
        effect=do(write(ITEMS, id, installed=False, stale=False), back(2)),
    )

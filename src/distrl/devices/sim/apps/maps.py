"""Maps: places to search, save and rate, and directions to them."""

from __future__ import annotations

from random import Random

from distrl.devices.sim.app import App, Seeder, Ui, back, do, flip, go, push, swap, write
from distrl.devices.sim.content_pools import KINDS, STEMS, STREETS, between
from distrl.devices.sim.patterns import facts, hits, or_none, tabs, typed
from distrl.devices.sim.state import PhoneState, Place, Record, Tables, next_id, put
from distrl.devices.sim.widgets import View, Widget, button, choice, row

app = App("maps", "Maps", icon="pin", colour="#1e8e3e", permission="location")
app.incidental = {"maps.recent"}

PLACES, TRIP, RECENT = "maps.place", "maps.trip", "maps.recent"
MODES = {"car": ("By car", "Drive"), "walk": ("On foot", "Walk"), "bus": ("By bus", "Public transport")}
MODE_SIGNS = {"car": "car", "walk": "run", "bus": "bus"}
KIND_SIGNS = {
    "Bakery": "cake", "Bistro": "utensils", "Cinema": "video", "Gallery": "brush", "Hotel": "bed", "Library": "book",
    "Museum": "bank", "Pharmacy": "cross", "Pizzeria": "flame", "Supermarket": "cart",
}  # fmt: skip
MINUTES_PER_KM = {"car": 2, "walk": 12, "bus": 4}


@app.content
def content(seeder: Seeder) -> Tables:
    """Twenty-four places and no trip."""
    stems, streets = seeder.sample(STEMS, 24), seeder.sample(STREETS, 12)
    places = {f"p{n}": _place(seeder.random, stem, KINDS[n % 10], streets[n % 12]) for n, stem in enumerate(stems)}
    return {PLACES: places, TRIP: {"now": {"place": "", "mode": ""}}, RECENT: {}}


def _place(random: Random, stem: str, kind: str, street: str) -> Record:
    return {
        "name": f"{stem} {kind}",
        "kind": kind,
        "rating": f"{between(random, 2, 4)}.{between(random, 0, 9)} stars",
        "address": f"{between(random, 1, 180)} {street}",
        "hours": f"{between(random, 6, 11):02d}:00 to {between(random, 16, 23)}:30",
        "phone": f"0{between(random, 2000, 9999)} {between(random, 100_000, 999_999)}",
        "km": between(random, 2, 30),
        "saved": random.random() < 0.2,
        "stars": 0,
    }


def minutes(place: Record, mode: str) -> str:
    """How long the way takes, as the directions say it."""
    return f"{int(place['km']) * MINUTES_PER_KM[mode] + 1} min"


@app.screen("home")
def home(ui: Ui) -> View:
    """A search field and the kinds of places."""
    kinds = ui.arrange(
        row(f"kind:{kind}", kind, tap=go("maps", "results", query=kind), icon=KIND_SIGNS[kind]) for kind in KINDS
    )
    return View(
        title="Maps",
        body=(_search(ui), *kinds),
        bottom=_tabs(ui, "home"),
        style="chips",
        picture=_map(ui),
        picture_at="behind",
    )


def _map(ui: Ui, shown: str = "here", *places: str) -> str:
    """The picture of this phone's town with pins, or with a route to one place."""
    return f"map:{ui.state.seed}:{shown}:{','.join(places)}"


@app.screen("saved")
def saved(ui: Ui) -> View:
    """The saved places."""
    found = {id: place for id, place in ui.table(PLACES).items() if place["saved"]}
    rows = (_row(id, place) for id, place in found.items())
    return View(
        title=ui.pick("Saved places", "Your places"),
        body=or_none(ui, rows),
        bottom=_tabs(ui, "saved"),
        style="sheet",
        picture=_map(ui, "pins", *found),
        picture_at="behind",
    )


@app.screen("results")
def results(ui: Ui) -> View:
    """The places that a search found."""
    query = ui.args["query"]
    found = {id: place for id, place in ui.table(PLACES).items() if hits(str(place["name"]), query)}
    rows = (_row(id, place) for id, place in found.items())
    return View(
        title=ui.pick("Results", "Found nearby"),
        body=(_search(ui, query), *or_none(ui, rows)),
        style="sheet",
        picture=_map(ui, "pins", *found),
        picture_at="behind",
    )


def _tabs(ui: Ui, here: str) -> tuple[Widget, ...]:
    return tabs(
        "maps",
        here,
        (("home", ui.pick("Explore", "Discover"), "pin"), ("saved", ui.pick("Saved", "My places"), "star")),
    )


def _search(ui: Ui, query: str = "") -> Widget:
    return ui.field("search", ui.pick("Search here", "Where to?", "Find a place"), query, submit=typed("search", _find))


def _find(state: PhoneState, query: str) -> PhoneState:
    state = put(state, RECENT, next_id(state.tables[RECENT], "r"), query=query)
    return push(state, Place(app="maps", screen="results", args={"query": query}))


def _row(id: str, place: Record) -> Widget:
    return row(
        f"place:{id}",
        str(place["name"]),
        str(place["rating"]),
        tap=go("maps", "place", place=id),
        icon=KIND_SIGNS.get(str(place["kind"]), "pin"),
    )


@app.screen("place")
def place(ui: Ui) -> View:
    """One place: rating, address, hours and phone, with buttons for directions, saving and rating."""
    id = ui.args["place"]
    record = ui.record(PLACES, id)
    keep = ui.pick("Remove", "Unsave") if record["saved"] else ui.pick("Save", "Keep this place")
    actions = ui.arrange(
        (
            button(
                "directions",
                ui.pick("Directions", "Route"),
                tap=go("maps", "directions", place=id, mode="car"),
                icon="route",
            ),
            button("save", keep, tap=flip(PLACES, id, "saved"), look="quiet", icon="flag"),
            button(
                "rate", ui.pick("Rate", "Write a review"), tap=go("maps", "rate", place=id), look="quiet", icon="star"
            ),
        )
    )
    about = facts(
        ("rating", ui.pick("Rating", "Visitors say"), record["rating"]),
        ("address", ui.pick("Address", "Where it is"), record["address"]),
        ("hours", ui.pick("Opening hours", "Open today"), record["hours"]),
        ("phone", ui.pick("Phone", "Call"), record["phone"]),
    )
    return View(
        title=str(record["name"]),
        body=(*actions, *about),
        style="sheet",
        picture=_map(ui, "pins", id),
        picture_at="behind",
    )


@app.screen("rate")
def rate(ui: Ui) -> View:
    """One to five stars to choose from."""
    id, now = ui.args["place"], ui.record(PLACES, ui.args["place"])["stars"]
    stars = range(1, 6)
    body = (
        choice(
            f"stars:{n}",
            f"{n} star{'s'[: n > 1]}",
            n == now,
            tap=do(write(PLACES, id, stars=n), back()),
            icon=f"stars:{n}",
        )
        for n in stars
    )
    return View(title=ui.pick("Your rating", "How was it?"), body=ui.arrange(body), shape="dialog")


@app.screen("directions")
def directions(ui: Ui) -> View:
    """The ways to travel, how long the chosen one takes, and the start button."""
    id, chosen = ui.args["place"], ui.args["mode"]
    modes = ui.arrange(
        choice(
            f"mode:{mode}",
            ui.pick(*words),
            mode == chosen,
            tap=swap("maps", "directions", place=id, mode=mode),
            icon=MODE_SIGNS[mode],
        )
        for mode, words in MODES.items()
    )
    start = do(write(TRIP, "now", place=id, mode=chosen), swap("maps", "trip"))
    time = facts(("time", ui.pick("Travel time", "You need"), minutes(ui.record(PLACES, id), chosen)))
    return View(
        title="Directions",
        body=(*modes, *time, button("start", ui.pick("Start", "Go now"), tap=start, icon="send")),
        style="sheet",
        picture=_map(ui, chosen, id),
        picture_at="behind",
    )


@app.screen("trip")
def trip(ui: Ui) -> View:
    """The trip under way."""
    now = ui.record(TRIP, "now")
    name = ui.record(PLACES, str(now["place"])).get("name", "")
    stop = button(
        "stop",
        ui.pick("End", "Stop navigation"),
        tap=do(write(TRIP, "now", place="", mode=""), back()),
        look="danger",
        icon="close",
    )
    return View(
        title=ui.pick("On the way", "Navigating"),
        body=(*facts(("to", "Heading for", name)), stop),
        style="sheet",
        picture=_map(ui, str(now["mode"]) or "here", str(now["place"])),
        picture_at="behind",
    )

"""Tasks in the maps app."""

from __future__ import annotations

from distrl.devices.sim.apps.maps import PLACES, TRIP, minutes
from distrl.devices.sim.content_pools import KINDS, STEMS
from distrl.tasks.sim.templates import Draft, NoInstance, Templates, enter, go_back, open_app, tap, type_in
from distrl.types import Move

templates = Templates()

WAYS = {"car": ("by car", "driving"), "walk": ("on foot", "walking"), "bus": ("by bus", "using public transport")}


def _to_place(id: str, name: str) -> tuple[Move, ...]:
    return (open_app("maps"), type_in("search", name), enter(), tap(f"place:{id}"))


def _some_place(t: Draft) -> tuple[str, str]:
    id, place = t.row(PLACES)
    return id, str(place["name"])


def _say_save(t: Draft, name: str) -> None:
    t.say(
        f"Save {name} on the map",
        f"Find {name} and put it on my saved places",
        f"Please remember {name} in Maps so that I can go there later",
        f"Look up {name} and keep it in my list of places",
        f"I want {name} among my places",
        f"Bookmark {name} for me",
    )


@templates.add
def maps_save_place(t: Draft) -> None:
    """Save a place."""
    id, name = _some_place(t)
    _say_save(t, name)
    t.given(PLACES, id, saved=False)
    t.want(PLACES, id, saved=True)
    t.route(*_to_place(id, name), tap("save"))


@templates.add
def maps_save_unknown_place(t: Draft) -> None:
    """The words are those of a task that can be done: only looking tells them apart."""
    name = f"{t.choose(STEMS)} {t.one_of(*KINDS)}"
    if any(place["name"] == name for place in t.tables[PLACES].values()):
        raise NoInstance(f"this phone knows {name}")
    _say_save(t, name)
    t.cannot_be_done()
    t.route(open_app("maps"), type_in("search", name), enter())


@templates.add
def maps_unsave_place(t: Draft) -> None:
    """Remove a place from the saved ones."""
    id, name = _some_place(t)
    t.say(
        f"Take {name} off my saved places",
        f"Remove {name} from the places I saved",
        f"I no longer need {name} in my list of places",
        f"Forget the saved place {name}",
        f"Drop {name} from my bookmarks in Maps",
    )
    t.given(PLACES, id, saved=True)
    t.want(PLACES, id, saved=False)
    t.route(open_app("maps"), tap("tab:saved"), tap(f"place:{id}"), tap("save"))


@templates.add
def maps_start_directions(t: Draft) -> None:
    """Start directions to a place by car, on foot or by bus."""
    id, name = _some_place(t)
    mode, words = t.random.choice(list(WAYS.items()))
    way = t.one_of(*words)
    t.say(
        f"Navigate to {name} {way}",
        f"Start directions to {name} {way}",
        f"Take me to {name} {way}",
        f"I am going to {name} {way}, show me the way",
        f"Guide me {way} to {name}",
    )
    t.want(TRIP, "now", place=id, mode=mode)
    choice = () if mode == "car" else (tap(f"mode:{mode}"),)
    t.route(*_to_place(id, name), tap("directions"), *choice, tap("start"))


@templates.add
def maps_ask_hours(t: Draft) -> None:
    """Say when a place is open."""
    id, name = _some_place(t)
    t.say(
        f"When is {name} open?",
        f"What are the opening hours of {name} today?",
        f"Tell me from when to when I can visit {name}",
        f"Check how long {name} is open",
        f"At what times can I go to {name}?",
    )
    t.want_answer(str(t.tables[PLACES][id]["hours"]))
    t.route(*_to_place(id, name))


@templates.add
def maps_ask_address(t: Draft) -> None:
    """Say the address of a place."""
    id, name = _some_place(t)
    t.say(
        f"What is the address of {name}?",
        f"Where exactly is {name}?",
        f"Which street and number is {name} at?",
        f"Find out where {name} is located",
        f"I need the street address of {name}",
    )
    t.want_answer(str(t.tables[PLACES][id]["address"]))
    t.route(*_to_place(id, name))


@templates.add_for_test
def maps_ask_phone(t: Draft) -> None:
    """Say the phone number of a place."""
    id, name = _some_place(t)
    t.say(
        f"What is the phone number of {name}?",
        f"Which number do I call to reach {name}?",
        f"Look up the telephone of {name}",
        f"I want to phone {name}, what is the number?",
    )
    t.want_answer(str(t.tables[PLACES][id]["phone"]))
    t.route(*_to_place(id, name))


@templates.add
def maps_ask_travel_time(t: Draft) -> None:
    """Say how long it takes to get to a place."""
    id, name = _some_place(t)
    mode = t.one_of("walk", "bus")
    way = t.one_of(*WAYS[mode])
    t.say(
        f"How long does it take to get to {name} {way}?",
        f"How many minutes is it to {name} {way}?",
        f"What is the travel time to {name} {way}?",
        f"Tell me how much time I need to reach {name} {way}",
    )
    t.want_answer(minutes(t.tables[PLACES][id], mode))
    t.route(*_to_place(id, name), tap("directions"), tap(f"mode:{mode}"))


@templates.add
def maps_rate_place(t: Draft) -> None:
    """Rate a place."""
    id, name = _some_place(t)
    stars = t.random.randint(2, 5)
    t.say(
        f"Give {name} {stars} stars",
        f"Rate {name} with {stars} stars on the map",
        f"I was at {name}, leave a review of {stars} stars",
        f"My verdict on {name} is {stars} stars, please submit it",
    )
    t.want(PLACES, id, stars=stars)
    t.route(*_to_place(id, name), tap("rate"), tap(f"stars:{stars}"))


@templates.add
def maps_save_two_places(t: Draft) -> None:
    """Save two places."""
    (first, one), (second, other) = t.random.sample(list(t.tables[PLACES].items()), 2)
    a, b = one["name"], other["name"]
    t.say(
        f"Save {a} and {b} on the map",
        f"Put both {a} and {b} on my saved places",
        f"Keep {a} in my list of places, and {b} as well",
        f"Bookmark {a} first and {b} after that",
    )
    for id in (first, second):
        t.given(PLACES, id, saved=False)
        t.want(PLACES, id, saved=True)
    again = (go_back(), type_in("search", str(b)), enter(), tap(f"place:{second}"), tap("save"))
    t.route(*_to_place(first, str(a)), tap("save"), *again)


@templates.add_for_test
def maps_go_to_saved_place(t: Draft) -> None:
    """Start directions to the saved place of a kind."""
    id, chosen = t.row(PLACES)
    kind, mode = str(chosen["kind"]), t.one_of("walk", "bus")
    way = t.one_of(*WAYS[mode])
    t.say(
        f"Take me to the {kind} that I saved {way}",
        f"Start directions {way} to the {kind} among my saved places",
        f"Guide me {way} to the {kind} in my list of places",
        f"I want to go {way} to the {kind} I bookmarked",
    )
    for other, place in t.tables[PLACES].items():
        if place["kind"] == kind:
            t.given(PLACES, other, saved=other == id)
    t.want(TRIP, "now", place=id, mode=mode)
    t.route(
        open_app("maps"), tap("tab:saved"), tap(f"place:{id}"), tap("directions"), tap(f"mode:{mode}"), tap("start")
    )

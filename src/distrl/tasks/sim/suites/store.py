"""Tasks in the app store."""

from __future__ import annotations

from distrl.devices.sim.apps.store import ITEMS, PREFS
from distrl.devices.sim.content_pools import APP_NAMES
from distrl.tasks.sim.templates import Draft, NoInstance, Templates, enter, open_app, tap, type_in
from distrl.types import Move

templates = Templates()

GET = (tap("install"), tap("confirm:yes"))


def _some_app(t: Draft) -> tuple[str, str]:
    id, item = t.row(ITEMS)
    return id, str(item["name"])


def _find(id: str, name: str) -> tuple[Move, ...]:
    return (type_in("search", name), enter(), tap(f"item:{id}"))


def _say_install(t: Draft, name: str) -> None:
    t.say(
        f"Install {name}",
        f"Get the app {name} from the store",
        f"Download {name} onto this phone",
        f"I need {name} on my phone, please set it up",
        f"Put the {name} app on my device",
        f"Fetch {name} from the App Store",
    )


@templates.add
def store_install(t: Draft) -> None:
    """Install an app."""
    id, name = _some_app(t)
    _say_install(t, name)
    t.given(ITEMS, id, installed=False, stale=False)
    t.want(ITEMS, id, installed=True)
    t.route(open_app("store"), *_find(id, name), *GET)


@templates.add
def store_install_unknown(t: Draft) -> None:
    """The words are those of a task that can be done: only looking tells them apart."""
    name = t.choose(APP_NAMES)
    if any(item["name"] == name for item in t.tables[ITEMS].values()):
        raise NoInstance(f"this store has {name}")
    _say_install(t, name)
    t.cannot_be_done()
    t.route(open_app("store"), type_in("search", name), enter())


@templates.add
def store_uninstall(t: Draft) -> None:
    """Remove an app."""
    id, name = _some_app(t)
    t.say(
        f"Uninstall {name}",
        f"Remove the app {name} from my phone",
        f"Get rid of {name}",
        f"I never use {name}, take it off this phone",
        f"Delete the {name} app",
    )
    t.given(ITEMS, id, installed=True)
    t.want(ITEMS, id, installed=False, stale=False)
    t.route(open_app("store"), tap("tab:installed"), tap(f"item:{id}"), tap("uninstall"), tap("confirm:yes"))


def _say_update(t: Draft, name: str) -> None:
    t.say(
        f"Update {name}",
        f"Get the latest version of {name}",
        f"Bring the app {name} up to date",
        f"Is there a newer {name}? Then install it",
        f"Upgrade {name} to the newest release",
    )


@templates.add
def store_update(t: Draft) -> None:
    """Update an app."""
    id, name = _some_app(t)
    _say_update(t, name)
    t.given(ITEMS, id, installed=True, stale=True)
    t.want(ITEMS, id, stale=False)
    t.route(open_app("store"), tap("tab:updates"), tap(f"item:{id}"), tap("update"))


@templates.add
def store_update_current(t: Draft) -> None:
    """There is no newer version, which the app's own page says."""
    id, name = _some_app(t)
    _say_update(t, name)
    t.given(ITEMS, id, installed=True, stale=False)
    t.cannot_be_done()
    t.route(open_app("store"), *_find(id, name))


def _want_all_updated(t: Draft, but: str = "") -> None:
    """Some app waits for an update, and none may at the end; app `but` is left out of it."""
    one = t.row(ITEMS, lambda item: item is not t.tables[ITEMS].get(but))[0]
    t.given(ITEMS, one, installed=True, stale=True)
    for id, item in t.tables[ITEMS].items():
        if id != but and (item["stale"] or id == one):
            t.want(ITEMS, id, stale=False)


@templates.add
def store_update_all(t: Draft) -> None:
    """Update all apps."""
    start = t.one_of("", "Please ", "Could you ", "Go to the App Store and ")
    where = t.one_of("", " on this phone", " right now", " in the store")
    work = t.one_of(
        "update all apps", "install every update", "bring every app up to date", "get the newest version of everything"
    )
    said = f"{start}{work}{where}"
    t.say(said[0].upper() + said[1:])
    _want_all_updated(t)
    t.route(open_app("store"), tap("tab:updates"), tap("update:all"))


@templates.add
def store_update_all_then_install(t: Draft) -> None:
    """Update all apps and install another."""
    id, name = _some_app(t)
    t.say(
        f"Update all apps, then install {name}",
        f"Bring every app up to date and get {name} from the store as well",
        f"First install all updates, after that download {name}",
        f"Once every app has its newest version, put {name} on my phone",
    )
    t.given(ITEMS, id, installed=False, stale=False)
    _want_all_updated(t, but=id)
    t.want(ITEMS, id, installed=True)
    t.route(open_app("store"), tap("tab:updates"), tap("update:all"), tap("tab:home"), *_find(id, name), *GET)


@templates.add
def store_ask_developer(t: Draft) -> None:
    """Say who made an app."""
    id, name = _some_app(t)
    t.say(
        f"Who makes the app {name}?",
        f"Which company is behind {name}?",
        f"Tell me the developer of {name}",
        f"Look up who developed {name}",
        f"Find out by whom {name} was made",
    )
    t.want_answer(str(t.tables[ITEMS][id]["developer"]))
    t.route(open_app("store"), *_find(id, name))


@templates.add
def store_ask_size(t: Draft) -> None:
    """Say how large an app is."""
    id, name = _some_app(t)
    t.say(
        f"How big is the app {name}?",
        f"How much space does {name} need?",
        f"What is the download size of {name}?",
        f"How many megabytes does the app {name} take?",
    )
    t.want_answer(str(t.tables[ITEMS][id]["size"]))
    t.route(open_app("store"), *_find(id, name))


@templates.add_for_test
def store_ask_rating(t: Draft) -> None:
    """Say how an app is rated."""
    id, name = _some_app(t)
    t.say(
        f"How is the app {name} rated?",
        f"What rating do users give {name}?",
        f"What do people in the store think of {name}?",
        f"Look up the rating of {name}",
    )
    t.want_answer(str(t.tables[ITEMS][id]["rating"]))
    t.route(open_app("store"), *_find(id, name))


@templates.add
def store_wish(t: Draft) -> None:
    """Put an app on the store's wishlist."""
    id, name = _some_app(t)
    t.say(
        f"Put {name} on my wishlist in the store",
        f"Add the app {name} to the wishlist",
        f"Remember the app {name} for later without installing it",
        f"I might want {name} some day, note it in the store",
    )
    t.given(ITEMS, id, wished=False, installed=False, stale=False)
    t.want(ITEMS, id, wished=True)
    t.route(open_app("store"), *_find(id, name), tap("wish"))


@templates.add
def store_switch_auto_update(t: Draft) -> None:
    """Turn automatic updates on or off."""
    on = t.random.random() < 0.5
    start, where = (
        t.one_of("", "Please ", "I want you to "),
        t.one_of("", " in the App Store", " for my apps", " from now on"),
    )
    work = t.one_of("switch {} automatic updates", "turn {} automatic app updates", "set automatic updates to {}")
    said = f"{start}{work.format('on' if on else 'off')}{where}"
    t.say(said[0].upper() + said[1:])
    t.given(PREFS, "auto", on=not on)
    t.want(PREFS, "auto", on=on)
    t.route(open_app("store"), tap("settings"), tap("auto"))


@templates.add_for_test
def store_replace_app(t: Draft) -> None:
    """Remove one app and install another."""
    (old, one), (new, other) = t.random.sample(list(t.tables[ITEMS].items()), 2)
    t.say(
        f"Uninstall {one['name']} and install {other['name']} instead",
        f"Replace the app {one['name']} with {other['name']}",
        f"Get rid of {one['name']}, then download {other['name']}",
        f"Swap {one['name']} for {other['name']} on this phone",
    )
    t.given(ITEMS, old, installed=True)
    t.given(ITEMS, new, installed=False, stale=False)
    t.want(ITEMS, old, installed=False, stale=False)
    t.want(ITEMS, new, installed=True)
    remove = (tap("tab:installed"), tap(f"item:{old}"), tap("uninstall"), tap("confirm:yes"))
    t.route(open_app("store"), *remove, tap("tab:home"), *_find(new, str(other["name"])), *GET)

"""The app store: installing, updating, removing and wishing for apps."""

from __future__ import annotations

import pytest

from distrl.devices.sim.state import put
from support.sims import Finger

ITEM, PREFS = "store.app", "store.pref"


def on_item(**fields: object) -> tuple[Finger, str]:
    """The page of some app that is so."""
    id = Finger("store").first(ITEM, **fields)  # type: ignore[arg-type]
    return Finger("store", "item", item=id), id


def test_the_first_screen_offers_a_few_apps_that_are_not_installed() -> None:
    finger = Finger("store")
    shown = [id.removeprefix("item:") for id in finger.ids("item:")]
    assert 0 < len(shown) <= 8
    assert not any(finger.table(ITEM)[id]["installed"] for id in shown)


def test_my_apps_are_the_installed_ones() -> None:
    finger = Finger("store").tap("tab:installed")
    installed = {f"item:{id}" for id, item in finger.table(ITEM).items() if item["installed"]}
    assert set(finger.ids("item:")) == installed


def test_only_what_is_installed_can_be_out_of_date() -> None:
    for number in range(10):
        items = Finger("store", phone=number).table(ITEM).values()
        assert all(item["installed"] for item in items if item["stale"])


def test_a_page_tells_developer_rating_and_size() -> None:
    finger, id = on_item()
    for name in ("developer", "rating", "size"):
        assert finger.text(name) == finger.table(ITEM)[id][name]


def test_an_app_is_installed_after_a_yes_and_can_be_removed_then() -> None:
    finger, id = on_item(installed=False)
    finger.tap("install", "confirm:no")
    assert finger.changes() == []
    finger.tap("install", "confirm:yes")
    assert finger.changes() == [(ITEM, {**finger.start.tables[ITEM][id], "installed": True})]
    assert finger.screen == "store/item"
    assert "uninstall" in finger.ids()
    assert "install" not in finger.ids()


def test_an_app_is_removed_after_a_yes_and_its_page_closes() -> None:
    finger, id = on_item(installed=True)
    finger.tap("uninstall", "confirm:no")
    assert finger.changes() == []
    finger.tap("uninstall", "confirm:yes")
    assert finger.table(ITEM)[id] | {"installed": False, "stale": False} == finger.table(ITEM)[id]
    assert finger.screen != "store/item"


def test_an_app_that_is_out_of_date_can_be_updated_and_another_cannot() -> None:
    finger, id = on_item(installed=True, stale=True)
    finger.tap("update")
    assert finger.changes() == [(ITEM, {**finger.start.tables[ITEM][id], "stale": False})]
    assert "update" not in finger.ids()
    assert "current" in finger.ids()


def test_updates_lists_what_is_out_of_date_and_updates_it_all() -> None:
    finger = Finger("store", state=put(Finger("store").state, ITEM, "a1", installed=True, stale=True))
    finger.tap("tab:updates")
    stale = {f"item:{id}" for id, item in finger.table(ITEM).items() if item["stale"]}
    assert set(finger.ids("item:")) == stale
    finger.tap("update:all")
    assert not any(item["stale"] for item in finger.table(ITEM).values())
    assert len(finger.changes()) == len(stale)
    assert "nothing" in finger.ids()
    assert "update:all" not in finger.ids()


def test_a_search_finds_names() -> None:
    finger = Finger("store")
    name = str(finger.table(ITEM)["a9"]["name"])
    finger.enter("search", name.upper())
    assert "item:a9" in finger.ids()
    assert not any(finger.widgets()[id].checked for id in finger.ids("tab:")), "results belong to no tab"
    assert "nothing" in finger.open("store").enter("search", "Nowhere At All").ids()


def test_an_app_is_wished_for_and_forgotten() -> None:
    finger, id = on_item(wished=False)
    finger.tap("wish")
    assert finger.changes() == [(ITEM, {**finger.start.tables[ITEM][id], "wished": True})]
    assert finger.tap("wish").changes() == []


@pytest.mark.parametrize("name", ["auto", "mobile"])
def test_the_stores_own_switches(name: str) -> None:
    finger = Finger("store").tap("settings")
    before = finger.table(PREFS)[name]["on"]
    assert finger.widgets()[name].checked is before
    assert finger.tap(name).changes() == [(PREFS, {"on": not before})]

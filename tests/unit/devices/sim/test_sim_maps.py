"""Maps: searching, saving and rating places, and directions to them."""

from __future__ import annotations

import pytest

from distrl.devices.sim.apps.maps import MINUTES_PER_KM, MODES, minutes
from distrl.devices.sim.content_pools import KINDS
from support.sims import Finger

PLACE = "maps.place"


def test_a_kind_leads_to_its_places() -> None:
    finger = Finger("maps")
    assert set(finger.ids("kind:")) == {f"kind:{kind}" for kind in KINDS}
    for kind in KINDS[:3]:
        finger.tap(f"kind:{kind}")
        found = {id.removeprefix("place:") for id in finger.ids("place:")}
        assert found == {id for id, place in finger.table(PLACE).items() if kind in str(place["name"])}
        finger.back()


def test_a_place_is_found_by_part_of_its_name_whatever_the_case() -> None:
    finger = Finger("maps")
    name = str(finger.table(PLACE)["p5"]["name"])
    finger.enter("search", name.upper())
    assert finger.ids("place:") == ["place:p5"]
    assert finger.text("search") == name.upper(), "the query stays in the field"


def test_a_search_that_finds_nothing_says_so_and_is_no_side_effect() -> None:
    finger = Finger("maps").enter("search", "Nowhere At All")
    assert "nothing" in finger.ids()
    assert [record["query"] for record in finger.table("maps.recent").values()] == ["Nowhere At All"]
    assert finger.changes() == []


def test_a_search_from_the_results_opens_new_ones() -> None:
    finger = Finger("maps").enter("search", KINDS[0]).enter("search", KINDS[1])
    assert finger.state.place.args == {"query": KINDS[1]}
    assert finger.back().state.place.args == {"query": KINDS[0]}


def test_a_place_tells_rating_address_hours_and_phone() -> None:
    finger = Finger("maps", "place", place="p3")
    place = finger.table(PLACE)["p3"]
    assert finger.title == place["name"]
    for name in ("rating", "address", "hours", "phone"):
        assert finger.text(name) == place[name]


def test_saving_a_place_puts_it_on_the_tab_and_saving_again_takes_it_off() -> None:
    finger = Finger("maps")
    id = finger.first(PLACE, saved=False)
    finger.enter("search", str(finger.table(PLACE)[id]["name"])).tap(f"place:{id}", "save")
    assert finger.changes() == [(PLACE, {**finger.start.tables[PLACE][id], "saved": True})]
    finger.back(2).tap("tab:saved")
    assert f"place:{id}" in finger.ids()
    assert finger.tap(f"place:{id}", "save").changes() == []


def test_no_saved_places_are_said_to_be_none() -> None:
    finger = Finger("maps").tap("tab:saved")
    for id in finger.ids("place:"):
        finger.tap(id, "save").back()
    assert "nothing" in finger.ids()


@pytest.mark.parametrize("stars", range(1, 6))
def test_a_rating_is_given_in_a_dialog(stars: int) -> None:
    finger = Finger("maps", "place", place="p3").tap("rate")
    assert not any(finger.widgets()[id].checked for id in finger.ids("stars:")), "no rating yet"
    finger.tap(f"stars:{stars}")
    assert finger.changes() == [(PLACE, {**finger.start.tables[PLACE]["p3"], "stars": stars})]
    finger.tap("rate")
    assert [id for id in finger.ids("stars:") if finger.widgets()[id].checked] == [f"stars:{stars}"]


def test_one_star_is_not_several() -> None:
    finger = Finger("maps", "rate", place="p3")
    assert [finger.text(f"stars:{n}") for n in (1, 2)] == ["1 star", "2 stars"]


@pytest.mark.parametrize("mode", MODES)
def test_directions_say_how_long_the_chosen_way_takes(mode: str) -> None:
    finger = Finger("maps", "place", place="p3").tap("directions", f"mode:{mode}")
    km = int(finger.table(PLACE)["p3"]["km"])
    assert finger.text("time") == f"{km * MINUTES_PER_KM[mode] + 1} min" == minutes(finger.table(PLACE)["p3"], mode)
    assert [id for id in finger.ids("mode:") if finger.widgets()[id].checked] == [f"mode:{mode}"]
    finger.tap("start")
    assert finger.changes() == [("maps.trip", {"place": "p3", "mode": mode})]
    assert finger.screen == "maps/trip"
    assert finger.text("to") == finger.table(PLACE)["p3"]["name"]


def test_changing_the_way_does_not_deepen_the_way_back() -> None:
    finger = Finger("maps", "place", place="p3").tap("directions", "mode:bus", "mode:walk", "mode:car")
    assert finger.back().screen == "maps/place"
    assert finger.changes() == []


def test_ending_a_trip_forgets_it() -> None:
    finger = Finger("maps", "place", place="p3").tap("directions", "start", "stop")
    assert (finger.screen, finger.changes()) == ("maps/place", [])


def test_walking_takes_longer_than_the_bus_and_the_bus_longer_than_the_car() -> None:
    place = Finger("maps").table(PLACE)["p1"]
    times = [int(minutes(place, mode).split()[0]) for mode in ("car", "bus", "walk")]
    assert times == sorted(times)
    assert len(set(times)) == 3

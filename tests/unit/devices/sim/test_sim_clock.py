"""Clock: alarms, cities of the world, the timer and the stopwatch."""

from __future__ import annotations

from distrl.devices.sim.apps.clock import PRESETS
from distrl.devices.sim.content_pools import CITY_HOURS
from support.sims import Finger

ALARM, CITY = "clock.alarm", "clock.city"


def test_alarms_stand_in_order_of_time_with_their_switches() -> None:
    finger = Finger("clock")
    times = [finger.text(id) for id in finger.ids("alarm:")]
    assert times == sorted(str(alarm["time"]) for alarm in finger.table(ALARM).values())
    for id in finger.ids("alarm:"):
        assert finger.widgets()[id].checked == finger.table(ALARM)[id.removeprefix("alarm:")]["on"]


def test_a_tap_switches_an_alarm_and_another_switches_it_back() -> None:
    finger = Finger("clock")
    id = finger.first(ALARM, on=False)
    finger.tap(f"alarm:{id}")
    assert finger.changes() == [(ALARM, {**finger.start.tables[ALARM][id], "on": True})]
    finger.tap(f"alarm:{id}")
    assert finger.changes() == []


def test_a_new_alarm_takes_hour_minute_and_name_and_is_on() -> None:
    finger = Finger("clock").tap("new", "hour", "option:23", "minute", "option:45")
    assert finger.text("time") == "23:45"
    finger.type("name", "Late train").tap("save")
    assert finger.changes() == [(ALARM, {"time": "23:45", "name": "Late train", "on": True})]
    assert finger.screen == "clock/home"


def test_a_new_alarm_is_for_eight_unless_told_otherwise() -> None:
    finger = Finger("clock").tap("new", "save")
    assert finger.changes() == [(ALARM, {"time": "08:00", "name": "", "on": True})]


def test_hours_are_a_page_that_scrolls_and_minutes_a_dialog() -> None:
    finger = Finger("clock").tap("new", "hour")
    assert (finger.view.shape, len(finger.ids("option:")), finger.shown.overflow > 0) == ("page", 24, True)
    finger.back().tap("minute")
    assert (finger.view.shape, len(finger.ids("option:"))) == ("dialog", 10)
    assert finger.in_sight() >= set(finger.ids("option:")), "a dialog does not scroll"


def test_holding_an_alarm_asks_before_it_is_deleted() -> None:
    finger = Finger("clock")
    id = finger.first(ALARM)
    finger.hold(f"alarm:{id}")
    assert str(finger.table(ALARM)[id]["time"]) in finger.title
    finger.tap("confirm:no")
    assert finger.changes() == []
    finger.hold(f"alarm:{id}").tap("confirm:yes")
    assert finger.changes() == [(ALARM, None)]
    assert finger.screen == "clock/home"


def test_tabs_replace_each_other_so_that_back_leaves_the_app() -> None:
    finger = Finger("clock").tap("tab:world", "tab:timer", "tab:watch", "tab:home")
    assert [id for id in finger.ids("tab:") if finger.widgets()[id].checked] == ["tab:home"]
    assert finger.back().state.place.app == "launcher"


def test_a_city_tells_its_time_and_its_distance_from_london() -> None:
    for phone in range(6):
        finger = Finger("clock", phone=phone).tap("tab:world")
        now = int(finger.table("clock.now")["now"]["minutes"])
        for city in finger.table(CITY):
            finger.tap(f"city:{city}")
            minutes = (now + 60 * CITY_HOURS[city]) % 1440
            assert finger.text("time") == f"{minutes // 60:02d}:{minutes % 60:02d}"
            assert finger.text("gap") == f"{CITY_HOURS[city]:+d} h"
            finger.back()


def test_a_city_is_removed_from_its_page_or_by_holding_it() -> None:
    finger = Finger("clock").tap("tab:world")
    first, second = list(finger.table(CITY))[:2]
    finger.tap(f"city:{first}", "remove", "confirm:yes")
    assert finger.screen == "clock/world"
    finger.hold(f"city:{second}").tap("confirm:yes")
    assert finger.screen == "clock/world"
    assert finger.start.tables[CITY].keys() - finger.table(CITY).keys() == {first, second}


def test_only_cities_that_are_not_shown_can_be_added() -> None:
    finger = Finger("clock").tap("tab:world", "add")
    assert set(finger.ids("add:")) == {f"add:{city}" for city in CITY_HOURS.keys() - finger.table(CITY).keys()}


def test_a_city_is_found_by_search_and_added() -> None:
    finger = Finger("clock").tap("tab:world", "add")
    city = finger.ids("add:")[-1].removeprefix("add:")
    finger.type("search", city.lower()).tap(f"add:{city}")
    assert finger.changes() == [(CITY, {"shown": True})]
    assert finger.screen == "clock/world"
    assert f"city:{city}" in finger.ids()


def test_the_timer_runs_until_it_is_stopped() -> None:
    finger = Finger("clock").tap("tab:timer")
    assert finger.ids("preset:") == [f"preset:{minutes}" for minutes in PRESETS]
    finger.tap("preset:90")
    assert finger.changes() == [("clock.timer", {"minutes": 90, "running": True})]
    assert finger.text("left") == "90 min"
    assert finger.ids("preset:") == []
    finger.tap("stop")
    assert finger.changes() == []


def test_the_stopwatch_starts_and_stops() -> None:
    finger = Finger("clock").tap("tab:watch", "toggle")
    assert finger.text("state") == "Running"
    assert finger.changes() == [("clock.watch", {"running": True})]
    assert finger.tap("toggle").text("state") == "Stopped"
    assert finger.changes() == []

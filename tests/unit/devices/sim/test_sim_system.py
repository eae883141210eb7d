"""The home screen, permission prompts and pop-ups."""

from __future__ import annotations

import pytest

from distrl.devices.sim.app import push
from distrl.devices.sim.apps import APPS, INCIDENTAL, SCREENS
from distrl.devices.sim.apps.system import DOCK, PAGE_SIZE, POPUPS
from distrl.devices.sim.state import Place
from distrl.devices.sim.world import start_state
from distrl.types import Press
from support.sims import TURN_BACK, TURN_PAGE, Finger, sim_task


def icons(finger: Finger) -> list[str]:
    return [widget.id for widget in finger.view.body]


def with_popup(kind: str) -> Finger:
    place = Place(app="system", screen="popup", args={"kind": kind})
    return Finger(state=push(Finger("notes").state, place))


# --- the launcher ---------------------------------------------------------------------------------------------------


def test_every_app_has_its_icon_on_one_page_or_in_the_dock() -> None:
    finger = Finger()
    shown = [*icons(finger)]
    finger.act(TURN_PAGE)
    shown += icons(finger)
    dock = [widget.id for widget in finger.view.bottom]
    assert dock == [f"app:{name}" for name in DOCK]
    assert sorted([*shown, *dock]) == sorted(f"app:{name}" for name in APPS)
    assert len(shown) == len(set(shown))


def test_pages_turn_both_ways_and_stop_at_the_ends() -> None:
    finger = Finger()
    first = icons(finger)
    finger.act(TURN_BACK)
    assert icons(finger) == first
    finger.act(TURN_PAGE)
    second = icons(finger)
    finger.act(TURN_PAGE)
    assert icons(finger) == second != first
    finger.act(TURN_BACK)
    assert icons(finger) == first


def test_a_page_holds_eight_icons_at_most() -> None:
    finger = Finger()
    assert len(icons(finger)) == PAGE_SIZE
    assert len(finger.view.pages) == -(-(len(APPS) - len(DOCK)) // PAGE_SIZE)


def test_phones_arrange_their_icons_each_in_its_own_way() -> None:
    orders = {tuple(icons(Finger(state=start_state(sim_task(seed=seed))))) for seed in range(10)}
    assert len(orders) > 5


@pytest.mark.parametrize("app", APPS)
def test_an_icon_opens_its_app(app: str) -> None:
    finger = Finger().open(app)
    assert finger.screen == f"{app}/home"
    assert finger.back().screen == "launcher/home"


def test_back_on_the_home_screen_stays_there() -> None:
    finger = Finger()
    assert finger.act(Press("back")).valid
    assert (finger.screen, len(finger.state.stack)) == ("launcher/home", 1)


def test_home_leaves_everything_behind() -> None:
    finger = Finger("contacts").tap("new").type("name", "Zoe").home()
    assert (finger.screen, finger.state.focus, len(finger.state.stack)) == ("launcher/home", "", 1)


def test_home_comes_back_to_the_page_that_was_turned_to() -> None:
    finger = Finger()
    finger.act(TURN_PAGE)
    page = icons(finger)
    finger.tap(page[0]).home()
    assert icons(finger) == page


# --- permissions ----------------------------------------------------------------------------------------------------

ASKING = [app for app in APPS.values() if app.permission]


@pytest.mark.parametrize("app", ASKING, ids=lambda app: app.name)
@pytest.mark.parametrize(("answer", "allowed"), [("allow", True), ("deny", False)])
def test_an_app_asks_once_whatever_the_answer(app, answer: str, allowed: bool) -> None:
    finger = Finger(state=start_state(sim_task())).open(app.name)
    assert finger.screen == "system/permission"
    assert app.title in finger.text("permission:what")
    assert app.permission in finger.text("permission:what")
    finger.tap(f"permission:{answer}")
    assert finger.screen == f"{app.name}/home"
    assert finger.table("system.permission") == {f"{app.title}.{app.permission}": {"allowed": allowed}}
    assert finger.open(app.name).screen == f"{app.name}/home"


@pytest.mark.parametrize("app", [app for app in APPS.values() if not app.permission], ids=lambda app: app.name)
def test_other_apps_ask_for_nothing(app) -> None:
    assert Finger(state=start_state(sim_task())).open(app.name).screen == f"{app.name}/home"


def test_going_back_from_the_question_leaves_it_open() -> None:
    finger = Finger(state=start_state(sim_task())).open("maps").back()
    assert finger.screen == "maps/home"
    assert finger.tap("kind:Hotel").screen == "system/permission"


def test_answering_is_no_side_effect() -> None:
    finger = Finger(state=start_state(sim_task())).open("maps").tap("permission:deny")
    assert finger.changes() == []


# --- pop-ups --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", POPUPS)
def test_a_popup_is_closed_without_a_trace(kind: str) -> None:
    finger = with_popup(kind)
    assert finger.title == POPUPS[kind][0]
    finger.tap("popup:close")
    assert finger.screen == "notes/home"
    assert finger.state.tables == finger.start.tables


@pytest.mark.parametrize("kind", POPUPS)
def test_accepting_a_popup_is_remembered_and_no_side_effect(kind: str) -> None:
    finger = with_popup(kind).tap("popup:accept")
    assert finger.screen == "notes/home"
    assert finger.table("system.popup") == {kind: {"accepted": True}}
    assert finger.changes() == []


def test_every_declared_screen_belongs_to_an_app_or_the_system() -> None:
    assert {app for app, _ in SCREENS} == {*APPS, "launcher", "system"}
    assert {(app, "home") for app in (*APPS, "launcher")} <= SCREENS.keys()


def test_incidental_tables_are_named_after_their_apps() -> None:
    owners = {table.split(".")[0] for table in INCIDENTAL}
    assert owners <= {*APPS, "system", "kiosko", "northmart"}

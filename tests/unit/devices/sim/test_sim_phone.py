"""What each kind of action makes of a phone, and which actions are none."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from distrl.devices.sim.app import flip
from distrl.devices.sim.phone import SCROLL_SHARE, perform, show, view_of
from distrl.devices.sim.widgets import button
from distrl.types import Finish, LongPress, Press, Swipe, Tap, TypeText, Unparsed, Wait
from support.sims import SCROLL_DOWN, SCROLL_UP, TURN_PAGE, Finger

NOWHERE = (0.5, 0.99)
OUTSIDE = [(-0.1, 0.5), (0.5, -0.01), (1.0, 0.5), (0.5, 1.2), (math.nan, 0.5), (math.inf, 0.5)]


# --- every action ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "action",
    [Tap(0.5, 0.5), LongPress(0.5, 0.5), SCROLL_DOWN, TypeText("tea"), Press("back"), Press("enter"), Wait(), Finish()],
    ids=lambda action: type(action).__name__,
)
def test_every_action_takes_one_moment(action) -> None:
    finger = Finger("notes")
    finger.act(action)
    assert finger.state.tick == 1


def test_an_action_leaves_the_state_it_came_from_alone() -> None:
    finger = Finger("notes")
    before = finger.state
    kept = replace(before)
    finger.tap("new").type("title", "Tea")
    assert before == kept


def test_the_same_action_on_the_same_state_gives_the_same() -> None:
    state = Finger("notes").state
    assert perform(state, show(state), Tap(0.5, 0.5)).state == perform(state, show(state), Tap(0.5, 0.5)).state


# --- touching -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", OUTSIDE)
@pytest.mark.parametrize("gesture", [Tap, LongPress])
def test_a_touch_outside_the_screen_is_no_action(gesture, at: tuple[float, float]) -> None:
    finger = Finger("notes")
    outcome = finger.act(gesture(*at))
    assert not outcome.valid
    assert "outside the screen" in outcome.why
    assert finger.screen == "notes/home"


def test_a_touch_of_nothing_is_no_action() -> None:
    outcome = Finger("settings").act(Tap(*NOWHERE))
    assert (outcome.valid, outcome.why) == (False, "nothing is there to touch")


def test_a_touch_of_something_that_does_not_react_is_an_action_without_effect() -> None:
    finger = Finger("settings", "about")
    label = next(placed for placed in finger.shown.placed if placed.widget.id == "model")
    outcome = finger.act(Tap(*label.bounds.centre))
    assert outcome.valid
    assert "does not react" in outcome.why
    assert finger.changes() == []


def test_holding_what_reacts_to_taps_alone_has_no_effect() -> None:
    finger = Finger("settings")
    row = finger.shown.placed[0]
    assert finger.act(LongPress(*row.bounds.centre)).valid
    assert finger.screen == "settings/home"


def test_a_button_that_is_not_enabled_does_nothing() -> None:
    finger = Finger("browser", "kiosko-cart")
    finger.state = replace(finger.state, tables={**finger.state.tables, "kiosko.cart": {}})
    finger.start = finger.state
    assert not finger.widgets()["checkout"].enabled
    finger.tap("checkout")
    assert finger.screen == "browser/kiosko-cart"
    assert button("b", "Off", tap=flip("a", "b", "c"), enabled=False).tap is not None


# --- swiping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("swipe", [Swipe(-0.1, 0.5, 0.5, 0.5), Swipe(0.5, 0.5, 0.5, 1.5), Swipe(0.5, 0.5, 2.0, 0.5)])
def test_a_swipe_that_leaves_the_screen_is_no_action(swipe: Swipe) -> None:
    outcome = Finger("contacts").act(swipe)
    assert (outcome.valid, outcome.why) == (False, "the swipe leaves the screen")


@pytest.mark.parametrize("swipe", [Swipe(0.5, 0.5, 0.5, 0.5), Swipe(0.5, 0.5, 0.54, 0.46)])
def test_a_finger_that_hardly_moves_does_not_swipe(swipe: Swipe) -> None:
    outcome = Finger("contacts").act(swipe)
    assert (outcome.valid, outcome.why) == (False, "the finger hardly moved")


def test_a_swipe_up_scrolls_down_by_most_of_what_is_in_sight() -> None:
    finger = Finger("contacts")
    body = finger.shown.body
    finger.act(SCROLL_DOWN)
    assert finger.state.place.scroll == pytest.approx(SCROLL_SHARE * (body.bottom - body.top) * 720)


def test_how_far_the_finger_moves_makes_no_difference() -> None:
    one, other = Finger("contacts"), Finger("contacts")
    one.act(Swipe(0.5, 0.5, 0.5, 0.4))
    other.act(Swipe(0.5, 0.9, 0.5, 0.1))
    assert one.state.place.scroll == other.state.place.scroll > 0


def test_scrolling_stops_at_both_ends() -> None:
    finger = Finger("contacts")
    finger.act(SCROLL_UP)
    assert finger.state.place.scroll == 0.0
    for _ in range(30):
        finger.act(SCROLL_DOWN)
    assert finger.state.place.scroll == finger.shown.overflow
    finger.act(SCROLL_UP)
    assert finger.state.place.scroll < finger.shown.overflow


def test_a_page_without_overflow_stays_where_it_is() -> None:
    finger = Finger("settings")
    assert finger.act(SCROLL_DOWN).valid
    assert finger.state.place.scroll == 0.0


def test_a_sideways_swipe_turns_pages_where_there_are_any() -> None:
    finger = Finger()
    finger.act(TURN_PAGE)
    assert finger.state.place.args == {"page": "1"}
    flat = Finger("contacts")
    assert flat.act(TURN_PAGE).valid
    assert flat.state.place == flat.start.place


def test_a_screen_scrolls_on_its_own() -> None:
    finger = Finger("contacts")
    finger.act(SCROLL_DOWN)
    scrolled = finger.state.place.scroll
    finger.tap("new")
    assert finger.state.place.scroll == 0.0
    assert finger.back().state.place.scroll == scrolled


# --- typing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "  ", "\n\t"])
def test_nothing_to_type_is_no_action(text: str) -> None:
    finger = Finger("notes").tap("search")
    assert finger.act(TypeText(text)).why == "there is nothing to type"


def test_typing_needs_a_field_with_the_focus() -> None:
    outcome = Finger("notes").act(TypeText("tea"))
    assert (outcome.valid, outcome.why) == (False, "no field has the focus: tap one first")


def test_typing_replaces_what_stood_in_the_field() -> None:
    finger = Finger("notes").tap("new").type("title", "Tea")
    assert finger.text("title") == "Tea"
    finger.act(TypeText("  Coffee "))
    assert finger.text("title") == "Coffee"
    assert finger.state.focus == "title"


def test_fields_of_one_screen_are_filled_each_on_its_own() -> None:
    finger = Finger("notes").tap("new").type("title", "Tea").type("text", "hot")
    assert (finger.text("title"), finger.text("text")) == ("Tea", "hot")


# --- keys -----------------------------------------------------------------------------------------------------------


def test_back_closes_the_keyboard_before_it_leaves_the_screen() -> None:
    finger = Finger("notes").tap("search")
    finger.act(Press("back"))
    assert (finger.screen, finger.state.focus) == ("notes/home", "")
    assert finger.back().screen == "launcher/home"


def test_enter_needs_a_field_with_the_focus() -> None:
    outcome = Finger("notes").act(Press("enter"))
    assert (outcome.valid, outcome.why) == (False, "Enter needs a field with the focus")


def test_enter_in_a_field_that_submits_nothing_closes_the_keyboard() -> None:
    finger = Finger("notes").enter("search", "tea")
    assert (finger.state.focus, finger.text("search")) == ("", "tea")


def test_home_also_leaves_a_screen_that_is_loading() -> None:
    finger = Finger("notes")
    finger.state = replace(finger.state, loading=3)
    finger.act(Press("home"))
    assert (finger.screen, finger.state.loading) == ("launcher/home", 0)


# --- waiting, finishing and what is no action -----------------------------------------------------------------------


def test_a_screen_that_loads_takes_no_touch_and_is_there_after_waiting() -> None:
    finger = Finger("notes")
    finger.state = replace(finger.state, loading=2)
    outcome = finger.act(Tap(0.5, 0.5))
    assert not outcome.valid
    assert finger.shown.loading
    finger.act(Wait())
    assert not finger.shown.loading
    assert finger.ids("note:")


def test_a_claim_is_kept_as_it_was_made() -> None:
    finger = Finger("notes")
    finger.act(Finish("impossible", answer="no such note"))
    assert finger.state.claim == Finish("impossible", answer="no such note")
    assert finger.changes() == []


def test_what_could_not_be_parsed_is_no_action_and_is_quoted() -> None:
    outcome = Finger("notes").act(Unparsed("tap the " + 200 * "very " + "big button"))
    assert not outcome.valid
    assert "not an action" in outcome.why
    assert len(outcome.why) < 120


def test_a_view_is_made_from_the_topmost_screen() -> None:
    finger = Finger("notes").tap("new")
    assert view_of(finger.state).title == finger.title
    assert view_of(replace(finger.state, stack=finger.state.stack[:-1])).title == Finger("notes").title

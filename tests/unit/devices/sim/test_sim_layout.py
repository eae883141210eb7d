"""Where widgets lie: inside the screen, next to each other, in reach by scrolling, and told to the agent as they are."""

from __future__ import annotations

from functools import cache
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from distrl.devices.sim.app import focus
from distrl.devices.sim.apps import APPS, SCREENS
from distrl.devices.sim.layout import (
    BOTTOM_BAR,
    GRID_COLUMNS,
    HEIGHT,
    HEIGHTS,
    KEYBOARD,
    STATUS_BAR,
    TILE_COLUMNS,
    TILE_HEIGHT,
    TITLE_BAR,
    VISIBLE_SHARE,
    Placed,
    Screen,
    elements_of,
    lay_out,
)
from distrl.devices.sim.phone import show
from distrl.devices.sim.render import draw
from distrl.devices.sim.state import Perturbations, PhoneState, Place
from distrl.devices.sim.widgets import CLASS_NAMES, View, Widget, button, card, icon, label, row, tab
from distrl.devices.sim.world import HOME
from distrl.tasks.sim.oracle import play_oracle
from distrl.tasks.sim.suites import SUITES
from support.sims import PERTURBED, SCROLL_DOWN, SCROLL_UP, Finger

NOTHING = focus("nowhere")
PIXEL = 1e-3


def a_state(scroll: float = 0.0, *, keyboard: str = "", variant: int = 0) -> PhoneState:
    place = Place(app="notes", screen="home", scroll=scroll)
    return PhoneState(
        seed=1, tables={}, stack=(HOME, place), focus=keyboard, perturbations=Perturbations(variant=variant)
    )


def rows(count: int) -> tuple[Widget, ...]:
    return tuple(row(f"r{number}", f"Row {number}", tap=NOTHING) for number in range(count))


@cache
def many_states() -> tuple[PhoneState, ...]:
    """Screens that episodes of all suites come through."""
    found: dict[tuple[object, ...], PhoneState] = {}
    for suite in SUITES.values():
        for index in range(0, 200, 5):
            for state in play_oracle(suite.task("test", index), PERTURBED).states:
                key = (state.place.app, state.place.screen, bool(state.focus), state.perturbations.variant % 3)
                found.setdefault(key, state)
    return tuple(found.values())


def overlap(one: Placed, other: Placed) -> bool:
    left, right = one.bounds, other.bounds
    return (
        min(left.right, right.right) - max(left.left, right.left) > PIXEL
        and min(left.bottom, right.bottom) - max(left.top, right.top) > PIXEL
    )


# --- what every screen keeps ----------------------------------------------------------------------------------------


def test_most_screens_are_looked_at() -> None:
    assert len({(state.place.app, state.place.screen) for state in many_states()}) > 0.6 * len(SCREENS)


def test_everything_lies_inside_the_screen_and_has_a_size() -> None:
    for state in many_states():
        for placed in show(state).placed:
            bounds = placed.bounds
            assert 0.0 <= bounds.left < bounds.right <= 1.0, (state.place, placed.widget.id)
            assert 0.0 <= bounds.top < bounds.bottom <= 1.0, (state.place, placed.widget.id)


def test_no_widget_lies_over_another() -> None:
    for state in many_states():
        for one, other in combinations(show(state).placed, 2):
            assert not overlap(one, other), (state.place, one.widget.id, other.widget.id)


def test_a_finger_on_the_middle_of_a_widget_touches_that_widget() -> None:
    for state in many_states():
        screen = show(state)
        for placed in screen.placed:
            assert screen.at(*placed.bounds.centre) is placed.widget


def test_ids_on_a_screen_are_unique() -> None:
    for state in many_states():
        ids = [placed.widget.id for placed in show(state).placed]
        assert len(ids) == len(set(ids)), state.place


def test_nothing_lies_under_the_keyboard() -> None:
    typing = [state for state in many_states() if state.focus]
    assert len(typing) > 10
    for state in typing:
        screen = show(state)
        assert screen.keyboard
        if screen.view.shape == "page":
            assert all(placed.bounds.bottom <= (HEIGHT - KEYBOARD) / HEIGHT + PIXEL for placed in screen.placed)


def test_a_dialog_keeps_to_its_own_box() -> None:
    dialogs = [show(state) for state in many_states() if show(state).view.shape == "dialog"]
    assert len(dialogs) > 10
    for screen in dialogs:
        for placed in screen.placed:
            assert placed.bounds.left >= screen.body.left
            assert placed.bounds.right <= screen.body.right


@pytest.mark.parametrize("app", APPS)
def test_everything_on_a_first_screen_can_be_scrolled_to(app: str) -> None:
    finger = Finger(app)
    seen, before = set(finger.in_sight()), -1.0
    while finger.state.place.scroll != before:
        before = finger.state.place.scroll
        finger.act(SCROLL_DOWN)
        seen |= finger.in_sight()
    assert seen == set(finger.ids())


# --- pages ----------------------------------------------------------------------------------------------------------


def test_rows_stand_below_each_other_under_the_title_bar() -> None:
    placed = lay_out(View(title="Rows", body=rows(3)), a_state()).placed
    assert [item.widget.id for item in placed] == ["r0", "r1", "r2"]
    assert placed[0].bounds.top == pytest.approx((STATUS_BAR + TITLE_BAR) / HEIGHT, abs=PIXEL)
    for above, below in pairwise(placed):
        assert below.bounds.top == pytest.approx(above.bounds.bottom, abs=PIXEL)


def test_every_third_variant_is_denser() -> None:
    view = View(title="Rows", body=rows(3))
    heights = [lay_out(view, a_state(variant=variant)).placed[0].bounds for variant in range(3)]
    full, dense = heights[0].bottom - heights[0].top, heights[2].bottom - heights[2].top
    assert dense == pytest.approx(0.9 * full, abs=PIXEL)
    assert heights[1] == heights[0]


def test_icons_stand_at_the_right_of_the_title_bar() -> None:
    icons = tuple(icon(f"i{number}", "star", "Star", tap=NOTHING) for number in range(3))
    placed = list(lay_out(View(title="", body=(), top=icons), a_state()).placed)
    assert placed[-1].bounds.right == 1.0
    assert {item.bounds.bottom for item in placed} == {round((STATUS_BAR + TITLE_BAR) / HEIGHT, 4)}


def test_tabs_share_the_bottom_bar_and_make_way_for_the_keyboard() -> None:
    bar = tuple(tab(f"t{number}", "Tab", False, tap=NOTHING) for number in range(4))
    view = View(title="", body=rows(1), bottom=bar)
    tabs = [item for item in lay_out(view, a_state()).placed if item.widget.kind == "tab"]
    assert [item.bounds.right - item.bounds.left for item in tabs] == pytest.approx([0.25] * 4)
    assert tabs[0].bounds.top == pytest.approx((HEIGHT - BOTTOM_BAR) / HEIGHT, abs=PIXEL)
    typing = lay_out(view, a_state(keyboard="q"))
    assert [item.widget.id for item in typing.placed] == ["r0"]


def test_what_fits_does_not_scroll_and_what_does_not_overflows_by_the_rest() -> None:
    assert lay_out(View(title="", body=rows(5)), a_state()).overflow == 0.0
    visible = HEIGHT - STATUS_BAR - TITLE_BAR
    assert lay_out(View(title="", body=rows(40)), a_state()).overflow == 40 * HEIGHTS["row"] - visible


@settings(max_examples=60, deadline=None)
@given(count=st.integers(1, 60), scroll=st.floats(0, 4000), bar=st.booleans(), keyboard=st.booleans())
def test_only_what_is_mostly_in_sight_is_placed_and_never_beyond_the_body(
    count: int, scroll: float, bar: bool, keyboard: bool
) -> None:
    bottom = (tab("t", "Tab", True, tap=NOTHING),) if bar else ()
    screen = lay_out(View(title="", body=rows(count), bottom=bottom), a_state(scroll, keyboard="q" if keyboard else ""))
    inside = [placed for placed in screen.placed if placed.widget.kind == "row"]
    assert inside, "some row is always in sight"
    for placed in inside:
        assert placed.bounds.top >= screen.body.top - PIXEL
        assert placed.bounds.bottom <= screen.body.bottom + PIXEL
        assert (placed.bounds.bottom - placed.bounds.top) * HEIGHT >= VISIBLE_SHARE * HEIGHTS["row"] - 0.2


def photos(count: int, scroll: float = 0.0, *more: Widget) -> Screen:
    tiles = tuple(card(f"p{number}", f"Photo {number}", tap=NOTHING) for number in range(count))
    return lay_out(View(title="", body=(*tiles, *more), style="tiles"), a_state(scroll))


def test_tiles_lie_side_by_side_in_their_order_and_what_is_no_tile_takes_a_line() -> None:
    screen = photos(3, 0.0, label("note", "No more"))
    assert [placed.widget.id for placed in screen.placed] == ["p0", "p1", "p2", "note"]
    boxes = [placed.bounds for placed in screen.placed]
    assert [(box.left, box.right) for box in boxes] == [(0.0, 0.5), (0.5, 1.0), (0.0, 0.5), (0.0, 1.0)]
    top = STATUS_BAR + TITLE_BAR
    tops = [top, top, top + TILE_HEIGHT, top + 2 * TILE_HEIGHT]
    assert [box.top * HEIGHT for box in boxes] == pytest.approx(tops, abs=0.1)


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 60), scroll=st.floats(0, 4000))
def test_tiles_scroll_by_lines_and_a_line_is_seen_as_a_whole(count: int, scroll: float) -> None:
    screen, lines = photos(count, scroll), -(-count // TILE_COLUMNS)
    assert screen.overflow == max(0.0, lines * TILE_HEIGHT - (HEIGHT - STATUS_BAR - TITLE_BAR))
    seen = [int(placed.widget.id[1:]) for placed in screen.placed]
    assert seen == list(range(seen[0], seen[-1] + 1))
    assert seen[0] % TILE_COLUMNS == 0
    assert seen[-1] + 1 == count or (seen[-1] + 1) % TILE_COLUMNS == 0
    for placed in screen.placed:
        assert placed.bounds.top >= screen.body.top - PIXEL
        assert placed.bounds.bottom <= screen.body.bottom + PIXEL
        assert (placed.bounds.bottom - placed.bounds.top) * HEIGHT >= VISIBLE_SHARE * TILE_HEIGHT - 0.2


def test_photos_are_a_grid_whose_pictures_fill_what_is_told_of_them() -> None:
    finger = Finger("photos")
    tiles = [placed for placed in finger.shown.placed if placed.widget.kind == "card"]
    assert len({placed.bounds.left for placed in tiles}) == TILE_COLUMNS
    picture = np.asarray(draw(finger.state))
    height, width = picture.shape[:2]
    for bounds in (placed.bounds for placed in tiles):
        upper, lower = round(bounds.top * height) + 12, round(bounds.bottom * height) - 12
        left, right = round(bounds.left * width), round(bounds.right * width)
        inside = picture[upper:lower, left + 12 : right - 12]
        gap = picture[upper:lower, [left + 1, right - 2]]
        assert len(np.unique(inside.reshape(-1, 3), axis=0)) > 50, "a picture"
        assert np.ptp(gap, axis=(0, 1)).max() <= 1, "nothing of the next one"


def test_scrolling_beyond_the_end_stays_at_the_end() -> None:
    view = View(title="", body=rows(30))
    end = lay_out(view, a_state(10_000.0))
    assert end.placed[-1].widget.id == "r29"
    assert end.placed == lay_out(view, a_state(end.overflow)).placed


def test_scrolling_down_and_up_comes_back_to_the_top() -> None:
    finger = Finger("contacts")
    top = finger.in_sight()
    finger.act(SCROLL_DOWN)
    assert finger.in_sight() != top
    finger.act(SCROLL_UP)
    finger.act(SCROLL_UP)
    assert (finger.in_sight(), finger.state.place.scroll) == (top, 0.0)


# --- the home screen and dialogs ------------------------------------------------------------------------------------


def test_icons_of_the_home_screen_stand_in_rows_of_four() -> None:
    screen = Finger().shown
    body = [item for item in screen.placed if item.widget in screen.view.body]
    assert len({item.bounds.top for item in body}) == -(-len(body) // GRID_COLUMNS)
    assert len({item.bounds.left for item in body}) == GRID_COLUMNS


def test_a_dialog_lies_in_the_middle_and_moves_up_for_the_keyboard() -> None:
    view = View(title="Sure?", body=(button("yes", "Yes", tap=NOTHING),), shape="dialog")
    body = lay_out(view, a_state()).body
    assert (body.top + body.bottom) / 2 == pytest.approx(0.5, abs=0.01)
    assert lay_out(view, a_state(keyboard="q")).body.top < body.top


# --- what an agent is told ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CLASS_NAMES)
def test_a_widget_is_told_with_its_class_its_words_and_its_state(kind) -> None:
    widget = Widget(kind=kind, id="w", text="Words", detail="More", checked=True, tap=NOTHING, enabled=False)
    screen = lay_out(View(title="Title", body=(widget,)), a_state())
    title, element = elements_of(screen, "w")
    assert (title.text, title.class_name) == ("Title", "Title")
    assert (element.class_name, element.text, element.description) == (CLASS_NAMES[kind], "Words", "More")
    assert (element.resource_id, element.clickable, element.checked, element.enabled) == ("w", True, True, False)
    assert element.focused is (kind == "field")


def test_a_label_cannot_be_clicked_and_has_no_tick() -> None:
    _, element = elements_of(lay_out(View(title="", body=(label("l", "Words"),)), a_state()), "")
    assert (element.clickable, element.checked) == (False, None)


def test_a_long_page_has_something_that_scrolls_and_a_short_one_has_not() -> None:
    for count, scrolls in ((40, True), (3, False)):
        told = elements_of(lay_out(View(title="", body=rows(count)), a_state()), "")
        assert any(element.scrollable for element in told) is scrolls


def test_the_home_screen_has_no_title_and_scrolls_where_it_has_pages() -> None:
    told = Finger().elements()
    assert "Title" not in {element.class_name for element in told}
    assert [element.class_name for element in told if element.scrollable] == ["ScrollView"]


def test_a_loading_screen_tells_nothing_but_that() -> None:
    finger = Finger("notes")
    finger.state = replace(finger.state, loading=2)
    (element,) = finger.elements()
    assert (element.class_name, element.clickable) == ("ProgressBar", False)
    assert finger.in_sight() == set()

"""How screens look: styles but tiles, and pictures, change what is drawn and nothing that is reported or touched."""

from __future__ import annotations

from functools import lru_cache

import pytest
from msgspec.structs import replace
from PIL import Image, ImageChops

from distrl.devices.sim import phone, render
from distrl.devices.sim.apps.maps import KIND_SIGNS
from distrl.devices.sim.layout import STATUS_BAR, TITLE_BAR, elements_of, lay_out
from distrl.devices.sim.paint import Canvas, Written
from distrl.devices.sim.pictograms import pictogram_mask
from distrl.devices.sim.picture_art import is_picture
from distrl.devices.sim.state import PhoneState
from distrl.devices.sim.themes import app_theme, brand_of
from distrl.devices.sim.widget_art import Setting, draw_widget
from distrl.devices.sim.widgets import View, Widget, button, choice
from distrl.tasks.sim.oracle import play_oracle
from distrl.tasks.sim.suites import SUITES
from distrl.types import LongPress, Tap
from support.sims import Finger

LIGHT = app_theme("kiosko", False)
ARROW = Tap(22 / 360, (STATUS_BAR + TITLE_BAR / 2) / 720)


@lru_cache(maxsize=1)
def states() -> tuple[PhoneState, ...]:
    """One state of every screen that oracles come by."""
    found: dict[tuple[str, str], PhoneState] = {}
    for suite in SUITES.values():
        for index in range(0, 160, 2):
            for state in play_oracle(suite.task("train", index)).states:
                found.setdefault((state.place.app, state.place.screen), state)
    return tuple(found.values())


def differs(left: Image.Image, right: Image.Image) -> bool:
    return ImageChops.difference(left, right).getbbox() is not None


def picture(widget: Widget, setting: Setting | None = None) -> Image.Image:
    canvas = Canvas(Image.new("RGB", (360, 100), LIGHT.background), 1.0)
    draw_widget(canvas, widget, (0, 10, 360, 66), setting or Setting(LIGHT))
    return canvas.image


# --- looks change nothing but the drawing ---------------------------------------------------------------------------


def test_styles_looks_and_pictures_are_not_reported_and_move_nothing() -> None:
    for state in states():
        view = phone.view_of(state)
        bare = replace(
            view,
            style="tiles" if view.style == "tiles" else "list",  # the one style that is a layout too
            picture="",
            body=tuple(replace(widget, look="", icon="") for widget in view.body),
            bottom=tuple(replace(widget, look="", icon="") for widget in view.bottom),
        )
        assert elements_of(lay_out(bare, state), state.focus) == elements_of(lay_out(view, state), state.focus)


def test_every_picture_that_an_app_names_has_a_drawing() -> None:
    for state in states():
        view = phone.view_of(state)
        assert not view.picture or is_picture(view.picture) or view.picture.startswith("map:")
        for widget in (*view.body, *view.top, *view.bottom):
            known = is_picture(widget.icon) or pictogram_mask(widget.icon, 24) is not None
            assert known or not widget.icon, widget.icon
    assert all(pictogram_mask(sign, 24) is not None for sign in KIND_SIGNS.values())


def test_a_loading_page_shows_no_picture() -> None:
    state = next(state for state in states() if phone.view_of(state).picture.startswith("map:"))
    bare = replace(phone.show(replace(state, loading=1)), view=View(title=phone.view_of(state).title, body=()))
    with pytest.MonkeyPatch.context() as patch:
        loading = render.draw(replace(state, loading=1))
        patch.setattr(phone, "show", lambda _: bare)
        assert not differs(
            render.draw(replace(state, loading=1)).crop((0, 84, 360, 600)), loading.crop((0, 84, 360, 600))
        )


def test_apps_are_laid_out_in_different_styles() -> None:
    assert len({phone.view_of(state).style for state in states()}) >= 9


def test_everything_that_is_said_about_a_thing_can_be_read_beside_its_picture() -> None:
    for state in states():
        if phone.view_of(state).picture_at != "aside":
            continue
        lines: list[Written] = []
        render.draw(state, 1.0, lines)
        shown = " ".join(line.text for line in lines)
        for placed in phone.show(state).placed:
            if placed.widget.kind == "label" and placed.bounds.top >= phone.show(state).body.top:
                assert placed.widget.text.replace("–", "-") in shown


# --- choices and buttons --------------------------------------------------------------------------------------------


def test_one_of_several_choices_is_round_and_a_tick_box_is_square() -> None:
    radio = choice("w", "", on=True, tap=lambda state: state)
    corner, middle = (20, 30), (28, 38)
    assert picture(radio).getpixel(corner) == LIGHT.background
    assert picture(radio).getpixel(middle) == LIGHT.accent
    assert picture(replace(radio, look="")).getpixel(corner) == LIGHT.accent
    assert picture(replace(radio, checked=False)).getpixel(middle) == LIGHT.background


def test_single_choices_of_the_apps_are_radio_buttons_and_checklists_are_not() -> None:
    finger = Finger("settings").tap("section:display", "timeout")
    assert {widget.look for widget in finger.widgets().values() if widget.kind == "check"} == {"radio"}
    checks = [w for state in states() for w in phone.view_of(state).body if w.id.startswith("item:")]
    assert checks
    assert {widget.look for widget in checks} == {""}


def test_only_the_main_button_is_filled_with_the_accent() -> None:
    main = button("b", "", tap=lambda state: state)
    inside = (180, 38)
    assert picture(main).getpixel(inside) == LIGHT.accent
    assert picture(replace(main, look="quiet")).getpixel(inside) == LIGHT.surface
    red, green, _ = picture(replace(main, look="danger")).getpixel(inside)
    assert red > green
    assert red - green < 60, "a tint, not a filled red button"


def test_nothing_that_deletes_or_uninstalls_is_the_main_button() -> None:
    words = ("delete", "uninstall", "throw away", "clear history", "cancel order")
    found = [
        widget
        for state in states()
        for widget in (*phone.view_of(state).body, *phone.view_of(state).bottom)
        if widget.kind == "button" and any(word in widget.text.lower() for word in words)
    ]
    assert len(found) > 5
    assert {widget.look for widget in found} == {"danger"}


# --- the back arrow -------------------------------------------------------------------------------------------------


def test_a_page_above_another_has_a_back_arrow_that_leads_there() -> None:
    finger = Finger("settings").tap("section:display")
    state = finger.state
    assert phone.has_way_back(state)
    after = phone.perform(state, phone.show(state), ARROW)
    assert after.valid
    assert after.state.stack == state.stack[:-1]


def test_the_first_page_of_an_app_has_none() -> None:
    state = Finger("settings").state
    assert not phone.has_way_back(state)
    outcome = phone.perform(state, phone.show(state), ARROW)
    assert (outcome.valid, outcome.why) == (False, "nothing is there to touch")


def test_the_arrow_is_small_and_is_not_held() -> None:
    state = Finger("settings").tap("section:display").state
    for touch in (Tap(0.5, ARROW.y), Tap(ARROW.x, 0.01), LongPress(ARROW.x, ARROW.y)):
        assert not phone.perform(state, phone.show(state), touch).valid


def test_the_arrow_is_drawn_where_there_is_a_way_back() -> None:
    state = Finger("settings").tap("section:display").state
    alone = replace(state, stack=(state.stack[0], state.stack[-1]))
    at = (14, STATUS_BAR + 10, 40, STATUS_BAR + TITLE_BAR - 10)
    assert differs(render.draw(state).crop(at), render.draw(alone).crop(at))


# --- pages ----------------------------------------------------------------------------------------------------------


def test_a_web_shop_has_a_colour_of_its_own_also_below_its_dialogs() -> None:
    brands = {state.place.screen: brand_of(state) for state in states() if state.place.app == "browser"}
    assert brands["kiosko-home"] == "kiosko"
    assert brands["northmart-home"] == "northmart"
    assert brands["home"] == "browser"
    assert brands.get("choose", "northmart") == "northmart"


def test_every_page_can_be_drawn_scrolled_to_its_end_on_dense_and_on_roomy_phones() -> None:
    for state in states():
        for variant in (0, 2):
            worn = replace(state.perturbations, variant=variant)
            moved = replace(state, perturbations=worn, stack=(*state.stack[:-1], replace(state.place, scroll=9999.0)))
            assert render.draw(moved, 0.5).size == (180, 360)


def test_long_menus_are_sheets_from_the_bottom_edge() -> None:
    share = next(state for state in states() if (state.place.app, state.place.screen) == ("photos", "share"))
    theme = app_theme("photos", bool(share.tables["settings.pref"]["dark"]["on"]))
    assert render.draw(share).getpixel((5, 700)) == theme.surface

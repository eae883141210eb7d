"""How things look: themes that can be read, widgets that show their state, the status bar, icons and the keyboard."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from PIL import Image, ImageChops

from distrl.devices.sim.apps import APPS
from distrl.devices.sim.paint import WHITE, Canvas, Written, brightness
from distrl.devices.sim.state import PhoneState, put
from distrl.devices.sim.system_art import KEYS_TOP, draw_app_icon, draw_status_bar, keyboard_picture, time_of, wallpaper
from distrl.devices.sim.themes import Theme, app_theme, is_dark, theme_of
from distrl.devices.sim.widget_art import ART, Setting, draw_widget
from distrl.devices.sim.widgets import CLASS_NAMES, Widget
from distrl.devices.sim.world import start_state
from support.sims import Finger, sim_task

every_theme = pytest.mark.parametrize(
    ("app", "dark"), [(app, dark) for app in (*APPS, "system") for dark in (False, True)]
)
LIGHT = app_theme("settings", False)


def differs(left: Image.Image, right: Image.Image) -> bool:
    return ImageChops.difference(left, right).getbbox() is not None


def picture(kind: str = "row", theme: Theme = LIGHT, *, focus: str = "", **fields: object) -> Image.Image:
    """A widget on its own."""
    canvas = Canvas(Image.new("RGB", (360, 100), theme.background), 1.0)
    widget = Widget(kind=kind, id="w", **{"text": "Words", **fields})  # type: ignore[arg-type]
    draw_widget(canvas, widget, (0, 10, 360, 80), Setting(theme, focus=focus))
    return canvas.image


def status_bar(state: PhoneState) -> tuple[Image.Image, list[str]]:
    lines: list[Written] = []
    canvas = Canvas(Image.new("RGB", (360, 28)), 1.0, lines)
    draw_status_bar(canvas, state, WHITE)
    return canvas.image, [line.text for line in lines]


# --- themes ---------------------------------------------------------------------------------------------------------


@every_theme
def test_text_and_accents_stand_out_from_what_is_behind_them(app: str, dark: bool) -> None:
    theme = app_theme(app, dark)
    for ink, behind in (
        (theme.text, theme.background),
        (theme.text, theme.surface),
        (theme.accent, theme.background),
        (theme.on_tint, theme.tint),
    ):
        assert abs(brightness(ink) - brightness(behind)) > 0.4
    assert abs(brightness(theme.on_accent) - brightness(theme.accent)) > 0.3


@every_theme
def test_a_dark_theme_is_dark_and_a_light_one_light(app: str, dark: bool) -> None:
    theme = app_theme(app, dark)
    assert theme.dark is dark
    assert (brightness(theme.background) < 0.2) is dark
    assert (brightness(theme.text) > 0.8) is dark


def test_apps_differ_in_their_accents() -> None:
    assert len({app_theme(app, False).accent for app in APPS}) > 6


def test_the_theme_follows_the_topmost_app_and_the_switch_of_the_settings() -> None:
    finger = Finger("notes")
    finger.state = put(finger.state, "settings.pref", "dark", on=False)
    assert theme_of(finger.state) == app_theme("notes", False)
    finger.state = put(finger.state, "settings.pref", "dark", on=True)
    assert is_dark(finger.state)
    assert theme_of(finger.state) == app_theme("notes", True)
    finger.home()
    assert theme_of(finger.state) == app_theme("launcher", True)


def test_a_phone_without_that_setting_is_light() -> None:
    assert not is_dark(replace(Finger().state, tables={}))


# --- widgets --------------------------------------------------------------------------------------------------------


def test_every_kind_of_widget_can_be_drawn() -> None:
    assert ART.keys() == CLASS_NAMES.keys()
    empty = Image.new("RGB", (360, 100), LIGHT.background)
    for kind in ART:
        assert differs(picture(kind, icon="star"), empty), kind


@pytest.mark.parametrize("kind", ["switch", "check", "tab"])
def test_on_and_off_look_different(kind: str) -> None:
    assert differs(picture(kind, checked=True), picture(kind, checked=False))


def test_a_button_that_is_not_enabled_is_paler() -> None:
    on, off = picture("button"), picture("button", enabled=False)
    behind = brightness(LIGHT.background)
    assert abs(brightness(off.getpixel((60, 45))) - behind) < abs(brightness(on.getpixel((60, 45))) - behind)


def test_a_field_with_the_focus_shows_a_caret_and_its_hint_on_the_edge() -> None:
    assert differs(picture("field", detail="Title", text=""), picture("field", focus="w", detail="Title", text=""))
    assert differs(
        picture("field", detail="Title", text="Tea"), picture("field", focus="w", detail="Title", text="Tea")
    )


def test_a_second_line_makes_room_above_it() -> None:
    assert differs(picture(text="Words"), picture(text="Words", detail="More"))


def test_the_picture_on_a_card_depends_on_its_name() -> None:
    cards = {picture("card", text=name, icon="box").crop((12, 15, 90, 75)).tobytes() for name in "abcdefgh"}
    assert len(cards) > 2
    assert not differs(picture("card", text="Tea", icon="box"), picture("card", text="Tea", icon="box"))


def test_long_labels_are_broken_and_everything_stays_in_its_box() -> None:
    for kind in ART:
        image = picture(kind, text="word " * 40, detail="more " * 40)
        canvas = Image.new("RGB", image.size, LIGHT.background)
        box = ImageChops.difference(image, canvas).getbbox()
        assert box is not None
        assert box[3] <= 85, kind


# --- the status bar and the home screen -----------------------------------------------------------------------------


def test_the_time_of_day_passes_every_second_step_and_round_the_clock() -> None:
    state = start_state(sim_task(seed=3))
    times = [time_of(replace(state, tick=tick)) for tick in (0, 1, 2)]
    assert times[0] == times[1] != times[2]
    hours, minutes = time_of(replace(state, tick=4000)).split(":")
    assert 0 <= int(hours) < 24
    assert len(minutes) == 2


def test_the_status_bar_tells_the_time() -> None:
    state = start_state(sim_task())
    assert time_of(state) in status_bar(state)[1]


@pytest.mark.parametrize("name", ["airplane", "wifi", "bluetooth", "silent"])
def test_a_switch_of_the_settings_shows_in_the_status_bar(name: str) -> None:
    state = start_state(sim_task())
    on, off = (status_bar(put(state, "settings.pref", name, on=value))[0] for value in (True, False))
    assert differs(on, off)


def test_the_charge_is_told_where_the_settings_say_so() -> None:
    state = start_state(sim_task())
    for on in (True, False):
        told = status_bar(put(state, "settings.pref", "percent", on=on))[1]
        assert any(line.endswith("%") for line in told) is on


def test_other_switches_do_not_show() -> None:
    state = start_state(sim_task())
    on, off = (status_bar(put(state, "settings.pref", "vibrate", on=value))[0] for value in (True, False))
    assert not differs(on, off)


@pytest.mark.parametrize("app", APPS)
def test_an_app_has_an_icon_of_its_own_colour_with_its_name_below(app: str) -> None:
    lines: list[Written] = []
    canvas = Canvas(Image.new("RGB", (90, 104)), 1.0, lines)
    widget = Widget(kind="icon", id=f"app:{app}", text=APPS[app].title, icon=APPS[app].icon)
    draw_app_icon(canvas, widget, (0, 0, 90, 104))
    assert APPS[app].title in {line.text for line in lines}
    assert canvas.image.getbbox() is not None


def test_an_unknown_app_has_an_icon_too() -> None:
    canvas = Canvas(Image.new("RGB", (90, 104)), 1.0)
    draw_app_icon(canvas, Widget(kind="icon", id="app:none", text="None", icon=""), (0, 0, 90, 104))
    assert canvas.image.getbbox() is not None


@pytest.mark.parametrize("scale", [0.2, 0.6, 1.0])
def test_wallpaper_and_keyboard_fit_every_size(scale: float) -> None:
    assert wallpaper(scale, 0, False).size == (round(360 * scale), round(720 * scale))
    keys = keyboard_picture(scale, False)
    assert keys.size == (round(360 * scale), round(720 * scale) - round(KEYS_TOP * scale))


def test_wallpapers_differ_and_are_darker_at_night() -> None:
    assert len({wallpaper(0.2, kind, False).tobytes() for kind in range(6)}) == 6
    day, night = (wallpaper(0.2, 0, dark).convert("L").resize((1, 1)).getpixel((0, 0)) for dark in (False, True))
    assert night < day
    assert differs(keyboard_picture(0.5, True), keyboard_picture(0.5, False))

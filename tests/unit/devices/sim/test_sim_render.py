from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from PIL import Image, ImageChops

from distrl.config.schema import FaultConfig, LatencyConfig
from distrl.devices.sim import layout, phone, render
from distrl.devices.sim.apps import APPS, SCREENS
from distrl.devices.sim.device import SimDevice, SimSettings
from distrl.devices.sim.paint import Canvas, Pen, Written, clean, text_mask
from distrl.devices.sim.pictograms import ALIASES, DRAWINGS, pictogram_mask
from distrl.devices.sim.state import PhoneState, put
from distrl.devices.sim.themes import app_theme
from distrl.devices.sim.widget_art import Setting, draw_widget
from distrl.devices.sim.widgets import CLASS_NAMES, View, Widget
from distrl.devices.sim.world import start_state
from distrl.errors import CorruptFrame
from distrl.rollout.stepping import drive
from distrl.tasks.sim.oracle import play_oracle
from distrl.tasks.sim.suites import SUITES, suite
from distrl.types import Press, Swipe, Tap, TypeText
from support.sims import seed_of_phone


def home() -> PhoneState:
    return start_state(suite("sim-general").task("train", 0))


@lru_cache(maxsize=1)
def many_states() -> list[PhoneState]:
    """Screens of all kinds: oracle episodes and random play, one state of each kind of screen and perturbation."""
    found: dict[tuple[object, ...], PhoneState] = {}
    for each in SUITES.values():
        for index in range(0, 160, 4):
            for state in _episode(
                seed_of_phone(each.task("train", index)), play_oracle(each.task("train", index)).states
            ):
                place = state.place
                found.setdefault((place.app, place.screen, bool(state.focus), bool(place.drafts)), state)
    return list(found.values())


def _episode(seed: int, states: tuple[PhoneState, ...]) -> Iterator[PhoneState]:
    yield from states
    random, state = Random(seed), states[-1]
    for _ in range(8):
        screen = phone.show(state)
        reach = [placed.bounds.centre for placed in screen.placed if placed.widget.tap]
        moves = [Press("back"), Swipe(0.5, 0.6, 0.5, 0.2), TypeText("tea"), *(Tap(*centre) for centre in reach * 2)]
        state = phone.perform(state, screen, random.choice(moves)).state
        yield state


def differs(left: Image.Image, right: Image.Image) -> bool:
    return ImageChops.difference(left, right).getbbox() is not None


def test_every_kind_of_screen_can_be_drawn_at_two_sizes_with_something_on_it():
    states = many_states()
    assert {(state.place.app, state.place.screen) for state in states} >= {(app, "home") for app in APPS}
    assert len({(state.place.app, state.place.screen) for state in states}) > len(SCREENS) / 2
    for state in states:
        picture, large = render.draw(state), render.draw(state, 1.5)
        assert (picture.size, large.size) == ((360, 720), (540, 1080))
        assert len(picture.getcolors(100_000) or []) > 8


def test_a_loading_screen_shows_no_content():
    state = next(
        state for state in many_states() if phone.show(state).placed and phone.show(state).view.shape == "page"
    )
    assert differs(render.draw(replace(state, loading=2)), render.draw(state))
    assert not differs(render.draw(replace(state, loading=2)), render.draw(replace(state, loading=1)))


def test_the_dark_theme_is_dark_and_follows_the_setting():
    for state in many_states()[:12]:
        light = render.draw(put(state, "settings.pref", "dark", on=False)).convert("L").resize((1, 1)).getpixel((0, 0))
        dark = render.draw(put(state, "settings.pref", "dark", on=True)).convert("L").resize((1, 1)).getpixel((0, 0))
        assert dark < 0.7 * light


def test_the_same_state_gives_the_same_picture():
    for state in many_states()[:12]:
        first = render.draw(state).tobytes()
        text_mask.cache_clear()
        assert render.draw(state).tobytes() == first


def test_a_dialog_lies_over_the_dimmed_screen_below_it():
    state = next(state for state in many_states() if phone.show(state).view.shape == "dialog" and len(state.stack) > 2)
    below = render.draw(replace(state, stack=state.stack[:-1], focus=""))
    corner = (30, 60)
    shown, under = render.draw(state).getpixel(corner), below.getpixel(corner)
    assert shown == pytest.approx([render.DIMMED * level for level in under], abs=1)


def test_a_picture_survives_coding():
    picture = render.draw(home())
    back = render.decode(render.encode_jpeg(picture))
    assert back.size == picture.size
    difference = ImageChops.difference(back, picture).convert("L").resize((1, 1), Image.Resampling.BOX)
    assert difference.getpixel((0, 0)) < 4


@pytest.mark.parametrize("keep", [0, 1, 20, 600, -200, -2, -1])
def test_a_truncated_picture_is_found_out(keep: int):
    data = render.encode_jpeg(render.draw(home()))
    with pytest.raises(CorruptFrame, match="take another screenshot"):
        render.decode(data[:keep])


def test_what_is_no_picture_is_found_out():
    for data in (b"", b"hello", b"\xff\xd8\xff\xd9", bytes(1000)):
        with pytest.raises(CorruptFrame):
            render.decode(data)


def test_a_device_gives_whole_and_damaged_screenshots():
    def screenshot(corrupt_rate: float) -> bytes:
        faults, latency = FaultConfig(corrupt_rate=corrupt_rate), LatencyConfig(profile="instant")
        device = SimDevice("phone-0", SimSettings(latency=latency, faults=faults))
        device.state = home()
        return drive(device.capture(screenshot=True)).screenshot

    assert render.decode(screenshot(0.0)).size == (360, 720)
    with pytest.raises(CorruptFrame):
        render.decode(screenshot(1.0))


@settings(max_examples=150, deadline=None)
@given(text=st.text(st.characters(), max_size=60), kind=st.sampled_from(sorted(CLASS_NAMES)), width=st.integers(1, 360))
def test_no_text_breaks_any_widget(text: str, kind: str, width: int):
    canvas = Canvas(Image.new("RGB", (360, 120)), 1.0)
    widget = Widget(kind=kind, id="w", text=text, detail=text[::-1], icon=text[:3], checked=True)
    draw_widget(canvas, widget, (0, 10, width, 90), Setting(app_theme("settings", False), focus="w"))


def test_lone_surrogates_and_control_characters_are_drawn_as_something():
    for text in ("\ud800 half", "tab\tand\nline", "\u202eright to left", "naïve café ½ ✓ € 😀", ""):
        assert text_mask(text, 16, True, 200).width <= 200
    assert clean("a\n\tb\x00c") == "a b c"


def test_long_text_is_cut_to_its_box():
    long, short = text_mask("word " * 50, 16, False, 100), text_mask("word", 16, False, 100)
    assert short.width < long.width <= 100
    uncut = text_mask("word " * 50, 16, False, 4000).crop((0, 0, long.width, long.height))
    assert differs(long, uncut), "it ends in dots, not in the middle of a letter"
    canvas = Canvas(Image.new("RGB", (200, 40)), 1.0)
    canvas.text(10, 20, "An extraordinarily long line", Pen(16, (255, 255, 255)), width=80)
    box = canvas.image.getbbox()
    assert box is not None
    assert box[0] >= 10
    assert box[2] <= 90


def test_every_pictogram_has_a_drawing_of_its_own_and_unknown_ones_a_letter():
    masks = {name: pictogram_mask(name, 24) for name in DRAWINGS}
    assert all(mask is not None and mask.getbbox() is not None for mask in masks.values())
    assert len({mask.tobytes() for mask in masks.values() if mask}) == len(DRAWINGS)
    assert set(ALIASES.values()) <= set(DRAWINGS)
    canvas = Canvas(Image.new("RGB", (40, 40)), 1.0)
    canvas.pictogram("zebra", 20, 20, 30, (255, 255, 255))
    assert canvas.image.getbbox() is not None


def test_a_switch_looks_different_on_and_off():
    def picture(on: bool) -> Image.Image:
        canvas = Canvas(Image.new("RGB", (360, 56)), 1.0)
        widget = Widget(kind="switch", id="s", text="Wi-Fi", checked=on)
        draw_widget(canvas, widget, (0, 0, 360, 56), Setting(app_theme("settings", False)))
        return canvas.image

    assert differs(picture(True), picture(False))


def test_content_that_scrolled_under_the_title_bar_stays_under_it(monkeypatch: pytest.MonkeyPatch):
    rows = tuple(Widget(kind="row", id=f"r{index}", text=f"Row {index}", detail="detail") for index in range(40))
    view = View(title="Rows", body=rows)
    state = home()
    scrolled = replace(state, stack=(*state.stack, replace(state.place, app="settings", scroll=75.0)))
    monkeypatch.setattr(phone, "show", lambda state: layout.lay_out(view, state))
    top = (0, 0, 360, layout.STATUS_BAR + layout.TITLE_BAR - 1)
    still = replace(scrolled, stack=(*state.stack, replace(scrolled.place, scroll=56.0)))
    assert not differs(render.draw(scrolled).crop(top), render.draw(still).crop(top))
    assert differs(render.draw(scrolled), render.draw(still))


def test_the_text_of_a_picture_is_told_with_the_places_of_its_letters_and_telling_changes_no_pixel():
    found = 0
    for state in many_states():
        lines: list[Written] = []
        image = render.draw(state, 0.6, lines)
        assert not differs(image, render.draw(state, 0.6))
        for line in lines:
            assert len(line.letters) == len(line.text)
            assert list(line.letters) == sorted(line.letters)
        shown = {line.text for line in lines}
        titles = {element.text for element in layout.elements_of(phone.show(state), state.focus) if element.text}
        found += len(titles & shown)
    assert found > 5 * len(many_states())


def test_a_letter_stands_where_it_is_said_to_stand():
    lines: list[Written] = []
    canvas = Canvas(Image.new("RGB", (200, 40)), 1.0, lines)
    canvas.text(20, 20, "ill", Pen(16, (255, 255, 255)), width=100)
    (line,) = lines
    assert (line.text, line.middle) == ("ill", pytest.approx(20, abs=2))
    columns = [x for x in range(200) if canvas.image.crop((x, 0, x + 1, 40)).getbbox()]
    assert all(min(abs(x - letter) for x in columns) <= 1.5 for letter in line.letters)
    assert columns[0] <= line.letters[0] < line.letters[1] < line.letters[2] <= columns[-1] + 1


def test_text_that_something_was_painted_over_is_told_no_more_and_what_stands_beside_it_is():
    lines: list[Written] = []
    canvas = Canvas(Image.new("RGB", (200, 80)), 1.0, lines)
    pen = Pen(12, (255, 255, 255))
    canvas.text(10, 20, "under", pen, width=90)
    canvas.text(10, 60, "below", pen, width=90)
    canvas.fill((0, 10, 200, 30), (9, 9, 9))
    assert [line.text for line in lines] == ["below"]
    canvas.rounded((0, 40, 200, 80), 4, (9, 9, 9), outline=1.0)
    assert [line.text for line in lines] == ["below"]
    canvas.rounded((0, 40, 200, 80), 4, (9, 9, 9))
    assert lines == []

"""Brushes: colours, shapes with smooth edges, text that is cut to its box, and pictograms."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageChops

from distrl.devices.sim.paint import (
    BLACK,
    WHITE,
    Canvas,
    Pen,
    Written,
    advance,
    brightness,
    clean,
    letter_places,
    mix,
    parse_colour,
    piece_mask,
    pieces,
    rounded_mask,
    slices,
    spinner_mask,
    text_mask,
    wrap,
)
from distrl.devices.sim.pictograms import DRAWINGS, fallback_colour, pictogram_mask

RED, GREY = (200, 30, 30), (90, 90, 90)
QUIET_BLUE = (66, 103, 178)
colours = st.tuples(*[st.integers(0, 255)] * 3)


def a_canvas(width: int = 100, height: int = 60, scale: float = 1.0) -> Canvas:
    return Canvas(Image.new("RGB", (width, height)), scale)


def painted(canvas: Canvas) -> tuple[int, int, int, int]:
    box = canvas.image.getbbox()
    assert box is not None
    return box


# --- colours --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "colour"),
    [("#ff8000", (255, 128, 0)), ("000000", BLACK), ("#fff", QUIET_BLUE), ("red", QUIET_BLUE), ("", QUIET_BLUE)],
)
def test_a_colour_is_read_or_replaced(text: str, colour: tuple[int, int, int]) -> None:
    assert parse_colour(text) == colour


@given(colours, colours, st.floats(0, 1))
def test_a_mixture_lies_between_its_colours(under, over, share: float) -> None:
    assert mix(under, over, 0.0) == under
    assert mix(under, over, 1.0) == over
    for low, mixed, high in zip(under, mix(under, over, share), over, strict=True):
        assert min(low, high) <= mixed <= max(low, high)


def test_brightness_goes_from_black_to_white_and_green_is_brighter_than_blue() -> None:
    assert brightness(BLACK) == 0.0
    assert brightness(WHITE) == pytest.approx(1.0)
    assert brightness((0, 255, 0)) > brightness((255, 0, 0)) > brightness((0, 0, 255))


def test_a_fallback_colour_depends_on_the_name_alone() -> None:
    assert fallback_colour("zebra") == fallback_colour("zebra")
    assert len({fallback_colour(name) for name in ("zebra", "lion", "tiger", "bear", "wolf", "owl")}) > 2


# --- shapes ---------------------------------------------------------------------------------------------------------


def test_a_rectangle_fills_its_box_and_nothing_else() -> None:
    canvas = a_canvas()
    canvas.fill((10, 5, 40, 25), RED)
    assert painted(canvas) == (10, 5, 40, 25)
    assert canvas.image.getcolors() is not None
    assert {colour for _, colour in canvas.image.crop((10, 5, 40, 25)).getcolors() or []} == {RED}


@pytest.mark.parametrize("box", [(10, 10, 10, 20), (10, 10, 5, 20), (10, 20, 30, 10)])
def test_a_box_without_an_area_is_not_painted(box: tuple[float, float, float, float]) -> None:
    canvas = a_canvas()
    canvas.fill(box, RED)
    canvas.rounded(box, 4, RED)
    assert canvas.image.getbbox() is None


def test_lengths_grow_with_the_scale() -> None:
    canvas = a_canvas(200, 120, scale=2.0)
    canvas.fill((10, 5, 40, 25), RED)
    assert painted(canvas) == (20, 10, 80, 50)
    assert canvas.px(7.3) == 15


@pytest.mark.parametrize("height", [12, 50], ids=["short", "tall"])
def test_round_corners_leave_the_corners_out(height: int) -> None:
    canvas = a_canvas()
    canvas.rounded((10, 2, 90, 2 + height), 5, RED)
    assert painted(canvas) == (10, 2, 90, 2 + height)
    assert brightness(canvas.image.getpixel((10, 2))) < 0.5 * brightness(RED)
    assert canvas.image.getpixel((50, 2 + height // 2)) == RED


@pytest.mark.parametrize("height", [12, 50], ids=["short", "tall"])
def test_an_outline_is_hollow(height: int) -> None:
    canvas = a_canvas()
    canvas.rounded((10, 2, 90, 2 + height), 5, RED, outline=2.0)
    assert canvas.image.getpixel((50, 2 + height // 2)) == BLACK
    assert canvas.image.getpixel((50, 2)) == RED
    assert canvas.image.getpixel((10, 2 + height // 2)) == RED


def test_a_disc_is_round() -> None:
    canvas = a_canvas()
    canvas.disc(50, 30, 20, RED)
    left, top, right, bottom = painted(canvas)
    assert (right - left, bottom - top) == (40, 40)
    assert canvas.image.getpixel((50, 30)) == RED
    assert canvas.image.getpixel((32, 12)) == BLACK


def test_edges_are_smooth() -> None:
    assert len(rounded_mask(40, 40, 20.0, 0.0).getcolors() or []) > 4


@pytest.mark.parametrize("outline", [0.0, 1.3, 2.2])
@pytest.mark.parametrize("size", [(90, 44), (30, 58), (96, 57), (40, 40), (3, 50)])
def test_a_shape_made_of_slices_is_the_shape_drawn_as_one(size: tuple[int, int], outline: float) -> None:
    canvas = a_canvas()
    canvas.rounded((2, 1, 2 + size[0], 1 + size[1]), 9, WHITE, outline=outline)
    whole = Image.new("RGB", canvas.image.size)
    whole.paste(WHITE, (2, 1), rounded_mask(*size, 9.0, max(1.0, outline) if outline else 0.0))
    assert ImageChops.difference(canvas.image, whole).getbbox() is None


def test_only_the_corners_of_a_large_shape_are_masks() -> None:
    masks, plain = slices(300, 200, 12.0, 0.0)
    assert len(masks) == 4
    assert plain
    assert sum(mask.width * mask.height for _, _, mask in masks) < 1000


def test_a_picture_keeps_what_lies_behind_its_round_corners() -> None:
    canvas = a_canvas()
    canvas.fill((0, 0, 100, 60), GREY)
    canvas.picture(Image.new("RGB", (80, 50), RED), (10, 5, 90, 55), 12)
    assert canvas.image.getpixel((50, 30)) == RED
    assert canvas.image.getpixel((10, 5)) == GREY
    assert canvas.image.getpixel((89, 54)) == GREY
    assert canvas.image.getpixel((50, 5)) == RED


def test_a_dimmed_canvas_keeps_its_share_of_light() -> None:
    canvas = a_canvas()
    canvas.fill((0, 0, 100, 60), WHITE)
    canvas.dim(0.5)
    assert canvas.image.getpixel((5, 5)) == pytest.approx((127, 127, 127), abs=1)
    canvas.fill((0, 0, 10, 10), RED)
    assert canvas.image.getpixel((5, 5)) == RED


def test_a_cleared_canvas_is_plain_and_tells_no_text() -> None:
    lines: list[Written] = []
    canvas = Canvas(Image.new("RGB", (1, 1)), 1.0, lines)
    canvas.text(0, 0, "gone", Pen(12, WHITE), width=50)
    canvas.clear((30, 20), RED)
    assert canvas.image.getcolors() == [(600, RED)]
    assert lines == []


def test_a_line_joins_its_points() -> None:
    canvas = a_canvas()
    canvas.polyline([(10, 10), (60, 10), (60, 50)], 6, RED)
    assert canvas.image.getpixel((35, 10)) == RED
    assert canvas.image.getpixel((60, 30)) == RED
    assert canvas.image.getpixel((30, 40)) == BLACK


def test_a_spinner_turns() -> None:
    pictures = {spinner_mask(40, turn).tobytes() for turn in range(12)}
    assert len(pictures) == 12
    canvas = a_canvas()
    canvas.spinner(50, 30, 12, RED, 0.5)
    assert painted(canvas)[0] >= 36


# --- text -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain", "plain"),
        ("  two   spaces ", "two spaces"),
        ("tab\tand\nline", "tab and line"),
        ("naïve café", "naive cafe"),
        ("20 – 30", "20 - 30"),
        ("2 × tea", "2 x tea"),
        ("Straße", "Strasse"),
        ("", ""),
    ],
)
def test_text_becomes_one_line_that_the_font_has(text: str, line: str) -> None:
    assert clean(text) == line


def test_very_long_text_is_not_measured_to_its_end() -> None:
    assert len(clean("a" * 10_000)) == 400


@settings(max_examples=80, deadline=None)
@given(text=st.text(max_size=80), size=st.integers(6, 30), width=st.integers(1, 300))
def test_no_line_is_wider_than_its_box(text: str, size: int, width: int) -> None:
    mask = text_mask(text, size, False, width)
    assert 1 <= mask.width <= max(1, width)
    line, places = letter_places(text, size, width)
    assert len(line) == len(places)
    assert list(places) == sorted(places)


def test_a_line_that_is_cut_ends_in_dots() -> None:
    line, _ = letter_places("a line that is far too long for its box", 16, 100)
    assert line.endswith("…")
    assert "a line that is far too long".startswith(line[:-1])


def test_a_line_is_set_from_words_and_single_digits() -> None:
    assert pieces("Room 12, at 9:30") == ("Room", " ", "1", "2", ",", " ", "at", " ", "9", ":", "3", "0")


def test_bold_letters_have_more_ink_and_take_the_same_way() -> None:
    def ink(mask: Image.Image) -> int:
        return sum(level * count for count, level in mask.getcolors() or [])

    assert ink(piece_mask("word", 16, True)) > 1.2 * ink(piece_mask("word", 16, False))
    assert piece_mask("word", 16, True).size == piece_mask("word", 16, False).size


@pytest.mark.parametrize("sign", "€★✓❤")
def test_signs_that_the_font_lacks_are_drawn_as_pictograms(sign: str) -> None:
    assert piece_mask(sign, 20, False).getbbox() is not None
    assert advance(sign, 20) == 17


def test_text_is_broken_into_two_lines_at_a_space() -> None:
    one = wrap("short", 13, 200)
    two = wrap("a line that is somewhat too long for it", 13, 200)
    assert one == ("short",)
    assert len(two) == 2
    assert " ".join(two) == "a line that is somewhat too long for it"
    assert wrap("Donaudampfschifffahrtsgesellschaft", 13, 50) == ("Donaudampfschifffahrtsgesellschaft",)


@pytest.mark.parametrize(("anchor", "where"), [(0.0, "left"), (0.5, "middle"), (1.0, "right")])
def test_text_stands_at_its_anchor(anchor: float, where: str) -> None:
    canvas = a_canvas(200, 40)
    canvas.text(100, 20, "word", Pen(16, WHITE), width=90, anchor=anchor)
    left, _, right, _ = painted(canvas)
    expected = {"left": left >= 100, "middle": abs((left + right) / 2 - 100) < 3, "right": right <= 101}
    assert expected[where]


def test_the_length_of_a_line_is_told_in_units_of_the_layout() -> None:
    small, large = a_canvas(scale=1.0), a_canvas(scale=2.0)
    assert small.length("some words", 16, 300) == pytest.approx(large.length("some words", 16, 300), rel=0.05)
    assert small.length("some words", 16, 30) <= 30


def test_written_text_is_told_where_the_canvas_is_asked_to() -> None:
    lines: list[Written] = []
    canvas = Canvas(Image.new("RGB", (200, 40)), 1.0, lines)
    canvas.text(10, 20, "tea at nine", Pen(14, WHITE), width=150)
    assert [line.text for line in lines] == ["tea at nine"]
    assert 10 <= lines[0].letters[0] < lines[0].letters[-1] < 150
    assert a_canvas().written is None


# --- pictograms -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 7, 24, 96])
def test_a_pictogram_has_the_size_that_was_asked_for(size: int) -> None:
    for name in DRAWINGS:
        mask = pictogram_mask(name, size)
        assert mask is not None
        assert mask.size == (size, size)


def test_an_unknown_pictogram_has_no_mask() -> None:
    assert pictogram_mask("zebra", 24) is None
    assert pictogram_mask("", 24) is None


def test_a_pictogram_is_centred_and_takes_its_colour() -> None:
    canvas = a_canvas()
    canvas.pictogram("dot", 50, 30, 24, RED)
    left, top, right, bottom = painted(canvas)
    assert ((left + right) / 2, (top + bottom) / 2) == pytest.approx((50, 30), abs=1)
    assert canvas.image.getpixel((50, 30)) == RED

"""What dialects share, on hostile input: calls, JSON in prose, points and scroll directions."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.policies.dialects.base import LONGEST, LONGEST_TEXT, Screen, has_expressible_text, understand
from distrl.policies.dialects.parsing import (
    DEEPEST,
    THOUSAND,
    UNIT,
    Call,
    count,
    find_object,
    locate,
    on_screen,
    pixels,
    quote,
    read_call,
    remap,
    shorten,
)
from distrl.types import Finish, LongPress, Press, Swipe, Tap, TypeText, Unparsed, Wait

SCREEN = Screen(width=1080, height=2400)
SHARE = st.floats(0.0, 1.0, exclude_max=True)
ANY_NUMBER = st.floats(allow_nan=True, allow_infinity=True, width=32)


class Point(msgspec.Struct):
    x: int
    y: int = 0


def called(text: str) -> Call | None:
    return read_call(text, free="content")


@given(st.text(max_size=60))
def test_a_quoted_text_is_one_line_and_comes_back(text: str) -> None:
    written = quote(text)
    assert not set(written) & {"\n", "\r", "\t"}
    assert called(f"type(content={written})") == Call("type", {"content": text})


@given(st.text("ab'\"\\(),=\n ", max_size=40))
def test_any_arguments_are_a_call_or_none(text: str) -> None:
    found = called(f"type({text}")
    assert found is None or found.name == "type"


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("tap()", {}),
        ("  tap( ) and then some", {}),
        ("tap(x=1, y = 2)", {"x": "1", "y": "2"}),
        ("tap(a='1',b=\"2\")", {"a": "1", "b": "2"}),
        ("tap(a='it\\'s')", {"a": "it's"}),
        ("tap(content='it's')", {"content": "it's"}),
        ("tap(content='a', b='c')", {"content": "a", "b": "c"}),
    ],
)
def test_calls_are_read_as_they_are_written(text: str, arguments: dict[str, str]) -> None:
    assert called(text) == Call("tap", arguments)


@pytest.mark.parametrize(
    "text", ["", "tap", "tap(", "Tap()", "tap(x=)", "tap(x='1)", "tap(other='it's')", "1tap()", "tap(=1)"]
)
def test_what_is_no_call_is_none(text: str) -> None:
    assert called(text) is None


def test_a_long_row_of_quotes_is_read_in_linear_time() -> None:
    assert called("type(content=" + "'" * LONGEST) is None
    assert called("type(" + "a='b'," * (LONGEST // 6)) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('I think {"x": 1} is right', Point(1)),
        ('{"x": 1} {"x": 2}', Point(1)),
        ('{"no": 1} {"x": 2, "y": 3}', Point(2, 3)),
        ('a } stray { brace {"x": 1}', None),
        ('{"x": "{"} {"x": 4}', Point(4)),
        ('{"x": 1', None),
        ("{" * (DEEPEST + 1) + "}" * (DEEPEST + 1) + '{"x": 1}', None),
        ('{"x": NaN}', None),
        ('{"x": 1e999}', None),
        ("", None),
    ],
)
def test_the_first_whole_object_of_the_right_kind_is_found(text: str, found: Point | None) -> None:
    assert find_object(text, Point) == found


@given(st.text('{}[]":,\\x1 ', max_size=80))
def test_any_text_gives_an_object_or_none(text: str) -> None:
    found = find_object(text, Point)
    assert found is None or isinstance(found, Point)


@given(x=SHARE, y=SHARE)
def test_a_point_in_thousandths_or_pixels_comes_back_within_half_a_step(x: float, y: float) -> None:
    for grid in (THOUSAND, pixels(SCREEN)):
        counted = count((x, y), grid)
        assert counted is not None
        assert 0 <= counted[0] < grid.across
        assert 0 <= counted[1] < grid.down
        back = locate(counted, grid, SCREEN)
        assert back is not None
        assert abs(back[0] - x) <= 1.0 / grid.across
        assert abs(back[1] - y) <= 1.0 / grid.down
        assert max(back) < 1.0


@given(x=ANY_NUMBER, y=ANY_NUMBER)
def test_a_point_is_on_the_screen_or_refused_by_everyone(x: float, y: float) -> None:
    here = 0.0 <= x <= 1.0 and 0.0 <= y <= 1.0
    assert on_screen((x, y)) is here
    assert (count((x, y), THOUSAND) is not None) is here
    assert (shorten((x, y), 3) is not None) is here
    assert (locate((x, y), UNIT, SCREEN) is not None) is here


def test_the_far_edge_is_the_last_pixel_and_beyond_it_is_nothing() -> None:
    assert locate((1000, 1000), THOUSAND, SCREEN) == (1 - 1 / 1080, 1 - 1 / 2400)
    assert locate((1001, 0), THOUSAND, SCREEN) is None
    assert locate((-1, 0), THOUSAND, SCREEN) is None
    assert shorten((1.0, 0.12345), 2) == (0.99, 0.12)


def test_every_point_of_an_action_is_mapped_and_what_has_none_stays() -> None:
    def half(point: tuple[float, float]) -> tuple[float, float]:
        return point[0] / 2, point[1] / 2

    assert remap(Tap(0.4, 0.8), half) == Tap(0.2, 0.4)
    assert remap(LongPress(0.4, 0.8), half) == LongPress(0.2, 0.4)
    assert remap(Swipe(0.4, 0.8, 1.0, 0.0), half) == Swipe(0.2, 0.4, 0.5, 0.0)
    for plain in (Press("back"), Wait(), TypeText("x"), Finish(answer="y")):
        assert remap(plain, half) == plain


def test_an_action_with_a_point_that_cannot_be_mapped_has_no_counterpart() -> None:
    right = lambda point: point if point[0] < 0.5 else None  # noqa: E731
    assert remap(Swipe(0.1, 0.1, 0.2, 0.2), right) is not None
    assert remap(Swipe(0.1, 0.1, 0.9, 0.2), right) is None
    assert remap(Tap(0.9, 0.1), right) is None
    assert remap(Unparsed("?"), right) is None


@pytest.mark.parametrize(
    ("action", "expressible"),
    [
        (TypeText("x" * LONGEST_TEXT), True),
        (TypeText("x" * (LONGEST_TEXT + 1)), False),
        (Finish(answer="\ud800"), False),
        (TypeText("\N{GRINNING FACE}"), True),
        (Tap(math.nan, 0.0), True),
    ],
)
def test_texts_are_bounded_and_must_have_an_encoding(action: TypeText | Finish | Tap, expressible: bool) -> None:
    assert has_expressible_text(action) is expressible


def test_a_parser_gets_text_of_bounded_length_that_can_be_encoded() -> None:
    given_to = list[str]()

    def parse(said: str) -> None:
        given_to.append(said)

    assert understand("a\ud800b", parse) == Unparsed("a?b")
    assert isinstance(understand("x" * (LONGEST + 1), parse), Unparsed)
    assert given_to == ["a?b"]
    kept = understand("x" * LONGEST, parse)
    assert isinstance(kept, Unparsed)
    assert len(kept.raw) < LONGEST

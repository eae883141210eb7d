"""What several formats share: points, scroll directions, JSON objects in prose, and calls with named arguments.

Our points run from 0 at the left and the top to 1 at the right and the bottom. A point is on the screen where both
numbers lie between the near edge and the far edge. The far edge itself (1000 of 1000, or 1.0) is the last pixel, because
devices take points below 1. Any other point is refused rather than moved: a model that points past the edge must get
an invalid step, or it never learns not to.

Model output is hostile input. Every pattern reads it once, nesting is bounded before anything is decoded, and nothing is
evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Literal, TypeVar, get_args

import msgspec

from distrl.policies.dialects.base import Screen, has_expressible_text
from distrl.types import Action, LongPress, Swipe, Tap, Unparsed

Point = tuple[float, float]


class Grid(msgspec.Struct, frozen=True):
    """What the width and the height of the picture come to in a format's numbers."""

    across: int
    down: int


UNIT = Grid(1, 1)
THOUSAND = Grid(1000, 1000)


def remap(action: Action, change: Callable[[Point], Point | None]) -> Action | None:
    """`action` with every point changed; None where a point has no counterpart, and for what no format can express."""
    match action:
        case Tap(x=x, y=y) | LongPress(x=x, y=y):
            at = change((x, y))
            return None if at is None else type(action)(*at)
        case Swipe(x=x, y=y, to_x=to_x, to_y=to_y):
            at, to = change((x, y)), change((to_x, to_y))
            return None if at is None or to is None else Swipe(*at, *to)
        case Unparsed():
            return None
        case _:
            return action if has_expressible_text(action) else None


def pixels(screen: Screen) -> Grid:
    """The grid of formats that count pixels."""
    return Grid(screen.width, screen.height)


def locate(at: Point, grid: Grid, screen: Screen) -> Point | None:
    """Our point for a format's point; None where that is not on the screen."""
    x, y = _share(at[0], grid.across, screen.width), _share(at[1], grid.down, screen.height)
    return None if x is None or y is None else (x, y)


def count(point: Point, grid: Grid) -> tuple[int, int] | None:
    """The numbers of `grid` nearest to our point; None where that is not on the screen."""
    if not on_screen(point):
        return None
    x, y = (min(round(share * size), size - 1) for share, size in zip(point, (grid.across, grid.down), strict=True))
    return x, y


def shorten(point: Point, digits: int) -> Point | None:
    """Our point with so many decimals, below 1; None where it is not on the screen."""
    if not on_screen(point):
        return None
    last = round(1 - 10**-digits, digits)
    return min(round(point[0], digits), last), min(round(point[1], digits), last)


def on_screen(point: Point) -> bool:
    """Whether our point names something on the screen; NaN does not."""
    return all(0.0 <= share <= 1.0 for share in point)


def _share(number: float, size: int, num_pixels: int) -> float | None:
    if not 0 <= number <= size:
        return None
    share = number / size
    return share if share < 1.0 else 1.0 - 1.0 / num_pixels


# Scrolling by direction. A direction says which side is to show more: scrolling down moves the finger up. The path
# begins at the given point, or where the scripted oracle and the pointer policy begin. It is moved along its own line
# until it keeps clear of the edges, where a finger would pull at the system's own drawers.


Direction = Literal["up", "down", "left", "right"]

_STEP: dict[Direction, Point] = {"down": (0.0, -0.35), "up": (0.0, 0.35), "right": (-0.6, 0.0), "left": (0.6, 0.0)}
"""How far the finger moves."""
_START: dict[Direction, Point] = {"down": (0.5, 0.6), "up": (0.5, 0.3), "right": (0.8, 0.45), "left": (0.2, 0.45)}
_MARGIN = 0.05
_SAME = 1e-4


def scroll(direction: Direction, at: Point | None = None) -> Swipe:
    """The swipe that shows more on that side, begun at `at` or at the middle of the screen."""
    (x, y), (across, down) = at or _START[direction], _STEP[direction]
    x, y = _clear_of_edges(x, across), _clear_of_edges(y, down)
    return Swipe(x, y, _moved(x, across), _moved(y, down))


def direction_of(swipe: Swipe) -> Direction | None:
    """The direction in which `scroll` would make this swipe from the same start."""
    return next((way for way in get_args(Direction) if _same(swipe, scroll(way, (swipe.x, swipe.y)))), None)


def direction_from_middle(swipe: Swipe) -> Direction | None:
    """The direction in which `scroll` would make this swipe without a starting point."""
    return next((way for way in get_args(Direction) if _same(swipe, scroll(way))), None)


def _clear_of_edges(start: float, step: float) -> float:
    if step == 0.0:
        return start
    return min(max(start, _MARGIN - min(step, 0.0)), 1.0 - _MARGIN - max(step, 0.0))


def _moved(start: float, step: float) -> float:
    return round(start + step, 6) if step else start


def _same(one: Swipe, other: Swipe) -> bool:
    pairs = ((one.x, other.x), (one.y, other.y), (one.to_x, other.to_x), (one.to_y, other.to_y))
    return all(abs(here - there) <= _SAME for here, there in pairs)


# JSON objects in prose. The decoder refuses NaN, Infinity and numbers that no float holds.


DEEPEST = 8
"""Levels of braces and brackets; no format needs more than three."""

Found = TypeVar("Found")


def find_object(text: str, kind: type[Found]) -> Found | None:
    """The first outermost object in `text` that decodes as `kind`; an opening brace that is never closed ends the search."""
    for piece in _objects(text):
        try:
            return msgspec.json.decode(piece, type=kind)
        except msgspec.DecodeError:
            continue
    return None


def _objects(text: str) -> Iterator[str]:
    start = depth = 0
    quoted = escaped = False
    for at, char in enumerate(text):
        if escaped:
            escaped = False
        elif quoted:
            escaped, quoted = char == "\\", char != '"'
        elif char == "{" or (char == "[" and depth):
            start, depth = (start if depth else at), depth + 1
            if depth > DEEPEST:
                return
        elif char in "}]" and depth:
            depth -= 1
            if depth == 0:
                yield text[start : at + 1]
        else:
            quoted = char == '"' and depth > 0


# Calls such as `name(key='value', other="value")`, quoted and escaped as in Python.


_NAME = re.compile(r"\s*([a-z_]+)\(")
_NEXT = re.compile(r"[\s,]*")
_KEY = re.compile(r"([a-z_0-9]+)\s*=\s*")
_VALUE = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([^\s,()'"]+)""", re.DOTALL)
_FREE = {mark: re.compile(rf"((?:[^\\]|\\.)*?){mark}\)", re.DOTALL) for mark in ("'", '"')}
"""Up to where a quote that nobody escaped meets a bracket."""
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_MEANS = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}
_WRITTEN = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "'": "\\'", '"': '\\"', "\\": "\\\\"}


class Call(msgspec.Struct, frozen=True):
    """A name and its arguments."""

    name: str
    arguments: dict[str, str]


def read_call(text: str, *, free: str) -> Call | None:
    """The call at the start of `text`; what follows it is ignored.

    A first argument called `free` may hold quotes that nobody escaped: it then ends where quote and bracket meet.
    """
    head = _NAME.match(text)
    if head is None:
        return None
    arguments = _read_arguments(text, head.end())
    if arguments is None:
        arguments = _read_free(text, head.end(), free)
    return None if arguments is None else Call(head[1], arguments)


def quote(text: str) -> str:
    """`text` as a value, quotes and all, on one line."""
    return "'" + "".join(_WRITTEN.get(char, char) for char in text) + "'"


def _read_arguments(text: str, at: int) -> dict[str, str] | None:
    found: dict[str, str] = {}
    while True:
        at = _end(_NEXT, text, at)
        if text.startswith(")", at):
            return found
        key = _KEY.match(text, at)
        value = _VALUE.match(text, key.end()) if key else None
        if key is None or value is None:
            return None
        found[key[1]] = value[3] if value[3] is not None else _unescape(value[1] if value[1] is not None else value[2])
        at = value.end()


def _read_free(text: str, at: int, free: str) -> dict[str, str] | None:
    key = _KEY.match(text, at)
    if key is None or key[1] != free or text[key.end() : key.end() + 1] not in ("'", '"'):
        return None
    content = _FREE[text[key.end()]].match(text, key.end() + 1)
    return None if content is None else {free: _unescape(content[1])}


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: _MEANS.get(found[1], found[0]), text)

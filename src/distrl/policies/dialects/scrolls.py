"""Scrolling by direction, for formats that name a direction instead of a path.

A direction says which side is to show more: scrolling down moves the finger up. The path begins where it is told to,
or where the scripted oracle and the pointer policy begin, and is moved along its own line until it keeps clear of the
edges, where a finger would pull at the system's own drawers.
"""

from __future__ import annotations

from typing import Literal, get_args

from distrl.policies.dialects.points import Point
from distrl.types import Swipe

Direction = Literal["up", "down", "left", "right"]

_STEP: dict[Direction, Point] = {"down": (0.0, -0.35), "up": (0.0, 0.35), "right": (-0.6, 0.0), "left": (0.6, 0.0)}
"""How far the finger moves."""
_START: dict[Direction, Point] = {"down": (0.5, 0.6), "up": (0.5, 0.3), "right": (0.8, 0.45), "left": (0.2, 0.45)}
_MARGIN = 0.05
_SAME = 1e-4


def scroll(direction: Direction, at: Point | None = None) -> Swipe:
    """The swipe that shows more on that side, begun at `at` or at the middle of the screen."""
    (x, y), (across, down) = at or _START[direction], _STEP[direction]
    x, y = _with_room(x, across), _with_room(y, down)
    return Swipe(x, y, _moved(x, across), _moved(y, down))


def direction_of(swipe: Swipe) -> Direction | None:
    """The direction in which `scroll` would make this swipe from the same start."""
    return next((way for way in get_args(Direction) if _same(swipe, scroll(way, (swipe.x, swipe.y)))), None)


def direction_from_middle(swipe: Swipe) -> Direction | None:
    """The direction in which `scroll` would make this swipe without being told where."""
    return next((way for way in get_args(Direction) if _same(swipe, scroll(way))), None)


def _with_room(start: float, step: float) -> float:
    if step == 0.0:
        return start
    return min(max(start, _MARGIN - min(step, 0.0)), 1.0 - _MARGIN - max(step, 0.0))


def _moved(start: float, step: float) -> float:
    return round(start + step, 6) if step else start


def _same(one: Swipe, other: Swipe) -> bool:
    pairs = ((one.x, other.x), (one.y, other.y), (one.to_x, other.to_x), (one.to_y, other.to_y))
    return all(abs(here - there) <= _SAME for here, there in pairs)

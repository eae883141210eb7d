"""Points between a format's numbers and ours, which run from 0 at the left and the top to 1 at the right and the bottom.

A point is on the screen where both numbers lie between the near edge and the far edge. The far edge itself (1000 of
1000, or 1.0) is the last pixel, because devices take points below 1. Anything else names nothing on the screen and is
refused rather than moved: a model that points past the edge must see an invalid step, or it never learns not to.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from distrl.policies.dialects.base import Screen, has_sayable_text
from distrl.types import Action, LongPress, Swipe, Tap, Unparsed

Point = tuple[float, float]


class Grid(msgspec.Struct, frozen=True):
    """What the width and the height of the picture come to in a format's numbers."""

    across: int
    down: int


UNIT = Grid(1, 1)
THOUSAND = Grid(1000, 1000)


def remap(action: Action, change: Callable[[Point], Point | None]) -> Action | None:
    """`action` with every point changed; None where a point has no counterpart, and for what nobody can say at all."""
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
            return action if has_sayable_text(action) else None


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

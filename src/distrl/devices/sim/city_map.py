"""The town that a phone's map shows: blocks, streets, a river and parks, with pins or a route drawn on it.

A town is a bent grid: its corners are where streets cross, so a route that goes from corner to corner follows the
streets. Phones share a few towns, each drawn once for a size and theme.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import sin
from random import Random
from zlib import crc32

import msgspec
from PIL import Image, ImageDraw

from distrl.devices.sim.paint import WHITE, Box, Canvas, Colour, mix

TOWNS = 4
COLUMNS, ROWS = 8, 13
CELL = 52.0
"""Distance between two streets."""
SMOOTH = 2
"""How much larger a town is drawn before it is shrunk."""
Point = tuple[float, float]
Corner = tuple[int, int]
"""Column and row of a crossing."""


class Inks(msgspec.Struct, frozen=True, kw_only=True):
    """The colours of a map."""

    land: Colour
    block: Colour
    water: Colour
    park: Colour
    street: Colour
    avenue: Colour
    edge: Colour


DAY = Inks(
    land=(236, 237, 241), block=(226, 228, 233), water=(158, 206, 240), park=(190, 228, 190),
    street=WHITE, avenue=(253, 224, 140), edge=(206, 210, 218),
)  # fmt: skip
NIGHT = Inks(
    land=(34, 40, 52), block=(42, 49, 62), water=(20, 50, 82), park=(34, 66, 58),
    street=(66, 76, 94), avenue=(124, 112, 78), edge=(28, 33, 44),
)  # fmt: skip
ROUTE: Colour = (26, 115, 232)
MODES = ("car", "walk", "bus")
"""Ways to travel: what is shown is a route."""
PIN: Colour = (217, 48, 37)


class Town(msgspec.Struct, frozen=True, kw_only=True):
    """Where the streets of a town cross, and what lies between them."""

    corners: dict[Corner, Point]
    parks: tuple[Corner, ...]
    """Upper left corners of green blocks."""
    river: tuple[Point, ...]
    avenues: frozenset[int]
    """Columns whose street is wide."""
    boulevards: frozenset[int]
    """Rows of the same kind."""


@lru_cache(maxsize=TOWNS)
def town(number: int) -> Town:
    """One of the towns."""
    random = Random(number)
    corners = {
        (column, row): (
            column * CELL - 8 + random.uniform(-9, 9) + (row - 6) * (3, -4, 5, -2)[number],
            row * CELL - 8 + random.uniform(-9, 9) + (column - 4) * (4, 6, -5, -6)[number],
        )
        for column in range(-2, COLUMNS + 2)
        for row in range(-1, ROWS + 1)
    }
    blocks = [(column, row) for column in range(COLUMNS - 1) for row in range(ROWS - 1)]
    start, bend, turn = random.uniform(-60, 60), random.uniform(0.3, 0.6), random.uniform(0, 6)
    river = tuple((start + bend * y + 38 * sin(turn + y / 85), y - 40.0) for y in range(0, 740, 12))
    return Town(
        corners=corners,
        parks=tuple(random.sample(blocks, 9)),
        river=river,
        avenues=frozenset(random.sample(range(1, COLUMNS - 1), 2)),
        boulevards=frozenset(random.sample(range(2, ROWS - 1), 3)),
    )


@lru_cache(maxsize=48)
def upper_part(number: int, dark: bool, size: tuple[int, int], height: int) -> Image.Image:
    """As much of a town's picture as a page shows."""
    return town_picture(number, dark, size).crop((0, 0, size[0], height))


@lru_cache(maxsize=24)
def town_picture(number: int, dark: bool, size: tuple[int, int]) -> Image.Image:
    """A town from above, 360 units wide, without pins."""
    inks, unit = NIGHT if dark else DAY, size[0] * SMOOTH / 360
    picture = Image.new("RGB", (size[0] * SMOOTH, size[1] * SMOOTH), inks.land)
    draw, plan = ImageDraw.Draw(picture), town(number)
    for column, row in plan.corners:
        _block(draw, plan, (column, row), inks, unit)
    _stroke(draw, plan.river, inks.water, 46 * unit, unit)
    for wide in (False, True):
        for ink, more in ((inks.edge, 2.4), (inks.avenue if wide else inks.street, 0.0)):
            for line in _streets(plan, wide):
                _stroke(draw, line, ink, ((11.0 if wide else 6.5) + more) * unit, unit)
    return picture.reduce(SMOOTH)


def _block(draw: ImageDraw.ImageDraw, plan: Town, at: Corner, inks: Inks, unit: float) -> None:
    column, row = at
    around = [plan.corners.get(key) for key in (at, (column + 1, row), (column + 1, row + 1), (column, row + 1))]
    found = [point for point in around if point is not None]
    if len(found) < 4:
        return
    middle = sum(x for x, _ in found) / 4, sum(y for _, y in found) / 4
    green = at in plan.parks
    shrink = 1.0 if green else 0.66
    points = [
        ((middle[0] + (x - middle[0]) * shrink) * unit, (middle[1] + (y - middle[1]) * shrink) * unit) for x, y in found
    ]
    draw.polygon(points, fill=inks.park if green else inks.block)


def _streets(plan: Town, wide: bool) -> list[tuple[Point, ...]]:
    columns, rows = range(-2, COLUMNS + 2), range(-1, ROWS + 1)
    across = [
        tuple(plan.corners[column, row] for column in columns) for row in rows if (row in plan.boulevards) is wide
    ]
    down = [tuple(plan.corners[column, row] for row in rows) for column in columns if (column in plan.avenues) is wide]
    return across + down


def _stroke(draw: ImageDraw.ImageDraw, points: tuple[Point, ...], ink: Colour, width: float, unit: float) -> None:
    # Discs at the bends: Pillow's own curved joints take ten times as long.
    scaled, radius = [(x * unit, y * unit) for x, y in points], width / 2
    draw.line(scaled, fill=ink, width=max(1, round(width)))
    for x, y in scaled:
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=ink)


# --- what is drawn on it --------------------------------------------------------------------------------------------


def draw_map(canvas: Canvas, name: str, box: Box, free: Box, *, dark: bool) -> None:
    """Draw the map `seed:shown:places` into `box`, with its pins or its route inside `free`."""
    seed, shown, places = [*name.split(":", 2), "", ""][:3]
    number = int(seed) % TOWNS if seed.isdigit() else 0
    left, top, right, bottom = map(canvas.px, box)
    canvas.cover((left, top, right, bottom))
    canvas.image.paste(upper_part(number, dark, (right - left, canvas.px(640)), bottom - top), (left, top))
    corners = _in_sight(town(number), box, free)
    if not corners:
        return
    routed = shown in MODES
    reach = sorted(corners, key=lambda corner: (corner[0] - corner[1], corner))
    here = reach[0]
    goals = [corner_of(place, reach[len(reach) // 2 :] if routed else reach) for place in places.split(",") if place]
    if routed and goals:
        _draw_route(canvas, [corners[corner] for corner in path(here, goals[0]) if corner in corners], shown)
    if routed or shown == "here":
        _draw_position(canvas, *corners[here])
    for goal in goals:
        draw_pin(canvas, *corners[goal])


def _in_sight(plan: Town, box: Box, free: Box) -> dict[Corner, Point]:
    """The corners that lie in the free part of the map, where they are on the screen."""
    left, right = free[0] + 20, free[2] - 20
    top, bottom = free[1] - box[1] + 34, free[3] - box[1] - 14
    return {
        corner: (x, y + box[1]) for corner, (x, y) in plan.corners.items() if left <= x <= right and top <= y <= bottom
    }


def corner_of(place: str, corners: list[Corner]) -> Corner:
    """The corner that a place stands at."""
    return corners[crc32(place.encode("utf-8", "replace")) % len(corners)]


def path(start: Corner, goal: Corner) -> list[Corner]:
    """A way along the streets, with a turn at every second crossing while there is one to make."""
    way, (column, row) = [start], start
    while (column, row) != goal:
        across = column != goal[0] and (row == goal[1] or len(way) % 3 != 0)
        if across:
            column += 1 if goal[0] > column else -1
        else:
            row += 1 if goal[1] > row else -1
        way.append((column, row))
    return way


def _draw_route(canvas: Canvas, points: list[Point], mode: str) -> None:
    if mode == "walk":
        for (x, y), (to_x, to_y) in pairwise(points):
            for step in range(5):
                canvas.disc(x + (to_x - x) * step / 5, y + (to_y - y) * step / 5, 3.2, ROUTE)
        return
    canvas.polyline(points, 9, mix(ROUTE, (0, 0, 40), 0.35))
    canvas.polyline(points, 6, ROUTE if mode == "car" else (140, 90, 220))


def _draw_position(canvas: Canvas, x: float, y: float) -> None:
    canvas.disc(x, y, 15, mix(WHITE, ROUTE, 0.35))
    canvas.disc(x, y, 9, WHITE)
    canvas.disc(x, y, 6.5, ROUTE)


def draw_pin(canvas: Canvas, x: float, y: float) -> None:
    """A red pin whose tip is at a point."""
    canvas.disc(x, y, 3, mix(PIN, (0, 0, 0), 0.5))
    canvas.pictogram("pin", x, y - 14, 32, WHITE)
    canvas.pictogram("pin", x, y - 14, 28, PIN)
    canvas.disc(x, y - 17.5, 3.2, WHITE)

"""Pictures inside widgets and beside them, by `kind:name`: photos, covers, goods, faces, app icons, files, clock faces.

A picture decorates what the accessibility tree reports: it holds no text apart from initials, and no touches.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from math import cos, sin, tau
from zlib import crc32

from PIL import Image, ImageDraw

from distrl.devices.sim.goods_art import product
from distrl.devices.sim.paint import BLACK, WHITE, Box, Canvas, Colour, Pen, mix, parse_colour
from distrl.devices.sim.scenes import photo

Drawing = Callable[[Canvas, str, Box, bool], None]
"""Draws the picture of a name into a box, on a light or a dark screen."""

PALETTE = tuple(map(parse_colour, (
    "#d9534f", "#e67e22", "#c99700", "#2f9e44", "#0f9d8a", "#1c7ed6", "#4263eb", "#7048e8", "#ae3ec9", "#d6336c", "#5c6f82",
)))  # fmt: skip
FILES = {
    "PDF": ("#d93025", "document"), "Text": ("#1c7ed6", "note"), "Spreadsheet": ("#2f9e44", "chart"),
    "Slides": ("#e8890c", "flag"), "Picture": ("#7048e8", "image"),
}  # fmt: skip
SITES = {
    "kiosko": ("#e8590c", "bag"),
    "northmart": ("#12507b", "shop"),
    "lantern": ("#8a5a00", "flame"),
    "parcel": ("#b8860b", "archive"),
}
BADGES = {
    "wifi": "#1c7ed6", "sun": "#e8890c", "sound": "#d6336c", "battery": "#2f9e44", "shield": "#0f7f8f", "info": "#5c6f82",
    "tag": "#d6336c", "phone": "#1c7ed6", "home": "#2f9e44", "utensils": "#e8890c", "run": "#0f9d8a", "gift": "#7048e8",
}  # fmt: skip
APP_SIGNS = (
    "star",
    "leaf",
    "chart",
    "book",
    "camera",
    "cloud",
    "flame",
    "key",
    "brush",
    "moon",
    "wind",
    "heart",
    "timer",
    "list",
)


def is_picture(icon: str) -> bool:
    """Whether an icon is the `kind:name` of a picture, and not a pictogram."""
    return icon.partition(":")[0] in DRAWINGS


def draw_picture(canvas: Canvas, icon: str, box: Box, *, dark: bool) -> None:
    """Draw the picture `kind:name` into a box."""
    kind, _, name = icon.partition(":")
    DRAWINGS[kind](canvas, name, box, dark)


def colour_of(name: str) -> Colour:
    """A colour of its own for every name."""
    return PALETTE[crc32(name.encode("utf-8", "replace")) % len(PALETTE)]


def square(box: Box, share: float = 1.0) -> Box:
    """The largest square in the middle of a box, or a share of it."""
    half = min(box[2] - box[0], box[3] - box[1]) * share / 2
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    return x - half, y - half, x + half, y + half


def _side(box: Box) -> float:
    return box[2] - box[0]


# --- one function per kind ------------------------------------------------------------------------------------------


def _photo(canvas: Canvas, name: str, box: Box, _dark: bool) -> None:
    canvas.picture(photo(name, canvas.size_px(box)), box, min(14.0, (box[3] - box[1]) * 0.18))


def _cover(canvas: Canvas, name: str, box: Box, _dark: bool) -> None:
    inner = square(box)
    side = max(canvas.size_px(inner))
    canvas.picture(cover(name, side), inner, _side(inner) * 0.08)


def _product(canvas: Canvas, name: str, box: Box, dark: bool) -> None:
    kind, _, colour = name.partition(":")
    inner = square(box)
    canvas.picture(product(kind, colour, max(canvas.size_px(inner)), dark=dark), inner, min(16.0, _side(inner) * 0.16))


def _face(canvas: Canvas, name: str, box: Box, dark: bool) -> None:
    """A disc with initials, as address books have it for people without a photo."""
    inner = square(box)
    side, x, y = _side(inner), (inner[0] + inner[2]) / 2, (inner[1] + inner[3]) / 2
    colour = colour_of(name)
    canvas.disc(x, y, side / 2, mix(colour, BLACK, 0.25) if dark else colour)
    initials = "".join(word[:1] for word in name.split()[:2]).upper()
    pen = Pen(side * (0.42 if len(initials) < 2 else 0.36), WHITE, bold=side > 60)
    canvas.text(x, y, initials or "?", pen, width=side, anchor=0.5)


def _unread(canvas: Canvas, name: str, box: Box, dark: bool) -> None:
    _face(canvas, name, box, dark)
    inner = square(box)
    canvas.disc(inner[2] - 4, inner[1] + 5, 6.5, (18, 19, 23) if dark else WHITE)
    canvas.disc(inner[2] - 4, inner[1] + 5, 5, (26, 115, 232))


def _app(canvas: Canvas, name: str, box: Box, _dark: bool) -> None:
    inner = square(box)
    side, colour = _side(inner), colour_of(name)
    canvas.rounded(inner, side * 0.24, colour)
    sign = APP_SIGNS[crc32(name[::-1].encode("utf-8", "replace")) % len(APP_SIGNS)]
    canvas.pictogram(sign, (inner[0] + inner[2]) / 2, (inner[1] + inner[3]) / 2, side * 0.56, WHITE)


def _badge(canvas: Canvas, name: str, box: Box, _dark: bool) -> None:
    inner = square(box, 0.9)
    side = _side(inner)
    canvas.rounded(inner, side * 0.3, parse_colour(BADGES.get(name, "#5c6f82")))
    canvas.pictogram(name, (inner[0] + inner[2]) / 2, (inner[1] + inner[3]) / 2, side * 0.58, WHITE)


def _site(canvas: Canvas, name: str, box: Box, _dark: bool) -> None:
    colour, sign = SITES.get(name, ("#1a73e8", "globe"))
    inner = square(box, 0.9)
    canvas.rounded(inner, _side(inner) * 0.5, parse_colour(colour))
    canvas.pictogram(sign, (inner[0] + inner[2]) / 2, (inner[1] + inner[3]) / 2, _side(inner) * 0.56, WHITE)


def _file(canvas: Canvas, name: str, box: Box, dark: bool) -> None:
    """A sheet in the colour of its type, with a folded corner."""
    colour, sign = FILES.get(name, ("#5c6f82", "document"))
    ink, inner = parse_colour(colour), square(box)
    side = _side(inner)
    left, top, right, bottom = inner[0] + side * 0.12, inner[1], inner[2] - side * 0.12, inner[3]
    canvas.rounded((left, top, right, bottom), side * 0.12, mix(ink, BLACK, 0.25) if dark else ink)
    fold = side * 0.24
    canvas.rounded((right - fold, top, right, top + fold), side * 0.06, mix(ink, WHITE, 0.55))
    canvas.pictogram(sign, (left + right) / 2, (top + bottom) / 2 + side * 0.08, side * 0.46, WHITE)


def _folder(canvas: Canvas, _name: str, box: Box, _dark: bool) -> None:
    inner = square(box)
    x, y, side = (inner[0] + inner[2]) / 2, (inner[1] + inner[3]) / 2, _side(inner)
    canvas.pictogram("folder", x, y, side * 0.96, (214, 150, 44))
    canvas.rounded((x - side * 0.4, y - side * 0.13, x + side * 0.4, y + side * 0.33), side * 0.07, (250, 196, 92))


def _stars(canvas: Canvas, name: str, box: Box, dark: bool) -> None:
    """So many of five stars."""
    size, count = min(20.0, (box[2] - box[0]) / 5), int(name) if name.isdigit() else 0
    for star in range(5):
        x = box[0] + size * (star + 0.5)
        ink: Colour = (244, 168, 20) if star < count else ((86, 88, 96) if dark else (214, 216, 222))
        canvas.pictogram("star", x, (box[1] + box[3]) / 2, size * 0.86, ink)


def _phone(canvas: Canvas, _name: str, box: Box, dark: bool) -> None:
    inner = square(box)
    x, half = (inner[0] + inner[2]) / 2, _side(inner) * 0.27
    canvas.rounded((x - half, inner[1], x + half, inner[3]), half * 0.34, (84, 88, 98) if dark else (46, 50, 60))
    screen = (x - half + 4, inner[1] + 4, x + half - 4, inner[3] - 4)
    canvas.picture(photo("Starry night", canvas.size_px(screen)), screen, half * 0.26)
    canvas.rounded((x - 9, inner[1] + 8, x + 9, inner[1] + 12), 2, BLACK)


def _dial(canvas: Canvas, name: str, box: Box, dark: bool) -> None:
    hour, _, minute = name.partition(":")
    hands = (int(hour) % 12, int(minute)) if hour.isdigit() and minute.isdigit() else (10, 10)
    inner = square(box, 0.94)
    canvas.picture(clock_face(*hands, max(canvas.size_px(inner)), dark), inner, _side(inner) / 2)


@lru_cache(maxsize=64)
def clock_face(hour: int, minute: int, side: int, dark: bool) -> Image.Image:
    """A round clock that shows a time of day; its red hand points to half past."""
    face, ink = ((38, 41, 50), (232, 234, 240)) if dark else ((255, 255, 255), (44, 48, 60))
    smooth = 2 if side > 100 else 4
    size = side * smooth
    picture = Image.new("RGB", (size, size), mix(face, ink, 0.16))
    draw, middle = ImageDraw.Draw(picture), size / 2
    rim = size * 0.025
    draw.ellipse((rim, rim, size - rim, size - rim), fill=face)
    for mark in range(12):
        long = 0.07 if mark % 3 == 0 else 0.035
        ends = [_at(mark / 12, far * middle, middle) for far in (0.9, 0.9 - 2 * long)]
        draw.line(ends, fill=mix(face, ink, 0.7), width=max(1, round(size * (0.016 if mark % 3 == 0 else 0.009))))
    for turn, reach, width, colour in (
        ((hour + minute / 60) / 12, 0.5, 0.036, ink), (minute / 60, 0.76, 0.024, ink), (0.5, 0.8, 0.01, (217, 48, 37)),
    ):  # fmt: skip
        draw.line(
            [_at(turn + 0.5, 0.12 * middle, middle), _at(turn, reach * middle, middle)],
            fill=colour,
            width=max(1, round(size * width)),
        )
    draw.ellipse((middle * 0.95, middle * 0.95, middle * 1.05, middle * 1.05), fill=(217, 48, 37))
    return picture.reduce(smooth)


def _at(turn: float, far: float, middle: float) -> tuple[float, float]:
    return middle + far * sin(turn * tau), middle - far * cos(turn * tau)


def _ring(canvas: Canvas, name: str, box: Box, dark: bool) -> None:
    """A timer's ring, filled by its share of an hour and a half."""
    share = min(1.0, int(name) / 90) if name.isdigit() else 0.5
    inner = square(box, 0.9)
    side, x, y = _side(inner), (inner[0] + inner[2]) / 2, (inner[1] + inner[3]) / 2
    back = (52, 56, 68) if dark else (222, 225, 236)
    mask = ring_mask(max(canvas.size_px(inner)), round(share * 60))
    canvas.rounded(inner, side / 2, back, outline=side * 0.11)
    canvas.print((canvas.px(inner[0]), canvas.px(inner[1])), mask, (124, 138, 220) if dark else (60, 74, 138))
    if side > 60:
        canvas.pictogram("timer", x, y, side * 0.3, back)


@lru_cache(maxsize=64)
def ring_mask(side: int, sixtieths: int) -> Image.Image:
    """Part of a ring, clockwise from the top."""
    mask = Image.new("L", (side * 3, side * 3))
    ImageDraw.Draw(mask).arc(
        (0, 0, side * 3 - 1, side * 3 - 1), -90, -90 + 6 * sixtieths, fill=255, width=round(side * 0.33)
    )
    return mask.reduce(3)


def _watch(canvas: Canvas, name: str, box: Box, dark: bool) -> None:
    inner = square(box, 0.9)
    x = (inner[0] + inner[2]) / 2
    canvas.rounded((x - 12, inner[1] - 12, x + 12, inner[1] + 8), 5, (92, 98, 116))
    canvas.picture(clock_face(0, 20 if name else 0, max(canvas.size_px(inner)), dark), inner, _side(inner) / 2)


def _week(canvas: Canvas, name: str, box: Box, dark: bool) -> None:
    """A sheet of a calendar with one weekday marked in every week."""
    days = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    here = days.index(name) if name in days else -1
    wide = min(264.0, box[2] - box[0])
    left, top = (box[0] + box[2] - wide) / 2, (box[1] + box[3]) / 2 - wide * 0.36
    paper = (38, 41, 50) if dark else WHITE
    canvas.rounded((left, top, left + wide, top + wide * 0.72), 14, paper)
    canvas.rounded((left, top, left + wide, top + 34), 14, (66, 133, 244))
    canvas.fill((left, top + 20, left + wide, top + 34), (66, 133, 244))
    step, dots = wide / 7, mix(paper, WHITE if dark else BLACK, 0.16)
    for week in range(4):
        for day in range(7):
            x, y = left + step * (day + 0.5), top + 34 + (wide * 0.72 - 34) * (week + 0.5) / 4
            marked = day == here and week == 1
            canvas.disc(x, y, step * (0.34 if marked else 0.2), (66, 133, 244) if marked else dots)


def _lines(canvas: Canvas, _name: str, box: Box, dark: bool) -> None:
    """The ruled lines of a sheet of paper."""
    ink = (62, 58, 44) if dark else (232, 218, 170)
    y = box[1] + 6
    while y < box[3]:
        canvas.fill((box[0], y, box[2], y + 1), ink)
        y += 32


DRAWINGS: dict[str, Drawing] = {
    "photo": _photo, "cover": _cover, "product": _product, "face": _face, "unread": _unread, "app": _app, "badge": _badge,
    "site": _site, "file": _file, "folder": _folder, "stars": _stars, "phone": _phone, "dial": _dial, "ring": _ring, "watch": _watch,
    "week": _week, "lines": _lines,
}  # fmt: skip


INKS: tuple[tuple[Colour, Colour, Colour], ...] = (
    ((32, 34, 66), (232, 92, 98), (250, 210, 140)),
    ((14, 88, 92), (244, 190, 92), (246, 240, 222)),
    ((94, 44, 108), (238, 120, 150), (252, 222, 196)),
    ((28, 62, 116), (110, 190, 226), (246, 246, 246)),
    ((214, 84, 54), (36, 36, 44), (250, 226, 184)),
    ((46, 88, 62), (194, 212, 132), (250, 246, 226)),
)


def cover(name: str, side: int) -> Image.Image:
    """A square record sleeve: one of a few designs in one of a few sets of inks."""
    return _sized(crc32(name.encode("utf-8", "replace")) % 24, side)


@lru_cache(maxsize=96)
def _sized(number: int, side: int) -> Image.Image:
    return _sleeve(number).resize((side, side), Image.Resampling.BILINEAR)


@lru_cache(maxsize=24)
def _sleeve(number: int) -> Image.Image:
    """Drawn large; shrinking makes its edges smooth."""
    side = 256
    ground, ink, light = INKS[number % len(INKS)]
    image = Image.new("RGB", (side, side), ground)
    draw, design = ImageDraw.Draw(image), number // len(INKS)
    if design == 0:
        for ring in range(6, 0, -1):
            radius = ring * 19
            draw.ellipse((128 - radius, 132 - radius, 128 + radius, 132 + radius), fill=(ground, ink, light)[ring % 3])
    elif design == 1:
        draw.ellipse((70, 40, 186, 156), fill=ink)
        for band in range(7):
            draw.rectangle((0, 118 + 20 * band, side, 118 + 8 + 22 * band), fill=mix(ground, light, 0.14 * band))
    elif design == 2:
        for stripe in range(-4, 9):
            draw.polygon(
                [(stripe * 44, 0), (stripe * 44 + 22, 0), (stripe * 44 + 150, side), (stripe * 44 + 128, side)],
                fill=ink,
            )
        draw.ellipse((88, 88, 168, 168), fill=light)
    else:
        for depth in range(4):
            edge = [(x * 8, 96 + depth * 40 + 18 * math.sin(x / 4 + depth * 1.3)) for x in range(33)]
            draw.polygon([*edge, (side, side), (0, side)], fill=mix(ink, light if depth % 2 else ground, 0.25 * depth))
        draw.ellipse((158, 28, 214, 84), fill=light)
    return image

"""What the system draws around the apps: the status bar, app icons on the home screen, the wallpaper and the keyboard."""

from __future__ import annotations

from functools import lru_cache

from PIL import Image, ImageDraw

from distrl.devices.sim.apps import APPS
from distrl.devices.sim.layout import HEIGHT, KEYBOARD, STATUS_BAR, WIDTH
from distrl.devices.sim.paint import BLACK, WHITE, Box, Canvas, Colour, Pen, brightness, mix, parse_colour
from distrl.devices.sim.pictograms import fallback_colour
from distrl.devices.sim.state import PhoneState
from distrl.devices.sim.widgets import Widget

# --- the status bar: time, connection, battery ---------------------------------------------------------------------

SIGNS = (("airplane", "plane"), ("wifi", "wifi"), ("bluetooth", "bluetooth"), ("silent", "moon"))
"""Switches of the settings app that show here, with their pictograms."""


def time_of(state: PhoneState) -> str:
    """The time of day on the phone: a minute passes every second step."""
    minutes = 7 * 60 + state.seed * 37 % 840 + state.tick // 2
    return f"{minutes // 60 % 24}:{minutes % 60:02d}"


def draw_status_bar(canvas: Canvas, state: PhoneState, ink: Colour) -> None:
    """Draw the time at the left and the signs at the right."""
    middle = STATUS_BAR / 2 + 1
    canvas.text(18, middle, time_of(state), Pen(13, ink, bold=True), width=60)
    prefs = state.tables.get("settings.pref", {})
    charge = 20 + state.seed * 53 % 79
    x = _draw_battery(canvas, charge, ink, middle)
    if prefs.get("percent", {}).get("on"):
        canvas.text(x, middle, f"{charge} %", Pen(11.5, ink), width=40, anchor=1.0)
        x -= 32
    for name, pictogram in SIGNS:
        if prefs.get(name, {}).get("on"):
            canvas.pictogram(pictogram, x - 7, middle, 14, ink)
            x -= 19


def _draw_battery(canvas: Canvas, charge: int, ink: Colour, middle: float) -> float:
    """The left edge of what was drawn, less a gap."""
    left, right = WIDTH - 38, WIDTH - 18
    canvas.rounded((left, middle - 5.5, right, middle + 5.5), 3, ink, outline=1.2)
    canvas.fill((right + 1, middle - 2, right + 2.5, middle + 2), ink)
    canvas.rounded((left + 2.5, middle - 3, left + 2.5 + (right - left - 5) * charge / 100, middle + 3), 1, ink)
    return left - 6


# --- app icons ------------------------------------------------------------------------------------------------------

RADIUS = 28.0


def draw_app_icon(canvas: Canvas, widget: Widget, box: Box) -> None:
    """Draw the icon of an app in the middle of its box."""
    app = APPS.get(widget.id.removeprefix("app:"))
    colour = parse_colour(app.colour) if app else fallback_colour(widget.text)
    x, top = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2 - 42
    y = top + RADIUS
    canvas.disc(x, y + 1.5, RADIUS + 0.5, mix(colour, (0, 0, 0), 0.45))
    canvas.disc(x, y, RADIUS, colour)
    ink = WHITE if brightness(colour) < 0.75 else (40, 44, 52)
    canvas.pictogram(widget.icon, x, y, 30, ink)
    width = min(84.0, box[2] - box[0] - 4)
    canvas.text(x + 0.8, top + 2 * RADIUS + 14.8, widget.text, Pen(13, (30, 34, 48)), width=width, anchor=0.5)
    canvas.text(x, top + 2 * RADIUS + 14, widget.text, Pen(13, WHITE), width=width, anchor=0.5)


# --- wallpaper and keyboard: each drawn once per size and theme -----------------------------------------------------

KEYS_TOP = HEIGHT - KEYBOARD
SKIES = (
    ("#2b3a67", "#e8846b"), ("#0f4c5c", "#7fb7a3"), ("#3d2c5e", "#c76b98"),
    ("#1e3c72", "#5fa8d3"), ("#33415c", "#979dac"), ("#2d4a3e", "#d9a566"),
)  # fmt: skip
HILLS = ((0.52, 0.60, 0.50, 0.58), (0.66, 0.61, 0.70, 0.64), (0.80, 0.84, 0.76, 0.82))
"""Heights of each range of hills at four points across the screen."""
LETTERS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


@lru_cache(maxsize=24)
def wallpaper(scale: float, kind: int, dark: bool) -> Image.Image:
    """An evening sky over hills."""
    top, bottom = map(parse_colour, SKIES[kind % len(SKIES)])
    if dark:
        top, bottom = mix(top, BLACK, 0.55), mix(bottom, BLACK, 0.6)
    size = round(WIDTH * scale), round(HEIGHT * scale)
    picture = Image.composite(
        Image.new("RGB", size, bottom), Image.new("RGB", size, top), Image.linear_gradient("L").resize(size)
    )
    for depth, heights in enumerate(HILLS):
        picture.paste(mix(bottom, top, 0.45 + 0.25 * depth), (0, 0), _hill_mask(size, heights))
    return picture


def _hill_mask(size: tuple[int, int], heights: tuple[float, ...]) -> Image.Image:
    """Everything below a smooth curve through `heights`, drawn large and shrunk for a soft edge."""
    width, height = size[0] * 2, size[1] * 2
    points = [(width * step / 60, height * _curve(heights, step / 60)) for step in range(61)]
    mask = Image.new("L", (width, height))
    ImageDraw.Draw(mask).polygon([*points, (width, height), (0, height)], fill=255)
    return mask.resize(size, Image.Resampling.BOX)


def _curve(heights: tuple[float, ...], along: float) -> float:
    """Smooth steps between neighbouring heights."""
    place = along * (len(heights) - 1)
    index = min(int(place), len(heights) - 2)
    part = place - index
    ease = part * part * (3 - 2 * part)
    return heights[index] + (heights[index + 1] - heights[index]) * ease


@lru_cache(maxsize=8)
def keyboard_picture(scale: float, dark: bool) -> Image.Image:
    """The open keyboard, as wide as the screen."""
    back, key, ink = ((27, 28, 33), (62, 65, 73), WHITE) if dark else ((226, 229, 236), WHITE, (32, 34, 40))
    picture = Image.new("RGB", (round(WIDTH * scale), round(HEIGHT * scale) - round(KEYS_TOP * scale)), back)
    canvas, pen = Canvas(picture, scale), Pen(19, ink)
    step, height, top = WIDTH / 10, 50.0, 10.0
    for line, letters in enumerate(LETTERS):
        left = (WIDTH - len(letters) * step) / 2
        for index, letter in enumerate(letters):
            _key(
                canvas,
                (left + index * step, top + line * height, left + (index + 1) * step, top + (line + 1) * height),
                letter,
                pen,
                key,
            )
    _special_keys(canvas, top + 2 * height, mix(key, back, 0.55), key, pen)
    return picture


def _special_keys(canvas: Canvas, top: float, special: Colour, key: Colour, pen: Pen) -> None:
    small, middle = Pen(14, pen.colour), top + 75
    _key(canvas, (0, top, 54, top + 50), "", small, special)
    _key(canvas, (306, top, 360, top + 50), "", small, special)
    _key(canvas, (0, top + 50, 54, top + 100), "?123", small, special)
    _key(canvas, (54, top + 50, 90, top + 100), ",", pen, special)
    _key(canvas, (90, top + 50, 252, top + 100), "English", small, key)
    _key(canvas, (252, top + 50, 288, top + 100), ".", pen, special)
    accent = (59, 91, 219)
    _key(canvas, (288, top + 50, 360, top + 100), "", pen, accent)
    canvas.pictogram("arrow", 324, middle, 20, WHITE)
    canvas.pictogram("shift", 27, top + 25, 20, pen.colour)
    canvas.pictogram("erase", 333, top + 25, 22, pen.colour)


def _key(canvas: Canvas, box: Box, text: str, pen: Pen, colour: Colour) -> None:
    left, top, right, bottom = box[0] + 2.5, box[1] + 4, box[2] - 2.5, box[3] - 4
    canvas.rounded((left, top + 1, right, bottom + 1), 6, mix(colour, BLACK, 0.25))
    canvas.rounded((left, top, right, bottom), 6, colour)
    if text:
        canvas.text((left + right) / 2, (top + bottom) / 2, text, pen, width=right - left, anchor=0.5)

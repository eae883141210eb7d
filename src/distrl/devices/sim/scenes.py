"""Procedural pictures: what the photos of a simulated phone show.

A photo's name decides its subject ("Harbour at dawn" shows the sea) and one of a few moods; equal names give equal
pictures. Each subject and mood is painted once, large, and shrunk to the sizes that are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from random import Random
from zlib import crc32

from PIL import Image, ImageDraw, ImageOps

from distrl.devices.sim.paint import WHITE, Colour, mix

WIDE, HIGH = 360, 270
"""Size of a painting, before it is cropped and shrunk."""
MOODS, VIEWS = 3, 2
"""Lights that a subject is painted in; ways to take its picture: as it is, or mirrored and closer."""
SUBJECTS = {
    "sea": "pier beach harbour lighthouse sea sailing surf",
    "mountain": "mountain snow hut waterfall winter trips hikes",
    "forest": "forest leaves foggy autumn camera nature wild",
    "meadow": "tulip field garden picnic flowers market rainbow",
    "night": "night starry fireworks lantern concert campfire skies",
    "food": "cake breakfast pancake cream food",
    "pet": "kitten puppy pets",
    "people": "grandma team family wedding school goal chess selfie friends dance volleyball musician birthday baby",
    "road": "desert road bicycle train balloon",
    "town": "town bridge castle street book city",
}
"""Words of a name that decide what a photo shows; a town where there is none."""


def subject_of(name: str) -> str:
    """What a photo of this name shows."""
    words = set(name.casefold().split())
    return next((subject for subject, known in SUBJECTS.items() if words & set(known.split())), "town")


def photo(name: str, size: tuple[int, int]) -> Image.Image:
    """The photo of that name, cropped to `size`."""
    number = crc32(name.encode("utf-8", "replace"))
    return _fitted(subject_of(name), number % MOODS, number // MOODS % VIEWS, size)


@lru_cache(maxsize=160)
def _fitted(subject: str, mood: int, view: int, size: tuple[int, int]) -> Image.Image:
    painting = _painting(subject, mood)
    if view:
        painting = ImageOps.mirror(painting.crop((0, HIGH // 8, WIDE - WIDE // 9, HIGH)))
    # Wide crops keep what lies a little below the middle, where the subject of every painting is.
    return ImageOps.fit(painting, size, Image.Resampling.BILINEAR, centering=(0.5, 0.55))


@lru_cache(maxsize=48)
def _painting(subject: str, mood: int) -> Image.Image:
    brush = Brush(Random(f"{subject}{mood}"), mood)
    PAINTERS[subject](brush)
    return brush.image


# --- brushwork ------------------------------------------------------------------------------------------------------

SKIES: tuple[tuple[Colour, Colour], ...] = (
    ((92, 160, 222), (214, 234, 246)),
    ((72, 78, 142), (250, 176, 128)),
    ((142, 178, 198), (240, 228, 206)),
)
"""Top and horizon: noon, dusk, haze."""


class Brush:
    """A painting in the making; places are shares of its width and height."""

    def __init__(self, random: Random, mood: int) -> None:
        self.random, self.mood = random, mood
        self.image = Image.new("RGB", (WIDE, HIGH))
        self.draw = ImageDraw.Draw(self.image)

    def gradient(self, top: Colour, bottom: Colour, since: float = 0.0, until: float = 1.0) -> None:
        """Fill a band from one colour to another."""
        first, last = round(since * HIGH), round(until * HIGH)
        self.image.paste(top, (0, first, WIDE, last))
        self.image.paste(bottom, (0, first), Image.linear_gradient("L").resize((WIDE, last - first)))

    def sky(self, until: float = 0.62) -> None:
        """The sky of this mood, with a sun and some clouds."""
        self.gradient(*SKIES[self.mood], 0.0, until)
        sun = ((255, 250, 224), (255, 226, 150), (255, 244, 222))[self.mood]
        self.disc(0.72 - 0.2 * self.mood, until - 0.18, 0.05, sun)
        for _ in range(4):
            self.cloud(self.random.uniform(0.05, 0.95), self.random.uniform(0.08, until - 0.25))

    def cloud(self, x: float, y: float) -> None:
        """A flat cloud in the colour of the horizon."""
        ink = shade(SKIES[self.mood][1], 1.04)
        for step in range(5):
            self.oval(x + (step - 2) * 0.035, y + abs(step - 2) * 0.006, 0.045, 0.02, ink)

    def disc(self, x: float, y: float, radius: float, ink: Colour) -> None:
        """A circle; its radius is a share of the width."""
        self.oval(x, y, radius, radius * WIDE / HIGH, ink)

    def oval(self, x: float, y: float, across: float, down: float, ink: Colour) -> None:
        """An ellipse by its half axes."""
        self.draw.ellipse(((x - across) * WIDE, (y - down) * HIGH, (x + across) * WIDE, (y + down) * HIGH), fill=ink)

    def box(self, left: float, top: float, right: float, bottom: float, ink: Colour) -> None:
        """A rectangle."""
        self.draw.rectangle((left * WIDE, top * HIGH, right * WIDE, bottom * HIGH), fill=ink)

    def poly(self, ink: Colour, *points: tuple[float, float]) -> None:
        """A polygon."""
        self.draw.polygon([(x * WIDE, y * HIGH) for x, y in points], fill=ink)

    def line(self, ink: Colour, width: int, *points: tuple[float, float]) -> None:
        """A line of so many pixels."""
        self.draw.line([(x * WIDE, y * HIGH) for x, y in points], fill=ink, width=width, joint="curve")

    def hills(self, height: float, swing: float, ink: Colour, bumps: float = 2.0) -> None:
        """Everything below a wavy line."""
        turn = self.random.uniform(0, 6)
        edge = [
            (x / 60, height + swing * (math.sin(turn + bumps * x / 9.5) + 0.4 * math.sin(turn + bumps * x / 3.7)))
            for x in range(61)
        ]
        self.poly(ink, *edge, (1.0, 1.0), (0.0, 1.0))

    def fir(self, x: float, foot: float, size: float, ink: Colour) -> None:
        """A fir tree."""
        self.box(x - size * 0.03, foot - size * 0.1, x + size * 0.03, foot, (86, 62, 44))
        for tier in range(3):
            low, half = foot - size * (0.08 + 0.28 * tier), size * (0.26 - 0.06 * tier)
            self.poly(ink, (x - half, low), (x + half, low), (x, low - size * 0.46))

    def house(self, left: float, foot: float, size: tuple[float, float], wall: Colour) -> None:
        """A house front with a roof and windows."""
        width, height = size
        roof = shade(wall, 0.55)
        self.box(left, foot - height, left + width, foot, wall)
        self.poly(
            roof, (left - 0.008, foot - height), (left + width + 0.008, foot - height), (left + width / 2, foot - height - 0.09)
        )  # fmt: skip
        pane = (255, 226, 150) if self.mood == 1 else (92, 116, 140)
        for row in range(int(height / 0.11)):
            for column in range(2):
                x, y = left + width * (0.2 + 0.38 * column), foot - height + 0.04 + 0.11 * row
                self.box(x, y, x + width * 0.22, y + 0.055, pane)

    def person(self, x: float, foot: float, size: float, shirt: Colour) -> None:
        """Head and shoulders."""
        skin = self.random.choice(((244, 206, 176), (214, 164, 126), (150, 104, 76), (232, 188, 152)))
        hair = self.random.choice(((52, 38, 30), (112, 74, 42), (196, 154, 88), (170, 170, 174), (28, 26, 30)))
        self.oval(x, foot, size * 0.52, size * 0.95, shirt)
        self.box(x - size * 0.1, foot - size * 1.2, x + size * 0.1, foot - size * 0.8, shade(skin, 0.88))
        self.oval(x, foot - size * 1.62, size * 0.29, size * 0.52, hair)
        self.oval(x, foot - size * 1.48, size * 0.245, size * 0.46, skin)
        for side in (-1, 1):
            self.oval(x + side * size * 0.09, foot - size * 1.54, size * 0.025, size * 0.035, (40, 34, 34))
        self.draw.arc(
            ((x - size * 0.1) * WIDE, (foot - size * 1.5) * HIGH, (x + size * 0.1) * WIDE, (foot - size * 1.26) * HIGH),
            20, 160, fill=(150, 60, 56), width=2,
        )  # fmt: skip


def shade(colour: Colour, factor: float) -> Colour:
    """The colour brighter or darker by a factor."""
    red, green, blue = (min(255, round(level * factor)) for level in colour)
    return red, green, blue


# --- subjects -------------------------------------------------------------------------------------------------------


def _sea(brush: Brush) -> None:
    brush.sky(0.56)
    deep = ((26, 104, 158), (58, 62, 110), (78, 124, 146))[brush.mood]
    brush.gradient(shade(deep, 1.45), deep, 0.56, 1.0)
    glint = shade(SKIES[brush.mood][1], 1.02)
    for _ in range(60):
        x, y = brush.random.random(), brush.random.uniform(0.58, 0.84)
        brush.line(glint, 1, (x, y), (x + 0.05 * (y - 0.45), y))
    if brush.mood == 0:
        brush.poly((238, 218, 174), (0, 0.84), (0.35, 0.8), (1, 0.93), (1, 1), (0, 1))
        brush.line(WHITE, 3, (0, 0.84), (0.35, 0.8), (1, 0.93))
    elif brush.mood == 1:
        for post in range(7):
            brush.box(0.44 + 0.085 * post, 0.66, 0.452 + 0.085 * post, 0.9, (50, 36, 44))
        brush.poly((66, 48, 54), (0.4, 0.7), (1, 0.66), (1, 0.72), (0.4, 0.735))
    else:
        brush.poly((92, 96, 92), (0.55, 1), (0.63, 0.7), (0.86, 0.66), (1, 0.72), (1, 1))
        brush.poly((246, 244, 240), (0.7, 0.7), (0.72, 0.34), (0.78, 0.34), (0.8, 0.7))
        for stripe in (0.42, 0.56):
            brush.poly((208, 70, 62), (0.712, stripe), (0.788, stripe), (0.793, stripe + 0.07), (0.707, stripe + 0.07))
        brush.box(0.722, 0.28, 0.778, 0.34, (255, 232, 150))
        brush.poly((80, 60, 60), (0.71, 0.28), (0.79, 0.28), (0.75, 0.22))
    _sail(brush, 0.22, 0.66)


def _sail(brush: Brush, x: float, y: float) -> None:
    brush.poly((250, 248, 244), (x, y - 0.17), (x, y - 0.02), (x + 0.075, y - 0.02))
    brush.poly((226, 224, 222), (x - 0.01, y - 0.13), (x - 0.01, y - 0.02), (x - 0.05, y - 0.02))
    brush.poly((70, 50, 46), (x - 0.06, y), (x + 0.085, y), (x + 0.06, y + 0.032), (x - 0.04, y + 0.032))


def _mountain(brush: Brush) -> None:
    brush.sky(0.7)
    far = shade(SKIES[brush.mood][1], 0.72)
    for x, peak, half, ink in ((0.2, 0.3, 0.34, far), (0.82, 0.26, 0.36, far), (0.5, 0.16, 0.36, shade(far, 0.7))):
        brush.poly(ink, (x - half, 0.8), (x, peak), (x + half, 0.8))
        brush.poly(shade(ink, 0.82), (x, peak), (x + half, 0.8), (x + half * 0.1, 0.8))
        snow = (244, 248, 252)
        reach = 0.3
        brush.poly(
            snow, (x, peak), (x - half * reach, peak + (0.8 - peak) * reach), (x - half * 0.1, peak + 0.12),
            (x + half * 0.04, peak + 0.18), (x + half * 0.14, peak + 0.12), (x + half * reach, peak + (0.8 - peak) * reach),
        )  # fmt: skip
    ground = ((98, 142, 84), (226, 232, 240), (120, 128, 92))[brush.mood]
    brush.hills(0.74, 0.018, shade(ground, 0.85))
    for _ in range(16):
        brush.fir(
            brush.random.random(),
            brush.random.uniform(0.76, 0.84),
            0.16,
            shade((52, 92, 70), brush.random.uniform(0.7, 1.1)),
        )
    brush.hills(0.86, 0.014, ground)
    brush.house(0.62, 0.88, (0.13, 0.1), (142, 98, 66))


def _forest(brush: Brush) -> None:
    haze, leaf = (
        ((204, 222, 206), (62, 118, 70)),
        ((246, 214, 160), (206, 112, 44)),
        ((196, 206, 212), (84, 108, 100)),
    )[brush.mood]
    brush.gradient(haze, shade(haze, 1.1), 0.0, 1.0)
    for depth in range(4):
        ink = mix(haze, leaf, 0.25 + 0.22 * depth)
        foot = 0.72 + 0.09 * depth
        for _ in range(11 - 2 * depth):
            x = brush.random.random()
            brush.box(
                x - 0.006 * (depth + 1),
                0.0,
                x + 0.006 * (depth + 1),
                foot,
                mix(haze, (70, 54, 46), 0.2 + 0.2 * depth),
            )
            for _ in range(5):
                brush.disc(
                    x + brush.random.uniform(-0.07, 0.07), brush.random.uniform(0.0, 0.42), 0.05 + 0.01 * depth, ink
                )
        brush.hills(foot - 0.02, 0.012, shade(ink, 0.92))
    brush.poly(mix(leaf, (214, 190, 150), 0.7), (0.47, 0.78), (0.53, 0.78), (0.74, 1), (0.3, 1))


def _meadow(brush: Brush) -> None:
    brush.sky(0.5)
    brush.hills(0.46, 0.02, (112, 158, 96))
    brush.hills(0.54, 0.012, (98, 164, 84))
    if brush.mood == 0:
        for band, ink in enumerate(((255, 96, 88), (255, 178, 70), (252, 236, 110), (112, 196, 120), (96, 148, 232))):
            radius = 0.46 - 0.014 * band
            box = (
                (0.5 - radius) * WIDE,
                0.52 * HIGH - radius * WIDE * 0.72,
                (0.5 + radius) * WIDE,
                0.52 * HIGH + radius * WIDE * 0.72,
            )
            brush.draw.arc(box, 180, 360, fill=mix(SKIES[0][1], ink, 0.75), width=7)
    inks = ((226, 62, 74), (250, 196, 62), (196, 92, 190), (250, 244, 240), (240, 122, 60))
    for row in range(11):
        y = 0.58 + 0.0038 * (row + 1) ** 2
        ink, size = inks[(row // 2 + brush.mood) % len(inks)], 0.006 + 0.0022 * row
        for step in range(int(1 / (size * 1.9))):
            x = step * size * 1.9 + (row % 2) * size
            brush.line((62, 122, 62), 1 + row // 5, (x, y), (x, y + size * 2.6))
            brush.oval(x, y, size * 0.72, size * 1.25, shade(ink, brush.random.uniform(0.86, 1.1)))


def _night(brush: Brush) -> None:
    brush.gradient(
        ((10, 14, 44), (26, 16, 52), (8, 24, 48))[brush.mood], ((46, 56, 110), (96, 48, 92), (30, 78, 104))[brush.mood]
    )
    for _ in range(130):
        brush.disc(
            brush.random.random(),
            brush.random.uniform(0, 0.7),
            brush.random.choice((0.0016, 0.0022, 0.0034)),
            (236, 238, 255),
        )
    bursts = ((0.3, 0.32, (255, 196, 96)), (0.68, 0.24, (122, 214, 255)), (0.54, 0.48, (255, 128, 168)))
    for x, y, ink in bursts[: 3 if brush.mood == 1 else 0]:
        for ray in range(22):
            turn, far = ray * math.tau / 22, brush.random.uniform(0.09, 0.14)
            tip = (x + far * math.cos(turn), y + far * 1.33 * math.sin(turn))
            brush.line(shade(ink, 0.75), 2, (x + far * 0.35 * math.cos(turn), y + far * 0.46 * math.sin(turn)), tip)
            brush.disc(*tip, 0.005, ink)
    if brush.mood == 0:
        brush.disc(0.76, 0.24, 0.06, (250, 246, 222))
        brush.disc(0.785, 0.22, 0.052, (20, 24, 60))
    if brush.mood == 2:
        for number in range(7):
            x, y = 0.08 + 0.14 * number, 0.34 + 0.1 * math.sin(number * 1.7)
            brush.disc(x, y, 0.05, (92, 62, 40))
            brush.oval(x, y, 0.034, 0.062, (255, 190, 92))
            brush.oval(x, y, 0.018, 0.044, (255, 236, 176))
    brush.hills(0.78, 0.02, (16, 18, 34))
    for _ in range(20):
        x = brush.random.random()
        brush.box(x, 0.8, x + 0.012, 0.83, (255, 214, 130))
    brush.hills(0.88, 0.016, (9, 10, 20))


def _food(brush: Brush) -> None:
    brush.gradient(
        ((232, 214, 190), (188, 206, 208), (236, 206, 204))[brush.mood],
        ((196, 164, 130), (138, 160, 164), (206, 158, 154))[brush.mood],
    )
    for plank in range(5):
        brush.line(shade((196, 164, 130), 0.86), 2, (0, 0.55 + plank * 0.11), (1, 0.55 + plank * 0.11))
    brush.oval(0.5, 0.72, 0.34, 0.2, (172, 150, 132))
    brush.oval(0.5, 0.7, 0.34, 0.19, (250, 250, 248))
    brush.oval(0.5, 0.69, 0.27, 0.145, (234, 234, 232))
    if brush.mood == 1:
        for layer in range(5):
            brush.oval(0.5, 0.68 - 0.05 * layer, 0.2, 0.085, (166, 104, 52))
            brush.oval(0.5, 0.665 - 0.05 * layer, 0.195, 0.075, (232, 182, 108))
        brush.poly((190, 98, 30), (0.36, 0.46), (0.62, 0.44), (0.6, 0.6), (0.56, 0.56), (0.5, 0.62), (0.44, 0.55))
        brush.box(0.46, 0.4, 0.54, 0.45, (252, 232, 140))
    else:
        ink = ((246, 222, 226), (0, 0, 0), (120, 72, 50))[brush.mood]
        brush.oval(0.5, 0.69, 0.2, 0.09, shade(ink, 0.84))
        brush.box(0.3, 0.42, 0.7, 0.69, ink)
        brush.box(0.3, 0.53, 0.7, 0.57, (206, 78, 92))
        brush.oval(0.5, 0.42, 0.2, 0.085, shade(ink, 1.08))
        for candle in range(5):
            x = 0.37 + 0.065 * candle
            brush.box(x - 0.006, 0.27, x + 0.006, 0.41, ((92, 160, 220), (240, 182, 70))[candle % 2])
            brush.oval(x, 0.245, 0.009, 0.028, (255, 206, 90))
        for berry in range(7):
            brush.disc(0.335 + 0.055 * berry, 0.45 + 0.03 * math.sin(berry), 0.018, (206, 42, 62))


def _pet(brush: Brush) -> None:
    brush.gradient(
        ((214, 196, 178), (168, 186, 196), (206, 212, 190))[brush.mood],
        ((182, 156, 134), (128, 148, 160), (166, 176, 146))[brush.mood],
    )
    brush.poly((146, 84, 78), (0, 0.72), (1, 0.68), (1, 1), (0, 1))
    coat = ((224, 158, 92), (110, 104, 108), (236, 222, 204))[brush.mood]
    brush.oval(0.5, 0.98, 0.27, 0.4, shade(coat, 0.9))
    for side in (-1, 1):
        if brush.mood == 2:
            brush.oval(0.5 + side * 0.19, 0.52, 0.06, 0.19, shade(coat, 0.72))
        else:
            brush.poly(shade(coat, 0.88), (0.5 + side * 0.2, 0.2), (0.5 + side * 0.06, 0.36), (0.5 + side * 0.2, 0.5))
            brush.poly((232, 164, 160), (0.5 + side * 0.18, 0.27), (0.5 + side * 0.1, 0.36), (0.5 + side * 0.18, 0.44))
    brush.oval(0.5, 0.51, 0.2, 0.235, coat)
    brush.oval(0.5, 0.6, 0.1, 0.1, shade(coat, 1.14))
    for side in (-1, 1):
        brush.oval(0.5 + side * 0.085, 0.475, 0.028, 0.045, (40, 32, 30))
        brush.oval(0.5 + side * 0.078, 0.46, 0.009, 0.014, WHITE)
        for hair in (-0.02, 0.01, 0.04):
            brush.line(shade(coat, 0.6), 1, (0.5 + side * 0.07, 0.59), (0.5 + side * 0.23, 0.57 + hair))
    brush.poly((86, 52, 52), (0.475, 0.555), (0.525, 0.555), (0.5, 0.585))
    brush.line((86, 52, 52), 2, (0.5, 0.585), (0.5, 0.61), (0.465, 0.63))
    brush.line((86, 52, 52), 2, (0.5, 0.61), (0.535, 0.63))


def _people(brush: Brush) -> None:
    brush.sky(0.6)
    brush.hills(0.52, 0.03, ((120, 164, 104), (112, 92, 100), (150, 160, 132))[brush.mood])
    for _ in range(7):
        brush.disc(brush.random.random(), 0.46, 0.07, shade((88, 136, 84), brush.random.uniform(0.75, 1.1)))
    brush.hills(0.62, 0.01, ((142, 186, 106), (142, 118, 104), (172, 178, 140))[brush.mood])
    shirts = [(214, 72, 72), (64, 114, 190), (240, 184, 70), (86, 156, 112), (154, 96, 178), (236, 236, 232)]
    brush.random.shuffle(shirts)
    for number, x in enumerate((0.2, 0.8, 0.38, 0.62, 0.5)[: 3 + brush.mood]):
        brush.person(x, 1.02 - 0.04 * (number < 2), 0.31, shirts[number])


def _road(brush: Brush) -> None:
    brush.sky(0.55)
    sand = ((222, 178, 118), (176, 108, 92), (202, 190, 146))[brush.mood]
    brush.poly(shade(sand, 0.72), (0, 0.56), (0.06, 0.4), (0.22, 0.4), (0.28, 0.56))
    brush.poly(shade(sand, 0.78), (0.66, 0.56), (0.72, 0.44), (0.9, 0.44), (1, 0.5), (1, 0.56))
    brush.gradient(shade(sand, 0.9), shade(sand, 1.08), 0.55, 1.0)
    brush.poly((86, 86, 92), (0.485, 0.55), (0.515, 0.55), (0.84, 1), (0.16, 1))
    for dash in range(6):
        y = 0.57 + 0.012 * (dash + 1) ** 2
        brush.box(0.5 - 0.002 * (dash + 1), y, 0.5 + 0.002 * (dash + 1), y + 0.009 * (dash + 1), (244, 226, 150))
    if brush.mood != 1:
        brush.disc(0.27, 0.27, 0.088, (206, 60, 58))
        brush.oval(0.27, 0.27, 0.05, 0.117, (240, 196, 84))
        brush.oval(0.27, 0.27, 0.018, 0.117, (206, 60, 58))
        brush.line((90, 70, 60), 2, (0.22, 0.37), (0.255, 0.45))
        brush.line((90, 70, 60), 2, (0.32, 0.37), (0.285, 0.45))
        brush.box(0.252, 0.45, 0.288, 0.485, (132, 90, 56))


def _town(brush: Brush) -> None:
    brush.sky(0.66)
    far = mix(SKIES[brush.mood][1], (92, 98, 122), 0.45)
    for step in range(13):
        x, high = step / 12 - 0.04, brush.random.uniform(0.14, 0.34)
        brush.box(x, 0.62 - high, x + 0.075, 0.7, shade(far, brush.random.uniform(0.92, 1.06)))
    brush.poly(shade(far, 0.8), (0.68, 0.62), (0.68, 0.26), (0.71, 0.12), (0.74, 0.26), (0.74, 0.62))
    walls = [(226, 162, 112), (208, 106, 88), (238, 214, 166), (146, 172, 178), (224, 190, 186), (188, 160, 122)]
    brush.random.shuffle(walls)
    x = -0.02
    for number in range(8):
        wide = brush.random.uniform(0.13, 0.17)
        dim = 0.78 if brush.mood == 1 else 1.0
        brush.house(x, 0.8, (wide - 0.006, brush.random.uniform(0.22, 0.36)), shade(walls[number % 6], dim))
        x += wide
    water = ((84, 138, 170), (74, 70, 112), (120, 144, 152))[brush.mood]
    brush.gradient(water, shade(water, 0.75), 0.8, 1.0)
    for _ in range(30):
        x, y = brush.random.random(), brush.random.uniform(0.83, 0.98)
        brush.line(shade(water, 1.35), 1, (x, y), (x + 0.06, y))
    if brush.mood != 0:
        brush.poly(
            (122, 108, 98),
            (0, 0.8),
            (0, 0.74),
            (1, 0.74),
            (1, 0.94),
            (0.93, 0.94),
            (0.88, 0.83),
            (0.72, 0.8),
            (0.56, 0.83),
            (0.51, 0.94),
            (0.46, 0.94),
            (0.41, 0.83),
            (0.25, 0.8),
            (0.1, 0.83),
            (0.05, 0.94),
            (0, 0.94),
        )


PAINTERS: dict[str, Callable[[Brush], None]] = {
    "sea": _sea,
    "mountain": _mountain,
    "forest": _forest,
    "meadow": _meadow,
    "night": _night,
    "food": _food,
    "pet": _pet,
    "people": _people,
    "road": _road,
    "town": _town,
}

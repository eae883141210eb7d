"""Procedural sleeves for the records of a simulated phone: a few designs in a few sets of inks, chosen by name."""

from __future__ import annotations

import math
from functools import lru_cache
from zlib import crc32

from PIL import Image, ImageDraw

from distrl.devices.sim.paint import Colour, mix

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

"""Pictures of what the web shops sell: a coloured drawing for every kind of goods, on a soft backdrop.

Drawings are in the language of `pictograms`, each stroke with its tone in front: `m` the colour of the thing, `d` and
`l` darker and lighter than it, `k` black, `s` steel, `w` white, `b` wood, `y` amber, `g` glass.
"""

from __future__ import annotations

from functools import lru_cache
from zlib import crc32

from PIL import Image, ImageDraw

from distrl.devices.sim.paint import BLACK, WHITE, Colour, mix
from distrl.devices.sim.pictograms import GRID, stroke

SMOOTH = 3
COLOURS: dict[str, Colour] = {
    "black": (58, 60, 68), "red": (206, 56, 58), "green": (66, 146, 92), "blue": (58, 108, 196),
}  # fmt: skip
"""Colours that a buyer can choose."""
OWN: tuple[Colour, ...] = (
    (218, 84, 74),
    (64, 128, 190),
    (86, 154, 112),
    (232, 164, 62),
    (128, 98, 180),
    (60, 150, 158),
)
"""Colours of brands."""
TONES: dict[str, Colour] = {
    "k": (44, 46, 54), "s": (176, 182, 192), "w": (248, 248, 250), "b": (172, 122, 78), "y": (246, 190, 78),
    "g": (188, 220, 236),
}  # fmt: skip

DRAWINGS: dict[str, str] = {
    "kettle": "m poly 7 8 16 8 18 20 5 20; d box 5 19 18 21 1; m poly 16.5 9 21 7.5 19.5 12 17 13; k arc 11.5 8 5 180 360 1.6; k box 9.5 6.4 13.5 8.2 0.8; l poly 8 10 9.5 10 8.6 18 7 18",
    "headphones": "d arc 12 13 8.4 180 360 2; k box 2.6 12 6 20 1.6; k box 18 12 21.4 20 1.6; m box 4.6 11.4 8 20.6 1.6; m box 16 11.4 19.4 20.6 1.6; l line 0.8 5.4 13 5.4 19",
    "rain jacket": "m poly 8 5 16 5 21 9 19.5 14 17.5 13 17.5 21 6.5 21 6.5 13 4.5 14 3 9; d poly 9 5 15 5 14 8.5 10 8.5; d line 0.7 12 8.5 12 21; l line 0.7 8.4 15 10.6 15; l line 0.7 13.4 15 15.6 15",
    "desk lamp": "k box 5 20 15 21.6 0.8; s line 1.4 10 20 6.5 13 13 7.5; m poly 10.5 7 15.5 3.5 19.5 10.5 12.5 12; y disc 16.6 11 1.9; k disc 6.5 13 1.2",
    "yoga mat": "d box 3 9 19 17 4; m box 3 8.4 17 16.6 4; d ring 17.4 12.6 4 1; l ring 17.4 12.6 2.4 0.8; m disc 17.4 12.6 1.2; w line 0.8 7 8.6 7 16.4; w line 0.8 12 8.6 12 16.4",
    "puzzle": "m box 3 4 21 20 1.5; l disc 9 10 3; y disc 16 8 2; d poly 3 17 9 12 14 16 17 13.5 21 17 21 20 3 20; w line 0.6 9 4 9 20; w line 0.6 15 4 15 20; w line 0.6 3 9.4 21 9.4; w line 0.6 3 14.6 21 14.6; w disc 12 9.4 1; w disc 9 12 1; w disc 15 12 1",
    "frying pan": "k disc 9.4 13 7.4; s ring 9.4 13 7.4 0.8; k line 2.4 15 9 22 4.5; m line 2.6 18.4 6.8 22 4.5; w disc 8.6 13.4 3.6; y disc 9.2 12.8 1.7",
    "phone charger": "w box 6 8 15 17 2; s box 6 14.5 15 17 1.2; k box 8.4 4.4 9.6 8 0.3; k box 11.4 4.4 12.6 8 0.3; m line 1.2 10.5 17 10.5 20.5 18 20.5 18 12; d box 16.6 8.6 19.4 13 0.6",
    "wool sweater": "m poly 8 5 16 5 21.4 18 18.6 19.4 16.8 14 16.8 21 7.2 21 7.2 14 5.4 19.4 2.6 18; d arc 12 4.6 3 0 180 1.3; l line 0.9 7.4 12 9 10.5 10.5 12 12 10.5 13.5 12 15 10.5 16.6 12; w line 0.9 7.4 14.5 9 13 10.5 14.5 12 13 13.5 14.5 15 13 16.6 14.5; d box 7.2 19.6 16.8 21 0.4",
    "blanket": "d box 3 13 21 20 1.6; m box 3 9.6 21 16.4 1.6; l box 3 6 21 12.6 1.6; w line 0.8 6 6.2 6 12.4; w line 0.8 10 6.2 10 12.4; w line 0.8 14 6.2 14 12.4; w line 0.8 18 6.2 18 12.4; l line 0.8 3.5 14.6 20.5 14.6",
    "bike helmet": "m poly 2.6 16 3.4 10.5 7 6.4 12 5 17.4 6.6 20.8 11 21.6 16; d box 2.4 15 21.8 17.4 1; k line 1.3 8 9.4 6.4 14.4; k line 1.3 12 8.4 11.6 14.4; k line 1.3 16 9.4 17 14.4; s line 0.8 6 17 10 21.4 14 17.2",
    "kite": "m poly 13 2 20 9 11 17 6.4 7.4; l poly 13 2 20 9 12 9.6; d poly 6.4 7.4 12 9.6 11 17; k line 0.5 13 2 11 17; k line 0.5 6.4 7.4 20 9; k line 0.6 11 17 9 19 11 20.4 8 22; y poly 8 17.8 10.6 18.6 8.4 20",
    "toaster": "b box 7 3.6 16.4 10 2; y box 8 4.6 15.4 10 1.4; m box 3 8.6 21 20 3; l box 4.4 10 6 18 0.7; k box 6 8.2 18 9.4 0.5; d box 19.2 11 21.6 13 0.5; k box 5 19.6 8 21 0.4; k box 16 19.6 19 21 0.4; w disc 17 16.4 1.4",
    "speaker": "m box 6 2.6 18 21.4 2.4; k disc 12 15 4.6; s ring 12 15 4.6 0.6; d disc 12 15 2; k disc 12 7 2.4; s disc 12 7 0.9",
    "t-shirt": "m poly 8 4.4 16 4.4 21.6 8.4 19.4 12 17 10.6 17 21 7 21 7 10.6 4.6 12 2.4 8.4; d arc 12 4 3 0 180 1.2; l disc 12 13 2.6; w poly 12 11 12.8 12.6 14.4 12.8 13.2 14 13.5 15.6 12 14.8 10.5 15.6 10.8 14 9.6 12.8 11.2 12.6",
    "wall clock": "m disc 12 12 10; w disc 12 12 8; k line 1 12 6.6 12 12 15.6 14.4; d disc 12 12 1; k line 0.7 12 4.6 12 5.6; k line 0.7 12 18.4 12 19.4; k line 0.7 4.6 12 5.6 12; k line 0.7 18.4 12 19.4 12",
    "tennis racket": "k line 2.2 13.8 14.6 20.4 21.2; m ring 9 9.4 7 1.5; s line 0.4 4 6 14 6; s line 0.4 2.8 9.4 15.2 9.4; s line 0.4 4 12.8 14 12.8; s line 0.4 6 3.6 6 15; s line 0.4 9 3 9 16; s line 0.4 12 3.6 12 15; y disc 18.6 8 2.3; w arc 20.4 6.4 2.4 90 180 0.5",
    "train set": "m box 3 9 10 17 1; d box 2.4 7.4 10.6 9.4 0.6; g box 4.4 10.6 8.6 13 0.4; k box 10 11 18 17 1.6; m box 14.6 7.6 16.6 11 0.4; y disc 18 14 1; d disc 5.6 18 2; d disc 10.6 18 2; d disc 15.6 18 2; s line 0.8 2 20.6 22 20.6; w disc 16.6 5 1.4; w disc 18.6 3.8 1.1",
    "coffee grinder": "s line 1 12 6 12 3.6 18 3.6; b disc 18.4 3.6 1.5; s poly 7.4 6 16.6 6 14.6 10.6 9.4 10.6; m box 6.4 10.4 17.6 20.6 1.2; d box 8.4 14.4 15.6 18.4 0.6; y disc 12 16.4 0.9; k box 5.4 20 18.6 21.6 0.5",
    "web camera": "k poly 8 17 16 17 18.6 21.4 5.4 21.4; d box 10.6 14 13.4 18 0.4; m disc 12 9.4 6.8; k disc 12 9.4 4.6; g disc 12 9.4 2.6; k disc 12 9.4 1.3; w disc 10.8 8 0.8; y disc 17 5 0.6",
    "winter gloves": "m box 3.4 8 10.6 19 3; m disc 4.2 13.4 2; d box 3.4 17 10.6 21 1; l line 0.7 5.4 19 8.6 19; m box 13.4 8 20.6 19 3; m disc 19.8 13.4 2; d box 13.4 17 20.6 21 1; l line 0.7 15.4 19 18.6 19; w poly 7 10 7.8 12 6.2 12; w poly 17 10 17.8 12 16.2 12; l box 5 6.6 9 10 1.8; l box 15 6.6 19 10 1.8",
    "bookshelf": "b box 4 2 20 22 0.6; w box 5.4 3.4 18.6 8.4 0; w box 5.4 9.8 18.6 14.8 0; w box 5.4 16.2 18.6 20.8 0; m box 6 4 7.8 8.4 0; d box 8 4.6 9.4 8.4 0; y box 9.8 4.2 11.4 8.4 0; l box 14 10.4 15.8 14.8 0; m box 16 11 17.6 14.8 0; d box 6 11 10.6 14.8 0.4; k box 6 17 7.4 20.8 0; m box 7.8 17.4 9.4 20.8 0; y disc 15.6 19 1.8",
    "swim goggles": "k line 1.4 1.6 11.4 6 10.6; k line 1.4 22.4 11.4 18 10.6; m box 4 8 11.4 16 3.4; m box 12.6 8 20 16 3.4; g box 5.4 9.4 10.4 14.6 2.4; g box 13.6 9.4 18.6 14.6 2.4; d line 1.2 10.8 11 13.2 11; w line 0.8 6.6 10.8 8 10.2; w line 0.8 14.8 10.8 16.2 10.2",
    "board game": "m box 2.6 5 21.4 19.4 1; w box 4.4 6.6 19.6 17.8 0.4; l box 4.4 6.6 9.4 10.4 0; y box 14.6 6.6 19.6 10.4 0; d box 4.4 14 9.4 17.8 0; s box 14.6 14 19.6 17.8 0; k poly 11 15 13 15 12.6 11.6 11.4 11.6; k disc 12 10.8 1.2; w box 15 13 21.4 19.4 1.2; k disc 16.8 14.8 0.7; k disc 18.2 16.2 0.7; k disc 19.6 17.6 0.7",
    "bread knife": "s poly 3 17.6 14.4 6.4 16.6 8.6 6 18.8; w line 0.6 4.6 17.4 15 7.6; m line 2.6 16.4 7.6 21 3; k disc 18 6 0.5; k disc 19.8 4.3 0.5; b box 2 19.6 22 21.6 1",
    "smart watch": "m box 8.4 1.6 15.6 22.4 1; k box 5.6 6 18.4 18 3; g box 7 7.4 17 16.6 1.8; m ring 12 12 3.2 1; w line 0.8 12 10 12 12 13.4 12.8; d box 18.2 10.4 19.4 13.6 0.4",
    "scarf": "m box 4 5 20 10.4 2.6; d box 6.4 9 11 21 0.6; m box 12 9 16.4 18 0.6; w line 0.9 6.6 13 10.8 13; w line 0.9 6.6 16 10.8 16; w line 0.9 12.2 13 16.2 13; l line 0.6 7.4 21 7.4 22.4; l line 0.6 9.8 21 9.8 22.4; l line 0.6 13.4 18 13.4 19.4; l line 0.6 15.2 18 15.2 19.4; w line 0.9 9 5.4 8 10; w line 0.9 15 5.4 16 10",
    "mirror": "b box 6 2 18 20 6; g box 7.4 3.4 16.6 18.6 5; w line 1 9.4 9.6 13 6; w line 0.8 10 13.4 15 8.4; m box 4.6 19.4 19.4 21.8 0.8",
    "sleeping bag": "m box 2.6 8.4 18 18 4.6; d disc 18 13.2 4.6; l ring 18 13.2 3.2 0.8; l ring 18 13.2 1.6 0.8; k line 0.9 6.4 8.6 6.4 17.8; k line 0.9 11.6 8.6 11.6 17.8",
    "dolls house": "d poly 12 1.8 22 9.4 2 9.4; m box 3.6 9 20.4 21.4 0; w box 5 10.4 11.2 15 0; w box 12.8 10.4 19 15 0; w box 5 16.4 11.2 21.4 0; l box 12.8 16.4 19 21.4 0; y box 6 12.6 8.4 15 0; b box 15 12.4 18 15 0; k box 7 17.6 9 21.4 0; g disc 12 6.6 1.3; d line 0.7 15.9 16.4 15.9 21.4",
}  # fmt: skip


def product(kind: str, colour: str, side: int, *, dark: bool) -> Image.Image:
    """The square picture of a kind of goods in a colour that can be chosen, or in that of a brand."""
    number = crc32(colour.encode("utf-8", "replace")) % len(OWN)
    return _picture(kind, COLOURS.get(colour, OWN[number]), side, dark)


@lru_cache(maxsize=256)
def _picture(kind: str, own: Colour, side: int, dark: bool) -> Image.Image:
    back = mix(WHITE, own, 0.13) if not dark else mix((46, 48, 56), own, 0.16)
    size = side * SMOOTH
    picture = Image.new("RGB", (size, size), back)
    draw = ImageDraw.Draw(picture)
    draw.ellipse((size * 0.2, size * 0.8, size * 0.8, size * 0.9), fill=mix(back, BLACK, 0.13))
    _draw_strokes(draw, DRAWINGS.get(kind, DRAWINGS["puzzle"]), own, size)
    return picture.reduce(SMOOTH)


def _draw_strokes(draw: ImageDraw.ImageDraw, drawing: str, own: Colour, size: int) -> None:
    tones = TONES | {"m": own, "d": mix(own, BLACK, 0.32), "l": mix(own, WHITE, 0.45)}
    unit = size * 0.74 / GRID
    for part in drawing.split(";"):
        tone, verb, *numbers = part.split()
        stroke(draw, verb, placed([float(number) for number in numbers], verb, unit, size * 0.13), tones[tone], unit)


def placed(numbers: list[float], verb: str, unit: float, inset: float) -> list[float]:
    """The numbers of a stroke in pixels of a picture that leaves a margin."""
    places = {"disc": 2, "ring": 2, "arc": 2, "box": 4, "frame": 4}
    first, count = (1, len(numbers)) if verb == "line" else (0, places.get(verb, len(numbers)))
    return [
        number * unit + (inset if first <= index < max(count, first + 1) or verb == "poly" else 0.0)
        for index, number in enumerate(numbers)
    ]

"""Lines of text as masks, set from words and digits that are each drawn once and kept in a bounded cache.

No text can break a brush: what the font lacks becomes a box, what is too long is cut with "…".
"""

from __future__ import annotations

import math
import re
import unicodedata
from functools import lru_cache
from itertools import pairwise

from PIL import Image, ImageChops, ImageDraw, ImageFont

from distrl.devices.sim.pictograms import pictogram_mask

BOLDER = [round(level * 0.55) for level in range(256)]
"""How strongly a letter is printed a second time, one pixel to the right, to make it bold."""
LONGEST_TEXT = 400
"""Letters beyond this never fit any box; measuring them would only take time."""
SIGNS = {
    "€": "euro",
    "★": "star",
    "⭐": "star",
    "☆": "star",
    "✓": "check",
    "✔": "check",
    "→": "arrow",
    "❤": "heart",
    "♥": "heart",
}
"""Signs that the built-in font lacks and a pictogram can stand in for."""
PLAIN = str.maketrans(
    {"–": "-", "—": "-", "−": "-", "×": "x", "•": "·", "⁄": "/", "ß": "ss", "ø": "o", "ł": "l", "æ": "ae"}
)
"""The same for letters: the font has those of English, so accents go too."""
PIECES = re.compile(rf"([ 0-9:.,%$#/{''.join(SIGNS)}-])")


@lru_cache(maxsize=64)
def font(size_px: int) -> ImageFont.FreeTypeFont:
    """The font that comes with Pillow, so that every machine draws the same."""
    face = ImageFont.load_default(max(4, size_px))
    assert isinstance(face, ImageFont.FreeTypeFont)  # the bitmap fallback is for Pillow without FreeType
    return face


@lru_cache(maxsize=4096)
def clean(text: str) -> str:
    """`text` as one line of characters that any font call accepts."""
    sound = text[:LONGEST_TEXT]
    if not sound.isascii():
        parts = unicodedata.normalize("NFKD", sound).translate(PLAIN)
        sound = "".join(letter for letter in parts if not unicodedata.combining(letter))
    return " ".join("".join(letter if letter.isprintable() else " " for letter in sound).split())


@lru_cache(maxsize=4096)
def text_mask(text: str, size_px: int, bold: bool, width_px: int) -> Image.Image:
    """A line of text, cut with "…" where it is wider than the box."""
    line = _shorten(clean(text), size_px, width_px)
    ascent, descent = font(size_px).getmetrics()
    mask = Image.new("L", (max(1, min(width_px, math.ceil(_length(line, size_px)) + 1)), ascent + descent))
    x = 0.0
    for piece in pieces(line):
        if piece != " ":
            mask.paste(piece_mask(piece, size_px, bold), (round(x), 0))
        x += advance(piece, size_px)
    return mask


@lru_cache(maxsize=8192)
def letter_places(text: str, size_px: int, width_px: int) -> tuple[str, tuple[float, ...]]:
    """A line as `text_mask` sets it, and the middle of each of its letters from its left end."""
    line = _shorten(clean(text), size_px, width_px)
    places, x = list[float](), 0.0
    for piece in pieces(line):
        wide = advance(piece, size_px)
        ends = (
            [font(size_px).getlength(piece[:count]) for count in range(len(piece) + 1)] if len(piece) > 1 else [0, wide]
        )
        places += [x + (left + right) / 2 for left, right in pairwise(ends)]
        x += wide
    return line, tuple(places)


@lru_cache(maxsize=4096)
def pieces(line: str) -> tuple[str, ...]:
    """What a line is set from: words and spaces, and numbers digit by digit.

    Drawing letters takes longest of all, and screens share most of their words, though few of their numbers.
    """
    return tuple(piece for piece in PIECES.split(line) if piece)


@lru_cache(maxsize=8192)
def advance(piece: str, size_px: int) -> float:
    """How far a piece moves the pen."""
    if piece in SIGNS:
        return round(0.8 * size_px) + 1
    return font(size_px).getlength(piece)


@lru_cache(maxsize=8192)
def piece_mask(piece: str, size_px: int, bold: bool) -> Image.Image:
    """A word or a digit ready to be set."""
    face = font(size_px)
    ascent, descent = face.getmetrics()
    mask = Image.new("L", (math.ceil(advance(piece, size_px)) + 1, ascent + descent))
    if (sign := pictogram_mask(SIGNS.get(piece, ""), max(1, round(0.8 * size_px)))) is not None:
        mask.paste(sign, (0, ascent - round(0.76 * size_px)))
    else:
        ImageDraw.Draw(mask).text((0, 0), piece, font=face, fill=255)
    if bold:  # the built-in font has one weight, and stroked outlines take three times as long
        mask = ImageChops.add(mask, ImageChops.offset(mask, 1, 0).point(BOLDER))
    return mask


def _length(line: str, size_px: int) -> float:
    return sum(advance(piece, size_px) for piece in pieces(line))


def _shorten(line: str, size_px: int, width_px: int) -> str:
    if _length(line, size_px) <= width_px:
        return line
    low, high = 0, len(line)
    while low < high:
        middle = (low + high + 1) // 2
        if _length(line[:middle].rstrip() + "…", size_px) <= width_px:
            low = middle
        else:
            high = middle - 1
    return line[:low].rstrip() + "…"


@lru_cache(maxsize=1024)
def wrap(text: str, size_px: int, width_px: int) -> tuple[str, ...]:
    """`text` in at most two lines, broken at a space where there is one in reach."""
    line = clean(text)
    if _length(line, size_px) <= width_px:
        return (line,)
    words = line.split(" ")
    count = len(words) - 1
    while count > 0 and _length(" ".join(words[:count]), size_px) > width_px:
        count -= 1
    return (" ".join(words[:count]), " ".join(words[count:])) if count > 0 else (line,)

"""Drawing on a Pillow image in the 360 × 720 units of a layout: lines of text, anti-aliased shapes, pictograms.

Pillow draws shapes slowly and without smooth edges, so each shape, word and digit is made once as a mask, kept in a
bounded cache and pasted in any colour. Any text can be drawn: what the font lacks becomes a box, what is too long is
cut with "…".
"""

from __future__ import annotations

import math
import re
import unicodedata
from functools import lru_cache
from itertools import pairwise

import msgspec
from PIL import Image, ImageChops, ImageDraw, ImageFont

from distrl.devices.sim.pictograms import fallback_colour, pictogram_mask

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


# --- the canvas -----------------------------------------------------------------------------------------------------

Colour = tuple[int, int, int]
Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""

SMOOTH = 4
"""How much larger a mask is drawn before it is shrunk."""
SMALL_AREA = 800
"""Pixels."""
WHITE: Colour = (255, 255, 255)
BLACK: Colour = (0, 0, 0)


class Pen(msgspec.Struct, frozen=True):
    """How text looks."""

    size: float
    colour: Colour
    bold: bool = False


class Written(msgspec.Struct, frozen=True):
    """A line of text as it stands in a picture, in pixels."""

    text: str
    """With "…" where it was cut."""
    middle: float
    """Height of its middle."""
    letters: tuple[float, ...]
    """Where the middle of each letter is, from left to right."""


class Canvas:
    """An image under the brush; with `written`, a list of the text on it that nothing was painted over."""

    def __init__(self, image: Image.Image, scale: float, written: list[Written] | None = None) -> None:
        self.image, self.scale, self.written = image, scale, written
        self._draw = ImageDraw.Draw(image)

    def px(self, length: float) -> int:
        """A length in pixels of this image."""
        return round(length * self.scale)

    def clear(self, size: tuple[int, int], colour: Colour) -> None:
        """Begin again on a plain image: faster than painting over all of one."""
        self.image = Image.new("RGB", size, colour)
        self._draw = ImageDraw.Draw(self.image)
        if self.written:
            self.written.clear()

    def dim(self, share: float) -> None:
        """Leave only a share of every level of red, green and blue."""
        self.image = Image.blend(black_image(self.image.size), self.image, share)
        self._draw = ImageDraw.Draw(self.image)

    def fill(self, box: Box, colour: Colour) -> None:
        """A plain rectangle."""
        left, top, right, bottom = map(self.px, box)
        self.cover((left, top, right, bottom))
        if right > left and bottom > top:
            self._fill_px((left, top, right, bottom), colour)

    def _fill_px(self, box: tuple[int, int, int, int], colour: Colour) -> None:
        # Pasting a colour is four times as fast as drawing a rectangle, once it is large enough.
        left, top, right, bottom = box
        if (right - left) * (bottom - top) > SMALL_AREA:
            self.image.paste(colour, box)
        else:
            self._draw.rectangle((left, top, right - 1, bottom - 1), fill=colour)

    def rounded(self, box: Box, radius: float, colour: Colour, *, outline: float = 0.0) -> None:
        """A rectangle with round corners; with an outline, only its edge."""
        left, top, right, bottom = map(self.px, box)
        if right <= left or bottom <= top:
            return
        if not outline:
            self.cover((left, top, right, bottom))
        stroke = max(1.0, outline * self.scale) if outline else 0.0
        masks, plain = slices(right - left, bottom - top, radius * self.scale, stroke)
        for x, y, mask in masks:
            self.print((left + x, top + y), mask, colour)
        for x, y, to_x, to_y in plain:
            self._fill_px((left + x, top + y, left + to_x, top + to_y), colour)

    def print(self, at: tuple[int, int], mask: Image.Image, colour: Colour) -> None:
        """A mask in a colour, at a pixel; the same as pasting, in three quarters of the time."""
        self._draw.bitmap(at, mask, fill=colour)

    def disc(self, x: float, y: float, radius: float, colour: Colour) -> None:
        """A filled circle."""
        self.rounded((x - radius, y - radius, x + radius, y + radius), radius, colour)

    def picture(self, picture: Image.Image, box: Box, radius: float) -> None:
        """A picture of the box's size in pixels, with round corners."""
        left, top, right, bottom = map(self.px, box)
        self.cover((left, top, right, bottom))
        masks = corners(picture.width, picture.height, radius * self.scale)
        # What lies behind the corners is put back: pasting all of the picture through a mask takes four times as long.
        behind = [self.image.crop((left + x, top + y, left + x + m.width, top + y + m.height)) for x, y, m in masks]
        self.image.paste(picture, (left, top))
        for (x, y, mask), old in zip(masks, behind, strict=True):
            self.image.paste(old, (left + x, top + y), mask)

    def size_px(self, box: Box) -> tuple[int, int]:
        """Width and height of a box in pixels, at least 1 each."""
        left, top, right, bottom = map(self.px, box)
        return max(1, right - left), max(1, bottom - top)

    def polyline(self, points: list[tuple[float, float]], width: float, colour: Colour) -> None:
        """A line with round joints and ends."""
        ends = [(self.px(x), self.px(y)) for x, y in points]
        if len(ends) > 1:
            self._draw.line(ends, fill=colour, width=max(1, self.px(width)), joint="curve")
        for x, y in points:
            self.disc(x, y, width / 2, colour)

    def text(self, x: float, middle: float, text: str, pen: Pen, *, width: float, anchor: float = 0.0) -> None:
        """One line of text, vertically centred on `middle`; `anchor` 0, 0.5, 1: `x` is its left, centre, right."""
        mask = text_mask(text, self.px(pen.size), pen.bold, self.px(width))
        at = (self.px(x) - round(anchor * mask.width), self.px(middle) - mask.height // 2)
        self.print(at, mask, pen.colour)
        if self.written is not None:
            line, letters = letter_places(text, self.px(pen.size), self.px(width))
            places = tuple(at[0] + place for place in letters)
            self.written.append(Written(line, at[1] + mask.height / 2, places))

    def cover(self, box: tuple[int, int, int, int]) -> None:
        """Forget the text within a box of pixels, which is being painted over."""
        if self.written:
            left, top, right, bottom = box
            self.written[:] = [
                line
                for line in self.written
                if not (line.letters and top <= line.middle < bottom and left <= line.letters[0] < right)
            ]

    def pictogram(self, name: str, x: float, y: float, size: float, colour: Colour) -> None:
        """A pictogram centred on a point; an unknown one becomes a disc with its first letter."""
        mask = pictogram_mask(name, max(1, self.px(size)))
        if mask is None:
            self.disc(x, y, size / 2, fallback_colour(name))
            pen = Pen(size * 0.6, WHITE, bold=True)
            return self.text(x, y, name[:1].upper() or "?", pen, width=size, anchor=0.5)
        self.print((self.px(x) - mask.width // 2, self.px(y) - mask.height // 2), mask, colour)

    def length(self, text: str, size: float, width: float) -> float:
        """How long a line of this text is once it was cut to `width`."""
        return text_mask(text, self.px(size), False, self.px(width)).width / self.scale

    def spinner(self, x: float, y: float, radius: float, colour: Colour, turn: float) -> None:
        """A loading circle; `turn` in [0, 1) says how far round it is."""
        mask = spinner_mask(self.px(2 * radius), round(turn * 12) % 12)
        self.print((self.px(x) - mask.width // 2, self.px(y) - mask.height // 2), mask, colour)


@lru_cache(maxsize=512)
def rounded_mask(width: int, height: int, radius: float, stroke: float) -> Image.Image:
    """A rectangle with smooth round corners; with a stroke, only its edge."""
    mask = Image.new("L", (width * SMOOTH, height * SMOOTH))
    box = (0, 0, width * SMOOTH - 1, height * SMOOTH - 1)
    radius = min(radius, width / 2, height / 2) * SMOOTH
    fill, line = (None, round(stroke * SMOOTH)) if stroke else (255, 1)
    ImageDraw.Draw(mask).rounded_rectangle(box, radius, fill=fill, outline=255, width=line)
    return mask.reduce(SMOOTH)


Cut = tuple[int, int, int]
"""From and to, in a mask, and where that part lies in the whole shape."""
Slices = tuple[tuple[tuple[int, int, Image.Image], ...], tuple[tuple[int, int, int, int], ...]]


@lru_cache(maxsize=1024)
def slices(width: int, height: int, radius: float, stroke: float) -> Slices:
    """A rounded rectangle as masks with their places, and plain boxes: only its corners need masks.

    Printing a mask costs time for each of its pixels, and most of a card or a button is plain.
    """
    ends = math.ceil(max(min(radius, width / 2, height / 2), stroke)) + 1
    across, down = _cuts(width, ends), _cuts(height, ends)
    mask = rounded_mask(across[-1][1], down[-1][1], radius, stroke)
    masks = [(x, y, mask.crop((left, top, right, bottom))) for left, right, x in across for top, bottom, y in down]
    if not stroke:
        wide = [(ends, 0, width - ends, height)] if len(across) > 1 else []
        return tuple(masks), (*wide, *([(0, ends, width, height - ends)] if len(down) > 1 else []))
    thin = math.ceil(stroke) + 1
    if len(across) > 1:
        masks += [
            (ends, y, _stretched(mask, (ends, top, ends + 1, bottom), (width - 2 * ends, bottom - top)))
            for top, bottom, y in _outer(down, thin)
        ]
    if len(down) > 1:
        masks += [
            (x, ends, _stretched(mask, (left, ends, right, ends + 1), (right - left, height - 2 * ends)))
            for left, right, x in _outer(across, thin)
        ]
    return tuple(masks), ()


def _cuts(size: int, ends: int) -> tuple[Cut, ...]:
    """Both ends of a long side; a short one stays whole."""
    small = 2 * ends + 2
    return ((0, size, 0),) if size <= small + 8 else ((0, ends, 0), (small - ends, small, size - ends))


def _outer(cuts: tuple[Cut, ...], thin: int) -> tuple[Cut, ...]:
    """Both outer edges of a side: between its corners the rest of an outline is empty."""
    start, to, place = cuts[-1]
    if to <= 2 * thin:
        return cuts
    return (0, thin, 0), (to - thin, to, place + to - start - thin)


def _stretched(mask: Image.Image, box: tuple[int, int, int, int], size: tuple[int, int]) -> Image.Image:
    return mask.crop(box).resize(size, Image.Resampling.NEAREST)


@lru_cache(maxsize=256)
def corners(width: int, height: int, radius: float) -> tuple[tuple[int, int, Image.Image], ...]:
    """What a rectangle with round corners leaves out, as masks with their places."""
    masks, _ = slices(width, height, radius, 0.0)
    return tuple((x, y, ImageChops.invert(mask)) for x, y, mask in masks)


@lru_cache(maxsize=4)
def black_image(size: tuple[int, int]) -> Image.Image:
    """All black."""
    return Image.new("RGB", size)


@lru_cache(maxsize=32)
def spinner_mask(size_px: int, turn: int) -> Image.Image:
    """Three quarters of a ring, turned by so many twelfths of a circle."""
    big = max(8, size_px) * SMOOTH
    mask = Image.new("L", (big, big))
    inset = big // 16
    ImageDraw.Draw(mask).arc(
        (inset, inset, big - inset, big - inset), turn * 30, turn * 30 + 270, fill=255, width=big // 10
    )
    return mask.reduce(SMOOTH)


def mix(under: Colour, over: Colour, share: float) -> Colour:
    """`share` of one colour over another."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(under, over, strict=True))
    return red, green, blue


@lru_cache(maxsize=256)
def parse_colour(text: str) -> Colour:
    """`#rrggbb` as numbers; anything else is a quiet blue."""
    digits = text.removeprefix("#")
    try:
        red, green, blue = bytes.fromhex(digits)
    except ValueError:
        return 66, 103, 178
    return red, green, blue


def brightness(colour: Colour) -> float:
    """Between 0 (black) and 1 (white), as the eye sees it."""
    red, green, blue = colour
    return (0.299 * red + 0.587 * green + 0.114 * blue) / 255

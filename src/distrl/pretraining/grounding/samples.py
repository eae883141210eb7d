"""Grounding samples: a decoded screenshot, several queries about it, and the text on each of its squares, as arrays.

A block of samples is one run of bytes of known size, field after field, so that it goes from a data worker to the GPU
without being parsed on the way. Loads no torch. Names and letters come from UI elements and from the renderer; they are
labels and never inputs. Suffixes as in features.py, and N samples, Q queries, S squares, W letters of a square, R names,
X letters of a name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random

import numpy as np
from numpy.typing import NDArray

from distrl.config.schema import PixelConfig
from distrl.devices.sim.paint import Written
from distrl.policies.pixel.features import PAST, PAST_COLUMNS, decode, read_past, read_text
from distrl.policies.pixel.grammar import SQUARE, Choice, Grid, grid_of, to_choice
from distrl.pretraining.grounding.queries import MAX_QUERIES, AnnotatedScreen, GroundingQuery, QueryMaker, names_of
from distrl.types import Action, Observation, UiElement

MAX_QUERY_WORDS = 24
"""Words of a query that have a span; later ones are read and cannot be typed."""
SQUARE_LETTERS, NAME_LETTERS = 4, 16
MAX_NAMES = 48
"""Different names on one screen, at most."""
ALPHABET = 96
"""Printable ASCII, after 0 for no letter."""
Views = dict[str, NDArray[np.generic]]
Fields = Mapping[str, tuple[np.dtype[np.generic], tuple[int, ...]]]
"""Type and shape of the fields of one sample, by name."""


def sample_fields(config: PixelConfig) -> Fields:
    """What the pixel policy's samples are made of."""
    size = (config.picture_height, config.picture_width, 3)
    small, wide = np.dtype(np.uint8), np.dtype(np.int16)
    return {
        "picture": (small, size),
        "text": (small, (MAX_QUERIES, 2, config.text_bytes)),
        "span": (wide, (MAX_QUERIES, MAX_QUERY_WORDS, 3)),
        "past": (wide, (PAST, PAST_COLUMNS)),
        "choice": (wide, (MAX_QUERIES, 3)),
        "num_queries": (small, (1,)),
        **label_fields(grid_of(config).num_squares),
    }


def label_fields(squares: int) -> Fields:
    """What is known about each square of a screen."""
    small = np.dtype(np.uint8)
    return {
        "letter": (small, (squares, SQUARE_LETTERS)),
        "element": (small, (squares,)),
        "name_at": (small, (squares,)),
        "name": (small, (MAX_NAMES, NAME_LETTERS)),
    }


def block_bytes(fields: Fields, num: int) -> int:
    """Size of a block of `num` samples."""
    return sum(num * dtype.itemsize * int(np.prod(shape)) for dtype, shape in fields.values())


def sample_views(block: bytearray | memoryview, fields: Fields, num: int) -> Views:
    """The fields of a block, `[sample, ...]`, in its own memory."""
    found, start = Views(), 0
    for name, (dtype, shape) in fields.items():
        count = num * int(np.prod(shape))
        found[name] = np.frombuffer(block, dtype, count, start).reshape(num, *shape)
        start += count * dtype.itemsize
    return found


class SampleWriter:
    """Writes screens as samples."""

    def __init__(self, config: PixelConfig, random: Random) -> None:
        self._config, self._grid = config, grid_of(config)
        self._queries = QueryMaker(random, longest=config.text_bytes)

    def write(self, screen: AnnotatedScreen, into: Views, row: int) -> bool:
        """Write a screen into a row of a block; False, with the row unusable, where the policy cannot express its action."""
        pixels = decode(screen.frame, (self._config.picture_width, self._config.picture_height))
        if pixels is None or not self._write_queries(self._queries.make(screen), into, row):
            return False
        text = read_text(screen.observation.instruction, self._config.text_bytes)
        into["picture"][row] = pixels
        into["past"][row] = read_past(screen.observation, self._grid, min(text.num_words, MAX_QUERY_WORDS))
        write_labels(screen, self._grid, into, row)
        return True

    def _write_queries(self, queries: Sequence[GroundingQuery], into: Views, row: int) -> bool:
        into["span"][row], into["text"][row], into["choice"][row] = 0, 0, 0
        for number, (seen, action) in enumerate(queries):
            choice = self._write_query(seen, action, into, (row, number))
            if choice is None:
                return False
            into["choice"][row, number] = choice
        into["num_queries"][row] = len(queries)
        return True

    def _write_query(self, seen: Observation, action: Action, into: Views, at: tuple[int, int]) -> Choice | None:
        text = read_text(seen.instruction, self._config.text_bytes)
        words = min(text.num_words, MAX_QUERY_WORDS)
        into["text"][at] = text.byte_L, text.word_L
        into["span"][at][:words, 0], into["span"][at][:words, 1] = text.first_I[:words], text.last_I[:words]
        into["span"][at][: max(1, words), 2] = 1
        return to_choice(action, seen, self._grid, words)


def write_labels(screen: AnnotatedScreen, grid: Grid, into: Views, row: int, *, side: int = SQUARE) -> None:
    """Write the labels of each square: the letters on it, the element that covers it, and its name; squares have `side` pixels.

    The name of a square is the line of text that crosses it, else the name of its element: an icon has one too.
    """
    letter, element, name_at, name = (into[key][row] for key in ("letter", "element", "name_at", "name"))
    letter[:], element[:], name_at[:], name[:] = 0, 0, 0, 0
    known = dict[str, int]()

    def number_of(text: str) -> int:
        number = known.setdefault(text, len(known) + 1)
        if number >= MAX_NAMES:
            return 0
        name[number] = coded(text)
        return number

    element_RC, name_at_RC = (part.reshape(grid.rows, grid.columns) for part in (element, name_at))
    for number, found in enumerate(screen.observation.elements[:255], 1):
        called = names_of(found)
        if called:
            at = covered(found, grid)
            element_RC[at], name_at_RC[at] = number, number_of(called[0])
    for line in screen.written:
        squares = squares_of(line, grid, side)
        # Where two lines share squares, the first keeps them: titles are drawn before what stands below them.
        if squares and not letter[next(iter(squares)), 0]:
            name_at[list(squares)] = number_of(line.text)
            for square, letters in squares.items():
                letter[square, : len(letters)] = letters


def covered(element: UiElement, grid: Grid) -> tuple[slice, slice]:
    """The rows and columns of the squares whose middles an element covers."""
    bounds = element.bounds
    rows = slice(round(bounds.top * grid.rows), round(bounds.bottom * grid.rows))
    return rows, slice(round(bounds.left * grid.columns), round(bounds.right * grid.columns))


def squares_of(line: Written, grid: Grid, side: int) -> dict[int, list[int]]:
    """The letters of a line by the squares that their middles lie on, from left to right."""
    row, found = int(line.middle // side), dict[int, list[int]]()
    if not 0 <= row < grid.rows:
        return found
    for text, x in zip(line.text, line.letters, strict=False):
        column = int(x // side)
        if text == " " or not 0 <= column < grid.columns:
            continue
        letters = found.setdefault(row * grid.columns + column, [])
        if len(letters) < SQUARE_LETTERS:
            letters.append(code(text))
    return found


@lru_cache(maxsize=8192)
def coded(name: str) -> NDArray[np.uint8]:
    """The first letters of a name as numbers, then zeros."""
    codes_X = np.zeros(NAME_LETTERS, np.uint8)
    codes_X[: len(name)] = [code(letter) for letter in name[:NAME_LETTERS]]
    return codes_X


def code(letter: str) -> int:
    """A letter's number; what is no printable ASCII counts as a question mark."""
    return ord(letter) - 31 if " " <= letter <= "~" else ord("?") - 31

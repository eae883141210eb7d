"""The pixel policy's action grammar: a kind, and for some kinds a square of the screen or a span of the instruction.

The screen is divided into squares of 16 × 16 pixels of its input image, numbered line by line, and a finger lands
in the middle of one. There is no kind that answers a question: an answer would have to be read from the image
letter by letter, so tasks that ask something can be attempted and not be solved.
"""

from __future__ import annotations

import msgspec

from distrl.config.schema import PixelConfig
from distrl.policies.pointer.grammar import LONGEST_SPAN, PLAIN, direction
from distrl.policies.pointer.words import find, span
from distrl.types import Action, LongPress, Observation, Swipe, Tap, TypeText

Choice = tuple[int, int, int]
"""Kind, then a square or the first word, then the last word."""

POINTING = ("tap", "hold")
"""Kinds that point at a square; they come first, in the order of the network's pointing heads."""
KINDS = (*POINTING, "type", *PLAIN)
TYPE = KINDS.index("type")
SQUARE = 16
"""Side of a square in pixels: the stride of the convolutional stem, which halves the image four times."""


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """The squares of a screen."""

    columns: int
    rows: int

    @property
    def num_squares(self) -> int:
        """How many squares there are."""
        return self.columns * self.rows

    def square_at(self, x: float, y: float) -> int:
        """The square under a point; the nearest one for a point outside the screen."""
        column, row = int(x * self.columns), int(y * self.rows)
        return min(max(row, 0), self.rows - 1) * self.columns + min(max(column, 0), self.columns - 1)

    def middle_of(self, square: int) -> tuple[float, float]:
        """Where a finger lands that points at a square."""
        row, column = divmod(square, self.columns)
        return (column + 0.5) / self.columns, (row + 0.5) / self.rows


def grid_of(config: PixelConfig) -> Grid:
    """The squares of the input image of a policy of this size."""
    return Grid(columns=config.picture_width // SQUARE, rows=config.picture_height // SQUARE)


def to_action(choice: Choice, observation: Observation, grid: Grid) -> Action:
    """The gesture that a choice stands for."""
    kind, first, last = KINDS[choice[0]], choice[1], choice[2]
    if kind in PLAIN:
        return PLAIN[kind]
    if kind == "type":
        return TypeText(span(observation.instruction, first, last))
    at = grid.middle_of(first)
    return Tap(*at) if kind == "tap" else LongPress(*at)


def to_choice(action: Action, observation: Observation, grid: Grid, num_words: int) -> Choice | None:
    """The choice that stands for `action`; None where the grammar cannot express it with the first `num_words` words."""
    match action:
        case Tap(x=x, y=y):
            return KINDS.index("tap"), grid.square_at(x, y), 0
        case LongPress(x=x, y=y):
            return KINDS.index("hold"), grid.square_at(x, y), 0
        case TypeText(text=text):
            found = find(observation.instruction, text)
            expressible = found is not None and found[1] < num_words and found[1] - found[0] < LONGEST_SPAN
            return (TYPE, *found) if found is not None and expressible else None
        case Swipe():
            return KINDS.index(direction(action)), 0, 0
        case _:
            kind = next((name for name, plain in PLAIN.items() if plain == action), None)
            return (KINDS.index(kind), 0, 0) if kind else None

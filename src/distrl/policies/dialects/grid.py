"""The screen as a map of squares, for models that are trained to point at what they see in the fewest tokens.

28 rows, A to Z, AA and AB from top to bottom, and 14 columns, a to n from left to right: `tap K c`. Each letter is one
token for most tokenizers, and a model learns to find it where it finds what it looks for. A finger lands in the middle of a
square. On a simulated phone squares are a little smaller than the smallest target (25.7 units of 28), so the square that
holds a target's middle always has its own middle on the target. Texts are quoted as in JSON; the first line that is an
action counts.

Sources: `distrl.types`.
"""

from __future__ import annotations

import json
import re
from typing import cast

from distrl.policies.dialects.base import Screen, has_expressible_text, understand
from distrl.policies.dialects.brief import PLAIN_WORDS, spoken
from distrl.policies.dialects.parsing import Direction, Point, direction_from_middle, on_screen, scroll
from distrl.types import Action, DialectName, Finish, LongPress, Swipe, Tap, TypeText

ROWS = (*(chr(ord("A") + number) for number in range(26)), "AA", "AB")
COLUMNS = tuple(chr(ord("a") + number) for number in range(14))
_EXPLAIN = """\
The screen has rows A to Z, AA, AB and columns a to n. Answer with one action: tap ROW COLUMN, hold ROW COLUMN, \
scroll down (or up, left, right), type "TEXT", back, home, enter, wait, done, done "ANSWER" or impossible."""
_SQUARE = re.compile(rf"(tap|hold) ({'|'.join(sorted(ROWS, key=len, reverse=True))}) ([{COLUMNS[0]}-{COLUMNS[-1]}])")
_SCROLL = re.compile(r"scroll (up|down|left|right)")
_TEXT = re.compile(r'(type|done|impossible) (".*")')


class GridDialect:
    """Our own actions in a word or two, with squares instead of points."""

    name: DialectName = "grid"
    by_number = False

    def print(self, action: Action, screen: Screen) -> str | None:
        """One line; None for a swipe that is no scroll from the middle."""
        match action:
            case Tap(x=x, y=y) | LongPress(x=x, y=y):
                word = "tap" if isinstance(action, Tap) else "hold"
                return f"{word} {square_at((x, y))}" if on_screen((x, y)) else None
            case Swipe():
                way = direction_from_middle(action)
                return f"scroll {way}" if way else None
            case TypeText(text=text):
                return f"type {_quote(text)}" if has_expressible_text(action) else None
            case Finish(status=status, answer=answer) if answer:
                word = "done" if status == "complete" else "impossible"
                return f"{word} {_quote(answer)}" if has_expressible_text(action) else None
            case _:
                return next((word for word, plain in PLAIN_WORDS.items() if plain == action), None)

    def parse(self, text: str, screen: Screen) -> Action:
        """The first line that is an action."""
        return understand(text, _read)

    def explain(self) -> str:
        """Every action."""
        return _EXPLAIN


def square_at(point: Point) -> str:
    """The square under a point of the screen: its row and column."""
    column, row = (
        min(int(share * len(names)), len(names) - 1) for share, names in zip(point, (COLUMNS, ROWS), strict=True)
    )
    return f"{ROWS[row]} {COLUMNS[column]}"


def _middle_of(row: str, column: str) -> Point:
    return (COLUMNS.index(column) + 0.5) / len(COLUMNS), (ROWS.index(row) + 0.5) / len(ROWS)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _read(said: str) -> Action | None:
    actions = (_read_line(line.strip()) for line in said.split("\n"))
    return next((action for action in actions if action is not None), None)


def _read_line(line: str) -> Action | None:
    if found := _SQUARE.fullmatch(line):
        return (Tap if found[1] == "tap" else LongPress)(*_middle_of(found[2], found[3]))
    if found := _SCROLL.fullmatch(line):
        return scroll(cast(Direction, found[1]))
    if found := _TEXT.fullmatch(line):
        return spoken(found[1], found[2])
    return PLAIN_WORDS.get(line)

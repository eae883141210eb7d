"""A few words, for language models that are trained to answer in the fewest tokens.

Elements are pointed at by their numbers in the prompt, so prompts in this dialect need no positions. A point that is
the middle of no listed element is written as two shares of the screen, with three decimals. TextCache are quoted as in
JSON, so every action is one line; the first line that is an action counts. Only a text shows where it ends: `tap 12`
that breaks off is `tap 1`, so the longest answer that a model may give should hold any number.

Sources: `distrl.types`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import cast

import msgspec

from distrl.policies.dialects.base import Screen, understand
from distrl.policies.dialects.parsing import (
    UNIT,
    Direction,
    Point,
    direction_from_middle,
    locate,
    remap,
    scroll,
    shorten,
)
from distrl.types import Action, DialectName, Finish, LongPress, Press, Swipe, Tap, TypeText, Wait

_DIGITS = 3
PLAIN_WORDS: dict[str, Action] = {
    "back": Press("back"),
    "home": Press("home"),
    "enter": Press("enter"),
    "wait": Wait(),
    "done": Finish("complete"),
    "impossible": Finish("impossible"),
}
"""Actions of one word."""
_EXPLAIN = """\
Answer with one action: tap N, hold N, scroll down (or up, left, right), type "TEXT", back, home, enter, wait, \
done, done "ANSWER" or impossible. N is an element's number. tap X Y, hold X Y and swipe X Y X Y take shares of the screen."""
_SHARE = r"(\d(?:\.\d{1,12})?)"
_NUMBER = re.compile(r"(tap|hold) (\d{1,4})")
_POINT = re.compile(rf"(tap|hold) {_SHARE} {_SHARE}")
_SCROLL = re.compile(r"scroll (up|down|left|right)")
_SWIPE = re.compile(rf"swipe {_SHARE} {_SHARE} {_SHARE} {_SHARE}")
_TEXT = re.compile(r'(type|done|impossible) (".*")')
_SPEAKERS: dict[str, Callable[[str], Action]] = {
    "type": TypeText,
    "done": lambda answer: Finish("complete", answer),
    "impossible": lambda answer: Finish("impossible", answer),
}


class BriefDialect:
    """Our own actions in a word or two."""

    name: DialectName = "brief"
    by_number = True

    def print(self, action: Action, screen: Screen) -> str | None:
        """One line."""
        short = remap(action, lambda point: shorten(point, _DIGITS))
        match short:
            case Tap(x=x, y=y):
                return f"tap {_place((x, y), screen)}"
            case LongPress(x=x, y=y):
                return f"hold {_place((x, y), screen)}"
            case Swipe():
                return _swipe(short)
            case TypeText(text=text):
                return f"type {_quote(text)}"
            case Finish(status=status, answer=answer) if answer:
                return f"{'done' if status == 'complete' else 'impossible'} {_quote(answer)}"
            case _:
                return next((word for word, plain in PLAIN_WORDS.items() if plain == short), None)

    def parse(self, text: str, screen: Screen) -> Action:
        """The first line that is an action."""
        return understand(text, lambda said: _read(said, screen))

    def explain(self) -> str:
        """Every action."""
        return _EXPLAIN


def _place(point: Point, screen: Screen) -> str:
    """The number of the element whose middle is there, or the point itself."""
    numbers = (n for n, element in enumerate(screen.elements) if shorten(element.bounds.centre, _DIGITS) == point)
    number = next(numbers, None)
    return f"{point[0]:g} {point[1]:g}" if number is None else str(number)


def _swipe(swipe: Swipe) -> str:
    way = direction_from_middle(swipe)
    return f"scroll {way}" if way else f"swipe {swipe.x:g} {swipe.y:g} {swipe.to_x:g} {swipe.to_y:g}"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _read(said: str, screen: Screen) -> Action | None:
    actions = (_read_line(line.strip(), screen) for line in said.split("\n"))
    return next((action for action in actions if action is not None), None)


def _read_line(line: str, screen: Screen) -> Action | None:
    if line in PLAIN_WORDS:
        return PLAIN_WORDS[line]
    if found := _NUMBER.fullmatch(line):
        return _at_element(found[1], int(found[2]), screen)
    if found := _POINT.fullmatch(line):
        at = locate((float(found[2]), float(found[3])), UNIT, screen)
        return at and _finger(found[1], at)
    if found := _SCROLL.fullmatch(line):
        return scroll(cast(Direction, found[1]))
    if found := _SWIPE.fullmatch(line):
        x, y, to_x, to_y = map(float, found.groups())
        return remap(Swipe(x, y, to_x, to_y), lambda point: locate(point, UNIT, screen))
    if found := _TEXT.fullmatch(line):
        return spoken(found[1], found[2])
    return None


def _at_element(word: str, number: int, screen: Screen) -> Action | None:
    if number >= len(screen.elements):
        return None
    at = locate(screen.elements[number].bounds.centre, UNIT, screen)
    return at and _finger(word, at)


def _finger(word: str, at: Point) -> Action:
    return Tap(*at) if word == "tap" else LongPress(*at)


def spoken(word: str, quoted: str) -> Action | None:
    """What types or answers a text that is quoted as in JSON; None where it is not."""
    try:
        return _SPEAKERS[word](msgspec.json.decode(quoted, type=str))
    except msgspec.DecodeError:
        return None

"""The pointer's action grammar: a kind, and for some kinds an element of the screen or a span of the instruction."""

from __future__ import annotations

from distrl.lines import label_of, line_of
from distrl.policies.pointer.words import find, span
from distrl.types import (
    Action,
    Finish,
    LongPress,
    Observation,
    Press,
    Swipe,
    Tap,
    TypeText,
    UiElement,
    Unparsed,
    Wait,
)

Choice = tuple[int, int, int]
"""Kind, then an element or the first word, then the last word."""

POINTING = ("tap", "hold", "answer")
"""Kinds that point at an element; they come first, in the order of the network's pointing heads."""
KINDS = (*POINTING, "type", "down", "up", "left", "right", "back", "home", "enter", "wait", "done", "impossible")
TYPE = KINDS.index("type")
MAX_ELEMENTS = 40
"""Elements of a screen that are read, where the settings do not say otherwise."""
LONGEST_SPAN = 12
"""Words that can be typed at once."""

PLAIN: dict[str, Action] = {
    "down": Swipe(0.5, 0.6, 0.5, 0.25),
    "up": Swipe(0.5, 0.3, 0.5, 0.65),
    "left": Swipe(0.8, 0.45, 0.2, 0.45),
    "right": Swipe(0.2, 0.45, 0.8, 0.45),
    "back": Press("back"),
    "home": Press("home"),
    "enter": Press("enter"),
    "wait": Wait(),
    "done": Finish(),
    "impossible": Finish(status="impossible"),
}


def to_action(choice: Choice, observation: Observation, limit: int = MAX_ELEMENTS, *, lines: bool = False) -> Action:
    """The gesture that a choice stands for on this screen; with `lines` an answer is the whole line of its element."""
    kind, first, last = KINDS[choice[0]], choice[1], choice[2]
    if kind in PLAIN:
        return PLAIN[kind]
    if kind == "type":
        return TypeText(span(observation.instruction, first, last))
    elements = observation.elements[:limit]
    if first >= len(elements):
        return Unparsed(f"{kind} on element {first} of {len(elements)}")
    x, y = elements[first].bounds.centre
    if kind == "answer":
        return Finish(answer=line_of(elements, first) if lines else label_of(elements[first]))
    return Tap(x, y) if kind == "tap" else LongPress(x, y)


def to_choice(
    action: Action, observation: Observation, limit: int = MAX_ELEMENTS, *, lines: bool = False
) -> Choice | None:
    """The choice that stands for `action`; None where the grammar cannot express it."""
    match action:
        case Tap(x=x, y=y):
            return _pointing("tap", _at(observation, x, y, limit))
        case LongPress(x=x, y=y):
            return _pointing("hold", _at(observation, x, y, limit))
        case Finish(status="complete", answer=answer) if answer:
            return _pointing("answer", _saying(observation.elements[:limit], answer, lines))
        case TypeText(text=text):
            found = find(observation.instruction, text)
            return (TYPE, *found) if found and found[1] - found[0] < LONGEST_SPAN else None
        case Swipe():
            return (KINDS.index(direction(action)), 0, 0)
        case _:
            kind = next((name for name, plain in PLAIN.items() if plain == action), None)
            return (KINDS.index(kind), 0, 0) if kind else None


def _pointing(kind: str, element: int | None) -> Choice | None:
    return None if element is None else (KINDS.index(kind), element, 0)


def _at(observation: Observation, x: float, y: float, limit: int) -> int | None:
    """The smallest element under a point, a clickable one first."""
    under = [
        (not e.clickable, _area(e), i) for i, e in enumerate(observation.elements[:limit]) if e.bounds.contains(x, y)
    ]
    return min(under)[2] if under else None


def _area(element: UiElement) -> float:
    return (element.bounds.right - element.bounds.left) * (element.bounds.bottom - element.bounds.top)


def _saying(elements: tuple[UiElement, ...], answer: str, lines: bool) -> int | None:
    wanted = answer.casefold()
    said = (line_of(elements, i) if lines else label_of(e) for i, e in enumerate(elements))
    return next((i for i, text in enumerate(said) if text.casefold() == wanted), None)


def direction(swipe: Swipe) -> str:
    """The kind of a swipe: where the content scrolls to, or where the finger moves sideways."""
    across, down = swipe.to_x - swipe.x, swipe.to_y - swipe.y
    if abs(across) > abs(down):
        return "left" if across < 0 else "right"
    return "down" if down < 0 else "up"

"""The JSON actions of AndroidWorld, as its agents M3A and T3A write them.

Points are pixels of the picture, or the index of an element, which is its middle where the screen lists elements and
refused where it does not; printing always gives pixels. `scroll` names the side that is to show more; it begins at an
element or in the middle of the screen. Only swipes that scrolling makes can be expressed.

In AndroidWorld `answer` is followed by a status; here it ends the episode. `input_text` there also touches a field
before and presses Enter after it: here it types, and the field must have the focus. `double_tap`, `open_app` and `swipe`
(whose left and right run against its up and down in AndroidWorld's own executor) have no counterpart and are refused.

Sources: AndroidWorld (arXiv 2405.14573); `json_action.py`, `actuation.py` and the agents' prompts in its repository.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from distrl.policies.dialects.base import Screen, understand
from distrl.policies.dialects.parsing import (
    UNIT,
    Direction,
    Point,
    count,
    direction_from_middle,
    find_object,
    locate,
    pixels,
    remap,
    scroll,
)
from distrl.types import Action, DialectName, Finish, LongPress, Press, Swipe, Tap, TypeText, Wait

_PLAIN: dict[str, Action] = {
    "navigate_back": Press("back"),
    "navigate_home": Press("home"),
    "keyboard_enter": Press("enter"),
    "wait": Wait(),
}
_CLAIMS: dict[str, Action] = {"complete": Finish("complete"), "infeasible": Finish("impossible")}
_EXPLAIN = """\
Answer with one JSON object, the next action:
{"action_type": "click", "x": X, "y": Y} touches a point.
{"action_type": "long_press", "x": X, "y": Y} holds it.
{"action_type": "scroll", "direction": "down"} shows more below; or up, left, right.
{"action_type": "input_text", "text": "TEXT"} types into the field that has the focus.
{"action_type": "keyboard_enter"}, {"action_type": "navigate_back"} and {"action_type": "navigate_home"} press a key.
{"action_type": "wait"} lets the screen settle.
{"action_type": "answer", "text": "TEXT"} answers a question and ends the task.
{"action_type": "status", "goal_status": "complete"} says that the task is done;
{"action_type": "status", "goal_status": "infeasible"} that it cannot be done.
X and Y are pixels of the picture from its top left corner."""


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    action_type: str
    index: int | None = None
    x: float | None = None
    y: float | None = None
    text: str | None = None
    direction: Direction | None = None
    goal_status: str | None = None


class AndroidWorldDialect:
    """AndroidWorld's actions."""

    name: DialectName = "android_world"
    by_number = False

    def print(self, action: Action, screen: Screen) -> str | None:
        """One object."""
        way = direction_from_middle(action) if isinstance(action, Swipe) else None
        fields = _fields(remap(action, lambda point: count(point, pixels(screen))), way)
        return None if fields is None else json.dumps(fields, ensure_ascii=False)

    def parse(self, text: str, screen: Screen) -> Action:
        """The first object with an action type, after whatever reason is given."""
        return understand(text, lambda said: _read(said, screen))

    def explain(self) -> str:
        """Every action with its fields."""
        return _EXPLAIN


def _fields(action: Action | None, way: Direction | None) -> dict[str, Any] | None:
    match action:
        case Tap(x=x, y=y):
            return {"action_type": "click", "x": x, "y": y}
        case LongPress(x=x, y=y):
            return {"action_type": "long_press", "x": x, "y": y}
        case Swipe() if way:
            return {"action_type": "scroll", "direction": way}
        case TypeText(text=text):
            return {"action_type": "input_text", "text": text}
        case Finish(status="complete", answer=answer) if answer:
            return {"action_type": "answer", "text": answer}
        case Finish(status=status, answer=""):
            return {"action_type": "status", "goal_status": "complete" if status == "complete" else "infeasible"}
        case _:
            kind = next((name for name, plain in _PLAIN.items() if plain == action), None)
            return {"action_type": kind} if kind else None


def _read(text: str, screen: Screen) -> Action | None:
    said = find_object(text, _Said)
    match said:
        case None:
            return None
        case _Said(action_type="click"):
            at = _point(said, screen)
            return at and Tap(*at)
        case _Said(action_type="long_press"):
            at = _point(said, screen)
            return at and LongPress(*at)
        case _Said(action_type="scroll", direction=str(way)):
            at = None if said.index is None else _point(said, screen)
            return None if said.index is not None and at is None else scroll(way, at)
        case _Said(action_type="input_text", text=str(words)):
            return TypeText(words)
        case _Said(action_type="answer", text=str(words)):
            return Finish(answer=words)
        case _Said(action_type="status", goal_status=str(claim)):
            return _CLAIMS.get(claim)
        case _:
            return _PLAIN.get(said.action_type)


def _point(said: _Said, screen: Screen) -> Point | None:
    match said:
        case _Said(index=int(index), x=None, y=None) if 0 <= index < len(screen.elements):
            return locate(screen.elements[index].bounds.centre, UNIT, screen)
        case _Said(index=None, x=float(x), y=float(y)):
            return locate((x, y), pixels(screen), screen)
        case _:
            return None

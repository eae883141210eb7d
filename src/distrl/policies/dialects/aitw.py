"""The decision line of Auto-UI and its heirs, on the action types of Android in the Wild.

Points are (y, x) from 0 to 1, four decimals, as text in brackets. One gesture with two points serves for taps and
swipes: a finger that moves 0.04 of the screen or less has tapped. An action without a gesture holds `[-1.0, -1.0]` twice.
The plan before the decision lists the types of the actions to come; printing knows only the present one, and parsing
does not need it. The original has no escapes; quotes and backslashes in typed text are escaped as in JSON, which
Auto-UI's own evaluation reads alike.

Sources: Android in the Wild (arXiv 2307.10088) and its action matching for types and the tap distance; Auto-UI (arXiv
2309.11436) for plan and decision; DigiRL's public code and issue 39 for the line as models write it.
"""

from __future__ import annotations

import json
import math

import msgspec

from distrl.policies.dialects.base import Screen, understand
from distrl.policies.dialects.parsing import UNIT, Point, find_object, locate, remap, shorten
from distrl.types import Action, DialectName, Finish, Press, Swipe, Tap, TypeText

_MARK = "Action Decision:"
_DIGITS = 4
_LONGEST_TAP = 0.04
_PLAIN: dict[str, Action] = {
    "PRESS_BACK": Press("back"),
    "PRESS_HOME": Press("home"),
    "PRESS_ENTER": Press("enter"),
    "STATUS_TASK_COMPLETE": Finish("complete"),
    "STATUS_TASK_IMPOSSIBLE": Finish("impossible"),
}
_EXPLAIN = """\
Answer with one line: Action Plan: [TYPES] ; Action Decision: "action_type": "TYPE", "touch_point": "[Y, X]", \
"lift_point": "[Y, X]", "typed_text": "TEXT"
TYPES are the types of this and the following actions. TYPE is one of
DUAL_POINT: the finger goes down at touch_point and up at lift_point; the same point twice is a tap,
TYPE: typed_text is typed into the field that has the focus,
PRESS_BACK, PRESS_HOME, PRESS_ENTER: a key,
STATUS_TASK_COMPLETE: the task is done,
STATUS_TASK_IMPOSSIBLE: the task cannot be done.
Y runs from 0 at the top to 1 at the bottom, X from 0 at the left to 1 at the right; where there is no gesture, both \
points are "[-1.0, -1.0]". typed_text is "" except for TYPE."""


class _Decision(msgspec.Struct, frozen=True, kw_only=True):
    action_type: str
    touch_point: str = "[-1.0, -1.0]"
    lift_point: str = "[-1.0, -1.0]"
    typed_text: str = ""


class AitwDialect:
    """Auto-UI's decisions."""

    name: DialectName = "aitw"
    by_number = False

    def print(self, action: Action, screen: Screen) -> str | None:
        """The plan of one type, and the decision."""
        decision = _decide(remap(action, lambda point: shorten(point, _DIGITS)))
        if decision is None:
            return None
        pairs = ", ".join(f'"{key}": {_quote(value)}' for key, value in msgspec.structs.asdict(decision).items())
        return f"Action Plan: [{decision.action_type}] ; {_MARK} {pairs}"

    def parse(self, text: str, screen: Screen) -> Action:
        """The first decision, which is one line, with or without a plan before it."""
        return understand(text, lambda said: _read(said, screen))

    def explain(self) -> str:
        """The line and its action types."""
        return _EXPLAIN


def _decide(action: Action | None) -> _Decision | None:
    match action:
        case Tap(x=x, y=y):
            return _gesture((x, y), (x, y))
        case Swipe(x=x, y=y, to_x=to_x, to_y=to_y):
            return None if _is_tap((x, y), (to_x, to_y)) else _gesture((x, y), (to_x, to_y))
        case TypeText(text=text):
            return _Decision(action_type="TYPE", typed_text=text)
        case _:
            kind = next((name for name, plain in _PLAIN.items() if plain == action), None)
            return _Decision(action_type=kind) if kind else None


def _gesture(touch: Point, lift: Point) -> _Decision:
    return _Decision(action_type="DUAL_POINT", touch_point=_bracket(touch), lift_point=_bracket(lift))


def _read(said: str, screen: Screen) -> Action | None:
    before, mark, after = said.partition(_MARK)
    line = (after if mark else before).lstrip().partition("\n")[0]
    decision = find_object("{" + line[: line.rfind('"') + 1] + "}", _Decision)
    if decision is None:
        return None
    if decision.action_type == "DUAL_POINT":
        return _touched(decision, screen)
    if decision.action_type == "TYPE":
        return TypeText(decision.typed_text)
    return _PLAIN.get(decision.action_type)


def _touched(decision: _Decision, screen: Screen) -> Action | None:
    touch, lift = _point(decision.touch_point, screen), _point(decision.lift_point, screen)
    if touch is None or lift is None:
        return None
    return Tap(*touch) if _is_tap(touch, lift) else Swipe(*touch, *lift)


def _is_tap(touch: Point, lift: Point) -> bool:
    return math.dist(touch, lift) <= _LONGEST_TAP


def _point(brackets: str, screen: Screen) -> Point | None:
    try:
        y, x = msgspec.json.decode(brackets, type=tuple[float, float])
    except msgspec.DecodeError:
        return None
    return locate((x, y), UNIT, screen)


def _bracket(point: Point) -> str:
    return f"[{point[1]}, {point[0]}]"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)

"""Our own actions as one compact object, for models that know no other format.

Coordinates run from 0 to 1, with three decimals or as many as a pixel of the picture needs. Fields that are not listed
are ignored.

Sources: `distrl.types`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from distrl.policies.dialects.base import Screen, understand
from distrl.policies.dialects.parsing import UNIT, find_object, locate, remap, shorten
from distrl.types import Action, DialectName

_EXPLAIN = """\
Answer with one JSON object, the next action:
{"action":"tap","x":X,"y":Y} touches a point.
{"action":"long_press","x":X,"y":Y} holds it.
{"action":"swipe","x":X,"y":Y,"to_x":X,"to_y":Y} moves the finger from one point to another; moving up shows more below.
{"action":"type","text":"TEXT"} types into the field that has the focus, in place of what it holds.
{"action":"press","key":"KEY"} presses back, home or enter.
{"action":"wait"} lets the screen settle.
{"action":"finish","status":"complete"} says that the task is done, with "answer":"TEXT" where it is a question;
{"action":"finish","status":"impossible"} that it cannot be done.
X runs from 0 at the left to 1 at the right, Y from 0 at the top to 1 at the bottom."""


class JsonDialect:
    """Our own actions as JSON."""

    name: DialectName = "json"
    by_number = False

    def print(self, action: Action, screen: Screen) -> str | None:
        """One compact object."""
        digits = max(3, len(str(max(screen.width, screen.height) - 1)))
        short = remap(action, lambda point: shorten(point, digits))
        if short is None:
            return None
        fields = msgspec.to_builtins(short)
        said = {"action": fields.pop("type"), **fields}
        if said.get("answer") == "":
            del said["answer"]
        return msgspec.json.encode(said).decode("utf-8")

    def parse(self, text: str, screen: Screen) -> Action:
        """The first object, where it is an action."""
        return understand(text, lambda said: _read(said, screen))

    def explain(self) -> str:
        """Every action with its fields."""
        return _EXPLAIN


def _read(said: str, screen: Screen) -> Action | None:
    found = find_object(said, dict[str, Any])
    if found is None:
        return None
    try:
        action: Action = msgspec.convert({**found, "type": found.get("action")}, Action)
    except msgspec.ValidationError:
        return None
    return remap(action, lambda point: locate(point, UNIT, screen))

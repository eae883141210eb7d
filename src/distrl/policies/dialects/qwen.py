"""Calls of the tool `mobile_use`, as Qwen2.5-VL and Qwen3-VL make them.

Both put a JSON object with name and arguments between `<tool_call>` tags, after whatever they think aloud. Qwen2.5-VL
counts pixels of the picture as it was resized for the model, Qwen3-VL thousandths of the picture. (Its README says 0 to
1000, its phone cookbook divides by 999; this follows the README, at most a thousandth away.)

The actions `open` (an app by name), the button `Menu` and other keys have no counterpart here and are refused. `answer`
ends the episode with that answer. The seconds of `long_press` and `wait` are the device's to choose: printed as 2,
ignored when parsed.

Sources: the phone cookbooks and `agent_function_call.py` of the Qwen3-VL repository (which holds those of Qwen2.5-VL),
its issues 1741 and 1859 on the scale; Qwen2.5-VL report (arXiv 2502.13923) for absolute coordinates.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

from distrl.policies.dialects.base import Screen, understand
from distrl.policies.dialects.parsing import THOUSAND, Grid, Point, count, find_object, locate, pixels, remap
from distrl.types import Action, DialectName, Finish, LongPress, Press, Swipe, Tap, TypeText, Wait

_OPEN, _CLOSE, _TOOL = "<tool_call>", "</tool_call>", "mobile_use"
_SECONDS = 2
_KEYS: dict[str, Action] = {"back": Press("back"), "home": Press("home"), "enter": Press("enter")}
_CLAIMS: dict[str, Action] = {"success": Finish("complete"), "failure": Finish("impossible")}

_POINT = {"type": "array", "items": {"type": "number"}}
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "action": {
            "type": "string",
            "enum": ["click", "long_press", "swipe", "type", "answer", "system_button", "wait", "terminate"],
            "description": "What to do: touch or hold `coordinate`, swipe from `coordinate` to `coordinate2`, type "
            "`text` into the field with the focus, answer a question with `text`, press `button`, wait, or end the task.",
        },
        "coordinate": {**_POINT, "description": "[x, y] for click, long_press and the start of a swipe."},
        "coordinate2": {**_POINT, "description": "[x, y] where a swipe ends."},
        "text": {"type": "string", "description": "For type and answer."},
        "time": {"type": "number", "description": "Seconds, for long_press and wait."},
        "button": {"type": "string", "enum": ["Back", "Home", "Enter"], "description": "For system_button."},
        "status": {"type": "string", "enum": ["success", "failure"], "description": "For terminate."},
    },
    "required": ["action"],
}


class _Arguments(msgspec.Struct, frozen=True, kw_only=True):
    action: str
    coordinate: Point | None = None
    coordinate2: Point | None = None
    text: str | None = None
    button: str | None = None
    status: str | None = None


class _Call(msgspec.Struct, frozen=True, kw_only=True):
    name: Literal["mobile_use"]
    arguments: _Arguments


class QwenDialect:
    """Calls of `mobile_use`, in pixels or in thousandths."""

    by_number = False

    def __init__(self, name: DialectName, *, absolute: bool) -> None:
        self.name: DialectName = name
        self._absolute = absolute

    def print(self, action: Action, screen: Screen) -> str | None:
        """The call between its tags, each on its own line."""
        arguments = _arguments(remap(action, lambda point: count(point, self._grid(screen))))
        if arguments is None:
            return None
        call = json.dumps({"name": _TOOL, "arguments": arguments}, ensure_ascii=False)
        return f"{_OPEN}\n{call}\n{_CLOSE}"

    def parse(self, text: str, screen: Screen) -> Action:
        """The first call of the tool; the tags may be missing, as where a tokenizer hides them."""
        return understand(text, lambda said: self._read(said, screen))

    def explain(self) -> str:
        """The tool as a function signature, and how to call it."""
        scale = "pixels of the picture" if self._absolute else "thousandths of the picture, 0 to 1000"
        about = f"Operates a phone by its touchscreen. Coordinates are {scale}, from the top left corner."
        function = {"name": _TOOL, "description": about, "parameters": _SCHEMA}
        tool = json.dumps({"type": "function", "function": function})
        call = f'{_OPEN}\n{{"name": "{_TOOL}", "arguments": {{...}}}}\n{_CLOSE}'
        return f"# Tools\n\n<tools>\n{tool}\n</tools>\n\nCall the tool once for the next action:\n{call}"

    def _grid(self, screen: Screen) -> Grid:
        return pixels(screen) if self._absolute else THOUSAND

    def _read(self, said: str, screen: Screen) -> Action | None:
        before, tag, after = said.partition(_OPEN)
        call = find_object(after if tag else before, _Call)
        action = _action(call.arguments) if call else None
        return action and remap(action, lambda point: locate(point, self._grid(screen), screen))


def _arguments(action: Action | None) -> dict[str, Any] | None:
    match action:
        case Tap(x=x, y=y):
            return {"action": "click", "coordinate": [x, y]}
        case LongPress(x=x, y=y):
            return {"action": "long_press", "coordinate": [x, y], "time": _SECONDS}
        case Swipe(x=x, y=y, to_x=to_x, to_y=to_y):
            return {"action": "swipe", "coordinate": [x, y], "coordinate2": [to_x, to_y]}
        case TypeText(text=text):
            return {"action": "type", "text": text}
        case Press(key=key):
            return {"action": "system_button", "button": key.capitalize()}
        case Wait():
            return {"action": "wait", "time": _SECONDS}
        case Finish(status="complete", answer=answer) if answer:
            return {"action": "answer", "text": answer}
        case Finish(status=status, answer=""):
            return {"action": "terminate", "status": "success" if status == "complete" else "failure"}
        case _:
            return None


def _action(said: _Arguments) -> Action | None:
    match said:
        case _Arguments(action="click", coordinate=(x, y)):
            return Tap(x, y)
        case _Arguments(action="long_press", coordinate=(x, y)):
            return LongPress(x, y)
        case _Arguments(action="swipe", coordinate=(x, y), coordinate2=(to_x, to_y)):
            return Swipe(x, y, to_x, to_y)
        case _Arguments(action="type", text=str(text)):
            return TypeText(text)
        case _Arguments(action="answer", text=str(text)):
            return Finish(answer=text)
        case _Arguments(action="system_button", button=str(key)) | _Arguments(action="key", text=str(key)):
            return _KEYS.get(key.lower())
        case _Arguments(action="wait"):
            return Wait()
        case _Arguments(action="terminate", status=str(status)):
            return _CLAIMS.get(status)
        case _:
            return None

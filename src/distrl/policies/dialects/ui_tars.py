"""Calls after `Action:`, as the UI-TARS models write them below a line of thought.

A point is `(x,y)` between box tokens. The first models (on Qwen2-VL) count thousandths of the picture, UI-TARS-1.5 (on
Qwen2.5-VL) pixels of it as resized for the model. Later spellings are understood too: `point='<point>x y</point>'`,
`start_point`, `end_point`, and boxes of four numbers, whose middle counts. `scroll` names the side that is to show more,
so the finger moves the other way; with an `end_box` instead of a direction it is the finger's path, like `drag`. A swipe
that scrolling by direction would make is printed as `scroll`, every other one as `drag`.

`finished` carries the answer; `call_user`, for tasks that cannot be solved, is our claim that the task is impossible.
Content that ends in a line feed is typed with it: whether that submits is the device's to decide. `open_app` and the
mouse's clicks have no counterpart here and are refused.

Sources: UI-TARS (arXiv 2501.12326), table of the action space; prompts, parser and issues 122 and 129 of the UI-TARS
repository (the direction of `scroll`); UI-TARS-desktop for `call_user`.
"""

from __future__ import annotations

import re
from typing import get_args

from distrl.policies.dialects.base import Screen, understand
from distrl.policies.dialects.parsing import (
    THOUSAND,
    Call,
    Direction,
    Grid,
    Point,
    count,
    direction_of,
    locate,
    pixels,
    quote,
    read_call,
    remap,
    scroll,
)
from distrl.types import Action, DialectName, Finish, LongPress, Press, Swipe, Tap, TypeText, Wait

_LINE = re.compile(r"^Action:", re.MULTILINE)
_STARTS, _ENDS = ("start_box", "start_point", "point"), ("end_box", "end_point")
_FRAMES = (("<|box_start|>", "<|box_end|>"), ("<point>", "</point>"), ("<bbox>", "</bbox>"), ("(", ")"), ("[", "]"))
_PLAIN: dict[str, Action] = {
    "press_back": Press("back"),
    "press_home": Press("home"),
    "press_enter": Press("enter"),
    "wait": Wait(),
    "call_user": Finish("impossible"),
}
_EXPLAIN = """\
Answer with a thought and the next action:
Thought: what you see, and what to do next
Action: one of the following
click(start_box='<|box_start|>(x1,y1)<|box_end|>')
long_press(start_box='<|box_start|>(x1,y1)<|box_end|>')
drag(start_box='<|box_start|>(x1,y1)<|box_end|>', end_box='<|box_start|>(x2,y2)<|box_end|>')
scroll(start_box='<|box_start|>(x1,y1)<|box_end|>', direction='down') # or up, left, right: the side to see more of
type(content='') # \\', \\" and \\n stand for quotes and a line feed
press_back()
press_home()
press_enter()
wait()
finished(content='') # the task is done; the content answers a question
call_user() # the task cannot be done
"""


class UiTarsDialect:
    """UI-TARS calls, in pixels or in thousandths."""

    by_number = False

    def __init__(self, name: DialectName, *, absolute: bool) -> None:
        self.name: DialectName = name
        self._absolute = absolute

    def print(self, action: Action, screen: Screen) -> str | None:
        """The line of the action, without a thought."""
        grid = self._grid(screen)
        counted = remap(action, lambda point: count(point, grid))
        call = _call(counted, self._direction(action, counted, screen))
        return call and f"Action: {call}"

    def _direction(self, action: Action, counted: Action | None, screen: Screen) -> Direction | None:
        """The direction of a swipe that scrolling would make, as it is or on the grid: both must print alike."""
        if not isinstance(action, Swipe) or counted is None:
            return None
        grid = self._grid(screen)
        read = remap(counted, lambda point: locate(point, grid, screen))
        return direction_of(action) or (direction_of(read) if isinstance(read, Swipe) else None)

    def parse(self, text: str, screen: Screen) -> Action:
        """The call on the first line that begins with `Action:`, or at the start of a text without such a line."""
        return understand(text, lambda said: self._read(said, screen))

    def explain(self) -> str:
        """The two lines and every call."""
        scale = "pixels of the picture" if self._absolute else "thousandths of the picture, 0 to 1000"
        return f"{_EXPLAIN}x and y are {scale}, from the top left corner."

    def _grid(self, screen: Screen) -> Grid:
        return pixels(screen) if self._absolute else THOUSAND

    def _read(self, said: str, screen: Screen) -> Action | None:
        line = _LINE.search(said)
        call = read_call(said[line.end() :] if line else said, free="content")
        if call is None:
            return None
        if call.name in ("click", "long_press", "drag", "scroll"):
            return self._gesture(call, screen)
        if call.name in ("type", "finished"):
            return _words(call)
        return _PLAIN.get(call.name)

    def _gesture(self, call: Call, screen: Screen) -> Action | None:
        start, end = self._point(call, _STARTS, screen), self._point(call, _ENDS, screen)
        if call.name == "scroll" and "direction" in call.arguments:
            return _scrolled(call, start)
        if start is None:
            return None
        if call.name in ("drag", "scroll"):
            return None if end is None else Swipe(*start, *end)
        return Tap(*start) if call.name == "click" else LongPress(*start)

    def _point(self, call: Call, keys: tuple[str, ...], screen: Screen) -> Point | None:
        box = next((call.arguments[key] for key in keys if key in call.arguments), "")
        middle = _middle(box)
        return middle and locate(middle, self._grid(screen), screen)


def _call(action: Action | None, way: Direction | None) -> str | None:
    match action:
        case Tap(x=x, y=y):
            return f"click(start_box={_box(x, y)})"
        case LongPress(x=x, y=y):
            return f"long_press(start_box={_box(x, y)})"
        case Swipe(x=x, y=y) if way:
            return f"scroll(start_box={_box(x, y)}, direction='{way}')"
        case Swipe(x=x, y=y, to_x=to_x, to_y=to_y):
            return f"drag(start_box={_box(x, y)}, end_box={_box(to_x, to_y)})"
        case TypeText(text=text):
            return f"type(content={quote(text)})"
        case Finish(status="complete", answer=answer):
            return f"finished(content={quote(answer)})"
        case _:
            name = next((name for name, plain in _PLAIN.items() if plain == action), None)
            return name and f"{name}()"


def _words(call: Call) -> Action | None:
    content = call.arguments.get("content")
    if call.name == "finished":
        return Finish(answer=content or "")
    return None if content is None else TypeText(content)


def _scrolled(call: Call, start: Point | None) -> Action | None:
    told_where = any(key in call.arguments for key in _STARTS)
    way = next((way for way in get_args(Direction) if way == call.arguments["direction"]), None)
    return None if way is None or (told_where and start is None) else scroll(way, start)


def _box(x: float, y: float) -> str:
    return f"'<|box_start|>({x},{y})<|box_end|>'"


def _middle(box: str) -> Point | None:
    for before, after in _FRAMES:
        box = box.strip().removeprefix(before).removesuffix(after)
    try:
        numbers = [float(part) for part in box.replace(",", " ").split()]
    except ValueError:
        return None
    if len(numbers) == 4:
        return (numbers[0] + numbers[2]) / 2, (numbers[1] + numbers[3]) / 2
    return (numbers[0], numbers[1]) if len(numbers) == 2 else None

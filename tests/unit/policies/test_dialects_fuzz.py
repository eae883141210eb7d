"""Whatever a model says, every dialect gives an action that can be stored and performed."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distrl.policies.dialects import DIALECTS
from distrl.policies.dialects.base import KEPT, LONGEST, Dialect
from distrl.types import Action, LongPress, Swipe, Tap, TypeText, Unparsed
from support.dialects import PICTURE, actions

every_dialect = pytest.mark.parametrize("each", DIALECTS.values(), ids=list(DIALECTS))
anything = st.text(st.characters(exclude_categories=()), max_size=200)
PIECES = (
    *"{}[]()\"'\\,:=\n \x00é漢🙂\u2028\ud800",
    *(
        "<tool_call>",
        "</tool_call>",
        "<|box_start|>",
        "<|box_end|>",
        "<point>",
        "Action:",
        "Action Decision:",
        "\\ud800",
    ),
    *("click(", "scroll(", "type(", "start_box=", "content=", "direction='down'", "'(5,5)'", "wait()"),
    *('"name":', '"mobile_use"', '"arguments":', '"action":', '"action_type":', '"coordinate":', '"x":', '"index":'),
    *('"click"', '"tap"', '"scroll"', '"DUAL_POINT"', '"touch_point":', '"typed_text": ""', "null", "true"),
    *("0", "0.5", "-1", "500", "1e999", "-1e999", "NaN", "Infinity", "1e-400", "99999999999999999999"),
)
pieces = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)

HEADS = (
    "",
    "Action: ",
    "<tool_call>\n",
    "Action Plan: [] ; Action Decision: ",
    "Thought: so.\nAction: click(start_box='",
)
DEEP = 3_000  # beyond the interpreter's recursion limit, within the length that is looked at
BOMBS = {
    "braces": "{" * DEEP,
    "brackets": "[" * DEEP,
    "objects": '{"a":' * DEEP,
    "arrays in an object": '{"a":' + "[" * DEEP,
    "closed": '{"a":' * DEEP + "1" + "}" * DEEP,
    "a call": '{"name": "mobile_use", "arguments": {"action": "click", "coordinate": ' + "[" * DEEP + "]" * DEEP + "}}",
    "a point": '"action_type": "DUAL_POINT", "touch_point": "'
    + "[" * DEEP
    + '", "lift_point": "[0, 0]", "typed_text": ""',
    "calls": "click(" * DEEP,
    "nested brackets": "click(start_box='" + "(" * DEEP + "1,2" + ")" * DEEP + "')",
    "quotes": '"' * LONGEST,
    "escaped quotes": "type(content='" + "\\'" * (LONGEST // 3),
    "backslashes": "{" + '"' + "\\" * (LONGEST - 10),
    "spaces": " " * LONGEST,
    "spaces in a call": "click(start_box" + " " * (LONGEST - 100) + "=",
    "digits": "click(start_box='(" + "9" * (LONGEST - 100) + ",1)')",
    "a long number": '{"action": "tap", "x": ' + "9" * (LONGEST - 100) + ', "y": 0}',
    "a long fraction": '{"action_type": "click", "x": 0.' + "1" * (LONGEST - 100) + ', "y": 1e99999}',
    "lines": "Action:\n" * (LONGEST // 10),
    "commas": "click(" + "," * (LONGEST - 10),
    "keys": "click(" + "a=1," * (LONGEST // 5),
}


def check(action: Action) -> None:
    """`action` survives storing, and points at the screen where it points."""
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(action), type=Action) == action
    match action:
        case Tap(x=x, y=y) | LongPress(x=x, y=y):
            assert 0.0 <= x < 1.0
            assert 0.0 <= y < 1.0
        case Swipe(x=x, y=y, to_x=to_x, to_y=to_y):
            assert all(0.0 <= share < 1.0 for share in (x, y, to_x, to_y))
        case Unparsed(raw=raw):
            assert len(raw) <= KEPT


@every_dialect
@settings(max_examples=80, deadline=None)
@given(text=anything | pieces, head=st.sampled_from(HEADS))
def test_any_text_is_an_action_or_unparsed(each: Dialect, text: str, head: str) -> None:
    check(each.parse(head + text, PICTURE))


@every_dialect
@settings(max_examples=80, deadline=None)
@given(action=actions, data=st.data())
def test_a_damaged_answer_is_an_action_or_unparsed(each: Dialect, action: Action, data: st.DataObject) -> None:
    said = each.print(action, PICTURE) or ""
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(said))] * 2), label="cut"))
    check(each.parse(said[:start] + data.draw(anything | pieces) + said[end:], PICTURE))


@every_dialect
@settings(max_examples=12, deadline=None)
@given(action=actions)
@example(action=TypeText("')"))
def test_an_answer_that_breaks_off_before_its_action_is_whole_is_unparsed(each: Dialect, action: Action) -> None:
    said = each.print(action, PICTURE) or ""
    whole = said.removesuffix("\n</tool_call>")
    for length in range(len(whole)):
        check(each.parse(whole[:length], PICTURE))
    # A brief action has no sign at its end, except where it quotes a text: `tap 1` may be the beginning of `tap 12`.
    if said and (each.name != "brief" or said.endswith('"')):
        assert isinstance(each.parse(whole[: len(whole) - 1], PICTURE), Unparsed)


@every_dialect
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=list(BOMBS))
def test_bombs_are_unparsed(each: Dialect, bomb: str) -> None:
    assert all(isinstance(each.parse(head + bomb, PICTURE), Unparsed) for head in HEADS)


@every_dialect
def test_more_than_is_looked_at_is_unparsed_even_where_it_begins_with_an_action(each: Dialect) -> None:
    said = each.print(Tap(0.5, 0.5), PICTURE)
    assert said is not None
    assert isinstance(each.parse(said.ljust(LONGEST), PICTURE), Tap)
    assert each.parse(said.ljust(LONGEST + 1), PICTURE) == Unparsed(said.ljust(KEPT))


@every_dialect
def test_what_was_said_is_kept_without_what_no_file_can_hold(each: Dialect) -> None:
    assert each.parse("Tap \ud800 there", PICTURE) == Unparsed("Tap ? there")


@every_dialect
@settings(max_examples=60, deadline=None)
@given(far=st.floats(1.002, 1e300) | st.floats(-1e300, -0.002), sideways=st.booleans())
def test_a_point_past_the_edge_is_unparsed(each: Dialect, far: float, sideways: bool) -> None:
    numbers = {"json": (1, 1), "aitw": (1, 1), "qwen3_vl": (1000, 1000), "ui_tars": (1000, 1000)}
    width, height = numbers.get(each.name, (PICTURE.width, PICTURE.height))
    x, y = (far * width, height / 2) if sideways else (width / 2, far * height)
    said = {
        "json": f'{{"action":"tap","x":{x},"y":{y}}}',
        "aitw": f'"action_type": "DUAL_POINT", "touch_point": "[{y}, {x}]", "lift_point": "[{y}, {x}]", "typed_text": ""',
        "android_world": f'{{"action_type": "click", "x": {x}, "y": {y}}}',
        "ui_tars": f"Action: click(start_box='({x},{y})')",
        "ui_tars_1.5": f"Action: click(start_box='({x},{y})')",
    }
    call = (
        f'<tool_call>{{"name": "mobile_use", "arguments": {{"action": "click", "coordinate": [{x}, {y}]}}}}</tool_call>'
    )
    text = said.get(each.name, call)
    assert each.parse(text, PICTURE) == Unparsed(text)

"""What models say in each format, as public sources show it, and what it means here."""

from __future__ import annotations

import pytest

from distrl.policies.dialects import dialect
from distrl.policies.dialects.base import Screen
from distrl.policies.dialects.parsing import scroll
from distrl.types import Action, Bounds, Finish, LongPress, Press, Swipe, Tap, TypeText, UiElement, Unparsed, Wait

PHONE = Screen(
    width=1000,
    height=2000,
    elements=(
        UiElement(bounds=Bounds(0.0, 0.0, 0.5, 0.1), text="Search"),
        UiElement(bounds=Bounds(0.0, 0.4, 1.0, 0.8), scrollable=True),
    ),
)
BARE = Screen(width=1000, height=2000)
PLAN = "Action Plan: [DUAL_POINT,DUAL_POINT,TYPE,DUAL_POINT] ; Action Decision: "


def understood(name: str, text: str, screen: Screen = BARE) -> Action | None:
    """What the text means; None where it is refused, which keeps what was said."""
    action = dialect(name).parse(text, screen)
    if isinstance(action, Unparsed):
        assert action.raw == text
        return None
    return action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ('{"action":"tap","x":0.42,"y":0.13}', Tap(0.42, 0.13)),
        ('Sure!\n```json\n{"action": "tap", "x": 0, "y": 0.5, "why": {"is": ["it"]}}\n```', Tap(0.0, 0.5)),
        ('{"action":"finish"}', Finish()),
        ('{"action":"press","key":"menu"}', None),
        ('{"action":"tap","x":"0.42","y":0.13}', None),
        ('{"action":"tap","x":true,"y":0.13}', None),
        ('{"action":"tap","x":0.42}', None),
        ('{"action":"unparsed","raw":"x"}', None),
        ('{"type":"tap","x":0.42,"y":0.13}', None),
        ('{"action":"tap","x":NaN,"y":0.13}', None),
        ('{"action":"type","text":"\\ud800"}', None),
        ("", None),
    ],
)
def test_json(text: str, action: Action | None) -> None:
    assert understood("json", text) == action


def test_json_gives_as_many_decimals_as_a_pixel_needs() -> None:
    assert dialect("json").print(Tap(0.12345678, 0.5), BARE) == '{"action":"tap","x":0.1235,"y":0.5}'
    assert (
        dialect("json").print(Tap(0.12345678, 0.5), Screen(width=9, height=9)) == '{"action":"tap","x":0.123,"y":0.5}'
    )


@pytest.mark.parametrize(
    ("decision", "action"),
    [
        ('"DUAL_POINT", "touch_point": "[0.911, 0.4187]", "lift_point": "[0.911, 0.4187]"', Tap(0.4187, 0.911)),
        ('"DUAL_POINT", "touch_point": "[0.5, 0.5]", "lift_point": "[0.53, 0.5]"', Tap(0.5, 0.5)),
        ('"DUAL_POINT", "touch_point": "[0.8, 0.5]", "lift_point": "[0.2, 0.5]"', Swipe(0.5, 0.8, 0.5, 0.2)),
        ('"DUAL_POINT", "touch_point": "[-1.0, -1.0]", "lift_point": "[-1.0, -1.0]"', None),
        ('"DUAL_POINT", "touch_point": "[0.5]", "lift_point": "[0.5, 0.5]"', None),
        ('"DUAL_POINT", "touch_point": "[0.5, NaN]", "lift_point": "[0.5, 0.5]"', None),
        ('"DUAL_POINT", "touch_point": "__import__(\'os\')", "lift_point": "[0.5, 0.5]"', None),
        ('"PRESS_HOME", "touch_point": "[-1.0, -1.0]", "lift_point": "[-1.0, -1.0]"', Press("home")),
        ('"STATUS_TASK_IMPOSSIBLE", "touch_point": "[-1.0, -1.0]", "lift_point": "[-1.0, -1.0]"', Finish("impossible")),
        ('"LONG_POINT", "touch_point": "[0.5, 0.5]", "lift_point": "[0.5, 0.5]"', None),
    ],
)
def test_aitw(decision: str, action: Action | None) -> None:
    said = f'"action_type": {decision}, "typed_text": ""'
    assert understood("aitw", PLAN + said) == action
    assert understood("aitw", said) == action


def test_aitw_types_what_it_quotes_and_forgives_what_comes_after() -> None:
    said = '"action_type": "TYPE", "touch_point": "[-1.0, -1.0]", "lift_point": "[-1.0, -1.0]", "typed_text": "a, b: c"'
    assert understood("aitw", PLAN + said) == TypeText("a, b: c")
    assert understood("aitw", PLAN + said + " </s>") == TypeText("a, b: c")


@pytest.mark.parametrize(
    ("arguments", "action"),
    [
        ('{"action": "click", "coordinate": [935, 406]}', Tap(0.935, 0.203)),
        ('{"action": "click", "coordinate": [1000, 2000]}', Tap(0.999, 0.9995)),
        ('{"action": "click", "coordinate": [1001, 2000]}', None),
        ('{"action": "click", "coordinate": [935]}', None),
        ('{"action": "click", "coordinate": "[935, 406]"}', None),
        ('{"action": "click"}', None),
        ('{"action": "long_press", "coordinate": [100, 200], "time": "3"}', LongPress(0.1, 0.1)),
        ('{"action": "swipe", "coordinate": [500, 1600], "coordinate2": [500, 400]}', Swipe(0.5, 0.8, 0.5, 0.2)),
        ('{"action": "swipe", "coordinate": [500, 1600]}', None),
        ('{"action": "type", "text": "5 \\"inches\\" {wide}"}', TypeText('5 "inches" {wide}')),
        ('{"action": "type"}', None),
        ('{"action": "answer", "text": "42"}', Finish(answer="42")),
        ('{"action": "system_button", "button": "Back"}', Press("back")),
        ('{"action": "system_button", "button": "Menu"}', None),
        ('{"action": "key", "text": "enter"}', Press("enter")),
        ('{"action": "key", "text": "volume_up"}', None),
        ('{"action": "open", "text": "Clock"}', None),
        ('{"action": "wait", "time": 5}', Wait()),
        ('{"action": "terminate", "status": "failure"}', Finish("impossible")),
        ('{"action": "terminate", "status": "maybe"}', None),
    ],
)
def test_qwen(arguments: str, action: Action | None) -> None:
    call = f'{{"name": "mobile_use", "arguments": {arguments}}}'
    assert understood("qwen2.5_vl", f"Thought: go.\nAction: go\n<tool_call>\n{call}\n</tool_call>") == action
    assert understood("qwen2.5_vl", call) == action


def test_qwen3_counts_thousandths_where_qwen25_counts_pixels() -> None:
    said = '<tool_call>{"name": "mobile_use", "arguments": {"action": "click", "coordinate": [500, 500]}}</tool_call>'
    assert understood("qwen3_vl", said) == Tap(0.5, 0.5)
    assert understood("qwen2.5_vl", said) == Tap(0.5, 0.25)


def test_qwen_calls_no_other_tool() -> None:
    said = '<tool_call>{"name": "shell", "arguments": {"action": "click", "coordinate": [5, 5]}}</tool_call>'
    assert understood("qwen3_vl", said) is None


@pytest.mark.parametrize(
    ("call", "action"),
    [
        ("click(start_box='<|box_start|>(177,549)<|box_end|>')", Tap(0.177, 0.549)),
        ("click(start_box='(177,549)')", Tap(0.177, 0.549)),
        ("click(start_box='(177, 549)'", None),
        ("click(point='<point>200 300</point>')", Tap(0.2, 0.3)),
        ("click(start_box='[100, 200, 300, 400]')", Tap(0.2, 0.3)),
        ("click(start_box='(177)')", None),
        ("click(start_box='(nan,inf)')", None),
        ("click(start_box='(1001,5)')", None),
        ("long_press(start_box='(500,500)', time='')", LongPress(0.5, 0.5)),
        ("drag(start_box='(500,800)', end_box='(500,200)')", Swipe(0.5, 0.8, 0.5, 0.2)),
        ("drag(start_point='<point>500 800</point>', end_point='<point>500 200</point>')", Swipe(0.5, 0.8, 0.5, 0.2)),
        ("drag(start_box='(500,800)')", None),
        ("scroll(start_box='(697,321)', end_box='(0,354)')", Swipe(0.697, 0.321, 0.0, 0.354)),
        ("scroll(start_box='(500,600)', direction='down')", Swipe(0.5, 0.6, 0.5, 0.25)),
        ("scroll(direction='left')", scroll("left")),
        ("scroll(start_box='(5000,600)', direction='down')", None),
        ("scroll(start_box='(500,600)', direction='sideways')", None),
        (r"type(content='it\'s \"x\"\n')", TypeText('it\'s "x"\n')),
        ("type(content='it's 5 o'clock')", TypeText("it's 5 o'clock")),
        ("type(content='Hi (there)')", TypeText("Hi (there)")),
        ('type(content="Anna\'s")', TypeText("Anna's")),
        ("type()", None),
        ("open_app(app_name='Clock')", None),
        ("left_double(start_box='(5,5)')", None),
        ("press_back()", Press("back")),
        ("press_enter()", Press("enter")),
        ("wait(duration=5)", Wait()),
        ("finished(content='It is 7 km.')", Finish(answer="It is 7 km.")),
        ("finished()", Finish()),
        ("call_user()", Finish("impossible")),
        ("__import__('os').system('id')", None),
    ],
)
def test_ui_tars(call: str, action: Action | None) -> None:
    assert understood("ui_tars", f"Thought: I (think) so.\nAction: {call}") == action
    assert understood("ui_tars", call) == action


def test_ui_tars_may_speak_of_actions_in_its_thought() -> None:
    said = "Thought: my last Action: click(start_box='(5,5)') failed.\nAction: press_back()"
    assert understood("ui_tars", said) == Press("back")


def test_ui_tars_15_counts_pixels() -> None:
    assert understood("ui_tars_1.5", "Action: click(start_box='(500,500)')") == Tap(0.5, 0.25)


@pytest.mark.parametrize(
    ("said", "action"),
    [
        ('{"action_type": "click", "x": 500, "y": 500}', Tap(0.5, 0.25)),
        ('{"action_type": "click", "index": 0}', Tap(0.25, 0.05)),
        ('{"action_type": "click", "index": 2}', None),
        ('{"action_type": "click", "index": -1}', None),
        ('{"action_type": "click", "index": 0, "x": 5, "y": 5}', None),
        ('{"action_type": "click", "x": 500}', None),
        ('{"action_type": "long_press", "x": 500, "y": 500}', LongPress(0.5, 0.25)),
        ('{"action_type": "input_text", "text": "hi", "index": 0}', TypeText("hi")),
        ('{"action_type": "input_text", "index": 0}', None),
        ('{"action_type": "navigate_back"}', Press("back")),
        ('{"action_type": "keyboard_enter"}', Press("enter")),
        ('{"action_type": "scroll", "direction": "down"}', Swipe(0.5, 0.6, 0.5, 0.25)),
        ('{"action_type": "scroll", "direction": "up", "index": 1}', Swipe(0.5, 0.6, 0.5, 0.95)),
        ('{"action_type": "scroll", "direction": "down", "index": 7}', None),
        ('{"action_type": "scroll", "direction": "in"}', None),
        ('{"action_type": "scroll"}', None),
        ('{"action_type": "swipe", "direction": "up"}', None),
        ('{"action_type": "open_app", "app_name": "Clock"}', None),
        ('{"action_type": "wait"}', Wait()),
        ('{"action_type": "status", "goal_status": "complete"}', Finish()),
        ('{"action_type": "status", "goal_status": "infeasible"}', Finish("impossible")),
        ('{"action_type": "answer", "text": "42"}', Finish(answer="42")),
        ('{"action_type": "unknown"}', None),
    ],
)
def test_android_world(said: str, action: Action | None) -> None:
    assert understood("android_world", f"Reason: because.\nAction: {said}", PHONE) == action


def test_android_world_refuses_an_index_where_no_elements_are_listed() -> None:
    assert understood("android_world", '{"action_type": "click", "index": 0}') is None

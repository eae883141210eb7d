"""Every dialect says what we can do, and understands itself."""

from __future__ import annotations

import math
from typing import get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distrl.errors import UsageError
from distrl.policies.dialects import DIALECTS, dialect
from distrl.policies.dialects.base import LONGEST_TEXT, Dialect, Screen
from distrl.policies.dialects.parsing import Direction, direction_from_middle, direction_of, scroll
from distrl.policies.dialects.reference import SAMPLES, inexpressible
from distrl.policies.pointer.grammar import PLAIN
from distrl.tasks.sim.oracle import NEXT_PAGE, PREVIOUS_PAGE, SCROLL_DOWN, SCROLL_UP
from distrl.types import Action, DialectName, Finish, LongPress, Press, Swipe, Tap, TypeText, Unparsed
from support.dialects import PICTURE, actions, longest_text, screens, scrolls, shares, words

UNSAYABLE = {
    "json": [],
    "aitw": ["long press", "short swipe", "wait", "done, with an answer", "impossible, with an answer"],
    "qwen2.5_vl": ["impossible, with an answer"],
    "qwen3_vl": ["impossible, with an answer"],
    "ui_tars": ["impossible, with an answer"],
    "ui_tars_1.5": ["impossible, with an answer"],
    "android_world": ["swipe", "short swipe", "impossible, with an answer"],
    "brief": [],
    "grid": ["swipe", "short swipe"],
}
every_dialect = pytest.mark.parametrize("each", DIALECTS.values(), ids=list(DIALECTS))


def precision(each: Dialect, screen: Screen) -> float:
    """How far apart two neighbouring points of the format are, at most."""
    pixel = 1 / min(screen.width, screen.height)
    return {"json": 1e-3, "aitw": 1e-4, "qwen3_vl": 1e-3, "ui_tars": 1e-3, "brief": 1e-3, "grid": 0.5 / 14}.get(
        each.name, pixel
    )


def same(one: Action, other: Action, within: float) -> bool:
    match one, other:
        case (Tap(), Tap()) | (LongPress(), LongPress()) | (Swipe(), Swipe()):
            return all(
                abs(getattr(one, name) - getattr(other, name)) <= within * 1.001 + 1e-4
                for name in one.__struct_fields__
            )
        case _:
            return one == other


# --- saying and understanding -----------------------------------------------------------------------------------------


@every_dialect
@settings(max_examples=100, deadline=None)
@given(action=actions, screen=screens)
@example(action=Swipe(0.140625, 0.0, 0.7421875, 0.0), screen=Screen(width=135, height=1))  # a scroll, once in pixels
def test_what_a_dialect_says_it_understands_up_to_its_precision(each: Dialect, action: Action, screen: Screen) -> None:
    said = each.print(action, screen)
    if said is None:
        return
    understood = each.parse(said, screen)
    assert same(understood, action, precision(each, screen))
    assert each.print(understood, screen) == said


@every_dialect
def test_each_dialect_lacks_words_for_exactly_these_actions(each: Dialect) -> None:
    assert inexpressible(each) == UNSAYABLE[each.name]


@every_dialect
@settings(max_examples=30, deadline=None)
@given(x=shares, y=shares, text=words, screen=screens)
def test_what_a_dialect_can_say_of_a_kind_it_can_say_whatever_the_values(
    each: Dialect, x: float, y: float, text: str, screen: Screen
) -> None:
    kinds = {"tap": Tap(x, y), "long press": LongPress(x, y), "type": TypeText(text)}
    for label, action in kinds.items():
        assert (each.print(action, screen) is None) == (label in UNSAYABLE[each.name])


@every_dialect
def test_what_is_no_action_or_not_on_the_screen_has_no_words(each: Dialect) -> None:
    nothing = [Unparsed("hm"), Tap(1.1, 0.5), LongPress(0.5, -0.1), Swipe(0.5, 0.6, 0.5, -0.25), Tap(math.nan, 0.5)]
    assert [each.print(action, PICTURE) for action in nothing] == [None] * len(nothing)


@every_dialect
def test_text_that_has_no_encoding_or_no_end_has_no_words(each: Dialect) -> None:
    assert each.print(TypeText("\ud800"), PICTURE) is None
    assert each.print(TypeText("a" * (LONGEST_TEXT + 1)), PICTURE) is None


@every_dialect
def test_the_longest_text_comes_back_whole(each: Dialect) -> None:
    said = each.print(TypeText(longest_text), PICTURE)
    assert said is not None
    assert each.parse(said, PICTURE) == TypeText(longest_text)


@every_dialect
def test_the_far_edge_is_the_last_pixel(each: Dialect) -> None:
    said = each.print(Tap(1.0, 1.0), PICTURE)
    assert said is not None
    understood = each.parse(said, PICTURE)
    assert isinstance(understood, Tap)
    last = 1 - precision(each, PICTURE) if each.name == "grid" else 0.998
    assert last <= understood.x < 1.0
    assert last <= understood.y < 1.0


@every_dialect
def test_a_thought_before_and_chatter_after_the_action_do_no_harm(each: Dialect) -> None:
    for action in SAMPLES.values():
        said = each.print(action, PICTURE)
        around = f'Thought: the "Search" field, 5" wide, isn\'t {{open}}.\n{said}\nThat should do. {{}} (ok?)'
        assert said is None or each.parse(around, PICTURE) == each.parse(said, PICTURE)


@every_dialect
def test_the_first_of_two_actions_counts(each: Dialect) -> None:
    first, second = each.print(Tap(0.25, 0.25), PICTURE), each.print(Tap(0.75, 0.75), PICTURE)
    assert first is not None
    assert each.parse(f"{first}\n\n{second}", PICTURE) == each.parse(first, PICTURE)


@every_dialect
@settings(max_examples=20, deadline=None)
@given(text=words)
def test_text_that_looks_like_the_format_is_typed_as_it_is(each: Dialect, text: str) -> None:
    for hostile in (each.print(Tap(0.1, 0.1), PICTURE), "</tool_call>", "Action Decision:", "\nAction: wait()", "')"):
        typed = TypeText(f"{text}{hostile}{text}")
        said = each.print(typed, PICTURE)
        assert said is not None
        assert each.parse(said, PICTURE) == typed


@every_dialect
@pytest.mark.parametrize("text", ["; rm -rf ~", "$(reboot)", "`id`", "<script>alert(1)</script>", "%s%n", "../../etc"])
def test_what_a_model_types_stays_text(each: Dialect, text: str) -> None:
    said = each.print(TypeText(text), PICTURE)
    assert said is not None
    assert each.parse(said, PICTURE) == TypeText(text)


@every_dialect
def test_the_explanation_names_whatever_the_dialect_says(each: Dialect) -> None:
    telling = {
        "json": '"action":"{}"',
        "aitw": "{}",
        "android_world": '"action_type": "{}"',
        "ui_tars": "\n{}(",
        "ui_tars_1.5": "\n{}(",
        "brief": "{}",
        "grid": "{}",
    }
    for action in SAMPLES.values():
        said = each.print(action, PICTURE)
        if said is not None:
            word = kind_of(each, said)
            assert telling.get(each.name, '"{}"').format(word) in each.explain()


def kind_of(each: Dialect, said: str) -> str:
    """The word of the format for what it says."""
    if each.name == "aitw":
        return said.partition("[")[2].partition("]")[0]
    if each.name in ("brief", "grid"):
        return said.split(maxsplit=1)[0]
    if each.name.startswith("ui_tars"):
        return said.removeprefix("Action: ").partition("(")[0]
    return said.replace(" ", "").partition('"action":"')[2].partition('"')[0] or said.split('"')[3]


# --- names ------------------------------------------------------------------------------------------------------------


def test_every_name_of_the_configuration_is_a_dialect_of_that_name() -> None:
    assert list(DIALECTS) == list(get_args(DialectName))
    assert [dialect(name).name for name in get_args(DialectName)] == list(DIALECTS)


def test_a_name_that_nobody_knows_is_an_error_that_says_the_closest_first() -> None:
    with pytest.raises(UsageError, match=r"unknown dialect 'qwen3'\nexpected: one of qwen3_vl"):
        dialect("qwen3")


def test_a_picture_without_pixels_is_an_error() -> None:
    with pytest.raises(UsageError, match="0 x 2400"):
        Screen(width=0, height=2400)


# --- scrolling --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", get_args(Direction))
def test_a_scroll_moves_the_finger_away_from_the_side_that_is_to_show_more(way: Direction) -> None:
    swipe = scroll(way)
    moved = {"up": swipe.to_y - swipe.y, "down": swipe.y - swipe.to_y}
    moved |= {"left": swipe.to_x - swipe.x, "right": swipe.x - swipe.to_x}
    assert moved[way] > 0.3


@settings(max_examples=100, deadline=None)
@given(swipe=scrolls)
def test_a_scroll_keeps_clear_of_the_edges_it_moves_between_and_is_known_again(swipe: Swipe) -> None:
    ends = (swipe.y, swipe.to_y) if swipe.x == swipe.to_x else (swipe.x, swipe.to_x)
    assert all(0.0499 <= end <= 0.9501 for end in ends)
    assert direction_of(swipe) is not None


def test_the_swipes_of_the_oracle_and_of_the_pointer_are_scrolls() -> None:
    assert [direction_from_middle(swipe) for swipe in (SCROLL_DOWN, SCROLL_UP, NEXT_PAGE, PREVIOUS_PAGE)] == [
        "down", "up", "right", "left"
    ]  # fmt: skip
    swipes = [swipe for swipe in PLAIN.values() if isinstance(swipe, Swipe)]
    assert len(swipes) == 4
    assert all(DIALECTS["android_world"].print(swipe, PICTURE) for swipe in swipes)


@settings(max_examples=30, deadline=None)
@given(swipe=st.builds(Swipe, shares, shares, shares, shares))
def test_a_swipe_is_called_a_scroll_only_where_scrolling_makes_it(swipe: Swipe) -> None:
    way = direction_of(swipe)
    assert way is None or same(scroll(way, (swipe.x, swipe.y)), swipe, 1e-4)


def test_samples_cover_every_kind_of_action() -> None:
    kinds = {type(action) for action in SAMPLES.values()}
    assert kinds == set(get_args(Action)) - {Unparsed}
    assert {action.key for action in SAMPLES.values() if isinstance(action, Press)} == {"back", "home", "enter"}
    assert Finish("impossible") in SAMPLES.values()

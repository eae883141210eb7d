"""The agent that only matches words: what it taps, types and answers."""

from __future__ import annotations

import pytest
import torch

from distrl.bench.learning.string_matcher import StringMatcher, _names_in, _same, act, overlap
from distrl.types import Bounds, Finish, Observation, Past, Press, Swipe, Tap, TypeText, UiElement


def element(
    text: str, left: float = 0.0, *, clickable: bool = True, focused: bool = False, kind: str = ""
) -> UiElement:
    return UiElement(
        text=text, bounds=Bounds(left, 0.0, left + 0.1, 0.1), clickable=clickable, focused=focused, class_name=kind
    )


def seen(instruction: str, *elements: UiElement, recent: tuple[Past, ...] = ()) -> Observation:
    return Observation(instruction=instruction, elements=elements, recent=recent)


def past(action: Tap | TypeText, target: str = "") -> Past:
    return Past(action=action, target=target, changed=True)


@pytest.mark.parametrize(
    ("text", "share"), [("Jam labels", 1.0), ("jam LABELS", 1.0), ("Jam jars", 0.5), ("Tea", 0.0), ("", 0.0)]
)
def test_the_overlap_is_the_share_of_an_elements_words_in_the_instruction(text: str, share: float) -> None:
    assert overlap(element(text), {"jam", "labels"}) == share


def test_a_description_stands_in_for_a_missing_text() -> None:
    picture = UiElement(bounds=Bounds(0.0, 0.0, 0.1, 0.1), description="Jam labels", clickable=True)
    assert overlap(picture, {"jam", "labels"}) == 1.0


def test_it_taps_the_best_match_in_the_middle() -> None:
    action = act(seen("Open Jam labels", element("Jam jars", 0.1), element("Jam labels", 0.5)))
    assert isinstance(action, Tap)
    assert (action.x, action.y) == pytest.approx((0.55, 0.05))


def test_it_taps_nothing_that_cannot_be_tapped() -> None:
    assert act(seen("Open Jam labels", element("Jam labels", clickable=False))) == Finish()


def test_it_taps_nothing_twice() -> None:
    button = element("Jam labels", 0.5)
    again = seen("Open Jam labels", button, recent=(past(Tap(0.55, 0.05), target="Jam labels"),))
    assert act(again) == Finish()


def test_it_types_the_names_of_the_instruction_into_a_focused_field_and_then_presses_enter() -> None:
    field = element("", focused=True, kind="EditText")
    first = seen("Search for Anna Berg", field)
    assert act(first) == TypeText("Anna Berg")
    assert act(seen("Search for Anna Berg", field, recent=(past(TypeText("Anna Berg")),))) == Press("enter")
    typed_before = (past(TypeText("Anna Berg")), past(Tap(0.1, 0.1), target="other"))
    assert act(seen("Search for Anna Berg", field, recent=typed_before)) == Finish(), "it types only once"


@pytest.mark.parametrize(
    ("instruction", "names"), [("Call Anna Berg now", "Anna Berg"), ("Pin the note", "Pin the note"), ("Wait", "Wait")]
)
def test_names_are_the_capitalised_words_after_the_first(instruction: str, names: str) -> None:
    assert _names_in(seen(instruction)) == names


def test_a_question_is_answered_with_the_best_match_that_is_not_the_question_itself() -> None:
    label = element("the alarm", clickable=False)
    value = element("alarm 7:30", clickable=False)
    found = act(seen("When is the alarm?", label, value))
    assert found == Finish(answer="alarm 7:30")
    assert act(seen("When is the alarm?")) == Finish(answer="")


def test_as_a_policy_it_decides_for_every_observation_and_needs_no_weights() -> None:
    screens = [seen("Open Tea", element("Tea", 0.2)), seen("Open Tea")]
    decisions = StringMatcher().decide(screens, temperature=1.0, generator=torch.Generator())
    assert [decision.action for decision in decisions] == [act(one) for one in screens]
    assert all(decision.logp == decision.entropy == decision.value == 0.0 for decision in decisions)


def test_two_taps_on_one_element_are_the_same_and_on_two_are_not() -> None:
    screen = seen("Open Tea", element("Tea", 0.0), element("Jam", 0.5))
    assert _same(Tap(0.01, 0.01), Tap(0.09, 0.09), screen)
    assert not _same(Tap(0.01, 0.01), Tap(0.55, 0.05), screen)
    assert not _same(Tap(0.3, 0.3), Tap(0.3, 0.3), screen), "beside every element"
    assert not _same(Tap(0.01, 0.01), Press("back"), screen)


def test_other_actions_are_the_same_where_they_are_equal() -> None:
    screen = seen("Open Tea")
    assert _same(TypeText("tea"), TypeText("tea"), screen)
    assert not _same(TypeText("tea"), TypeText("jam"), screen)
    assert not _same(Finish(answer="1"), Finish(answer="2"), screen)
    assert _same(Swipe(0.5, 0.6, 0.5, 0.2), Swipe(0.5, 0.6, 0.5, 0.2), screen)

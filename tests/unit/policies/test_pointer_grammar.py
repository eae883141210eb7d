"""The pointer's choices against what they do on the phone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.devices.sim.layout import elements_of
from distrl.devices.sim.phone import perform, show
from distrl.devices.sim.state import PhoneState
from distrl.policies.pointer.grammar import KINDS, PLAIN, TYPE, to_action, to_choice
from distrl.policies.pointer.words import MAX_WORDS, find, read, span
from distrl.tasks.sim.oracle import play_oracle
from distrl.types import (
    Action,
    Bounds,
    Finish,
    LongPress,
    Observation,
    Press,
    Swipe,
    Tap,
    Task,
    TypeText,
    UiElement,
    Unparsed,
)
from support.batches import PERTURBED, SUITES, some_tasks

TASKS = 160
SHOPPING_LIST = Observation(
    instruction='Add "Semi-skimmed Milk" (2.5 l) to Anna\'s list at 7:30, then stop: done!',
    elements=(
        UiElement(bounds=Bounds(0.0, 0.0, 1.0, 0.5), text="List", class_name="Card", clickable=True),
        UiElement(bounds=Bounds(0.1, 0.1, 0.9, 0.2), text="Milk", class_name="TextView"),
        UiElement(bounds=Bounds(0.2, 0.1, 0.4, 0.2), description="Delete", class_name="Button", clickable=True),
    ),
)


def observation_of(task: Task, state: PhoneState) -> Observation:
    return Observation(instruction=task.instruction, elements=elements_of(show(state), state.focus))


def said_again(task: Task, state: PhoneState, action: Action) -> Action:
    """The action after a trip through the grammar."""
    seen = observation_of(task, state)
    choice = to_choice(action, seen)
    assert choice is not None, f"{task.id} ({task.template}): {task.instruction!r} cannot say {action}"
    return to_action(choice, seen)


def same_words(left: str, right: str) -> bool:
    return left.casefold() == right.casefold()


@pytest.mark.parametrize("name", SUITES)
def test_every_action_of_the_oracle_can_be_said_and_does_the_same_to_the_phone(name: str) -> None:
    for task in some_tasks(name, TASKS):
        played = play_oracle(task, PERTURBED)
        assert played.verdict.success
        for before, after, action in zip(played.states[:-1], played.states[1:], played.actions, strict=True):
            again = said_again(task, before, action)
            if isinstance(action, TypeText):
                assert isinstance(again, TypeText)
                assert same_words(again.text, action.text), task.instruction
            elif isinstance(action, Finish):
                assert isinstance(again, Finish)
                assert again.status == action.status
                assert same_words(again.answer, action.answer)
            else:
                assert perform(before, show(before), again).state == after, f"{task.id}: {action} became {again}"


def test_a_tap_goes_to_the_clickable_element_before_the_smaller_one_and_to_the_smallest_of_those() -> None:
    tap = KINDS.index("tap")
    assert to_choice(Tap(0.3, 0.15), SHOPPING_LIST) == (tap, 2, 0)
    assert to_choice(Tap(0.6, 0.15), SHOPPING_LIST) == (tap, 0, 0)
    assert to_choice(Tap(0.6, 0.9), SHOPPING_LIST) is None


def test_touching_kinds_touch_the_middle_of_their_element() -> None:
    assert to_action((KINDS.index("tap"), 1, 0), SHOPPING_LIST) == Tap(0.5, pytest.approx(0.15))  # type: ignore[arg-type]
    assert isinstance(to_action((KINDS.index("hold"), 1, 0), SHOPPING_LIST), LongPress)


def test_an_answer_is_what_an_element_says_by_its_text_or_else_its_description() -> None:
    answer = KINDS.index("answer")
    assert to_action((answer, 1, 0), SHOPPING_LIST) == Finish(answer="Milk")
    assert to_action((answer, 2, 0), SHOPPING_LIST) == Finish(answer="Delete")
    assert to_choice(Finish(answer="MILK"), SHOPPING_LIST) == (answer, 1, 0)
    assert to_choice(Finish(answer="Bread"), SHOPPING_LIST) is None


def test_every_plain_kind_comes_back_from_its_action() -> None:
    for kind, action in PLAIN.items():
        choice = to_choice(action, SHOPPING_LIST)
        assert choice == (KINDS.index(kind), 0, 0)
        assert to_action(choice, SHOPPING_LIST) == action


@pytest.mark.parametrize(
    ("swipe", "kind"),
    [
        (Swipe(0.5, 0.9, 0.52, 0.1), "down"),
        (Swipe(0.5, 0.1, 0.48, 0.9), "up"),
        (Swipe(0.9, 0.5, 0.1, 0.6), "left"),
        (Swipe(0.1, 0.5, 0.9, 0.4), "right"),
    ],
)
def test_any_swipe_is_the_one_of_its_direction(swipe: Swipe, kind: str) -> None:
    assert to_choice(swipe, SHOPPING_LIST) == (KINDS.index(kind), 0, 0)


def test_an_element_that_is_not_there_is_an_invalid_action_and_no_crash() -> None:
    assert isinstance(to_action((KINDS.index("tap"), 17, 0), SHOPPING_LIST), Unparsed)
    assert to_choice(Unparsed("tap the thing"), SHOPPING_LIST) is None
    assert to_choice(Press("enter"), SHOPPING_LIST) == (KINDS.index("enter"), 0, 0)


# --- spans ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "copied"),
    [
        ("semi-skimmed milk", "Semi-skimmed Milk"),
        ("2.5 L", "2.5 l"),
        ("anna's list", "Anna's list"),
        ("7:30", "7:30"),
        ("then stop", "then stop"),
        ("DONE", "done"),
    ],
)
def test_a_span_is_copied_exactly_as_the_instruction_has_it_without_the_punctuation_around(
    typed: str, copied: str
) -> None:
    choice = to_choice(TypeText(typed), SHOPPING_LIST)
    assert choice is not None
    assert choice[0] == TYPE
    assert to_action(choice, SHOPPING_LIST) == TypeText(copied)


def test_what_the_instruction_does_not_say_cannot_be_typed() -> None:
    assert to_choice(TypeText("oat milk"), SHOPPING_LIST) is None
    assert to_choice(TypeText("!?"), SHOPPING_LIST) is None
    assert span("three short words", 2, 1) == span("three short words", 0, 3) == span("", 0, 0) == ""


@given(text=st.text(max_size=120), ends=st.tuples(st.integers(0, 12), st.integers(0, 12)))
@settings(max_examples=150, deadline=None)
def test_any_span_of_any_text_is_a_part_of_it_and_is_found_again(text: str, ends: tuple[int, int]) -> None:
    words = read(text)[:MAX_WORDS]
    assert all(text[word.start : word.end].casefold() == word.plain for word in words)
    first, last = sorted(min(end, len(words) - 1) for end in ends)
    if words:
        part = span(text, first, last)
        assert part
        assert part in text
        found = find(text, part)
        assert found is not None
        assert same_words(span(text, *found), part) or len(read(part)) == found[1] - found[0] + 1


def test_an_answer_is_a_label_or_where_lines_are_wanted_its_whole_line_and_either_is_said_again() -> None:
    row = (
        UiElement(bounds=Bounds(0.1, 0.3, 0.3, 0.34), text="Humidity", class_name="TextView"),
        UiElement(bounds=Bounds(0.6, 0.3, 0.8, 0.34), text="40 %", class_name="TextView"),
    )
    seen, choice = Observation(instruction="How humid is it?", elements=row), (KINDS.index("answer"), 0, 0)
    assert to_action(choice, seen) == Finish(answer="Humidity")
    assert to_action(choice, seen, lines=True) == Finish(answer="Humidity 40 %")
    assert to_choice(Finish(answer="Humidity 40 %"), seen, lines=True) == choice
    assert to_choice(Finish(answer="Humidity 40 %"), seen) is None

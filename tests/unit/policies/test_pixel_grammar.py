"""Where a finger lands, and what can be said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.config.schema import PixelConfig
from distrl.policies.pixel.features import PAST, read_past, read_text
from distrl.policies.pixel.grammar import KINDS, POINTING, TYPE, grid_of, to_action, to_choice
from distrl.policies.pointer.words import read
from distrl.types import Action, Finish, LongPress, Observation, Past, Press, Swipe, Tap, TypeText, UiElement, Unparsed
from support.batches import shown_by_the_oracle

FULL = grid_of(PixelConfig())
SEEN = Observation(instruction="Text Zoë “good luck” today")
NUM_WORDS = len(read(SEEN.instruction))


def pointed(action: Tap | LongPress) -> tuple[float, float]:
    """Where the finger lands once an action has gone through the grammar."""
    choice = to_choice(action, SEEN, FULL, NUM_WORDS)
    assert choice is not None
    landed = to_action(choice, SEEN, FULL)
    assert isinstance(landed, type(action))
    return landed.x, landed.y


def touched(elements: tuple[UiElement, ...], x: float, y: float) -> UiElement | None:
    """What a simulated phone takes a finger to mean."""
    return next((e for e in reversed(elements) if e.clickable and e.bounds.contains(x, y)), None)


def test_a_tap_on_any_element_of_real_screens_lands_in_it() -> None:
    screens = {observation.elements for observation, _ in shown_by_the_oracle(16)}
    tried = [(elements, element) for elements in screens for element in elements if element.clickable]
    missed = [e for elements, e in tried if touched(elements, *pointed(Tap(*e.bounds.centre))) is not e]
    assert len(tried) > 1500
    assert missed == []


def test_the_full_picture_has_28_rows_of_14_squares() -> None:
    assert (FULL.rows, FULL.columns) == (28, 14)


@given(square=st.integers(0, FULL.num_squares - 1))
def test_the_middle_of_a_square_lies_in_it(square: int) -> None:
    assert FULL.square_at(*FULL.middle_of(square)) == square


@given(x=st.floats(-2, 2), y=st.floats(-2, 2))
def test_every_point_has_a_square_and_one_on_the_screen_is_close_to_its_middle(x: float, y: float) -> None:
    square = FULL.square_at(x, y)
    assert 0 <= square < FULL.num_squares
    if 0 <= x < 1 and 0 <= y < 1:
        middle = FULL.middle_of(square)
        assert abs(middle[0] - x) <= 0.5 / FULL.columns + 1e-9
        assert abs(middle[1] - y) <= 0.5 / FULL.rows + 1e-9


def test_what_is_chosen_is_what_is_done() -> None:
    plain = [(kind, 0, 0) for kind in range(TYPE + 1, len(KINDS))]
    pointing = [(kind, square, 0) for kind in range(len(POINTING)) for square in (0, 13, 200, FULL.num_squares - 1)]
    typing = [(TYPE, first, last) for first in range(NUM_WORDS) for last in range(first, NUM_WORDS)]
    for choice in [*plain, *pointing, *typing]:
        assert to_choice(to_action(choice, SEEN, FULL), SEEN, FULL, NUM_WORDS) == choice


def test_the_oracle_does_nothing_inexpressible_but_answer_questions() -> None:
    for observation, action in shown_by_the_oracle(16):
        num_words = read_text(observation.instruction, PixelConfig().text_bytes).num_words
        answers = isinstance(action, Finish) and bool(action.answer)
        assert (to_choice(action, observation, FULL, num_words) is None) == answers, action


@pytest.mark.parametrize("action", [TypeText("nobody said this"), TypeText(""), Unparsed("?"), Finish(answer="7 pm")])
def test_what_the_grammar_lacks_has_no_choice(action: Action) -> None:
    assert to_choice(action, SEEN, FULL, NUM_WORDS) is None


def test_words_beyond_what_is_read_cannot_be_typed() -> None:
    text = read_text(SEEN.instruction, 16)
    assert text.num_words == 2  # the umlaut takes two bytes, and “good does not fit
    assert to_choice(TypeText("Zoë"), SEEN, FULL, text.num_words) == (TYPE, 1, 1)
    assert to_choice(TypeText("today"), SEEN, FULL, text.num_words) is None


def test_words_are_found_again_among_the_bytes() -> None:
    text = read_text(SEEN.instruction, 64)
    words = [
        bytes(text.byte_L[first : last + 1]).decode() for first, last in zip(text.first_I, text.last_I, strict=True)
    ]
    assert words == ["Text", "Zoë", "good", "luck", "today"]
    assert [int(text.word_L[first]) for first in text.first_I] == [1, 2, 3, 4, 5]
    assert text.word_L[4] == 0


def test_history_holds_what_was_done_and_where_and_never_the_text_of_an_element() -> None:
    recent = (
        Past(action=Tap(0.5, 0.5), target="Zoë"),
        Past(action=TypeText("good luck"), target="good luck", valid=False),
        Past(action=Press("back"), changed=False),
    )
    plain = Observation(instruction=SEEN.instruction, recent=recent)
    rows = read_past(plain, FULL, NUM_WORDS)
    assert not rows[: PAST - 3].any()
    tap, typed, back = rows[-3:].tolist()
    assert tap == [KINDS.index("tap") + 1, FULL.square_at(0.5, 0.5) + 1, 0, 0, 1, 1]
    assert typed == [TYPE + 1, 0, 3, 4, 0, 1]
    assert back == [KINDS.index("back") + 1, 0, 0, 0, 1, 0]
    other = Observation(instruction=SEEN.instruction, recent=(Past(action=Tap(0.5, 0.5), target="Ada"), *recent[1:]))
    assert (read_past(other, FULL, NUM_WORDS) == rows).all()


def test_any_history_can_be_read() -> None:
    odd = (Unparsed("?"), TypeText("never said"), Finish(answer="none"), Swipe(0, 0, 1, 1), Tap(7.0, -3.0))
    recent = tuple(Past(action=action) for action in odd * 5)
    rows = read_past(Observation(instruction="", recent=recent), FULL, 0)
    assert rows.shape[0] == PAST
    assert (rows[:, 0] > 0).all()

"""What the string-matching prior gives away: next to nothing, in every arena that methods are compared in."""

from __future__ import annotations

import pytest

from distrl.bench.learning.methods import ARENAS, FIRST, Arena
from distrl.bench.learning.string_matcher import act, score_string_matching
from distrl.types import Bounds, Finish, Observation, Tap, UiElement


@pytest.mark.parametrize("arena", [*ARENAS, FIRST], ids=lambda arena: arena.name)
def test_words_that_match_do_not_fulfil_the_tasks(arena: Arena) -> None:
    found = score_string_matching(arena, 120)
    assert found.fulfilled < 0.06
    assert 0.0 < found.right_steps < 0.6


def button(text: str, left: float) -> UiElement:
    return UiElement(text=text, bounds=Bounds(left, 0.0, left + 0.1, 0.1), clickable=True)


def test_the_matcher_taps_what_matches_best_and_then_claims_to_be_done() -> None:
    seen = Observation(instruction="Pin the note Jam labels", elements=(button("Tea", 0.1), button("Jam labels", 0.5)))
    assert act(seen) == Tap(*seen.elements[1].bounds.centre)
    assert act(Observation(instruction="Pin the note", elements=(button("Tea", 0.1),))) == Finish()

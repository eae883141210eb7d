"""The guard against NaN: single results are counted, too many are an error with the cause."""

from __future__ import annotations

import pytest
import torch

from distrl.errors import RoleCrashed
from distrl.policies.nonfinite import MAX_NONFINITE, SKIPPED_DECISION, WINDOW, NonFiniteGuard, skipped_counters
from distrl.types import Unparsed
from support.batches import tiny_policy
from support.pixels import tiny_pixels


def flags(*finite: bool) -> torch.Tensor:
    return torch.tensor(finite)


def test_skipped_results_are_counted_and_finite_ones_are_not() -> None:
    guard = NonFiniteGuard()
    guard.check(flags(True, False, True), "deciding")
    guard.check(flags(True), "deciding")
    guard.check(flags(False, False), "scoring")
    assert guard.skipped == 3


def test_an_empty_batch_is_no_reason_to_complain() -> None:
    guard = NonFiniteGuard()
    guard.check(torch.zeros(0, dtype=torch.bool), "deciding")
    assert guard.skipped == 0


def test_too_many_of_the_latest_results_end_the_role_with_what_to_lower() -> None:
    guard = NonFiniteGuard()
    guard.check(flags(*[False] * (MAX_NONFINITE - 1)), "scoring")
    with pytest.raises(
        RoleCrashed, match=rf"{MAX_NONFINITE} of the policy's last {MAX_NONFINITE} .* while scoring"
    ) as caught:
        guard.check(flags(False), "scoring")
    assert "learner.learning_rate" in caught.value.fix
    assert "policy.vlm.dtype = float32" in caught.value.fix


def test_results_that_are_long_past_do_not_count_against_a_policy() -> None:
    guard = NonFiniteGuard()
    for _ in range(20):
        guard.check(flags(*[False] * (MAX_NONFINITE - 1)), "deciding")
        guard.check(flags(*[True] * WINDOW), "deciding")
    assert guard.skipped == 20 * (MAX_NONFINITE - 1)


def test_half_of_a_long_stream_is_too_much_and_less_than_half_is_not() -> None:
    sparse = NonFiniteGuard()
    for number in range(20 * WINDOW):
        sparse.check(flags(number % 3 != 0), "deciding")
    dense = NonFiniteGuard()
    with pytest.raises(RoleCrashed):
        dense.check(flags(*(number % 2 != 0 for number in range(2 * WINDOW))), "deciding")


def test_a_skipped_decision_is_an_invalid_step_without_a_choice() -> None:
    assert isinstance(SKIPPED_DECISION.action, Unparsed)
    assert (SKIPPED_DECISION.choice, SKIPPED_DECISION.logp) == ((), 0.0)


def test_counters_are_there_for_every_policy_also_where_it_has_none() -> None:
    assert skipped_counters(tiny_policy()) == {"undecodable_frames": 0, "skipped": 0}
    pixels = tiny_pixels()
    pixels.nonfinite.skipped = 4
    assert skipped_counters(pixels) == {"undecodable_frames": 0, "skipped": 4}

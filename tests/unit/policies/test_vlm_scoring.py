"""Memory for activations: which micro-batches may keep theirs."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from distrl.policies.vlm.scoring import ActivationBudget, activation_budget_bytes


@given(st.lists(st.integers(0, 100), max_size=20), st.integers(0, 300))
def test_a_budget_is_never_overdrawn_and_serves_what_still_fits(sizes: list[int], total: int) -> None:
    budget, taken = ActivationBudget(total), 0
    for size in sizes:
        fits = taken + size <= total
        assert budget.take(size) is fits
        taken += size if fits else 0


def test_a_cpu_has_no_bound() -> None:
    budget = ActivationBudget(activation_budget_bytes(torch.device("cpu")))
    assert all(budget.take(1e15) for _ in range(10))


def test_without_recomputation_per_layer_nothing_is_kept() -> None:
    assert not ActivationBudget(0.0).take(1.0)

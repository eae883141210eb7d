"""The optimizer step: learning-rate schedule, gradient clip, and never along NaN."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from distrl.config.schema import LearnerConfig, RunConfig
from distrl.learner.update import PolicyOptimizer, budget_share


def an_optimizer(**settings: float) -> tuple[nn.Linear, PolicyOptimizer]:
    torch.manual_seed(0)
    policy = nn.Linear(4, 1)
    return policy, PolicyOptimizer(policy, nn.Linear(2, 1), LearnerConfig(learning_rate=0.1, **settings))  # type: ignore[arg-type]


def moved(optimizer: PolicyOptimizer, policy: nn.Linear, *, updates: int, used: float = 0.0) -> float:
    before = policy.weight.detach().clone()
    optimizer.step(policy(torch.ones(4)).sum(), updates=updates, used=used)
    return float((policy.weight.detach() - before).abs().max())


def test_the_learning_rate_is_full_from_the_start_without_warmup() -> None:
    _, optimizer = an_optimizer()
    assert [optimizer.rate(updates) for updates in (0, 1, 1000)] == [0.1, 0.1, 0.1]


def test_the_learning_rate_rises_in_even_steps_and_stays() -> None:
    _, optimizer = an_optimizer(warmup_updates=4)
    assert [optimizer.rate(updates) for updates in range(6)] == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])


def test_first_steps_are_as_short_as_the_rate_says_also_for_who_resumes_in_the_middle() -> None:
    for updates, share in ((0, 0.1), (4, 0.5), (9, 1.0)):
        policy, optimizer = an_optimizer(warmup_updates=10)
        # Of a fresh Adam, the first step is as long as the learning rate, whatever the gradient.
        assert moved(optimizer, policy, updates=updates) == pytest.approx(0.1 * share, rel=0.05)


def test_the_learning_rate_decays_to_0_over_the_last_share_of_the_budget() -> None:
    _, optimizer = an_optimizer(decay_share=0.5)
    used = (0.0, 0.5, 0.75, 1.0)
    assert [optimizer.rate(99, used=share) for share in used] == pytest.approx([0.1, 0.1, 0.05, 0.0])
    policy, optimizer = an_optimizer(decay_share=0.5)
    assert moved(optimizer, policy, updates=99, used=1.0) == 0.0
    assert an_optimizer()[1].rate(99, used=1.0) == 0.1


def test_a_budget_is_used_by_whichever_limit_is_nearer() -> None:
    def used(minutes: float, episodes: int) -> float:
        return budget_share(RunConfig(minutes=minutes, episodes=episodes), collected_s=60.0, episodes=30)

    assert (used(4.0, 0), used(0.0, 40), used(4.0, 40), used(0.0, 0)) == (0.25, 0.75, 0.75, 0.0)
    assert used(0.5, 0) == 1.0


def test_nan_is_skipped_before_it_reaches_the_weights_be_it_the_critics_alone() -> None:
    policy, optimizer, critic = *an_optimizer(), nn.Linear(2, 1)
    optimizer = PolicyOptimizer(policy, critic, LearnerConfig(learning_rate=0.1))
    before = policy.weight.detach().clone()
    loss = policy(torch.ones(4)).sum()
    assert optimizer.step(loss * float("nan"), updates=12) is None
    assert (
        optimizer.step(policy(torch.ones(4)).sum() + critic(torch.full((2,), float("inf"))).sum(), updates=13) is None
    )
    assert (optimizer.guard.skipped, torch.equal(policy.weight, before)) == (2, True)
    assert optimizer.step(policy(torch.ones(4)).sum(), updates=14) is not None


def test_the_norm_that_is_returned_is_that_before_the_clip() -> None:
    policy, optimizer = an_optimizer(gradient_clip=0.5)
    norm = optimizer.step(100 * policy(torch.ones(4)).sum(), updates=0)
    assert norm is not None
    assert norm > 100
    assert float(policy.weight.grad.norm()) <= 0.5  # type: ignore[union-attr]

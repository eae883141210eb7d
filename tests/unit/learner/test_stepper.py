"""Steps downhill: how fast, how far at most, and never on what is no number."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from distrl.config.schema import LearnerConfig, RunConfig
from distrl.learner.update import Stepper, share_spent


def a_stepper(**settings: float) -> tuple[nn.Linear, Stepper]:
    torch.manual_seed(0)
    policy = nn.Linear(4, 1)
    return policy, Stepper(policy, nn.Linear(2, 1), LearnerConfig(learning_rate=0.1, **settings))  # type: ignore[arg-type]


def moved(stepper: Stepper, policy: nn.Linear, *, updates: int, spent: float = 0.0) -> float:
    before = policy.weight.detach().clone()
    stepper.step(policy(torch.ones(4)).sum(), updates=updates, spent=spent)
    return float((policy.weight.detach() - before).abs().max())


def test_the_learning_rate_is_full_from_the_start_where_no_rise_is_asked_for() -> None:
    _, stepper = a_stepper()
    assert [stepper.rate(updates) for updates in (0, 1, 1000)] == [0.1, 0.1, 0.1]


def test_the_learning_rate_rises_in_even_steps_and_stays() -> None:
    _, stepper = a_stepper(rise_updates=4)
    assert [stepper.rate(updates) for updates in range(6)] == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])


def test_first_steps_are_as_short_as_the_rate_says_also_for_who_resumes_in_the_middle() -> None:
    for updates, share in ((0, 0.1), (4, 0.5), (9, 1.0)):
        policy, stepper = a_stepper(rise_updates=10)
        # Of a fresh Adam, the first step is as long as the learning rate, whatever the gradient.
        assert moved(stepper, policy, updates=updates) == pytest.approx(0.1 * share, rel=0.05)


def test_the_learning_rate_falls_to_nothing_over_the_last_share_of_the_budget() -> None:
    _, stepper = a_stepper(fall_share=0.5)
    spent = (0.0, 0.5, 0.75, 1.0)
    assert [stepper.rate(99, spent=share) for share in spent] == pytest.approx([0.1, 0.1, 0.05, 0.0])
    policy, stepper = a_stepper(fall_share=0.5)
    assert moved(stepper, policy, updates=99, spent=1.0) == 0.0
    assert a_stepper()[1].rate(99, spent=1.0) == 0.1


def test_a_budget_is_spent_by_whichever_limit_is_nearer() -> None:
    def spent(minutes: float, episodes: int) -> float:
        return share_spent(RunConfig(minutes=minutes, episodes=episodes), collected_s=60.0, episodes=30)

    assert (spent(4.0, 0), spent(0.0, 40), spent(4.0, 40), spent(0.0, 0)) == (0.25, 0.75, 0.75, 0.0)
    assert spent(0.5, 0) == 1.0


def test_what_is_no_number_is_left_out_before_it_reaches_the_weights_be_it_the_critics_alone() -> None:
    policy, stepper, critic = *a_stepper(), nn.Linear(2, 1)
    stepper = Stepper(policy, critic, LearnerConfig(learning_rate=0.1))
    before = policy.weight.detach().clone()
    loss = policy(torch.ones(4)).sum()
    assert stepper.step(loss * float("nan"), updates=12) is None
    assert stepper.step(policy(torch.ones(4)).sum() + critic(torch.full((2,), float("inf"))).sum(), updates=13) is None
    assert (stepper.steps.left_out, torch.equal(policy.weight, before)) == (2, True)
    assert stepper.step(policy(torch.ones(4)).sum(), updates=14) is not None


def test_the_norm_that_is_told_is_that_before_the_cut() -> None:
    policy, stepper = a_stepper(gradient_clip=0.5)
    norm = stepper.step(100 * policy(torch.ones(4)).sum(), updates=0)
    assert norm is not None
    assert norm > 100
    assert float(policy.weight.grad.norm()) <= 0.5  # type: ignore[union-attr]

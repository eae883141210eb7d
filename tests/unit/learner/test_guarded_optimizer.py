"""Optimizer steps that are taken, skipped and counted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from distrl.errors import OutOfMemory, RoleCrashed
from distrl.learner.update import MOST_IN_A_ROW, GuardedOptimizer

NAN, INF = float("nan"), float("inf")


def some_steps() -> tuple[nn.Linear, GuardedOptimizer]:
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, fused=True)
    return net, GuardedOptimizer(optimizer, [net.parameters()], clip=1.0, what="tries", fix="lower it")


def loss_of(net: nn.Linear, times: float = 1.0) -> Tensor:
    return net(torch.ones(4)).sum() * times


@pytest.mark.parametrize("times", [NAN, INF])
def test_a_step_along_nan_changes_neither_weights_nor_what_the_optimizer_remembers(times: float) -> None:
    (net, steps), (whole, others) = some_steps(), some_steps()
    for one, taken in ((net, steps), (whole, others)):
        taken.step(loss_of(one))
    steps.step(loss_of(net, times))
    assert torch.equal(net.weight, whole.weight)
    for one, taken in ((net, steps), (whole, others)):
        taken.step(loss_of(one))
    assert torch.equal(net.weight, whole.weight)
    steps.check()
    assert steps.skipped == 1


def test_a_nan_loss_is_skipped_though_its_gradient_is_finite() -> None:
    net, steps = some_steps()
    before = net.weight.detach().clone()
    steps.step(loss_of(net) + NAN)
    steps.check()
    assert net.weight.grad is not None
    assert bool(net.weight.grad.isfinite().all())
    assert (steps.skipped, torch.equal(net.weight, before)) == (1, True)


def diverge(net: nn.Linear, steps: GuardedOptimizer, *, check_every: int) -> None:
    """One good step and then as many others as are too many."""
    for number in range(1 + MOST_IN_A_ROW):
        steps.step(loss_of(net, NAN if number else 1.0))
        if (number + 1) % check_every == 0:
            steps.check()
    steps.check()


@pytest.mark.parametrize("check_every", [1, 7, 1000])
def test_many_in_a_row_are_an_error_with_the_cause_however_often_they_are_checked(check_every: int) -> None:
    net, steps = some_steps()
    with pytest.raises(RoleCrashed, match=f"last {MOST_IN_A_ROW} tries is NaN or infinite\n.*\ntry: lower it"):
        diverge(net, steps, check_every=check_every)
    assert bool(net.weight.isfinite().all())


def test_one_that_is_taken_begins_the_row_anew() -> None:
    net, steps = some_steps()
    for number in range(3 * MOST_IN_A_ROW):
        steps.step(loss_of(net, NAN if number % MOST_IN_A_ROW else 1.0))
    steps.end()
    assert steps.skipped == 3 * (MOST_IN_A_ROW - 1)


def test_a_step_that_ended_half_way_counts_with_the_others_and_the_next_one_is_whole() -> None:
    (net, steps), (whole, others) = some_steps(), some_steps()
    steps.optimizer.state[net.bias]["step"] = torch.zeros(())
    steps.skip(OutOfMemory("out of memory"))
    for one, taken in ((net, steps), (whole, others)):
        taken.step(loss_of(one))
    assert torch.equal(net.bias, whole.bias)
    for _ in range(MOST_IN_A_ROW // 2):
        steps.step(loss_of(net, NAN))
    steps.check()
    for _ in range(MOST_IN_A_ROW // 2 - 1):
        steps.skip(OutOfMemory("out of memory"))
    with pytest.raises(OutOfMemory, match="out of memory at all"):
        steps.skip(OutOfMemory("out of memory at all"))
    assert steps.skipped == 1 + MOST_IN_A_ROW


def test_an_end_without_a_single_step_is_an_error() -> None:
    net, steps = some_steps()
    steps.end()
    steps.step(loss_of(net, NAN))
    with pytest.raises(RoleCrashed, match="last 1 tries"):
        steps.end()

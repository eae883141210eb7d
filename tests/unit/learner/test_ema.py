"""A run ends with the average of the last updates' weights, and learning goes on from the weights themselves."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from distrl.errors import StoreError
from distrl.learner.update import EmaWeights, load_ema


def network(value: float = 0.0) -> nn.Linear:
    linear = nn.Linear(1, 1, bias=False)
    linear.weight.data.fill_(value)
    return linear


def update(ema: EmaWeights, linear: nn.Linear, values: list[float], *, first: int) -> None:
    for number, value in enumerate(values):
        linear.weight.data.fill_(value)
        ema.update(updates=first + number)


def average(ema: EmaWeights, linear: nn.Linear) -> float:
    with ema.swapped():
        return float(linear.weight.detach())


def test_the_average_moves_a_window_th_of_the_way_at_each_update() -> None:
    linear = network()
    ema = EmaWeights(linear, window=4)
    update(ema, linear, [0.0, 8.0, 8.0], first=1000)
    assert average(ema, linear) == pytest.approx(8 * (1 - 0.75**2))
    assert float(linear.weight.detach()) == 8.0, "the weights themselves come back"


def test_early_in_a_run_the_newest_weights_count_and_the_window_grows() -> None:
    linear = network()
    ema = EmaWeights(linear, window=100)
    update(ema, linear, [1.0, 5.0, 3.0], first=1)
    assert average(ema, linear) == 3.0
    update(ema, linear, [7.0], first=20)
    assert average(ema, linear) == pytest.approx(3.0 + (7.0 - 3.0) / 4)


def test_before_any_update_and_switched_off_there_is_nothing_to_average() -> None:
    linear = network(2.0)
    ema, off = EmaWeights(linear, window=100), EmaWeights(linear, window=0)
    update(off, linear, [1.0, 4.0], first=1000)
    assert (average(ema, linear), average(off, linear)) == (4.0, 4.0)
    assert (ema.dump(), off.dump()) == (b"", b"")


def test_an_optimizer_goes_on_with_the_weights_and_not_with_the_average() -> None:
    linear = network(1.0)
    ema, optimizer = EmaWeights(linear, window=10), torch.optim.SGD(linear.parameters(), lr=0.5)
    for updates in range(100, 104):
        linear(torch.ones(1, 1)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        ema.update(updates=updates)
    assert average(ema, linear) > float(linear.weight.detach())
    assert float(linear.weight.detach()) == pytest.approx(-1.0)


def test_an_average_survives_a_kill() -> None:
    linear = network()
    ema = EmaWeights(linear, window=4)
    update(ema, linear, [0.0, 8.0], first=1000)
    again = EmaWeights(linear, window=4)
    again.restore(ema.dump())
    for one in (ema, again):
        update(one, linear, [8.0], first=1002)
    assert average(again, linear) == average(ema, linear)
    other = network()
    load_ema(other, ema.dump())
    assert float(other.weight.detach()) == average(ema, linear)
    load_ema(other, b"")
    assert float(other.weight.detach()) == average(ema, linear)


def test_a_restored_average_follows_the_weights_it_belongs_to_whatever_their_names() -> None:
    pair = nn.ModuleDict({"second": nn.Linear(2, 1), "first": nn.Linear(3, 1)})
    ema, again = EmaWeights(pair, window=4), EmaWeights(pair, window=4)
    ema.update(updates=1000)
    again.restore(ema.dump())
    again.update(updates=1001)
    assert again.dump() == ema.dump()


def test_the_average_of_another_policy_is_refused() -> None:
    linear, wide = network(), nn.Linear(3, 1, bias=False)
    ema = EmaWeights(wide, window=4)
    ema.update(updates=1000)
    with pytest.raises(StoreError, match="fit another policy"):
        EmaWeights(linear, window=4).restore(ema.dump())


def test_frozen_weights_are_left_alone() -> None:
    linear = network(1.0)
    linear.weight.requires_grad_(False)
    ema = EmaWeights(linear, window=4)
    update(ema, linear, [1.0, 9.0], first=1000)
    assert average(ema, linear) == 9.0

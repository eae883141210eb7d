"""A run ends with the average of the last updates' weights, and learning goes on from the weights themselves."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from distrl.errors import StoreError
from distrl.learner.update import Averaging, put_average


def network(value: float = 0.0) -> nn.Linear:
    linear = nn.Linear(1, 1, bias=False)
    linear.weight.data.fill_(value)
    return linear


def follow(averaging: Averaging, linear: nn.Linear, values: list[float], *, first: int) -> None:
    for number, value in enumerate(values):
        linear.weight.data.fill_(value)
        averaging.follow(updates=first + number)


def shown(averaging: Averaging, linear: nn.Linear) -> float:
    with averaging.shown():
        return float(linear.weight.detach())


def test_the_average_moves_a_window_th_of_the_way_at_each_update() -> None:
    linear = network()
    averaging = Averaging(linear, window=4)
    follow(averaging, linear, [0.0, 8.0, 8.0], first=1000)
    assert shown(averaging, linear) == pytest.approx(8 * (1 - 0.75**2))
    assert float(linear.weight.detach()) == 8.0, "the weights themselves come back"


def test_early_in_a_run_the_newest_weights_count_and_the_window_grows() -> None:
    linear = network()
    averaging = Averaging(linear, window=100)
    follow(averaging, linear, [1.0, 5.0, 3.0], first=1)
    assert shown(averaging, linear) == 3.0
    follow(averaging, linear, [7.0], first=20)
    assert shown(averaging, linear) == pytest.approx(3.0 + (7.0 - 3.0) / 4)


def test_before_any_update_and_switched_off_there_is_nothing_to_average() -> None:
    linear = network(2.0)
    averaging, off = Averaging(linear, window=100), Averaging(linear, window=0)
    follow(off, linear, [1.0, 4.0], first=1000)
    assert (shown(averaging, linear), shown(off, linear)) == (4.0, 4.0)
    assert (averaging.dump(), off.dump()) == (b"", b"")


def test_an_optimizer_goes_on_with_the_weights_and_not_with_the_average() -> None:
    linear = network(1.0)
    averaging, optimizer = Averaging(linear, window=10), torch.optim.SGD(linear.parameters(), lr=0.5)
    for updates in range(100, 104):
        linear(torch.ones(1, 1)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        averaging.follow(updates=updates)
    assert shown(averaging, linear) > float(linear.weight.detach())
    assert float(linear.weight.detach()) == pytest.approx(-1.0)


def test_an_average_survives_a_kill() -> None:
    linear = network()
    averaging = Averaging(linear, window=4)
    follow(averaging, linear, [0.0, 8.0], first=1000)
    again = Averaging(linear, window=4)
    again.restore(averaging.dump())
    for one in (averaging, again):
        follow(one, linear, [8.0], first=1002)
    assert shown(again, linear) == shown(averaging, linear)
    other = network()
    put_average(other, averaging.dump())
    assert float(other.weight.detach()) == shown(averaging, linear)
    put_average(other, b"")
    assert float(other.weight.detach()) == shown(averaging, linear)


def test_a_restored_average_follows_the_weights_it_belongs_to_whatever_their_names() -> None:
    pair = nn.ModuleDict({"second": nn.Linear(2, 1), "first": nn.Linear(3, 1)})
    averaging, again = Averaging(pair, window=4), Averaging(pair, window=4)
    averaging.follow(updates=1000)
    again.restore(averaging.dump())
    again.follow(updates=1001)
    assert again.dump() == averaging.dump()


def test_the_average_of_another_policy_is_refused() -> None:
    linear, wide = network(), nn.Linear(3, 1, bias=False)
    averaging = Averaging(wide, window=4)
    averaging.follow(updates=1000)
    with pytest.raises(StoreError, match="fit another policy"):
        Averaging(linear, window=4).restore(averaging.dump())


def test_frozen_weights_are_left_alone() -> None:
    linear = network(1.0)
    linear.weight.requires_grad_(False)
    averaging = Averaging(linear, window=4)
    follow(averaging, linear, [1.0, 9.0], first=1000)
    assert shown(averaging, linear) == 9.0

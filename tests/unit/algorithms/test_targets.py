from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from distrl.algorithms.targets import ReturnInputs, Targets, retrace

Row = tuple[list[float], list[float], list[float], float]
"""Values, rewards, ratios and the bootstrap of one trajectory."""

number = st.floats(-1.0, 1.0, width=32)
share = st.floats(0.0, 1.0, width=32)
step = st.tuples(share, number, st.floats(0.0, 4.0, width=32))


@st.composite
def a_row(draw: st.DrawFn) -> Row:
    values, rewards, ratios = zip(*draw(st.lists(step, min_size=1, max_size=7)), strict=True)
    return list(values), list(rewards), list(ratios), draw(share)


def double(rows: list[list[float]], filling: float) -> Tensor:
    parts = [torch.tensor(row, dtype=torch.float64) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=filling)


def inputs(rows: list[Row], filling: float = 0.0) -> ReturnInputs:
    """Rows side by side; `filling` stands where there is no step."""
    return ReturnInputs(
        value_BT=double([row[0] for row in rows], filling),
        reward_BT=double([row[1] for row in rows], filling),
        ratio_BT=double([row[2] for row in rows], filling),
        bootstrap_B=torch.tensor([row[3] for row in rows], dtype=torch.float64),
        mask_BT=double([[1.0] * len(row[0]) for row in rows], 0.0).bool(),
    )


def by_hand(row: Row, *, gamma: float, lambda_: float, rho_max: float) -> tuple[list[float], list[float], list[float]]:
    """The equations of the page, one step at a time, from the end."""
    values, rewards, ratios, bootstrap = row
    td, targets, advantages = [], [], []
    next_value = next_target = bootstrap
    for value, reward, ratio in zip(reversed(values), reversed(rewards), reversed(ratios), strict=True):
        error = reward + gamma * next_value - value
        cut = lambda_ * min(1.0, ratio)
        target = value + min(rho_max, ratio) * error + gamma * cut * (next_target - next_value)
        td.append(error)
        advantages.append(reward + gamma * next_target - value)
        targets.append(target)
        next_value, next_target = value, target
    return td[::-1], targets[::-1], advantages[::-1]


def columns(found: Targets, row: int, length: int) -> tuple[list[float], ...]:
    return tuple(part[row, :length].tolist() for part in (found.td_BT, found.value_BT, found.advantage_BT))


VECTORS = {
    "terminal, off-policy": (
        ([0.2, 0.4, 0.6], [0.0, 0.0, 1.0], [0.5, 2.0, 1.0], 0.0),
        (0.9, 1.0),
        ([0.16, 0.14, 0.4], [0.505, 0.9, 1.0], [0.61, 0.5, 0.4]),
    ),
    "truncated, bootstrapped": (
        ([0.2, 0.4, 0.6], [0.0, -0.1, 0.0], [0.5, 2.0, 0.25], 0.5),
        (0.9, 0.95),
        ([0.16, 0.04, -0.15], [0.283393, 0.407938, 0.5625], [0.167144, 0.00625, -0.15]),
    ),
    "on-policy": (
        ([0.5, 0.5], [0.0, 1.0], [1.0, 1.0], 0.0),
        (1.0, 1.0),
        ([0.0, 0.5], [1.0, 1.0], [0.5, 0.5]),
    ),
}


@pytest.mark.parametrize("name", VECTORS)
def test_the_three_vectors_of_the_page_come_out_to_six_decimals(name: str) -> None:
    row, (gamma, lambda_), expected = VECTORS[name]
    found = retrace(inputs([row]), gamma=gamma, lambda_=lambda_, rho_max=1.0)
    for got, wanted in zip(columns(found, 0, len(row[0])), expected, strict=True):
        assert got == pytest.approx(wanted, abs=5e-7)


@given(rows=st.lists(a_row(), min_size=1, max_size=4), gamma=share, lambda_=share, rho_max=st.floats(0.25, 3.0))
@settings(max_examples=80, deadline=None)
def test_a_padded_batch_agrees_with_the_equations_done_by_hand_on_each_trajectory(
    rows: list[Row], gamma: float, lambda_: float, rho_max: float
) -> None:
    found = retrace(inputs(rows), gamma=gamma, lambda_=lambda_, rho_max=rho_max)
    for index, row in enumerate(rows):
        expected = by_hand(row, gamma=gamma, lambda_=lambda_, rho_max=rho_max)
        for got, wanted in zip(columns(found, index, len(row[0])), expected, strict=True):
            assert got == pytest.approx(wanted, abs=1e-9)


@given(rows=st.lists(a_row(), min_size=2, max_size=4), rubbish=number)
@settings(max_examples=50, deadline=None)
def test_no_target_reaches_over_the_end_of_its_own_trajectory(rows: list[Row], rubbish: float) -> None:
    together = retrace(inputs(rows, filling=rubbish), gamma=0.9, lambda_=0.95, rho_max=1.0)
    for index, row in enumerate(rows):
        alone = retrace(inputs([row]), gamma=0.9, lambda_=0.95, rho_max=1.0)
        assert columns(together, index, len(row[0])) == columns(alone, 0, len(row[0]))
        for part in (together.td_BT, together.value_BT, together.advantage_BT):
            assert not part[index, len(row[0]) :].any()


@given(row=a_row(), gamma=share)
@settings(max_examples=50, deadline=None)
def test_on_policy_with_a_full_trace_the_target_is_the_discounted_return(row: Row, gamma: float) -> None:
    values, rewards, _, bootstrap = row
    found = retrace(inputs([(values, rewards, [1.0] * len(values), bootstrap)]), gamma=gamma, lambda_=1.0, rho_max=1.0)
    returns, ahead = [], bootstrap
    for reward in reversed(rewards):
        ahead = reward + gamma * ahead
        returns.append(ahead)
    assert found.value_BT[0].tolist() == pytest.approx(returns[::-1], abs=1e-9)


@given(row=a_row())
@settings(max_examples=30, deadline=None)
def test_the_last_step_looks_at_the_bootstrap_and_at_nothing_else(row: Row) -> None:
    values, rewards, ratios, bootstrap = row
    terminal = retrace(inputs([(values, rewards, ratios, 0.0)]), gamma=0.9, lambda_=1.0, rho_max=1.0)
    cut_off = retrace(inputs([row]), gamma=0.9, lambda_=1.0, rho_max=1.0)
    assert float(terminal.td_BT[0, -1]) == pytest.approx(rewards[-1] - values[-1])
    assert float(cut_off.td_BT[0, -1]) == pytest.approx(rewards[-1] + 0.9 * bootstrap - values[-1])
    assert float(cut_off.advantage_BT[0, -1]) == pytest.approx(float(cut_off.td_BT[0, -1]))


def test_targets_carry_no_gradient() -> None:
    given_course = inputs([([0.2, 0.4], [0.0, 1.0], [1.0, 0.5], 0.0)])
    given_course.value_BT.requires_grad_()
    found = retrace(given_course, gamma=0.9, lambda_=1.0, rho_max=1.0)
    assert not any(part.requires_grad for part in (found.td_BT, found.value_BT, found.advantage_BT))

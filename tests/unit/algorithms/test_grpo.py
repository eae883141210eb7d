"""GRPO: advantages from the other attempts at a task."""

from __future__ import annotations

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from distrl.algorithms.base import AlgorithmContext, Loss
from distrl.algorithms.batch import Groups, TrainBatch
from distrl.algorithms.grpo import GRPO, group_advantage
from distrl.config.kinds import GRPOConfig
from support.batches import Drawn, gradient, train_batch

PLAIN = GRPOConfig(rho_max=2.0, value_weight=0.5, entropy_weight=0.1)
QUARTER = (0.25, 0.1875**0.5)
"""One success in four."""
SUCCESS = Drawn(reward=[0.0, 1.0], value=[0.5, 0.5], success=True, group=QUARTER)
FAILURE = Drawn(reward=[0.0, 0.0, 0.0], value=[0.5] * 3, group=QUARTER)
ALONE = Drawn(reward=[0.0, 1.0], value=[0.5, 0.5], success=True, group=(1.0, 0.0))
UNGROUPED = Drawn(reward=[0.0, 1.0], value=[0.5, 0.5], success=True, group=(0.0, 0.0))
"""Of a task whose attempts are no longer, or not yet, remembered."""


def learn(batch: TrainBatch, config: GRPOConfig = PLAIN) -> Loss:
    loss = GRPO(config, AlgorithmContext()).loss(batch, updates=0)
    loss.total.backward()  # type: ignore[no-untyped-call]
    return loss


def test_the_advantage_is_the_distance_from_the_group_in_deviations() -> None:
    advantage = group_advantage(train_batch(SUCCESS, FAILURE))
    assert advantage.tolist() == pytest.approx([3**0.5, -(3**-0.5)], rel=1e-3)


def test_every_step_of_an_episode_gets_the_same_and_the_mean_is_over_all_compared_steps() -> None:
    batch = train_batch(SUCCESS, FAILURE, ALONE)
    learn(batch)
    credit = -gradient(batch.logp_BT) * 5
    assert credit[0].tolist() == pytest.approx([3**0.5, 3**0.5, 0.0], rel=1e-3)
    assert credit[1].tolist() == pytest.approx([-(3**-0.5)] * 3, rel=1e-3)


def test_an_episode_without_siblings_or_spread_moves_the_policy_nowhere_and_still_trains_the_critic() -> None:
    batch = train_batch(SUCCESS, ALONE, SUCCESS, UNGROUPED)
    loss = learn(batch)
    for row in (1, 3):
        assert not gradient(batch.logp_BT)[row].any()
        assert not gradient(batch.entropy_BT)[row].any()
        assert gradient(batch.value_logit_BT)[row].all()
    assert loss.metrics["compared_share"] == 0.5


@given(num=st.integers(1, 6), outcome=st.booleans(), ratio=st.floats(0.2, 3.0))
def test_a_group_whose_attempts_went_alike_gives_no_policy_gradient(num: int, outcome: bool, ratio: float) -> None:
    groups = Groups(8)
    for _ in range(num):
        groups.add("task", outcome)
    row = Drawn(reward=[0.0, 0.0], value=[0.4, 0.4], ratio=[ratio] * 2, success=outcome, group=groups.spread("task"))
    batch = train_batch(*[row] * num)
    learn(batch)
    assert not gradient(batch.logp_BT).any()
    assert not gradient(batch.entropy_BT).any()


def test_the_clip_and_the_correction_for_age_are_those_of_ppo() -> None:
    strayed = msgspec.structs.replace(SUCCESS, strayed=[1.3, 0.9], ratio=[1.3, 0.9 * 0.5])
    batch = train_batch(strayed)
    learn(batch)
    expected = [0.0, -(3**0.5) * 0.9 * 0.5 / 2]
    assert gradient(batch.logp_BT)[0].tolist() == pytest.approx(expected, rel=1e-3)


def test_a_step_outside_the_trust_region_is_driven_no_further_whichever_way_its_episode_went() -> None:
    went = {"ratio": [1.5, 0.5], "reward": [0.0, 0.0], "value": [0.5, 0.5]}
    won, lost = (msgspec.structs.replace(drawn, **went) for drawn in (SUCCESS, FAILURE))
    batch = train_batch(won, lost)
    loss = learn(batch, msgspec.structs.replace(PLAIN, trust_region=0.2))
    assert loss.metrics["trust_region_share"] == 0.5
    moved = gradient(batch.logp_BT) != 0.0
    assert moved.tolist() == [[False, True], [True, False]]


def test_the_critic_learns_the_outcome_and_the_policy_term_does_not_reach_it() -> None:
    batch = train_batch(SUCCESS, FAILURE)
    loss = learn(batch)
    got = gradient(batch.value_logit_BT)[batch.mask_BT]
    assert got.tolist() == pytest.approx([-0.05] * 2 + [0.05] * 3, abs=1e-6)
    assert loss.td_BT[batch.mask_BT].tolist() == pytest.approx([0.5] * 2 + [-0.5] * 3)


def test_only_steps_in_the_policy_mask_move_the_policy_and_only_those_in_the_value_mask_the_critic() -> None:
    batch = train_batch(msgspec.structs.replace(SUCCESS, policy_mask=[False, True], value_mask=[True, False]), FAILURE)
    learn(batch)
    assert (gradient(batch.logp_BT)[0] != 0).tolist() == [False, True, False]
    assert (gradient(batch.value_logit_BT)[0] != 0).tolist() == [True, False, False]


# --- groups ---------------------------------------------------------------------------------------------------------


def test_a_group_is_what_has_arrived_of_the_latest_attempts() -> None:
    groups = Groups(4)
    assert groups.spread("a") == (0.0, 0.0)
    for success in (True, False, False):
        groups.add("a", success)
    assert groups.spread("a") == pytest.approx((1 / 3, (2 / 9) ** 0.5))
    for success in (True, True):
        groups.add("a", success)
    assert groups.spread("a") == pytest.approx((0.5, 0.5)), "the first success has made room"
    groups.add("b", True)
    assert groups.spread("b") == (1.0, 0.0)
    assert groups.spread("a") == pytest.approx((0.5, 0.5))


def test_where_tasks_are_not_repeated_in_a_row_an_attempt_is_compared_with_the_one_before() -> None:
    groups = Groups(1)
    groups.add("a", True)
    groups.add("a", False)
    assert groups.spread("a") == (0.5, 0.5)


def test_the_task_that_has_been_quiet_the_longest_is_forgotten_first() -> None:
    groups = Groups(2, max_tasks=2)
    for task in ("a", "b", "a", "c"):
        groups.add(task, True)
    assert len(groups) == 2
    assert [groups.spread(task)[0] for task in "abc"] == [1.0, 0.0, 1.0]


@given(st.lists(st.booleans(), min_size=1, max_size=8))
def test_mean_and_deviation_are_those_of_the_outcomes(outcomes: list[bool]) -> None:
    groups = Groups(8)
    for success in outcomes:
        groups.add("a", success)
    values = torch.tensor(outcomes, dtype=torch.float64)
    expected = (float(values.mean()), float(values.std(unbiased=False)))
    assert groups.spread("a") == pytest.approx(expected)

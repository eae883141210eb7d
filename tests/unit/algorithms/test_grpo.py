"""GRPO: advantages from the other attempts at a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from distrl.algorithms.base import AlgorithmContext, Loss
from distrl.algorithms.batch import Episode, Groups, TrainBatch
from distrl.algorithms.grpo import GRPO, group_advantage
from distrl.config.kinds import GRPOConfig
from distrl.config.schema import ReplayConfig
from distrl.experience.replay import Replay
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


# --- batches of whole groups ----------------------------------------------------------------------------------------

WHOLE = msgspec.structs.replace(PLAIN, whole_groups=True)


def attempt(task: str, number: int, *, success: bool, known: bool = True, example: bool = False) -> Episode:
    """An attempt at a task of which nothing is known but how it ended."""
    none = np.zeros(1, np.float32)
    return Episode(
        id=f"{task}-{number}", task=task, template="t", instruction="do it", version=0, success=success, known=known,
        terminal=True, encoded=(None,), choices=((0,),), logp_T=none, reward_T=none, device_reward_T=none,
        valid_T=none > -1,
        changed_T=none > -1, policy_mask_T=none > -1, last_value=0.0, example=example,
    )  # fmt: skip


def filled(episodes: Iterable[Episode], seed: int = 0) -> Replay[Episode]:
    replay = Replay[Episode](ReplayConfig(capacity_steps=1000), np.random.default_rng(seed))
    for one in episodes:
        replay.add(one.id, one, steps=1, version=one.version, success=one.success, priority=1.0)
    return replay


def mixed(tasks: int, size: int) -> list[Episode]:
    """Attempts at several tasks in turn, as they arrive; the first attempt at each succeeds."""
    return [attempt(f"task{task}", n, success=n == 0) for n in range(size) for task in range(tasks)]


def drawn(replay: Replay[Episode], count: int, config: GRPOConfig = WHOLE, size: int = 4) -> list[Episode]:
    return [one.item for one in GRPO(config, AlgorithmContext(group_size=size)).sample(replay, count)]


def test_a_batch_of_whole_groups_has_every_attempt_at_each_of_its_tasks_once_and_weighs_them_alike() -> None:
    replay = filled(mixed(tasks=9, size=4))
    for _ in range(5):
        samples = GRPO(WHOLE, AlgorithmContext(group_size=4)).sample(replay, 15)
        assert Counter(Counter(one.item.task for one in samples).values()) == {4: 3}
        assert len({one.id for one in samples}) == 12
        assert {one.weight for one in samples} == {1.0}


def test_groups_are_drawn_at_random_by_the_generator_of_the_replay() -> None:
    first, again = (filled(mixed(tasks=9, size=4), seed=3) for _ in range(2))
    batches = [{one.task for one in drawn(first, 4)} for _ in range(30)]
    assert len(set.union(*batches)) == 9
    assert batches == [{one.task for one in drawn(again, 4)} for _ in range(30)]


def test_a_group_without_spread_or_with_unknown_outcomes_alone_is_not_drawn() -> None:
    replay = filled(
        [
            *mixed(tasks=1, size=2),
            *(attempt("won", n, success=True) for n in range(4)),
            *(attempt("lost", n, success=False) for n in range(4)),
            *(attempt("unknown", n, success=n == 0, known=n == 0) for n in range(4)),
            *(attempt("shown", n, success=n == 0, example=n == 0) for n in range(4)),
        ]
    )
    assert {one.id for one in drawn(replay, 50)} == {"task0-0", "task0-1"}


def test_the_latest_attempts_form_the_group_and_one_that_is_larger_than_a_batch_is_taken_whole() -> None:
    replay = filled([attempt("task", n, success=n % 2 == 0) for n in range(10)])
    assert [one.id for one in drawn(replay, 2)] == [f"task-{n}" for n in (6, 7, 8, 9)]


def test_without_a_group_that_has_spread_and_without_the_setting_single_episodes_are_drawn_by_priority() -> None:
    none = [attempt(f"task{n}", 0, success=False) for n in range(6)]
    assert [one.id for one in drawn(filled(none), 5)] == [one.id for one in filled(none).sample(5)]
    some = mixed(tasks=3, size=4)
    assert [one.id for one in drawn(filled(some), 5, PLAIN)] == [one.id for one in filled(some).sample(5)]

"""The laboratory: a whole training in one process, small enough to be over in a moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from distrl.bench.lab import Lab, Plan, Point, warm_start
from distrl.config.schema import Config, DataConfig
from distrl.evaluation.evaluate import held_out
from distrl.policies.base import Policy
from distrl.runtime.assembly import make_policy
from distrl.types import PolicyVersion, Trajectory
from support.learners import small_config

CHUNK, NUM_EPISODES, NUM_HELD_OUT = 8, 32, 6
SETTINGS: dict[str, dict[str, object]] = {
    "tasks": {"suite": "sim-start"},
    "warm_start": {"demonstrations": 8, "epochs": 1},
    "replay": {"capacity_steps": 4000},
    "learner": {"batch_trajectories": 4, "first_update_episodes": 16, "updates_per_episode": 0.25},
}
CONFIG = small_config(**SETTINGS)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As the roles do: on so small a network a second thread costs more than it brings."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained(*, lag: int, evaluate_every: int = 0, config: Config = CONFIG) -> tuple[Lab, list[Point], list[Point]]:
    """A laboratory after its training, what it returned and what it told on the way."""
    plan = Plan(config=config, episodes=NUM_EPISODES, chunk=CHUNK, lag=lag, evaluate_every=evaluate_every)
    lab, told = Lab(plan, held_out(config, NUM_HELD_OUT)), list[Point]()
    return lab, lab.run(told.append), told


def acting_versions(lab: Lab) -> list[int]:
    """The version that played each chunk."""
    rows = lab._memory.after(0, NUM_EPISODES + 1)
    assert len({row.id for row in rows}) == len(rows) == NUM_EPISODES
    chunks = [{row.version for row in rows[start : start + CHUNK]} for start in range(0, NUM_EPISODES, CHUNK)]
    assert all(len(versions) == 1 for versions in chunks)
    return [versions.pop() for versions in chunks]


def test_it_plays_learns_and_evaluates_at_the_start_and_at_the_end() -> None:
    lab, points, told = trained(lag=2)
    start, end = points
    assert told == points
    assert (start.episodes, start.updates, start.losses) == (0, 0, {})
    assert (end.episodes, end.updates) == (NUM_EPISODES, NUM_EPISODES // 4)
    assert {"policy", "value", "entropy", "invalid", "total", "gradient_norm"} <= end.losses.keys()
    assert 0.0 < start.wall_s < end.wall_s
    for point in points:
        assert point.success * NUM_HELD_OUT == pytest.approx(round(point.success * NUM_HELD_OUT))
    successes = sum(row.success for row in lab._memory.after(0, NUM_EPISODES))
    assert end.train_success == successes / NUM_EPISODES


def test_it_evaluates_on_the_way_where_asked() -> None:
    _, points, told = trained(lag=0, evaluate_every=16)
    assert [point.episodes for point in told] == [point.episodes for point in points] == [0, 16, 32]
    assert [point.updates for point in points] == [0, 4, 8]


@pytest.mark.parametrize("lag", [0, 1, 8])
def test_every_episode_arrives_as_old_as_the_lag_even_the_first(lag: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(Plan(config=CONFIG, episodes=NUM_EPISODES, chunk=CHUNK, lag=lag), held_out(CONFIG, NUM_HELD_OUT))
    add, ages = lab._memory.add, list[int]()

    def note_age(trajectory: Trajectory) -> None:
        ages.append(lab._learner.version - trajectory.version)
        add(trajectory)

    monkeypatch.setattr(lab._memory, "add", note_age)
    lab.run(lambda point: None)
    assert ages == [lag] * NUM_EPISODES
    assert acting_versions(lab) == [0, 1, 2, 3]


def test_the_acting_policy_has_the_weights_of_the_version_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    published = dict[int, bytes]()
    lab = Lab(Plan(config=CONFIG, episodes=NUM_EPISODES, chunk=CHUNK, lag=1), held_out(CONFIG, NUM_HELD_OUT))
    publish = lab._versions.publish

    def keep(policy: Policy[Any], version: PolicyVersion) -> PolicyVersion:
        published[version.version] = policy.dump()
        return publish(policy, version)

    monkeypatch.setattr(lab._versions, "publish", keep)
    lab.run(lambda point: None)
    assert list(published) == [0, 1, 2, 3, 4, 5]
    assert published[0] == published[1] == published[2], "the first chunk is too small for an update"
    assert len(set(published.values())) == 4
    assert lab._actor.dump() == published[acting_versions(lab)[-1]] == published[3]
    assert lab.policy.dump() == published[5]


@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize("name", ["digirl", "filtered_bc", "grpo", "ppo"])
def test_every_algorithm_trains(name: str, lag: int) -> None:
    config = small_config(**SETTINGS, algorithm={"name": name}, rollout={"group_size": 4})
    lab = Lab(Plan(config=config, episodes=NUM_EPISODES, chunk=CHUNK, lag=lag), held_out(config, NUM_HELD_OUT))
    end = lab.run(lambda point: None)[-1]
    tasks = [row.task for row in lab._memory.after(0, NUM_EPISODES)]
    assert len(set(tasks)) == NUM_EPISODES // 4
    assert end.updates == NUM_EPISODES // 4
    assert {"policy", "value", "entropy", "total", "gradient_norm"} <= end.losses.keys()
    weights = dict(lab._versions.held)
    assert lab.policy.dump() == weights[max(weights)]
    assert len(set(weights.values())) == lag + 1


def test_a_warm_start_changes_the_policy_and_no_demonstrations_leave_it_alone() -> None:
    policy = make_policy(CONFIG)
    fresh = policy.dump()
    warm_start(policy, small_config(warm_start={"demonstrations": 0}))
    assert policy.dump() == fresh
    warm_start(policy, CONFIG)
    assert policy.dump() != fresh


def test_the_data_options_reach_the_replay_and_change_no_count() -> None:
    start = replace(CONFIG.warm_start, keep=True)
    config = replace(CONFIG, warm_start=start, data=DataConfig(cut=True, hindsight=True))
    lab, points, _ = trained(lag=0, config=config)
    plain, before, _ = trained(lag=0)
    learner, without = lab._learner, plain._learner
    assert [point.updates for point in points] == [point.updates for point in before]
    assert (learner.episodes, learner.cursor) == (without.episodes, without.cursor) == (NUM_EPISODES, NUM_EPISODES)
    assert learner._parts.fitting is not None
    assert without._parts.fitting is None
    shown = [id for id in learner.replay.priorities() if id.startswith("demonstration-")]
    renamed = [id for id in learner.replay.priorities() if id.endswith("+hindsight")]
    assert len(shown) == 8
    assert len(renamed) == learner.data.relabelled
    assert len(learner.replay) == NUM_EPISODES + len(shown) + len(renamed)

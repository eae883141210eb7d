"""The single-process trainer: whole trainings, small enough to take seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from distrl.bench.learning.single_process import Plan, Point, SingleProcessTrainer, warm_start
from distrl.config.schema import Config, DataConfig
from distrl.policies.base import Policy
from distrl.runtime.factory import make_policy
from distrl.tasks.base import held_out
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


def trained(
    *, lag: int, evaluate_every: int = 0, config: Config = CONFIG
) -> tuple[SingleProcessTrainer, list[Point], list[Point]]:
    """A trainer after its training, what it returned and what it reported on the way."""
    plan = Plan(config=config, episodes=NUM_EPISODES, chunk=CHUNK, lag=lag, evaluate_every=evaluate_every)
    trainer, reported = SingleProcessTrainer(plan, held_out(config.tasks, NUM_HELD_OUT)), list[Point]()
    return trainer, trainer.run(reported.append), reported


def acting_versions(trainer: SingleProcessTrainer) -> list[int]:
    """The version that played each chunk."""
    rows = trainer._transport.episodes.after(0, NUM_EPISODES + 1)
    assert len({row.id for row in rows}) == len(rows) == NUM_EPISODES
    chunks = [{row.version for row in rows[start : start + CHUNK]} for start in range(0, NUM_EPISODES, CHUNK)]
    assert all(len(versions) == 1 for versions in chunks)
    return [versions.pop() for versions in chunks]


def published(trainer: SingleProcessTrainer) -> list[bytes]:
    """The weights of the versions that are kept, oldest first."""
    weights, policy = trainer._transport.weights, make_policy(CONFIG)
    oldest, newest = weights.oldest(), weights.latest()
    assert oldest is not None
    assert newest is not None
    found = []
    for number in range(oldest.version, newest.version + 1):
        version = weights.find(number)
        assert version is not None
        weights.load(policy, version)
        found.append(policy.dump())
    return found


def test_it_plays_learns_and_evaluates_at_the_start_and_at_the_end() -> None:
    trainer, points, reported = trained(lag=2)
    start, end = points
    assert reported == points
    assert (start.episodes, start.updates, start.losses) == (0, 0, {})
    assert (end.episodes, end.updates) == (NUM_EPISODES, NUM_EPISODES // 4)
    assert {"policy", "value", "entropy", "invalid", "total", "gradient_norm"} <= end.losses.keys()
    assert 0.0 < start.wall_s < end.wall_s
    for point in points:
        assert point.success * NUM_HELD_OUT == pytest.approx(round(point.success * NUM_HELD_OUT))
    successes = sum(row.success for row in trainer._transport.episodes.after(0, NUM_EPISODES))
    assert end.train_success == successes / NUM_EPISODES


def test_it_evaluates_on_the_way_where_asked() -> None:
    _, points, reported = trained(lag=0, evaluate_every=16)
    assert [point.episodes for point in reported] == [point.episodes for point in points] == [0, 16, 32]
    assert [point.updates for point in points] == [0, 4, 8]


@pytest.mark.parametrize("lag", [0, 1, 8])
def test_every_episode_arrives_as_old_as_the_lag_even_the_first(lag: int, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = SingleProcessTrainer(
        Plan(config=CONFIG, episodes=NUM_EPISODES, chunk=CHUNK, lag=lag), held_out(CONFIG.tasks, NUM_HELD_OUT)
    )
    episodes, ages = trainer._transport.episodes, list[int]()
    add = episodes.add

    def note_age(trajectory: Trajectory) -> int:
        ages.append(trainer._learner.version - trajectory.version)
        return add(trajectory)

    monkeypatch.setattr(episodes, "add", note_age)
    trainer.run(lambda point: None)
    assert ages == [lag] * NUM_EPISODES
    assert acting_versions(trainer) == [0, 1, 2, 3]


def test_the_acting_policy_has_the_weights_of_the_version_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    published = dict[int, bytes]()
    trainer = SingleProcessTrainer(
        Plan(config=CONFIG, episodes=NUM_EPISODES, chunk=CHUNK, lag=1), held_out(CONFIG.tasks, NUM_HELD_OUT)
    )
    weights = trainer._transport.weights
    publish = weights.publish

    def keep(policy: Policy[Any], version: PolicyVersion) -> PolicyVersion:
        published[version.version] = policy.dump()
        return publish(policy, version)

    monkeypatch.setattr(weights, "publish", keep)
    trainer.run(lambda point: None)
    assert list(published) == [0, 1, 2, 3, 4, 5]
    assert published[0] == published[1] == published[2], "the first chunk is too small for an update"
    assert len(set(published.values())) == 4
    assert trainer._actor.dump() == published[acting_versions(trainer)[-1]] == published[3]
    assert trainer.policy.dump() == published[5]


@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize("name", ["digirl", "filtered_bc", "grpo", "ppo"])
def test_every_algorithm_trains(name: str, lag: int) -> None:
    own: dict[str, object] = {"critic_warmup_updates": 0} if name in ("digirl", "ppo") else {}
    config = small_config(**SETTINGS, algorithm={"kind": name, name: own}, rollout={"group_size": 4})
    trainer = SingleProcessTrainer(
        Plan(config=config, episodes=NUM_EPISODES, chunk=CHUNK, lag=lag), held_out(config.tasks, NUM_HELD_OUT)
    )
    end = trainer.run(lambda point: None)[-1]
    tasks = [row.task for row in trainer._transport.episodes.after(0, NUM_EPISODES)]
    assert len(set(tasks)) == NUM_EPISODES // 4
    assert end.updates == NUM_EPISODES // 4
    assert {"policy", "value", "entropy", "total", "gradient_norm"} <= end.losses.keys()
    kept = published(trainer)
    assert trainer.policy.dump() == kept[-1]
    assert len(set(kept)) == len(kept) == lag + 1


def test_a_warm_start_changes_the_policy_and_no_demonstrations_leave_it_alone() -> None:
    policy = make_policy(CONFIG)
    fresh = policy.dump()
    warm_start(policy, small_config(warm_start={"demonstrations": 0}))
    assert policy.dump() == fresh
    warm_start(policy, CONFIG)
    assert policy.dump() != fresh


def test_the_data_options_reach_the_replay_and_change_no_count() -> None:
    start = replace(CONFIG.warm_start, keep=True)
    config = replace(CONFIG, warm_start=start, data=DataConfig(filter_noops=True, hindsight=True))
    trainer, points, _ = trained(lag=0, config=config)
    plain, before, _ = trained(lag=0)
    learner, without = trainer._learner, plain._learner
    assert [point.updates for point in points] == [point.updates for point in before]
    assert learner.episodes == without.episodes == without.cursor == NUM_EPISODES
    shown = [id for id in learner.replay.priorities() if id.startswith("demonstration-")]
    renamed = [id for id in learner.replay.priorities() if id.endswith("+hindsight")]
    assert len(shown) == 8
    assert len(renamed) == learner.data.relabelled
    assert len(learner.replay) == learner.cursor == NUM_EPISODES + len(shown) + len(renamed)
    assert len(without.replay) == NUM_EPISODES
    assert without.data.relabelled == 0

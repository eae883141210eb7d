"""What is changed for which load, within limits, and that it comes to rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.config.load import load_config
from distrl.config.schema import BalanceConfig
from distrl.errors import ConfigError
from distrl.rollout.balance import LearnerBalance, LearnerLoad, WorkerBalance, WorkerLoad

LIMITS = BalanceConfig(
    enabled=True,
    least_episodes=4,
    longest_batch_wait_s=0.02,
    least_updates_per_episode=0.5,
    most_updates_per_episode=3.0,
)
SHARE = st.floats(0.0, 1.0)


def a_worker(devices: int = 16) -> WorkerBalance:
    return WorkerBalance(LIMITS, devices=devices, batch_wait_s=0.004)


def turned(worker: WorkerBalance, *, deciding: float, on_devices: float, devices: int = 16) -> str:
    change = worker.turn(WorkerLoad(deciding=deciding, on_devices=on_devices), devices=devices)
    return "" if change is None else change.setting


def test_a_policy_that_cannot_keep_up_gets_larger_batches_first_and_then_fewer_episodes() -> None:
    worker = a_worker()
    settings = [turned(worker, deciding=0.95, on_devices=0.4) for _ in range(20)]
    assert settings[:4] == ["rollout.batch_wait_s"] * 3 + ["episodes at once"]
    assert (worker.batch_wait_s, worker.episodes) == (0.02, 4)
    assert settings[-1] == "", "it is at its limits"


def test_a_policy_that_has_time_gets_all_episodes_back_first_and_then_decides_sooner() -> None:
    worker = a_worker()
    while turned(worker, deciding=0.95, on_devices=0.4):
        pass
    settings = [turned(worker, deciding=0.3, on_devices=0.4) for _ in range(20)]
    assert settings[0] == "episodes at once"
    assert (worker.batch_wait_s, worker.episodes) == (0.004, 16)
    assert settings[-1] == ""


@pytest.mark.parametrize(("deciding", "on_devices"), [(0.75, 0.1), (0.75, 0.9), (0.95, 0.9)])
def test_a_load_that_is_well_balanced_changes_nothing(deciding: float, on_devices: float) -> None:
    worker = a_worker()
    assert not turned(worker, deciding=deciding, on_devices=on_devices)


def test_devices_that_come_are_played_on_by_a_worker_that_plays_on_all() -> None:
    worker = a_worker(devices=4)
    assert not turned(worker, deciding=0.1, on_devices=0.9, devices=9)
    assert worker.episodes == 9
    assert not turned(worker, deciding=0.1, on_devices=0.9, devices=2)
    assert worker.episodes == 2


def test_policy_and_devices_come_to_rest() -> None:
    """A worker whose policy takes 10 ms for any batch and whose steps take 0.2 s on the device."""
    worker, settings = a_worker(devices=64), list[str]()
    for _ in range(60):
        round_s = max(0.01 + worker.batch_wait_s, (0.2 + worker.batch_wait_s + 0.01) / max(1.0, worker.episodes / 8))
        settings.append(turned(worker, deciding=min(1.0, 0.01 / round_s), on_devices=0.6, devices=64))
    assert settings[-20:] == [""] * 20


@given(st.lists(st.tuples(SHARE, SHARE, st.integers(1, 64)), max_size=60))
def test_a_worker_keeps_to_its_limits_whatever_is_measured(loads: list[tuple[float, float, int]]) -> None:
    worker = a_worker()
    for deciding, on_devices, devices in loads:
        turned(worker, deciding=deciding, on_devices=on_devices, devices=devices)
        assert min(4, devices) <= worker.episodes <= devices
        assert 0.004 <= worker.batch_wait_s <= 0.02


def load(*, idle: float, behind: float = 0.0, arrived: int = 10) -> LearnerLoad:
    return LearnerLoad(idle=idle, behind=behind, arrived=arrived)


def test_a_learner_that_is_idle_makes_more_of_each_episode_and_one_that_falls_behind_less() -> None:
    learner = LearnerBalance(LIMITS, updates_per_episode=2.0)
    change = learner.turn(load(idle=0.6))
    assert change is not None
    assert (change.before, change.after) == (2.0, 2.5)
    assert "idle 60%" in change.why
    assert learner.turn(load(idle=0.0, behind=5.0)) is None, "it still keeps up"
    change = learner.turn(load(idle=0.0, behind=1000.0))
    assert change is not None
    assert change.after == 2.0
    assert learner.turn(load(idle=0.9, arrived=0)) is None, "it waits for workers, and more updates bring no episodes"


@pytest.mark.parametrize(("present", "idle"), [(5.0, 0.9), (0.1, 0.0)])
def test_a_setting_that_is_beyond_the_limits_by_hand_is_not_moved_the_wrong_way(present: float, idle: float) -> None:
    learner = LearnerBalance(LIMITS, updates_per_episode=present)
    assert learner.turn(load(idle=idle, behind=1000.0)) is None
    assert learner.updates_per_episode == present


@given(st.lists(st.tuples(SHARE, st.floats(0, 1e6), st.integers(0, 100)), max_size=60))
def test_a_learner_keeps_to_its_limits_whatever_is_measured(loads: list[tuple[float, float, int]]) -> None:
    learner = LearnerBalance(LIMITS, updates_per_episode=2.0)
    for idle, behind, arrived in loads:
        learner.turn(load(idle=idle, behind=behind, arrived=arrived))
        assert 0.5 <= learner.updates_per_episode <= 3.0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"balance.enabled": "true", "learner.mode": "sync"}, "wait for each other on purpose"),
        ({"balance.enabled": "true", "rollout.lockstep": "true"}, "wait for each other on purpose"),
        ({"balance.least_updates_per_episode": "9"}, "is above balance.most_updates_per_episode"),
    ],
)
def test_limits_that_leave_nothing_are_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_config(None, settings)

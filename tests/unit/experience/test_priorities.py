from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from distrl.config.schema import ReplayConfig
from distrl.experience.priorities import EPS, first_priority, priority, td_errors
from distrl.types import Ending, Trajectory
from support.trajectories import make_step, make_trajectory

CONFIG = ReplayConfig(td_weight=50.0, ratio_weight=1.0, entropy_weight=0.01, success_weight=0.0)


def with_values(*values: float, ending: Ending, last_value: float = 0.0) -> Trajectory:
    steps = tuple(make_step(i, value=v, reward=r) for i, (v, r) in enumerate(zip(values, (0, 0, 1), strict=True)))
    return replace(make_trajectory(), steps=steps, ending=ending, last_value=last_value)


def test_a_priority_is_the_weighted_sum_of_surprise_ratio_and_entropy() -> None:
    td, ratio, entropy = np.array([0.1, -0.3]), np.array([0.5, 4.0]), np.array([1.0, 3.0])
    assert priority(td, ratio, entropy, CONFIG) == pytest.approx(50 * 0.2 + 0.75 + 0.01 * 2 + EPS)
    assert priority(td, ratio, entropy, CONFIG, rho_max=3.0) == pytest.approx(50 * 0.2 + 1.75 + 0.01 * 2 + EPS)


@pytest.mark.parametrize(
    ("rewards", "last_value", "expected"),
    [([0, 0, 1], 0.0, [0.16, 0.14, 0.4]), ([0, -0.1, 0], 0.5, [0.16, 0.04, -0.15])],
)
def test_errors_agree_with_the_test_vectors_of_the_design(
    rewards: list[float], last_value: float, expected: list[float]
) -> None:
    td = td_errors(np.array([0.2, 0.4, 0.6]), np.array(rewards), last_value, gamma=0.9)
    assert td == pytest.approx(np.array(expected))


def test_a_worker_takes_the_value_after_a_terminal_step_to_be_nothing() -> None:
    trajectory = with_values(0.2, 0.4, 0.6, ending=Ending.FINISHED, last_value=0.9)
    expected = 50 * (0.16 + 0.14 + 0.4) / 3 + 1 + 0.01 * 1.2 + EPS
    assert first_priority(trajectory, CONFIG, gamma=0.9) == pytest.approx(expected)


def test_a_worker_bootstraps_an_episode_that_was_cut_off() -> None:
    trajectory = with_values(0.2, 0.4, 0.6, ending=Ending.STEP_LIMIT, last_value=0.5)
    expected = 50 * (0.16 + 0.14 + 0.85) / 3 + 1 + 0.01 * 1.2 + EPS
    assert first_priority(trajectory, CONFIG, gamma=0.9) == pytest.approx(expected)


def test_an_episode_without_steps_still_has_a_priority() -> None:
    assert first_priority(replace(make_trajectory(), steps=()), CONFIG, gamma=0.9) == EPS


def test_a_success_is_worth_its_bonus_on_top() -> None:
    signals = np.array([0.1, 0.2]), np.ones(2), np.array([0.5, 0.5])
    bonus = ReplayConfig(success_weight=7.0)
    plain = priority(*signals, bonus)
    assert priority(*signals, bonus, success=True) == pytest.approx(plain + 7.0)


@pytest.mark.parametrize("spoilt", [0, 1, 2])
def test_values_that_are_not_finite_give_a_priority_that_the_replay_takes(spoilt: int) -> None:
    signals = [np.array([1.0, 2.0]) for _ in range(3)]
    signals[spoilt][1] = np.nan
    assert priority(*signals, ReplayConfig(td_weight=1.0), success=True) == EPS

"""Versions come at a pace at which every worker may play on all its devices."""

from __future__ import annotations

import pytest

from distrl.config.load import load_config
from distrl.learner.schedule import RECENT_EPISODES, EpisodeDurations
from distrl.rollout.scheduler import Admission, AdmissionRequest


def admission(max_staleness: int) -> Admission:
    return Admission(load_config(None, {"replay.max_staleness": max_staleness, "replay.keep_successes": False}))


def busy(usual_s: float, interval_s: float) -> AdmissionRequest:
    """A worker with the newest weights that has episodes under way."""
    return AdmissionRequest(held=5, latest=5, running=3, versions_per_s=1.0 / interval_s, usual_s=usual_s)


def test_before_the_first_episode_nothing_is_known() -> None:
    assert EpisodeDurations().interval_s(8) == 0.0


def test_the_longest_tenth_of_one_workers_episodes_does_not_slow_versions_down() -> None:
    pace = EpisodeDurations()
    for wall_s in [10.0] * 95 + [500.0] * 5:
        pace.note("worker-0", wall_s)
    assert pace.interval_s(8) == pytest.approx(10.0 / 8)


@pytest.mark.parametrize("max_staleness", [0, 1, 8])
def test_a_slow_worker_with_a_small_part_of_the_episodes_is_not_held_to_one_at_a_time(max_staleness: int) -> None:
    pace = EpisodeDurations()
    for number in range(100):
        pace.note("slow" if number % 25 == 0 else "fast", 80.0 if number % 25 == 0 else 10.0)
    interval_s = pace.interval_s(max_staleness)
    assert admission(max_staleness).refusal(busy(80.0, interval_s)) == ""
    assert admission(max_staleness).refusal(busy(80.0, interval_s / 4)) != "", "a faster pace would hold it back"


def test_a_worker_that_is_gone_is_forgotten() -> None:
    pace = EpisodeDurations()
    pace.note("gone", 80.0)
    for _ in range(RECENT_EPISODES):
        pace.note("here", 10.0)
    assert pace.interval_s(1) == pytest.approx(10.0)


@pytest.mark.parametrize("jitter", [0.7, 0.9, 1.0, 1.1, 1.5])
@pytest.mark.parametrize("max_staleness", [0, 1])
def test_where_data_may_hardly_age_lanes_do_not_stop_and_go_with_every_jitter_of_the_pace(
    jitter: float, max_staleness: int
) -> None:
    pace = EpisodeDurations()
    for _ in range(20):
        pace.note("worker-0", 30.0)
    interval_s = jitter * pace.interval_s(max_staleness)
    assert admission(max_staleness).refusal(busy(30.0, interval_s)) == ""

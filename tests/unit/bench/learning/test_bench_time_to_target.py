"""Time to target: targets, times, censored seeds, and the speed-up that they allow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from distrl.bench.learning.efficiency import MIN_GAIN, TARGET_SHARE, Times, smooth, speedup, targets, times_to
from distrl.bench.statistics import Floats

SECONDS = np.array([0.0, 10.0, 20.0, 30.0, 40.0])
STRAIGHT = np.array([[0.0, 0.1, 0.2, 0.3, 0.4]])


def seeds(*wall_s: float, budget_s: float = 600.0) -> Times:
    """Times of as many seeds; one beyond the budget is censored."""
    found = np.array(wall_s)
    return Times(lower_S=np.minimum(found, budget_s), upper_S=np.where(found > budget_s, np.inf, found))


def draws() -> np.random.Generator:
    return np.random.default_rng(0)


def test_a_curve_is_smoothed_with_its_neighbours() -> None:
    assert smooth(np.array([[0.0, 3.0, 0.0, 3.0]])).tolist() == [[0.0, 1.0, 2.0, 1.5]]


def test_each_seed_has_a_target_of_its_own_above_its_start() -> None:
    baseline_SK = np.stack([np.linspace(0.1, 0.6, 11), np.linspace(0.3, 0.5, 11), np.full(11, 0.4)])
    ends = [(0.55 + 0.6) / 2, (0.48 + 0.5) / 2]
    found = targets(baseline_SK)
    assert found[:2] == pytest.approx([0.1 + 0.9 * (ends[0] - 0.1), 0.3 + 0.9 * (ends[1] - 0.3)])
    assert found[2] == pytest.approx(0.42), "above the start also where the baseline learned nothing"
    assert (targets(baseline_SK, 0.5) <= found).all()


@pytest.mark.parametrize(("target", "moment_s"), [(0.25, 30.0), (0.2, 20.0), (0.01, 10.0)])
def test_a_target_is_reached_at_a_moment_and_not_between_two(target: float, moment_s: float) -> None:
    found = times_to(np.array([target]), SECONDS, STRAIGHT)
    assert (found.lower_S.tolist(), found.censored) == ([moment_s], 0)


@pytest.mark.parametrize("curve", [[0.1, 0.1, 0.5, 0.1, 0.1], [0.2] * 5])
def test_one_lucky_point_is_not_the_target_and_who_never_gets_there_is_censored(curve: list[float]) -> None:
    found = times_to(np.array([0.4]), SECONDS, np.array([curve]))
    assert (found.lower_S.tolist(), found.upper_S.tolist(), found.censored) == ([40.0], [np.inf], 1)


def test_three_times_as_fast() -> None:
    found, bound = speedup(seeds(90, 100, 110, 100, 100), seeds(270, 300, 330, 300, 300), draws())
    assert (found.value, bound) == (3.0, "exact")
    assert [found.low, found.high] == pytest.approx([3.0, 3.0])


def test_a_draw_with_censored_seeds_leaves_the_high_end_open_and_not_the_low_one() -> None:
    """One censored seed of five is cut off by the IQM of all, and is in the middle of many a draw."""
    found, bound = speedup(seeds(100, 100, 100, 100, 100), seeds(300, 320, 340, 360, 9999), draws())
    assert bound == "exact"
    assert found.value == pytest.approx(3.4)
    assert found.low is not None
    assert 3.0 <= found.low < 3.4
    assert found.high is None


@pytest.mark.parametrize(
    ("ours", "theirs", "bound"),
    [
        ([100.0] * 5, [9999.0] * 5, "lower"),
        ([9999.0] * 5, [300.0] * 5, "upper"),
        ([9999.0] * 5, [9999.0] * 5, "unknown"),
    ],
)
def test_censored_seeds_make_a_bound_of_it(ours: list[float], theirs: list[float], bound: str) -> None:
    found, kind = speedup(seeds(*ours), seeds(*theirs), draws())
    assert kind == bound
    assert (found.high is None) == (theirs[0] > 600.0)
    assert (found.low == 0.0) == (ours[0] > 600.0)


def test_the_interval_covers_a_speedup_that_seeds_scatter_about() -> None:
    """With eleven seeds: of 200 samples of a true ratio of 2, most intervals hold it."""
    random, held = np.random.default_rng(1), 0
    for _ in range(200):
        ours, theirs = (_scattered(random, mean_s) for mean_s in (100.0, 200.0))
        found, _ = speedup(ours, theirs, random)
        held += found.low is not None and found.high is not None and found.low <= 2.0 <= found.high
    assert held > 170


def _scattered(random: np.random.Generator, mean_s: float) -> Times:
    times_S: Floats = random.normal(mean_s, 0.2 * mean_s, size=11).clip(1.0)
    return Times(lower_S=times_S, upper_S=times_S)


# --- properties -------------------------------------------------------------------------------------------------------

curves = arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(2, 12)), elements=st.floats(0.0, 1.0))
times = arrays(np.float64, st.integers(3, 8), elements=st.floats(1.0, 500.0))


@given(curves)
def test_smoothing_keeps_the_start_and_stays_within_the_curve(curve_SK: Floats) -> None:
    found = smooth(curve_SK)
    assert found.shape == curve_SK.shape
    assert (found[:, 0] == curve_SK[:, 0]).all()
    assert (found >= curve_SK.min(axis=1, keepdims=True) - 1e-12).all()
    assert (found <= curve_SK.max(axis=1, keepdims=True) + 1e-12).all()


@given(curves)
def test_a_target_is_above_the_start_by_at_least_the_smallest_gain(curve_SK: Floats) -> None:
    for share in (0.1, 0.5, TARGET_SHARE):
        assert (targets(curve_SK, share) >= curve_SK[:, 0] + MIN_GAIN - 1e-12).all()


@given(curves)
def test_a_higher_target_is_never_reached_sooner(curve_SK: Floats) -> None:
    wall_s_K = np.arange(curve_SK.shape[1]) * 10.0
    low, high = (times_to(np.full(len(curve_SK), target), wall_s_K, curve_SK) for target in (0.3, 0.6))
    assert (low.lower_S <= high.lower_S).all()
    assert (low.upper_S <= high.upper_S).all()
    assert low.censored <= high.censored


@given(curves)
def test_a_time_is_one_of_the_evaluation_times_and_a_censored_one_is_the_last(curve_SK: Floats) -> None:
    wall_s_K = np.arange(curve_SK.shape[1]) * 10.0
    found = times_to(np.full(len(curve_SK), 0.5), wall_s_K, curve_SK)
    assert set(found.lower_S) <= set(wall_s_K)
    censored_S = np.isinf(found.upper_S)
    assert (found.lower_S[censored_S] == wall_s_K[-1]).all()
    assert (found.lower_S[~censored_S] == found.upper_S[~censored_S]).all()


@given(times)
def test_a_method_is_as_fast_as_itself(wall_s_S: Floats) -> None:
    same = Times(lower_S=wall_s_S, upper_S=wall_s_S)
    found, bound = speedup(same, same, draws())
    assert found.row() == [1.0, 1.0, 1.0]
    assert bound == "exact"


@given(times, st.floats(0.5, 20.0))
def test_a_method_that_takes_so_many_times_as_long_is_so_many_times_slower(wall_s_S: Floats, factor: float) -> None:
    ours, theirs = (Times(lower_S=one, upper_S=one) for one in (wall_s_S, factor * wall_s_S))
    found, _ = speedup(ours, theirs, draws())
    assert found.value == pytest.approx(factor)
    assert found.low == pytest.approx(factor)
    assert found.high == pytest.approx(factor)


def test_where_both_have_too_many_censored_seeds_nothing_is_certain() -> None:
    found, bound = speedup(seeds(700.0, 700.0, 700.0), seeds(700.0, 700.0, 700.0), draws())
    assert bound == "unknown"
    assert (found.low, found.high) == (0.0, None)


def test_one_censored_seed_of_five_is_cut_off_by_the_interquartile_mean() -> None:
    found, bound = speedup(seeds(*[100.0] * 5), seeds(200.0, 200.0, 200.0, 200.0, 700.0), draws())
    assert (found.value, bound) == (2.0, "exact")
    assert found.high is None, "some resamples have several of it"

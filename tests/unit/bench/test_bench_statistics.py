"""Figures over seeds: the published definitions, sound intervals, paired comparisons, censored times."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.stats import trim_mean

from distrl.bench.statistics import (
    Interval,
    difference,
    interval,
    iqm,
    need_seeds,
    ratio,
    relative,
)
from distrl.errors import UsageError

QUICK = settings(max_examples=30, deadline=None)
scores = arrays(np.float64, array_shapes(min_dims=1, max_dims=1, min_side=3, max_side=12), elements=st.floats(0.0, 1.0))


def draws(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def outcomes(share: float, *, seeds: int = 5, tasks: int = 40, seed: int = 0) -> np.ndarray:
    return (draws(seed).random((seeds, tasks)) < share).astype(np.float64)


def inside(found: Interval) -> bool:
    assert found.low is not None
    assert found.high is not None
    return found.low <= found.value <= found.high


@QUICK
@given(scores)
def test_the_interquartile_mean_is_that_of_rliable(values: np.ndarray) -> None:
    assert iqm(values) == pytest.approx(trim_mean(values, 0.25))


def test_the_middle_half_of_eight_counts_and_of_three_all() -> None:
    assert iqm([0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 99.0, 99.0]) == 2.5
    assert iqm([[0.0, 1.0, 5.0], [1.0, 1.0, 1.0]]).tolist() == [2.0, 1.0]


@QUICK
@given(scores)
def test_an_interval_lies_within_the_scores_and_around_its_value(values: np.ndarray) -> None:
    found = interval([values], draws())
    assert found.low is not None
    assert found.high is not None
    assert values.min() - 1e-9 <= found.low <= found.high <= values.max() + 1e-9
    assert found.low - 1e-9 <= found.value <= found.high + 1e-9


def test_the_same_seed_gives_the_same_interval_and_another_a_similar_one() -> None:
    strata = [outcomes(0.4), outcomes(0.7, seed=1)]
    assert interval(strata, draws(3)) == interval(strata, draws(3))
    first, second = interval(strata, draws(3)), interval(strata, draws(4))
    assert first != second
    assert first.low == pytest.approx(second.low, abs=0.02)


def test_tasks_add_to_what_is_uncertain_about_seeds() -> None:
    """Seeds that agree exactly leave the tasks, which might have been others."""
    row = (np.arange(40) < 20).astype(np.float64)
    alike = np.stack([row] * 5)
    by_seed, by_task = interval([alike.mean(axis=1)], draws()), interval([alike], draws())
    assert (by_seed.low, by_seed.high) == (0.5, 0.5)
    assert by_task.low == pytest.approx(0.5 - 1.96 * np.sqrt(0.25 / 40), abs=0.02)
    assert by_task.high == pytest.approx(0.5 + 1.96 * np.sqrt(0.25 / 40), abs=0.02)


def test_a_hard_suite_counts_as_much_as_an_easy_one() -> None:
    hard, easy = np.array([0.0, 0.0, 0.0, 0.1, 0.5]), np.full(5, 0.9)
    assert interval([hard, easy], np.random.default_rng(0)).value == pytest.approx((0.1 / 3 + 0.9) / 2)


def test_each_stratum_is_drawn_by_itself() -> None:
    """Five seeds at 0 in one suite and five at 1 in the other: no draw can mix them."""
    found = interval([np.zeros(5), np.ones(5)], draws())
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize(("seeds", "covered"), [(3, 0.73), (5, 0.89), (20, 0.93)])
def test_intervals_over_seeds_alone_cover_the_truth_as_often_as_the_pages_say(seeds: int, covered: float) -> None:
    random, trials = np.random.default_rng(0), 2500
    found = [interval([random.normal(0.5, 0.05, seeds)], random) for _ in range(trials)]
    held = sum(one.low is not None and one.high is not None and one.low <= 0.5 <= one.high for one in found)
    assert held / trials == pytest.approx(covered, abs=0.03)


def test_what_two_methods_share_does_not_blur_their_difference() -> None:
    """Seeds differ widely, but ours is better by 0.1 in each of them."""
    theirs = np.array([0.1, 0.3, 0.5, 0.7, 0.85])
    found = difference([theirs + 0.1], [theirs], draws())
    assert found.value == pytest.approx(0.1)
    assert found.low == pytest.approx(0.1)
    assert found.high == pytest.approx(0.1)


def test_a_relative_improvement_is_that_of_the_interquartile_means() -> None:
    theirs = np.array([0.2, 0.4, 0.5, 0.6, 0.8])
    found = relative([1.2 * theirs], [theirs], draws())
    assert found is not None
    assert found.row() == [0.2, 0.2, 0.2]
    mixed = relative([outcomes(0.6)], [outcomes(0.4, seed=1)], draws())
    assert mixed is not None
    assert inside(mixed)
    assert 0.0 < mixed.value < 1.5


def test_a_rival_that_never_succeeds_leaves_nothing_to_compare_with() -> None:
    assert relative([np.ones(3)], [np.zeros(3)], draws()) is None
    now_and_then = ratio([np.ones(3)], [np.array([0.0, 0.0, 0.3])], draws())
    assert now_and_then is not None
    assert now_and_then.row()[2] is None, "some draws have only the seeds at 0: no upper bound"


@pytest.mark.parametrize("seeds", [0, 1, 2])
def test_too_few_seeds_for_an_interval_are_refused_with_the_fix(seeds: int) -> None:
    with pytest.raises(UsageError, match="--seeds 3"):
        need_seeds(seeds)
    with pytest.raises(UsageError, match="--seeds 3"):
        interval([np.full(seeds, 0.5)], draws())
    assert need_seeds(3) == 3


def test_methods_with_other_tasks_are_not_compared() -> None:
    with pytest.raises(UsageError, match="same tasks"):
        relative([outcomes(0.5)], [outcomes(0.5, tasks=39)], draws())

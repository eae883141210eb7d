"""Interquartile means and bootstrap intervals: the published definitions, known cases, paired comparisons."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.stats import trim_mean

from distrl.bench import plots
from distrl.bench.base import BenchOptions
from distrl.bench.statistics import (
    DRAWS,
    QUICK_SEEDS,
    SEEDS,
    Floats,
    Interval,
    band,
    bars,
    bootstrap_generator,
    check_options,
    compare,
    difference,
    interval,
    iqm,
    measure,
    ratio,
    relative,
    require_seeds,
    row,
    rows,
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


def test_a_baseline_that_never_succeeds_leaves_nothing_to_compare_with() -> None:
    assert relative([np.ones(3)], [np.zeros(3)], draws()) is None
    now_and_then = ratio([np.ones(3)], [np.array([0.0, 0.0, 0.3])], draws())
    assert now_and_then is not None
    assert now_and_then.row()[2] is None, "some draws have only the seeds at 0: no upper bound"


@pytest.mark.parametrize("seeds", [0, 1, 2])
def test_too_few_seeds_for_an_interval_are_refused_with_the_fix(seeds: int) -> None:
    with pytest.raises(UsageError, match="--seeds 3"):
        require_seeds(seeds)
    with pytest.raises(UsageError, match="--seeds 3"):
        interval([np.full(seeds, 0.5)], draws())
    assert require_seeds(3) == 3


def test_methods_with_other_tasks_are_not_compared() -> None:
    with pytest.raises(UsageError, match="same tasks"):
        relative([outcomes(0.5)], [outcomes(0.5, tasks=39)], draws())


# --- the interquartile mean -------------------------------------------------------------------------------------------


@QUICK
@given(scores, st.randoms(use_true_random=False))
def test_the_order_of_seeds_does_not_matter(values: Floats, random: Random) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)
    assert iqm(shuffled) == iqm(values)


@QUICK
@given(scores, st.floats(0.1, 10.0), st.floats(-5.0, 5.0))
def test_a_shift_and_a_scale_pass_through(values: Floats, scale: float, shift: float) -> None:
    assert iqm(scale * values + shift) == pytest.approx(scale * iqm(values) + shift, abs=1e-9)


@QUICK
@given(scores)
def test_it_lies_between_the_quartile_values(values: Floats) -> None:
    ordered, cut = np.sort(values), len(values) // 4
    assert ordered[cut] - 1e-12 <= iqm(values) <= ordered[len(values) - cut - 1] + 1e-12


@pytest.mark.parametrize(("num", "counted"), [(1, 1), (3, 3), (4, 2), (5, 3), (7, 5), (8, 4), (12, 6)])
def test_a_quarter_rounded_down_is_cut_at_each_end(num: int, counted: int) -> None:
    """Every value in the middle is 1, every one that is cut a million."""
    cut = (num - counted) // 2
    values = [-1e6] * cut + [1.0] * counted + [1e6] * cut
    assert iqm(values) == 1.0


def test_it_is_taken_over_the_last_axis_alone() -> None:
    values = np.arange(24.0).reshape(2, 3, 4)
    assert iqm(values).shape == (2, 3)
    assert iqm(values)[1, 2] == iqm(values[1, 2])


# --- the bootstrap against known cases --------------------------------------------------------------------------------


def every_resample(scores_S: Floats) -> Floats:
    """The IQMs of all resamples of the seeds, each as likely as any other."""
    num = len(scores_S)
    return iqm(scores_S[np.array(list(product(range(num), repeat=num)))])


@pytest.mark.parametrize("values", [[0.0, 0.0, 1.0], [0.1, 0.5, 0.6], [0.2, 0.3, 0.5, 0.9], [0.1, 0.2, 0.4, 0.5, 0.8]])
def test_the_interval_is_that_of_all_resamples(values: list[float]) -> None:
    """With five seeds there are 3,125 resamples: 4,000 draws come close to their percentiles."""
    scores_S = np.array(values)
    found = interval([scores_S], draws())
    low, high = np.quantile(every_resample(scores_S), [0.025, 0.975], method="inverted_cdf")
    assert found.value == pytest.approx(float(iqm(scores_S)))
    assert found.low == pytest.approx(low, abs=0.04)
    assert found.high == pytest.approx(high, abs=0.04)


def test_the_interval_of_one_lucky_seed_of_three_is_the_whole_range() -> None:
    """All three draws are at 0 in 8 of 27 cases, and all at 1 in one of 27, which is more than 2.5 %."""
    assert interval([np.array([0.0, 0.0, 1.0])], draws()).row() == [0.3333, 0.0, 1.0]


def test_an_interval_is_that_of_a_normal_mean_where_there_are_many_seeds() -> None:
    scores_S = np.random.default_rng(5).normal(0.5, 0.1, 400)
    found = interval([scores_S], draws())
    middle = np.sort(scores_S)[100:300]
    assert found.value == pytest.approx(middle.mean())
    assert found.low is not None
    assert found.high is not None
    # The interquartile mean of a normal variable has a standard error of 1.09 / sqrt(n) of its deviation.
    assert found.high - found.low == pytest.approx(2 * 1.96 * 1.09 * 0.1 / np.sqrt(400), rel=0.2)


@QUICK
@given(st.floats(0.0, 1.0), st.integers(3, 8), st.integers(1, 3))
def test_seeds_that_agree_leave_no_interval(score: float, seeds: int, strata: int) -> None:
    found = interval([np.full(seeds, score)] * strata, draws())
    assert found.low == pytest.approx(score)
    assert found.high == pytest.approx(score)


def test_more_seeds_make_a_narrower_interval() -> None:
    spread = np.linspace(0.3, 0.7, 5)
    few, many = interval([spread], draws()), interval([np.repeat(spread, 10)], draws())
    assert few.low is not None
    assert few.high is not None
    assert many.low is not None
    assert many.high is not None
    assert many.high - many.low < 0.6 * (few.high - few.low)


def test_tasks_are_resampled_in_common_for_all_seeds() -> None:
    """Half of the tasks are solved by every seed: whatever is drawn, all seeds have the same score."""
    row_T = (np.arange(10) < 5).astype(np.float64)
    strata = [np.stack([row_T] * 4)]
    found = interval(strata, draws())
    assert found.low is not None
    assert found.high is not None
    assert round(found.low * 10) == pytest.approx(found.low * 10), "a share of ten drawn tasks"
    assert (found.value, found.low < 0.5 < found.high) == (0.5, True)


def test_a_stratum_of_scores_and_one_of_outcomes_go_together() -> None:
    found = interval([np.full(5, 0.2), outcomes(0.6)], draws())
    assert found.value == pytest.approx((0.2 + float(iqm(outcomes(0.6).mean(axis=1)))) / 2)


# --- paired comparisons -----------------------------------------------------------------------------------------------


@QUICK
@given(scores)
def test_a_method_does_not_differ_from_itself(values: Floats) -> None:
    assert difference([values], [values], draws()).row() == [0.0, 0.0, 0.0]
    itself = ratio([values + 0.1], [values + 0.1], draws())
    assert itself is not None
    assert itself.row() == [1.0, 1.0, 1.0]


@QUICK
@given(scores, st.integers(0, 10_000))
def test_a_difference_turned_round_is_the_same_with_another_sign(values: Floats, seed: int) -> None:
    other = np.random.default_rng(seed).permutation(values)
    there, back = difference([values], [other], draws()), difference([other], [values], draws())
    assert there.value == pytest.approx(-back.value, abs=1e-12)
    assert there.low is not None
    assert back.high is not None
    assert there.low == pytest.approx(-back.high, abs=0.05)


def test_a_paired_difference_is_narrower_than_that_of_two_intervals() -> None:
    base = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    ours, theirs = base + np.array([0.05, 0.06, 0.04, 0.05, 0.05]), base
    paired = difference([ours], [theirs], draws())
    alone = interval([ours], draws())
    assert paired.low is not None
    assert paired.high is not None
    assert alone.low is not None
    assert alone.high is not None
    assert paired.low > 0.0
    assert paired.high - paired.low < 0.1 * (alone.high - alone.low)


def test_two_methods_are_paired_by_task_as_well() -> None:
    """Ours solves all that theirs solves and two tasks more, in every seed: no draw makes it worse."""
    theirs = outcomes(0.4)
    ours = theirs.copy()
    for row_T in ours:
        row_T[np.flatnonzero(row_T == 0.0)[:2]] = 1.0
    found = difference([ours], [theirs], draws())
    assert found.value == pytest.approx(2 / 40)
    assert found.low is not None
    assert found.low >= 0.0


def test_relative_is_the_ratio_less_one_also_at_its_ends() -> None:
    ours, theirs = [outcomes(0.7)], [outcomes(0.5, seed=1)]
    over, less = ratio(ours, theirs, draws()), relative(ours, theirs, draws())
    assert over is not None
    assert less is not None
    assert less.value == pytest.approx(over.value - 1.0)
    assert over.low is not None
    assert over.high is not None
    assert less.low == pytest.approx(over.low - 1.0)
    assert less.high == pytest.approx(over.high - 1.0)


def test_an_unbounded_ratio_stays_unbounded_when_it_is_relative() -> None:
    found = relative([np.ones(3)], [np.array([0.0, 0.0, 0.3])], draws())
    assert found is not None
    assert (found.low is not None, found.high) == (True, None)
    assert found.row()[2] is None


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([np.ones(3)], [np.ones(4)]),
        ([np.ones(3)], [np.ones(3), np.ones(3)]),
        ([np.ones((3, 2))], [np.ones(3)]),
    ],
)
def test_methods_with_other_seeds_or_suites_are_not_compared(ours: list[Floats], theirs: list[Floats]) -> None:
    for compared in (difference, relative, ratio):
        with pytest.raises(UsageError, match="the same seeds"):
            compared(ours, theirs, draws())


# --- rows and plots ---------------------------------------------------------------------------------------------------


def test_a_row_is_rounded_and_none_where_a_side_is_unbounded() -> None:
    found = Interval(value=0.123456, low=None, high=2 / 3)
    assert found.row() == row(found) == [0.1235, None, 0.6667]
    assert rows({"a": found, "b": None}) == {"a": [0.1235, None, 0.6667], "b": None}


def test_what_is_reported_of_a_method_does_not_depend_on_the_others() -> None:
    scores_by_name = {name: [outcomes(share, seed=n)] for n, (name, share) in enumerate((("a", 0.5), ("b", 0.7)))}
    alone = measure({"b": scores_by_name["b"]})
    assert measure(scores_by_name)["b"] == alone["b"]
    assert measure(dict(reversed(scores_by_name.items()))) == measure(scores_by_name)
    assert alone["b"] == interval(scores_by_name["b"], bootstrap_generator())


def test_ours_is_compared_with_every_other_method_and_not_with_itself() -> None:
    found = compare("a", {"a": [np.full(3, 0.6)], "b": [np.full(3, 0.4)], "never": [np.zeros(3)]})
    assert list(found) == ["b", "never"]
    assert found["b"] is not None
    assert found["b"].value == pytest.approx(0.5)
    assert found["never"] is None


def test_a_bar_without_a_bound_ends_at_its_value() -> None:
    (bounded, unbounded) = bars(
        {"a": Interval(value=0.5, low=0.4, high=0.6), "b": Interval(value=0.5, low=None, high=None)}
    )
    assert (bounded.name, bounded.low, bounded.high) == ("a", 0.4, 0.6)
    assert (unbounded.low, unbounded.high) == (0.5, 0.5)


def test_a_band_has_the_interquartile_mean_and_its_interval_at_every_point() -> None:
    success_SK = np.array([[0.0, 0.2, 0.4], [0.0, 0.3, 0.5], [0.0, 0.4, 0.9]])
    line = band("ours", [0, 10, 20], success_SK)
    assert (line.name, line.x) == ("ours", [0, 10, 20])
    assert line.y == pytest.approx([0.0, 0.3, 0.6])
    assert (line.low[0], line.high[0]) == (0.0, 0.0)
    assert all(low <= y <= high for low, y, high in zip(line.low, line.y, line.high, strict=True))


def test_the_seeds_are_those_of_the_option_or_the_default() -> None:
    assert check_options(BenchOptions()) == SEEDS
    assert check_options(BenchOptions(quick=True)) == QUICK_SEEDS
    assert check_options(BenchOptions(quick=True, seeds=7)) == 7
    with pytest.raises(UsageError, match="--seeds 3"):
        check_options(BenchOptions(seeds=1))


def test_results_with_plots_need_matplotlib_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    assert check_options(BenchOptions()) == SEEDS, "without --out nothing is drawn"
    with pytest.raises(UsageError, match="matplotlib"):
        check_options(BenchOptions(out=tmp_path))


def test_the_bootstrap_draws_enough_for_its_percentiles() -> None:
    """At 2.5 % of the draws a percentile rests on a hundred of them."""
    assert DRAWS * 0.025 >= 100

"""Interquartile means over seeds with bootstrap intervals, and how results files and plots show them.

Definitions follow Agarwal et al. (arXiv 2108.13264), "rliable". The interquartile mean (IQM) is the mean of the middle
half: a quarter of the values, rounded down, is cut off at each end, so the middle three of five values count, and all
of three. Over several strata (suites) it is the mean of their IQMs, so that a hard suite counts as much as an easy one.
Intervals are 95 % percentiles of a stratified bootstrap: within each stratum (a suite) seeds are drawn with
replacement and, where the outcomes of single tasks are given, tasks too. Two methods are compared on the same drawn
seeds and tasks. With few seeds such intervals are known to be narrow: where seeds are all that differs, they cover the true value in
89 % of the cases with five seeds and in 73 % with three, where an interval is hardly more than the range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from distrl.bench.base import BenchOptions
from distrl.bench.plots import Bar, Line, require_matplotlib
from distrl.errors import UsageError
from distrl.evaluation.report import wilson

Floats = npt.NDArray[np.float64]
Strata = Sequence[Floats]
"""One array per suite: (seeds,) of scores, or (seeds, tasks) of outcomes, whose mean over the tasks is the score."""
Row = list[float | None]
"""Value, low and high end of the 95 % interval, as in results files; None: unbounded."""
SEEDS, QUICK_SEEDS, MIN_SEEDS = 5, 3, 3
DRAWS = 4000
"""Bootstrap resamples."""
LEVEL = 0.95


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A value and its 95 % interval; None: that side is unbounded."""

    value: float
    low: float | None
    high: float | None

    def row(self) -> Row:
        """As in results files: [value, low, high], rounded."""
        return [_rounded(self.value), _rounded(self.low), _rounded(self.high)]


def newcombe(before: float, after: float, n: int) -> tuple[float, float]:
    """Newcombe's 95 % interval of `after - before`, two shares of `n` each, as though they were of different tasks; on the same ones it is too wide."""
    first, last = wilson(before * n, n), wilson(after * n, n)
    less = ((after - last.low) ** 2 + (first.high - before) ** 2) ** 0.5
    more = ((last.high - after) ** 2 + (before - first.low) ** 2) ** 0.5
    return after - before - less, after - before + more


def require_seeds(seeds: int) -> int:
    """Return `seeds`, or raise a `UsageError` where they are too few for an interval."""
    if seeds < MIN_SEEDS:
        raise UsageError(
            f"{seeds} seed(s) are too few for an interval",
            expected=f"{MIN_SEEDS} or more",
            fix=f"--seeds {MIN_SEEDS}, or omit --seeds",
        )
    return seeds


def iqm(values_XN: npt.ArrayLike) -> Floats:
    """The interquartile mean over the last axis."""
    sorted_XN = np.sort(np.asarray(values_XN, dtype=np.float64), axis=-1)
    num = sorted_XN.shape[-1]
    cut = num // 4
    mean_X: Floats = sorted_XN[..., cut : num - cut].mean(axis=-1)
    return mean_X


def interval(strata: Strata, random: np.random.Generator) -> Interval:
    """The mean over strata of the IQM over seeds."""
    return _bootstrap([strata], random, lambda drawn: drawn[0])


def difference(ours: Strata, theirs: Strata, random: np.random.Generator) -> Interval:
    """Our IQM less theirs, paired by seed and task."""
    return _bootstrap([ours, theirs], random, lambda drawn: drawn[0] - drawn[1])


def relative(ours: Strata, theirs: Strata, random: np.random.Generator) -> Interval | None:
    """Our IQM over theirs, less 1; None where theirs is 0."""
    found = ratio(ours, theirs, random)
    if found is None:
        return None
    low, high = (None if bound is None else bound - 1.0 for bound in (found.low, found.high))
    return Interval(value=found.value - 1.0, low=low, high=high)


def ratio(ours: Strata, theirs: Strata, random: np.random.Generator) -> Interval | None:
    """Our IQM over theirs, paired; None where theirs is 0. A resample in which theirs is 0 counts as infinite."""
    if _iqm_of(theirs) == 0.0:
        return None
    return _bootstrap([ours, theirs], random, _divide)


def _divide(drawn: Sequence[Floats]) -> Floats:
    ours, theirs = drawn
    return np.divide(ours, theirs, out=np.full_like(ours, np.inf), where=theirs > 0.0)


def _bootstrap(
    methods: Sequence[Strata], random: np.random.Generator, statistic: Callable[[Sequence[Floats]], Floats]
) -> Interval:
    """The statistic of the IQMs of all methods, with percentiles over common resamples of seeds and tasks."""
    _refuse_different_shapes(methods)
    value = float(statistic([np.asarray(_iqm_of(strata)) for strata in methods]))
    by_stratum = [_draw(same, random) for same in zip(*methods, strict=True)]
    drawn = [np.mean([iqm(scores[index]) for scores in by_stratum], axis=0) for index in range(len(methods))]
    found = statistic(drawn)
    # `inverted_cdf` picks one of the resamples: interpolating between a finite value and infinity gives NaN.
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="inverted_cdf")
    return Interval(value=value, low=_finite(low), high=_finite(high))


def _iqm_of(strata: Strata) -> float:
    return float(np.mean([iqm(_scores(stratum)) for stratum in strata]))


def _scores(stratum: Floats) -> Floats:
    """The score of each seed."""
    return np.asarray(stratum.mean(axis=1) if stratum.ndim == 2 else stratum, dtype=np.float64)


def _draw(same: Sequence[Floats], random: np.random.Generator) -> list[Floats]:
    """Scores of resampled seeds on resampled tasks, an array (draws, seeds) per method."""
    num_seeds = len(same[0])
    seeds_DS = random.integers(num_seeds, size=(DRAWS, num_seeds))
    if same[0].ndim == 1:
        return [np.asarray(scores_S[seeds_DS], dtype=np.float64) for scores_S in same]
    num_tasks = same[0].shape[1]
    share_DT = random.multinomial(num_tasks, np.full(num_tasks, 1 / num_tasks), size=DRAWS) / num_tasks
    return [np.take_along_axis(share_DT @ outcome_ST.T, seeds_DS, axis=1) for outcome_ST in same]


def _refuse_different_shapes(methods: Sequence[Strata]) -> None:
    shapes = [[stratum.shape for stratum in strata] for strata in methods]
    if any(shape != shapes[0] for shape in shapes):
        raise UsageError(
            f"methods with {' and '.join(str(shape) for shape in shapes)} cannot be compared",
            expected="the same seeds on the same tasks",
        )
    for shape in shapes[0]:
        require_seeds(shape[0])


def _finite(bound: float) -> float | None:
    return float(bound) if np.isfinite(bound) else None


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 4)


# --- rows and plots of several methods --------------------------------------------------------------------------------


def check_options(options: BenchOptions) -> int:
    """The number of seeds; raises before any run where they are too few or figures cannot be drawn."""
    if options.out is not None:
        require_matplotlib()
    return require_seeds(options.seeds or (QUICK_SEEDS if options.quick else SEEDS))


def bootstrap_generator() -> np.random.Generator:
    """A fresh generator with a fixed seed, so that no reported value depends on which others are reported."""
    return np.random.default_rng(0)


def measure(scores: Mapping[str, Strata]) -> dict[str, Interval]:
    """The IQM of each method."""
    return {name: interval(strata, bootstrap_generator()) for name, strata in scores.items()}


def compare(ours: str, scores: Mapping[str, Strata]) -> dict[str, Interval | None]:
    """Our method over each of the others, less 1."""
    return {
        name: relative(scores[ours], strata, bootstrap_generator()) for name, strata in scores.items() if name != ours
    }


def rows(found: Mapping[str, Interval | None]) -> dict[str, Row | None]:
    """Intervals as in results files."""
    return {name: row(one) for name, one in found.items()}


def row(found: Interval | None) -> Row | None:
    """One interval as in results files; None where there was nothing to compare with."""
    return None if found is None else found.row()


def bars(found: Mapping[str, Interval]) -> list[Bar]:
    """Intervals as bars of a plot."""
    return [
        Bar(name=name, value=one.value, low=_or(one.low, one.value), high=_or(one.high, one.value))
        for name, one in found.items()
    ]


def band(name: str, x_K: Sequence[float], success_SK: Floats) -> Line:
    """A curve over seeds: the IQM at each point, with its interval."""
    found = [interval([column_S], bootstrap_generator()) for column_S in success_SK.T]
    return Line(
        name=name,
        x=list(x_K),
        y=[one.value for one in found],
        low=[_or(one.low, one.value) for one in found],
        high=[_or(one.high, one.value) for one in found],
    )


def _or(bound: float | None, value: float) -> float:
    return value if bound is None else bound

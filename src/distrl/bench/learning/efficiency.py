"""`distrl bench efficiency`: time to target, the wall-clock until each method solves as many held-out tasks as the baseline.

The target is most of what the synchronous baseline gains within the budget. Since that may be little, our time to most of
what every other method gains itself is reported as well.

Every seed has its own target, because all methods of a seed start with the same policy: most of the way from that start to
the end of the baseline's curve of that seed. It is reached at the first evaluation time at which the smoothed curve is at
the target; nothing is interpolated, so a time is as coarse as the evaluation times. A seed that does not reach the target
within the budget is *censored*: its time is the budget or longer. In the bootstrap over seeds, the low end of a speed-up
takes the other method's censored times as the budget and ours as infinite, the high end the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from distrl.bench.base import BenchOptions
from distrl.bench.learning.methods import (
    BASELINE,
    FIRST,
    OURS,
    PLOT_NAMES,
    QUICK_WALL_CLOCK_BUDGET,
    SCHEMES,
    WALL_CLOCK_BUDGET,
    Method,
    TimedBudget,
    hash_all,
    resolve,
    settings_of,
    tuning_of,
)
from distrl.bench.learning.timed_runs import TimedRuns, layers, run_timed
from distrl.bench.plots import Labels, Line, draw_lines, save
from distrl.bench.result_cache import ResultCache, cache_for, code_version
from distrl.bench.statistics import DRAWS, LEVEL, Floats, Interval, Row, band, bootstrap_generator, check_options, iqm
from distrl.config.schema import Config
from distrl.runtime.summary import Summary

TARGET_SHARE = 0.9
"""Of the baseline's gain: its very last point is reached by chance, by half of its seeds."""
MIN_GAIN = 0.02
"""The target is at least this far above the start, also where the baseline learned nothing."""

Bound = Literal["exact", "lower", "upper", "unknown"]
"""What censored seeds make of a speed-up: a bound, or nothing certain where both methods have too many of them."""


class EfficiencyFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of training until the target, and our speed-up over other methods."""

    target_success: float
    """IQM over the seeds, each of which has its own target."""
    rival: str
    """The baseline, whose gain sets the target."""
    start: float
    """Success of the first version, which is the same for all methods of a seed, on the tasks of the curve (IQM over seeds)."""
    end: dict[str, float]
    """Success at the end of the budget, on all test tasks."""
    wall_s: dict[str, float]
    """IQM over seeds by method, from the first published version on; a censored seed counts as the budget."""
    moments_s: list[float]
    """When versions were evaluated: a time to target is the first of these at which the target was reached."""
    speedup_vs_digirl_sync: float
    low: float | None
    high: float | None
    bound: Bound
    """Whether censored seeds make that speed-up a bound."""
    speedup: dict[str, Row]
    """Against every other method."""
    speedup_at: dict[str, Row]
    """Against the baseline, where the target is another share of its gain."""
    speedup_to_their_end: dict[str, Row]
    """Against every other method, where the target is the same share of that method's own gain."""
    censored: dict[str, int]
    """Seeds that did not reach the target within the budget."""
    episodes: dict[str, float]
    """Mean episodes of a run."""
    updates: dict[str, float]
    """Mean updates of a run."""
    device_utilisation: dict[str, float]
    restarts: int
    """Of roles, in all runs together: more than 0 means that some run lost time for another reason."""
    seeds: int
    test_tasks: int
    budget_s: float
    tuning: dict[str, str]
    settings: dict[str, dict[str, str]]
    """What each method sets instead of the defaults."""
    code: str
    """Fingerprint of the training code."""
    config_hash: str


def run(options: BenchOptions) -> EfficiencyFigures:
    """Measure everything that `distrl bench efficiency` reports."""
    seeds = check_options(options)
    budget, runs = timed_comparison(options.quick, seeds, cache_for(options))
    figures = summarise(runs, budget)
    if options.out is not None:
        labels = Labels(title="Success over time", x="seconds since the first version", y="success, held-out tasks")
        level = (figures.target_success, f"target {figures.target_success:.2f}")
        save(draw_lines(time_curves(runs), labels, level=level), options.out, "efficiency")
    return figures


def timed_comparison(quick: bool, seeds: int, cache: ResultCache) -> tuple[TimedBudget, list[TimedRuns]]:
    """The runs at equal wall-clock, which `success` reports as well."""
    budget = QUICK_WALL_CLOCK_BUDGET if quick else WALL_CLOCK_BUDGET
    return budget, run_timed(schemes(quick), FIRST, budget, range(seeds), cache)


def schemes(quick: bool) -> Sequence[Method]:
    """All methods; with `--quick` only ours and the baseline."""
    return SCHEMES[:2] if quick else SCHEMES


def summarise(runs: Sequence[TimedRuns], budget: TimedBudget) -> EfficiencyFigures:
    """Times to target and their ratios."""
    by_name = {one.method.name: one for one in runs}
    target_S = targets(by_name[BASELINE].curve_SK())
    times = {name: _times(one, target_S) for name, one in by_name.items()}
    others = [name for name in by_name if name != OURS]
    faster = {name: speedup(times[OURS], times[name], bootstrap_generator()) for name in others}
    over_baseline, bound = faster[BASELINE]
    _, low, high = over_baseline.row()
    return EfficiencyFigures(
        target_success=round(float(iqm(target_S)), 4),
        rival=BASELINE,
        start=round(float(iqm(by_name[OURS].curve_SK()[:, 0])), 4),
        end={name: round(float(iqm(one.outcomes_ST().mean(axis=1))), 4) for name, one in by_name.items()},
        wall_s={name: round(float(iqm(found.lower_S)), 1) for name, found in times.items()},
        moments_s=by_name[OURS].wall_s_K().tolist(),
        speedup_vs_digirl_sync=round(over_baseline.value, 4),
        low=low,
        high=high,
        bound=bound,
        speedup={name: found.row() for name, (found, _) in faster.items()},
        speedup_at={f"{share:.0%}": _speedup_to(by_name, BASELINE, share).row() for share in (0.5, 0.75, TARGET_SHARE)},
        speedup_to_their_end={name: _speedup_to(by_name, name, TARGET_SHARE).row() for name in others},
        censored={name: found.censored for name, found in times.items()},
        episodes=_mean_of(runs, lambda summary: summary.episodes),
        updates=_mean_of(runs, lambda summary: summary.updates),
        device_utilisation=_mean_of(runs, lambda summary: summary.device_utilisation),
        restarts=sum(found.summary.restarts for one in runs for found in one.results),
        seeds=len(runs[0].results),
        test_tasks=len(runs[0].results[0].outcomes),
        budget_s=budget.wall_s,
        tuning=tuning_of([one.method for one in runs]),
        settings=settings_of([one.method for one in runs]),
        code=code_version(),
        config_hash=hash_all(configs(runs, budget)),
    )


def _speedup_to(by_name: Mapping[str, TimedRuns], other: str, share: float) -> Interval:
    """Our speed-up over another method to a share of its own gain."""
    target_S = targets(by_name[other].curve_SK(), share)
    ours, theirs = (_times(by_name[name], target_S) for name in (OURS, other))
    return speedup(ours, theirs, bootstrap_generator())[0]


def _times(timed: TimedRuns, target_S: Floats) -> Times:
    return times_to(target_S, timed.wall_s_K(), timed.curve_SK())


def configs(runs: Sequence[TimedRuns], budget: TimedBudget) -> list[Config]:
    """The configurations of all methods, without the seeds."""
    return [resolve(*layers(FIRST, one.method, budget)) for one in runs]


def time_curves(runs: Sequence[TimedRuns]) -> list[Line]:
    """Success over wall-clock, a curve for each method."""
    return [
        band(PLOT_NAMES.get(name := one.method.name, name), one.wall_s_K().tolist(), one.curve_SK()) for one in runs
    ]


def _mean_of(runs: Sequence[TimedRuns], figure: Callable[[Summary], float]) -> dict[str, float]:
    return {one.method.name: round(float(np.mean([figure(found.summary) for found in one.results])), 4) for one in runs}


# --- time to target ---------------------------------------------------------------------------------------------------


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Time to target of each seed; bounds differ for censored seeds."""

    lower_S: Floats
    """Censored seeds as the budget."""
    upper_S: Floats
    """Censored seeds as infinite."""

    @property
    def censored(self) -> int:
        """Seeds that did not reach the target within the budget."""
        return int(np.isinf(self.upper_S).sum())


def smooth(curve_SK: Floats) -> Floats:
    """Each point averaged with its neighbours; the first, before any learning, is unchanged."""
    padded = np.pad(curve_SK, [(0, 0), (1, 1)], constant_values=np.nan)
    mean_SK = np.nanmean(np.stack([padded[:, :-2], padded[:, 1:-1], padded[:, 2:]]), axis=0)
    return np.concatenate([curve_SK[:, :1], mean_SK[:, 1:]], axis=1)


def targets(baseline_SK: Floats, share: float = TARGET_SHARE) -> Floats:
    """Of each seed, `share` of the way from the baseline's start to the end of its smoothed curve."""
    start_S, end_S = baseline_SK[:, 0], smooth(baseline_SK)[:, -1]
    return np.asarray(start_S + np.maximum(MIN_GAIN, share * (end_S - start_S)))


def times_to(target_S: Floats, wall_s_K: Floats, curve_SK: Floats) -> Times:
    """The first evaluation time at which each smoothed curve is at its target; the last time is the end of the budget."""
    reached_SK = smooth(curve_SK) >= target_S[:, None]
    reached_S, first_S = reached_SK.any(axis=1), wall_s_K[reached_SK.argmax(axis=1)]
    return Times(
        lower_S=np.where(reached_S, first_S, wall_s_K[-1]),
        upper_S=np.where(reached_S, first_S, np.inf),
    )


def speedup(ours: Times, theirs: Times, random: np.random.Generator) -> tuple[Interval, Bound]:
    """Their time over ours (IQMs over the same seeds), and whether censored seeds make it a bound; an unbounded end is None."""
    num = len(ours.lower_S)
    seeds_DS = random.integers(num, size=(DRAWS, num))
    low_D = iqm(theirs.lower_S[seeds_DS]) / iqm(ours.upper_S[seeds_DS])
    high_D = iqm(theirs.upper_S[seeds_DS]) / iqm(ours.lower_S[seeds_DS])
    # `inverted_cdf` picks one of the resamples: interpolating between a finite value and infinity gives NaN.
    low = np.quantile(low_D, (1 - LEVEL) / 2, method="inverted_cdf")
    high = np.quantile(high_D, (1 + LEVEL) / 2, method="inverted_cdf")
    value = float(iqm(theirs.lower_S) / iqm(ours.lower_S))
    found = Interval(value=value, low=float(low), high=float(high) if np.isfinite(high) else None)
    return found, _bound(bool(np.isinf(iqm(ours.upper_S))), bool(np.isinf(iqm(theirs.upper_S))))


def _bound(ours_censored: bool, theirs_censored: bool) -> Bound:
    if ours_censored and theirs_censored:
        return "unknown"
    return "upper" if ours_censored else "lower" if theirs_censored else "exact"

"""`distrl bench efficiency`: how long each method trains until it fulfils as many held-out tasks as its synchronous rival.

The target is most of what the rival gains within the budget. A seed whose smoothed curve never gets there counts as if
it did at the end of the budget ("censored"): of the rival that makes the speed-up a lower bound, of ours an upper one,
`bound` says which, and the other end of the interval is open. Intervals come from a bootstrap over seeds in which the
target is set anew by each draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import numpy as np

from distrl.bench.base import BenchOptions
from distrl.bench.comparison import Row, band, begin, generator, hash_all, row
from distrl.bench.methods import (
    CLOCK,
    FIRST,
    OURS,
    QUICK_CLOCK,
    RIVAL,
    SCHEMES,
    Method,
    TimedBudget,
    resolve,
    tuning_of,
)
from distrl.bench.parts import Parts, parts_for
from distrl.bench.plots import Line, Words, draw_lines, save
from distrl.bench.statistics import Floats, Interval, Reached, interval, iqm, smooth, time_to
from distrl.bench.timed_runs import Timed, layers, run_timed
from distrl.config.schema import Config
from distrl.experience.sumtree import Ints
from distrl.runtime.summary import Summary

TARGET_SHARE = 0.9
"""Of the rival's gain: its very last point is reached by half of its seeds, and by chance."""
DRAWS = 1000
SHORTEST_S = 1.0
"""Who starts at the target took this long: nothing is infinitely fast."""
LEAST_GAIN = 0.02
"""The target lies at least this far above the start, also where the rival learned nothing."""

Bound = Literal["exact", "lower", "upper", "unknown"]


class EfficiencyFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of training until the target, and how many times fewer than others we need."""

    target_success: float
    rival: str
    """Whose gain set the target."""
    wall_s: dict[str, float]
    """IQM over seeds by method, from the first published version on."""
    wall_s_interval: dict[str, list[float | None]]
    speedup_vs_digirl_sync: float | None
    low: float | None
    high: float | None
    bound: Bound | None
    """What the censored seeds make of that speed-up."""
    speedup: dict[str, Row | None]
    """Against every other method."""
    speedup_at: dict[str, Row | None]
    """Against the rival, where the target is another share of its gain."""
    speedup_to_their_end: dict[str, Row | None]
    """Against every other method, where the target is as much of what that method itself gains."""
    censored: dict[str, int]
    """Seeds that did not reach the target within the budget."""
    episodes: dict[str, float]
    """Mean episodes of a run."""
    device_utilisation: dict[str, float]
    restarts: int
    """Of roles, in all runs together: more than 0 means that some run lost time for a reason of its own."""
    seeds: int
    test_tasks: int
    budget_s: float
    tuning: dict[str, str]
    config_hash: str


def run(options: BenchOptions) -> EfficiencyFigures:
    """The figures, as `distrl bench efficiency` reports them."""
    seeds = begin(options)
    budget, runs = timed_comparison(options.quick, seeds, parts_for(options))
    figures = sum_up(runs, budget)
    if options.out is not None:
        words = Words(title="Success over time", x="seconds since the first version", y="success, held-out tasks")
        level = (figures.target_success, f"target {figures.target_success:.2f}")
        save(draw_lines(time_curves(runs), words, level=level), options.out, "efficiency")
    return figures


def timed_comparison(quick: bool, seeds: int, parts: Parts) -> tuple[TimedBudget, list[Timed]]:
    """The runs at equal wall-clock, which `success` reports as well."""
    budget = QUICK_CLOCK if quick else CLOCK
    return budget, run_timed(schemes(quick), FIRST, budget, range(seeds), parts)


def schemes(quick: bool) -> Sequence[Method]:
    """Ours and, in the quick form, only its neighbour."""
    return SCHEMES[:2] if quick else SCHEMES


def sum_up(runs: Sequence[Timed], budget: TimedBudget) -> EfficiencyFigures:
    """Times to the target and their ratios."""
    by_name = {one.method.name: one for one in runs}
    rival = RIVAL if RIVAL in by_name else runs[-1].method.name
    target = choose_target(by_name[rival].curve_SK())
    reached = {name: times_to(target, one, budget) for name, one in by_name.items()}
    wall_s = {name: [np.array([one.wall_s for one in found])] for name, found in reached.items()}
    censored = {name: sum(one.censored for one in found) for name, found in reached.items()}
    intervals = {name: interval(times, generator()).row() for name, times in wall_s.items()}
    others = [name for name in by_name if name != OURS]
    race = Race(rival=by_name[rival], budget=budget)
    speedup = {name: row(race.speedup(by_name[OURS], by_name[name])) for name in others}
    digirl = speedup.get(RIVAL) or [None, None, None]
    return EfficiencyFigures(
        target_success=round(target, 4),
        rival=rival,
        wall_s={name: float(np.round(iqm(times[0]), 1)) for name, times in wall_s.items()},
        wall_s_interval={name: found[1:] for name, found in intervals.items()},
        speedup_vs_digirl_sync=digirl[0],
        low=digirl[1],
        high=digirl[2],
        bound=bound_of(censored[OURS], censored[RIVAL]) if RIVAL in censored else None,
        speedup=speedup,
        speedup_at={
            f"{share:.0%}": row(race.speedup(by_name[OURS], by_name[rival], share))
            for share in (0.5, 0.75, TARGET_SHARE)
        },
        speedup_to_their_end={
            name: row(Race(rival=by_name[name], budget=budget).speedup(by_name[OURS], by_name[name])) for name in others
        },
        censored=censored,
        episodes=_mean_of(runs, lambda summary: summary.episodes),
        device_utilisation=_mean_of(runs, lambda summary: summary.device_utilisation),
        restarts=sum(found.summary.restarts for one in runs for found in one.results),
        seeds=len(runs[0].results),
        test_tasks=len(runs[0].results[0].outcomes),
        budget_s=budget.wall_s,
        tuning=tuning_of([one.method for one in runs]),
        config_hash=hash_all(configs(runs, budget)),
    )


def choose_target(rival_SK: Floats, share: float = TARGET_SHARE) -> float:
    """Most of the way from where the rival began to where its smoothed curves end."""
    curves_SK = np.array([smooth(curve_K) for curve_K in rival_SK])
    start, end = float(iqm(rival_SK[:, 0])), float(iqm(curves_SK[:, -1]))
    return start + max(LEAST_GAIN, share * (end - start))


class Race(msgspec.Struct, frozen=True, kw_only=True):
    """Two methods on their way to what the rival gains."""

    rival: Timed
    budget: TimedBudget

    def speedup(self, ours: Timed, theirs: Timed, share: float = TARGET_SHARE) -> Interval:
        """Their time over ours, of the same seeds; an end that censored seeds leave open is None."""
        random, num = generator(), len(ours.results)
        seeds_DS = random.integers(num, size=(DRAWS, num))
        found = np.array([self._ratio(ours, theirs, share, seeds_S)[0] for seeds_S in seeds_DS])
        low, high = np.quantile(found, [0.025, 0.975], method="inverted_cdf")
        value, bound = self._ratio(ours, theirs, share, np.arange(num))
        return Interval(
            value=value,
            low=None if bound in ("upper", "unknown") else float(low),
            high=None if bound in ("lower", "unknown") else float(high),
        )

    def _ratio(self, ours: Timed, theirs: Timed, share: float, seeds_S: Ints) -> tuple[float, Bound]:
        target = choose_target(self.rival.curve_SK()[seeds_S], share)
        mine, other = (times_to(target, one, self.budget, seeds_S) for one in (ours, theirs))
        theirs_s, ours_s = (float(iqm([one.wall_s for one in found])) for found in (other, mine))
        return theirs_s / max(ours_s, SHORTEST_S), bound_of(
            sum(one.censored for one in mine), sum(one.censored for one in other)
        )


def times_to(target: float, timed: Timed, budget: TimedBudget, seeds_S: Ints | None = None) -> list[Reached]:
    """When each seed, or each of `seeds_S`, reached the target."""
    curve_SK = timed.curve_SK() if seeds_S is None else timed.curve_SK()[seeds_S]
    return [time_to(target, timed.wall_s_K(), success_K, budget_s=budget.wall_s) for success_K in curve_SK]


def bound_of(ours_censored: int, theirs_censored: int) -> Bound:
    """What censored seeds make of their time over ours."""
    if ours_censored and theirs_censored:
        return "unknown"
    return "upper" if ours_censored else "lower" if theirs_censored else "exact"


def configs(runs: Sequence[Timed], budget: TimedBudget) -> list[Config]:
    """What was compared, without the seeds."""
    return [resolve(*layers(FIRST, one.method, budget)) for one in runs]


def time_curves(runs: Sequence[Timed]) -> list[Line]:
    """Success over wall-clock, a curve for each method."""
    return [band(one.method.name, one.wall_s_K().tolist(), one.curve_SK()) for one in runs]


def _mean_of(runs: Sequence[Timed], figure: Callable[[Summary], float]) -> dict[str, float]:
    return {one.method.name: round(float(np.mean([figure(found.summary) for found in one.results])), 4) for one in runs}

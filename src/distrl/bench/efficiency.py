"""`distrl bench efficiency`: how long each method trains until it fulfils as many held-out tasks as its synchronous rival.

The target is most of what the rival gains within the budget, seed by seed (`race`). Since that may be little, ours is
also raced to most of what every other method gains itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from distrl.bench.base import BenchOptions
from distrl.bench.comparison import Row, band, begin, generator, hash_all
from distrl.bench.methods import (
    CLOCK,
    FIRST,
    OURS,
    QUICK_CLOCK,
    RIVAL,
    SCHEMES,
    SHOWN,
    Method,
    TimedBudget,
    resolve,
    settings_of,
    tuning_of,
)
from distrl.bench.parts import Parts, code_version, parts_for
from distrl.bench.plots import Line, Words, draw_lines, save
from distrl.bench.race import TARGET_SHARE, Bound, Times, speedup, targets, times_to
from distrl.bench.statistics import Floats, Interval, iqm
from distrl.bench.timed_runs import Timed, layers, run_timed
from distrl.config.schema import Config
from distrl.runtime.summary import Summary


class EfficiencyFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of training until the target, and how many times fewer than others we need."""

    target_success: float
    """IQM over the seeds, each of which has its own."""
    rival: str
    """Whose gain set the target."""
    start: float
    """Success of the first version, which is the same for all methods of a seed, on the tasks of the curve (IQM over seeds)."""
    end: dict[str, float]
    """Success at the end of the budget, on all test tasks."""
    wall_s: dict[str, float]
    """IQM over seeds by method, from the first published version on; a seed that never gets there counts as the budget."""
    moments_s: list[float]
    """When versions were judged: a time is the first of these at which the target was reached."""
    speedup_vs_digirl_sync: float
    low: float | None
    high: float | None
    bound: Bound
    """What the censored seeds make of that speed-up."""
    speedup: dict[str, Row]
    """Against every other method."""
    speedup_at: dict[str, Row]
    """Against the rival, where the target is another share of its gain."""
    speedup_to_their_end: dict[str, Row]
    """Against every other method, where the target is as much of what that method itself gains."""
    censored: dict[str, int]
    """Seeds that did not reach the target within the budget."""
    episodes: dict[str, float]
    """Mean episodes of a run."""
    updates: dict[str, float]
    """Mean updates of a run."""
    device_utilisation: dict[str, float]
    restarts: int
    """Of roles, in all runs together: more than 0 means that some run lost time for a reason of its own."""
    seeds: int
    test_tasks: int
    budget_s: float
    tuning: dict[str, str]
    settings: dict[str, dict[str, str]]
    """What each method has instead of the defaults."""
    code: str
    """Changes with any source file that may change what a training run comes to."""
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
    target_S = targets(by_name[RIVAL].curve_SK())
    times = {name: _times(one, target_S) for name, one in by_name.items()}
    others = [name for name in by_name if name != OURS]
    faster = {name: speedup(times[OURS], times[name], generator()) for name in others}
    over_rival, bound = faster[RIVAL]
    _, low, high = over_rival.row()
    return EfficiencyFigures(
        target_success=round(float(iqm(target_S)), 4),
        rival=RIVAL,
        start=round(float(iqm(by_name[OURS].curve_SK()[:, 0])), 4),
        end={name: round(float(iqm(one.outcomes_ST().mean(axis=1))), 4) for name, one in by_name.items()},
        wall_s={name: round(float(iqm(found.least_S)), 1) for name, found in times.items()},
        moments_s=by_name[OURS].wall_s_K().tolist(),
        speedup_vs_digirl_sync=round(over_rival.value, 4),
        low=low,
        high=high,
        bound=bound,
        speedup={name: found.row() for name, (found, _) in faster.items()},
        speedup_at={f"{share:.0%}": _race(by_name, RIVAL, share).row() for share in (0.5, 0.75, TARGET_SHARE)},
        speedup_to_their_end={name: _race(by_name, name, TARGET_SHARE).row() for name in others},
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


def _race(by_name: Mapping[str, Timed], rival: str, share: float) -> Interval:
    """Ours against one that runs to a share of its own gain."""
    target_S = targets(by_name[rival].curve_SK(), share)
    ours, theirs = (_times(by_name[name], target_S) for name in (OURS, rival))
    return speedup(ours, theirs, generator())[0]


def _times(timed: Timed, target_S: Floats) -> Times:
    return times_to(target_S, timed.wall_s_K(), timed.curve_SK())


def configs(runs: Sequence[Timed], budget: TimedBudget) -> list[Config]:
    """What was compared, without the seeds."""
    return [resolve(*layers(FIRST, one.method, budget)) for one in runs]


def time_curves(runs: Sequence[Timed]) -> list[Line]:
    """Success over wall-clock, a curve for each method."""
    return [band(SHOWN.get(name := one.method.name, name), one.wall_s_K().tolist(), one.curve_SK()) for one in runs]


def _mean_of(runs: Sequence[Timed], figure: Callable[[Summary], float]) -> dict[str, float]:
    return {one.method.name: round(float(np.mean([figure(found.summary) for found in one.results])), 4) for one in runs}

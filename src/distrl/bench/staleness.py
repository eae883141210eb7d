"""`distrl bench staleness`: what acting with older and older policies costs, with and without correcting for it.

In the laboratory the acting policy lags a fixed number of versions behind the learner, from the first episode on. An
episode can be sampled for two versions after its arrival, successes are not kept beyond that, and words are not renamed:
what is sampled is as old as the lag, or up to two versions older.

The default imitates successes and has no ratio in its policy term: what it corrects is the critic alone. A policy
gradient stands beside it, PPO, for which the correction is in the policy term: the ratio to the policy that acted, and a
reach around that policy. It also runs with the ratio alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from distrl.bench.base import BenchOptions
from distrl.bench.comparison import Row, band, begin, generator, hash_all
from distrl.bench.comparison import row as as_row
from distrl.bench.lab_runs import Entry, Ran, made_on, run_labs
from distrl.bench.methods import FIRST, GRADIENT, HASTE, LAB_SEED, ONE_EACH, LabBudget, Method, resolve
from distrl.bench.parts import code_version, parts_for
from distrl.bench.plots import Line, Words, draw_lines, save
from distrl.bench.statistics import Interval, difference, interval, iqm, relative

STALE_PPO = {
    "algorithm.name": "ppo",
    **GRADIENT,
    "algorithm.rho_max": "1",
    "algorithm.proximal.every_updates": "12",
    "algorithm.proximal.reach": "0.2",
    "learner.learning_rate": "0.0002",
}
CORRECTIONS = {
    "corrected": Method(name="default: ratios in the targets", settings={"algorithm.importance": "targets"}),
    "uncorrected": Method(name="default: no ratios", settings={"algorithm.importance": "none"}),
    "ppo_corrected": Method(name="PPO: ratios and reach", settings=STALE_PPO),
    "ppo_ratios": Method(name="PPO: ratios alone", settings={**STALE_PPO, "algorithm.proximal.reach": "0"}),
    "ppo_uncorrected": Method(name="PPO: neither", settings={**STALE_PPO, "algorithm.importance": "none"}),
}
"""Rows of `staleness`."""
PAIRS = {"corrected": "uncorrected", "ppo_corrected": "ppo_uncorrected", "ppo_ratios": "ppo_uncorrected"}
PLAINLY_STALE = {"replay.keep_successes": "false", "warm_start.keep": "false", "policy.rename_share": "0"}
"""So that nothing is older than the lag and the window make it."""
REPORTED = 8
"""The lag whose cost has fields of its own."""
BOUNDS, QUICK_BOUNDS = (0, 1, 2, 4, 8, 16), (0, 8)
"""Versions of lag in `staleness`."""
STALE_LAB = LabBudget(episodes=1152, chunk=24, evaluate_every=576, tune_tasks=100, settings=ONE_EACH)
QUICK_STALE_LAB = LabBudget(
    episodes=256, chunk=8, evaluate_every=128, tune_tasks=20, most_test_tasks=60, settings=HASTE
)
"""Versions smaller than those of real runs, which have some 90 episodes, so that the largest lag is a third of the run at most."""
WINDOW = 2
"""Versions after its arrival for which an episode can be sampled."""
MARGIN = 0.1
"""A lag is tolerated where the whole interval shows a relative loss of less than this."""
TUNING = (
    "Every lag keeps the settings of its method; none was tuned again. Those of the default were chosen at a lag of 2. PPO's are "
    "the best with a reach of fifteen tries at lags 0 and 8 on 300 tuning tasks, some with one seed, some with two, which "
    "docs/algorithms/ppo.md lists. Without a reach PPO has the same settings; half the learning rate was better for it at a lag of 8."
)

Runs = Mapping[str, Mapping[int, Ran]]
"""By form and correction, the run at each bound."""


class StalenessFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Success on held-out tasks (IQM) at each bound, and how far the lag is tolerated."""

    bounds: list[int]
    """How many versions old the acting policy is."""
    corrected: list[float]
    """The default: importance ratios in the value targets."""
    uncorrected: list[float]
    """The same without ratios."""
    iqm: dict[str, dict[str, Row | None]]
    """[value, low, high] of every form at every bound."""
    change_at_8: dict[str, Row | None]
    """By form, success at the lag of 8 less that at 0, seed by seed and task by task."""
    correction_at_8: dict[str, Row | None]
    """What correcting adds at the lag of 8."""
    change: dict[str, dict[str, Row | None]]
    """By form and bound, success over that at 0, less 1."""
    tolerated: dict[str, int]
    """The largest bound up to which success is not lower by 10 % or more than at 0."""
    start: float
    """Success of the warm start, on the tuning tasks (IQM over seeds)."""
    seeds: int
    test_tasks: int
    episodes: int
    """Of each run."""
    episodes_per_version: int
    window: int
    """Versions after its arrival for which an episode can be sampled."""
    tuning: str
    settings: dict[str, dict[str, str]]
    """What each form has instead of the defaults, but for `replay.max_staleness`, which is the bound and the window."""
    code: str
    """Changes with any source file that may change what a training run comes to."""
    made_on: dict[str, int]
    """How many of the laboratory runs were made on what."""
    config_hash: str


def run(options: BenchOptions) -> StalenessFigures:
    """The figures, as `distrl bench staleness` reports them."""
    seeds = begin(options)
    budget, bounds = (QUICK_STALE_LAB, QUICK_BOUNDS) if options.quick else (STALE_LAB, BOUNDS)
    table = [(name, bound) for name in CORRECTIONS for bound in bounds]
    entries = [entry(CORRECTIONS[name], bound) for name, bound in table]
    found = run_labs(entries, budget, seeds, parts_for(options), first_seed=LAB_SEED)
    runs: dict[str, dict[int, Ran]] = {name: {} for name in CORRECTIONS}
    for (name, bound), ran in zip(table, found, strict=True):
        runs[name][bound] = ran
    if options.out is not None:
        words = Words(title="What staleness costs", x="versions of lag", y="success, held-out tasks")
        save(
            draw_lines([_line(CORRECTIONS[name].name, row) for name, row in runs.items()], words),
            options.out,
            "staleness",
        )
    return sum_up(runs, bounds, budget)


def entry(method: Method, bound: int) -> Entry:
    """A form at a bound."""
    settings = {"replay.max_staleness": str(bound + WINDOW), **PLAINLY_STALE}
    return Entry(method=method, arena=FIRST, lag=bound, settings=settings)


def sum_up(runs: Runs, bounds: Sequence[int], budget: LabBudget) -> StalenessFigures:
    """The figures of all forms at all bounds."""
    found = {
        name: {bound: interval([ran.outcomes_ST()], generator()) for bound, ran in row.items()}
        for name, row in runs.items()
    }
    some = next(iter(runs["corrected"].values()))
    return StalenessFigures(
        bounds=list(bounds),
        corrected=[round(found["corrected"][bound].value, 4) for bound in bounds],
        uncorrected=[round(found["uncorrected"][bound].value, 4) for bound in bounds],
        iqm={name: {str(bound): one.row() for bound, one in row.items()} for name, row in found.items()},
        change_at_8={name: _change(row[REPORTED], row[0]) for name, row in runs.items()},
        correction_at_8={name: _change(runs[name][REPORTED], runs[plain][REPORTED]) for name, plain in PAIRS.items()},
        change={
            name: {str(bound): as_row(_over_none(row, bound)) for bound in sorted(row)[1:]}
            for name, row in runs.items()
        },
        tolerated={name: tolerated(row) for name, row in runs.items()},
        start=round(float(iqm(some.curve_SK()[:, 0])), 4),
        seeds=len(some.results),
        test_tasks=len(some.results[0].outcomes),
        episodes=budget.episodes,
        episodes_per_version=budget.chunk,
        window=WINDOW,
        tuning=TUNING,
        settings={
            name: {**budget.settings, **method.settings, **PLAINLY_STALE} for name, method in CORRECTIONS.items()
        },
        code=code_version(),
        made_on=made_on([ran for row in runs.values() for ran in row.values()]),
        config_hash=hash_all(resolve(*ran.entry.layers(budget)) for row in runs.values() for ran in row.values()),
    )


def tolerated(row: Mapping[int, Ran]) -> int:
    """The largest bound up to which no loss of `MARGIN` is within the interval; what is uncertain is not tolerated."""
    reached = 0
    for bound in sorted(row)[1:]:
        if not _is_safe(_over_none(row, bound)):
            break
        reached = bound
    return reached


def _change(one: Ran, other: Ran) -> Row:
    return difference([one.outcomes_ST()], [other.outcomes_ST()], generator()).row()


def _over_none(row: Mapping[int, Ran], bound: int) -> Interval | None:
    return relative([row[bound].outcomes_ST()], [row[0].outcomes_ST()], generator())


def _is_safe(change: Interval | None) -> bool:
    return change is not None and change.low is not None and change.low > -MARGIN


def _line(name: str, row: Mapping[int, Ran]) -> Line:
    scores_SK = np.stack([ran.outcomes_ST().mean(axis=1) for ran in row.values()], axis=1)
    return band(name, list(row), scores_SK)

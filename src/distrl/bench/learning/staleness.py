"""`distrl bench staleness`: what acting with older and older policies costs, with and without correcting for it.

The single-process trainer keeps the acting policy a fixed number of versions behind the learner, from the first episode
on. An episode can be sampled for two versions after its arrival, successes are not kept beyond that, and words are not
renamed: what is sampled is as old as the lag, or up to two versions older.

The default imitates successes and has no importance ratio in its policy term: it corrects the critic alone. PPO is
compared as well, whose correction is in the policy term: the ratio to the behaviour policy, and a trust region around
that policy. It also runs with the ratio alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from distrl.bench.base import BenchOptions
from distrl.bench.learning.methods import (
    EPISODE_SEED,
    FIRST,
    ONE_UPDATE,
    QUICK_SETTINGS,
    TUNED_PPO,
    EpisodeBudget,
    Method,
    hash_all,
    resolve,
)
from distrl.bench.learning.trainer_runs import Entry, EntryRuns, made_on, run_trainers
from distrl.bench.plots import Labels, Line, draw_lines, save
from distrl.bench.result_cache import cache_for, code_version
from distrl.bench.statistics import (
    Interval,
    Row,
    band,
    bootstrap_generator,
    check_options,
    difference,
    interval,
    iqm,
    relative,
)
from distrl.bench.statistics import row as as_row

PPO = {
    **TUNED_PPO,
    "algorithm.ppo.rho_max": "1",
    "algorithm.ppo.every_updates": "12",
    "algorithm.ppo.trust_region": "0.2",
    "learner.learning_rate": "0.0002",
}
CORRECTIONS = {
    "corrected": Method(name="default: ratios in the targets", settings={"algorithm.aride.importance": "targets"}),
    "uncorrected": Method(name="default: no ratios", settings={"algorithm.aride.importance": "none"}),
    "ppo_corrected": Method(name="PPO: ratios and trust region", settings=PPO),
    "ppo_ratios": Method(name="PPO: ratios alone", settings={**PPO, "algorithm.ppo.trust_region": "0"}),
    "ppo_uncorrected": Method(name="PPO: neither", settings={**PPO, "algorithm.ppo.importance": "none"}),
}
"""The compared forms."""
PAIRS = {"corrected": "uncorrected", "ppo_corrected": "ppo_uncorrected", "ppo_ratios": "ppo_uncorrected"}
LAG_ALONE = {"replay.keep_successes": "false", "warm_start.keep": "false", "policy.pointer.word_swap_share": "0"}
"""Nothing is older than lag and window allow."""
REPORTED = 8
"""The lag whose cost has its own fields."""
BOUNDS, QUICK_BOUNDS = (0, 1, 2, 4, 8, 16), (0, 8)
"""The compared lags, in versions."""
STALENESS_BUDGET = EpisodeBudget(episodes=1152, chunk=24, evaluate_every=576, tune_tasks=100, settings=ONE_UPDATE)
QUICK_STALENESS_BUDGET = EpisodeBudget(
    episodes=256, chunk=8, evaluate_every=128, tune_tasks=20, most_test_tasks=60, settings=QUICK_SETTINGS
)
"""Smaller versions than those of real runs, which have some 90 episodes: the largest lag is at most a third of the run."""
WINDOW = 2
"""Versions after its arrival for which an episode can be sampled."""
MARGIN = 0.1
"""A lag is tolerated where the whole interval shows a relative loss of less than this."""
TUNING = (
    "Every lag keeps the settings of its method; none was tuned again. Those of the default were chosen at a lag of 2. PPO's are "
    "the best with a trust region of fifteen tries at lags 0 and 8 on 300 tuning tasks, some with one seed, some with two, which "
    "docs/algorithms/ppo.md lists. Without a trust region PPO has the same settings; half the learning rate was better for it at a lag of 8."
)

Runs = Mapping[str, Mapping[int, EntryRuns]]
"""By form, the runs at each bound."""


class StalenessFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Success on held-out tasks (IQM) at each bound, and how far the lag is tolerated."""

    bounds: list[int]
    """How many versions the acting policy lags behind."""
    corrected: list[float]
    """The default: importance ratios in the value targets."""
    uncorrected: list[float]
    """The same without ratios."""
    iqm: dict[str, dict[str, Row | None]]
    """[value, low, high] of every form at every bound."""
    change_at_8: dict[str, Row | None]
    """By form, success at the lag of 8 less that at 0, paired by seed and task."""
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
    """What each form sets instead of the defaults, except `replay.max_staleness`, which is the bound plus the window."""
    code: str
    """Fingerprint of the training code."""
    made_on: dict[str, int]
    """How many of the runs were made on which machine."""
    config_hash: str


def run(options: BenchOptions) -> StalenessFigures:
    """Measure everything that `distrl bench staleness` reports."""
    seeds = check_options(options)
    budget, bounds = (QUICK_STALENESS_BUDGET, QUICK_BOUNDS) if options.quick else (STALENESS_BUDGET, BOUNDS)
    table = [(name, bound) for name in CORRECTIONS for bound in bounds]
    entries = [entry(CORRECTIONS[name], bound) for name, bound in table]
    found = run_trainers(entries, budget, seeds, cache_for(options), first_seed=EPISODE_SEED)
    runs: dict[str, dict[int, EntryRuns]] = {name: {} for name in CORRECTIONS}
    for (name, bound), one in zip(table, found, strict=True):
        runs[name][bound] = one
    if options.out is not None:
        labels = Labels(title="What staleness costs", x="versions of lag", y="success, held-out tasks")
        save(
            draw_lines([_line(CORRECTIONS[name].name, row) for name, row in runs.items()], labels),
            options.out,
            "staleness",
        )
    return summarise(runs, bounds, budget)


def entry(method: Method, bound: int) -> Entry:
    """A form at a bound."""
    settings = {"replay.max_staleness": str(bound + WINDOW), **LAG_ALONE}
    return Entry(method=method, arena=FIRST, lag=bound, settings=settings)


def summarise(runs: Runs, bounds: Sequence[int], budget: EpisodeBudget) -> StalenessFigures:
    """The figures of all forms at all bounds."""
    found = {
        name: {bound: interval([one.outcomes_ST()], bootstrap_generator()) for bound, one in row.items()}
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
            name: {str(bound): as_row(_change_from_no_lag(row, bound)) for bound in sorted(row)[1:]}
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
        settings={name: {**budget.settings, **method.settings, **LAG_ALONE} for name, method in CORRECTIONS.items()},
        code=code_version(),
        made_on=made_on([one for row in runs.values() for one in row.values()]),
        config_hash=hash_all(resolve(*one.entry.layers(budget)) for row in runs.values() for one in row.values()),
    )


def tolerated(row: Mapping[int, EntryRuns]) -> int:
    """The largest bound up to which every interval excludes a relative loss of `MARGIN`."""
    reached = 0
    for bound in sorted(row)[1:]:
        if not _is_safe(_change_from_no_lag(row, bound)):
            break
        reached = bound
    return reached


def _change(one: EntryRuns, other: EntryRuns) -> Row:
    return difference([one.outcomes_ST()], [other.outcomes_ST()], bootstrap_generator()).row()


def _change_from_no_lag(row: Mapping[int, EntryRuns], bound: int) -> Interval | None:
    return relative([row[bound].outcomes_ST()], [row[0].outcomes_ST()], bootstrap_generator())


def _is_safe(change: Interval | None) -> bool:
    return change is not None and change.low is not None and change.low > -MARGIN


def _line(name: str, row: Mapping[int, EntryRuns]) -> Line:
    scores_SK = np.stack([one.outcomes_ST().mean(axis=1) for one in row.values()], axis=1)
    return band(name, list(row), scores_SK)

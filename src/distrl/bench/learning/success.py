"""`distrl bench success`: how many held-out tasks each method solves, after equal episodes and after equal wall-clock.

At equal episodes every algorithm trains in one process on the same number of episodes, played by a policy that is a few
versions old; the result is over several arenas. At equal wall-clock real runs are compared, asynchronous with
synchronous: the same runs as those of `distrl bench efficiency`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from distrl.bench.base import BenchOptions
from distrl.bench.learning.efficiency import configs as timed_configs
from distrl.bench.learning.efficiency import time_curves, timed_comparison
from distrl.bench.learning.methods import (
    ALGORITHMS,
    ARENAS,
    BASELINE,
    EPISODE_BUDGET,
    EPISODE_SEED,
    FIRST,
    NO_DATA_OPTIONS,
    OURS,
    PLOT_NAMES,
    QUICK_EPISODE_BUDGET,
    TUNED,
    EpisodeBudget,
    TimedBudget,
    hash_all,
    resolve,
    settings_of,
    tuning_of,
)
from distrl.bench.learning.string_matcher import StringMatchScore, score_string_matching
from distrl.bench.learning.timed_runs import TimedRuns
from distrl.bench.learning.trainer_runs import Entry, EntryRuns, made_on, run_trainers
from distrl.bench.plots import Labels, draw_bars, draw_lines, save
from distrl.bench.result_cache import cache_for, code_version
from distrl.bench.statistics import Row, Strata, band, bars, check_options, compare, measure, rows

EQUAL_EPISODES, EQUAL_WALL_CLOCK = "equal episodes", "equal wall-clock"
"""Names of the two comparisons in results files."""


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What each method may use."""

    episodes: int
    """In each arena, at equal episodes."""
    lag: int
    """How many versions the acting policy lags behind."""
    wall_s: float
    """Of training, at equal wall-clock."""


class SuccessFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of held-out tasks; each row is [value, low, high], and relative figures are ours over theirs, less 1."""

    iqm: dict[str, Row | None]
    """At equal episodes, over all arenas."""
    iqm_by_arena: dict[str, dict[str, Row | None]]
    iqm_wall_clock: dict[str, Row | None]
    relative_vs_digirl: float | None
    """Over DigiRL in its synchronous scheme, at equal wall-clock; None: it was not among the methods."""
    relative_low: float | None
    relative_high: float | None
    relative_vs_async_digirl: float | None
    """At equal episodes."""
    relative_vs_async_filtered_bc: float | None
    relative: dict[str, Row | None]
    """The default over every other algorithm, at equal episodes."""
    relative_eight_tries: dict[str, Row | None]
    """A-RIDE after the same eight tuning runs over every other algorithm; empty where it is not among the methods."""
    relative_no_options: dict[str, Row | None]
    """A-RIDE without its data options over every other algorithm; likewise empty."""
    relative_wall_clock: dict[str, Row | None]
    """Over every other scheme, at equal wall-clock."""
    seeds: int
    test_tasks: int
    """At equal episodes."""
    test_tasks_wall_clock: int
    budget: Budget
    updates: dict[str, int]
    """Updates of each method in each arena, at equal episodes."""
    given_away: dict[str, StringMatchScore]
    """By arena, what string matching alone achieves (`string_matcher`)."""
    tuning: dict[str, dict[str, str]]
    """By comparison and method."""
    settings: dict[str, dict[str, dict[str, str]]]
    """By comparison and method, what it sets instead of the defaults."""
    code: str
    """Fingerprint of the training code."""
    made_on: dict[str, int]
    """How many of the runs were made on which machine."""
    config_hash: str


def run(options: BenchOptions) -> SuccessFigures:
    """Measure everything that `distrl bench success` reports."""
    seeds, cache = check_options(options), cache_for(options)
    budget = QUICK_EPISODE_BUDGET if options.quick else EPISODE_BUDGET
    entries = [Entry(method=method, arena=arena) for arena in ARENAS for method in ALGORITHMS]
    trained = run_trainers(entries, budget, seeds, cache, first_seed=EPISODE_SEED)
    clock, timed = timed_comparison(options.quick, seeds, cache)
    figures = summarise(trained, timed, (budget, clock), string_match_by_arena(budget.most_test_tasks))
    if options.out is not None:
        _draw(trained, timed, budget, options.out)
    return figures


def string_match_by_arena(max_tasks: int) -> dict[str, StringMatchScore]:
    """The score of string matching in every compared arena."""
    return {arena.name: score_string_matching(arena, max_tasks) for arena in (*ARENAS, FIRST)}


def summarise(
    trained: Sequence[EntryRuns],
    timed: Sequence[TimedRuns],
    budgets: tuple[EpisodeBudget, TimedBudget],
    string_match: dict[str, StringMatchScore],
) -> SuccessFigures:
    """The figures from both kinds of runs."""
    budget, clock = budgets
    scores, timed_scores = scores_by_method(trained), {one.method.name: [one.outcomes_ST()] for one in timed}
    over, over_timed = rows(compare(OURS, scores)), rows(compare(OURS, timed_scores))
    sync = over_timed.get(BASELINE) or [None, None, None]
    used = [resolve(*one.entry.layers(budget)) for one in trained]
    methods, schemes = [one.entry.method for one in trained], [one.method for one in timed]
    return SuccessFigures(
        iqm=rows(measure(scores)),
        iqm_by_arena=by_arena(trained),
        iqm_wall_clock=rows(measure(timed_scores)),
        relative_vs_digirl=sync[0],
        relative_low=sync[1],
        relative_high=sync[2],
        relative_vs_async_digirl=_value(over.get("digirl")),
        relative_vs_async_filtered_bc=_value(over.get("filtered_bc")),
        relative=over,
        relative_eight_tries=_over(TUNED, scores),
        relative_no_options=_over(NO_DATA_OPTIONS, scores),
        relative_wall_clock=over_timed,
        seeds=len(trained[0].results),
        test_tasks=sum(outcome_ST.shape[1] for outcome_ST in scores[OURS]),
        test_tasks_wall_clock=timed_scores[OURS][0].shape[1],
        budget=Budget(episodes=budget.episodes, lag=budget.lag, wall_s=clock.wall_s),
        updates={one.entry.method.name: one.results[0].curve[-1].updates for one in trained},
        given_away=string_match,
        tuning={EQUAL_EPISODES: tuning_of(methods), EQUAL_WALL_CLOCK: tuning_of(schemes)},
        settings={EQUAL_EPISODES: settings_of(methods), EQUAL_WALL_CLOCK: settings_of(schemes)},
        code=code_version(),
        made_on=made_on(trained),
        config_hash=hash_all([*used, *timed_configs(timed, clock)]),
    )


def scores_by_method(trained: Sequence[EntryRuns]) -> dict[str, Strata]:
    """The outcomes of each method, an array for each arena."""
    names = dict.fromkeys(one.entry.method.name for one in trained)
    return {name: [one.outcomes_ST() for one in trained if one.entry.method.name == name] for name in names}


def by_arena(trained: Sequence[EntryRuns]) -> dict[str, dict[str, Row | None]]:
    """The IQM of each method in each arena alone."""
    arenas = dict.fromkeys(one.entry.arena.name for one in trained)
    return {
        arena: rows(measure({r.entry.method.name: [r.outcomes_ST()] for r in trained if r.entry.arena.name == arena}))
        for arena in arenas
    }


def _over(name: str, scores: dict[str, Strata]) -> dict[str, Row | None]:
    return rows(compare(name, scores)) if name in scores else {}


def _value(found: Row | None) -> float | None:
    return None if found is None else found[0]


def _draw(trained: Sequence[EntryRuns], timed: Sequence[TimedRuns], budget: EpisodeBudget, folder: Path) -> None:
    share = "success on held-out tasks (IQM, 95 %)"
    equal = Labels(title=f"After {budget.episodes:,} episodes", x=share)
    save(draw_bars(bars(measure(scores_by_method(trained))), equal), folder, "success")
    clock = Labels(title="After equal wall-clock", x=share)
    ends = measure({PLOT_NAMES.get(name := one.method.name, name): [one.outcomes_ST()] for one in timed})
    save(draw_bars(bars(ends), clock), folder, "success-time")
    over_time = Labels(title="Success over time", x="seconds since the first version", y="success, held-out tasks")
    save(draw_lines(time_curves(timed), over_time), folder, "success-over-time")
    for arena in dict.fromkeys(one.entry.arena.name for one in trained):
        lines = [
            band(one.entry.method.name, one.episodes_K(), one.curve_SK())
            for one in trained
            if one.entry.arena.name == arena
        ]
        labels = Labels(title=f"Success over episodes: {arena}", x="episodes", y="success, tuning tasks")
        save(draw_lines(lines, labels), folder, f"success-over-episodes-{arena.replace(' ', '-')}")

"""`distrl bench success`: how many held-out tasks each method fulfils, after equal episodes and after equal wall-clock.

At equal episodes every algorithm trains in the laboratory on as many episodes, played by a policy that is a few
versions old; several arenas count together. At equal wall-clock real runs are compared, asynchronous with synchronous:
the same runs as those of `distrl bench efficiency`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from distrl.bench.base import BenchOptions
from distrl.bench.comparison import Row, band, bars, begin, compare, hash_all, measure, rows
from distrl.bench.efficiency import configs as timed_configs
from distrl.bench.efficiency import time_curves, timed_comparison
from distrl.bench.lab_runs import Entry, Ran, made_on, run_labs
from distrl.bench.matcher import GivenAway, given_away
from distrl.bench.methods import (
    ALGORITHMS,
    ARENAS,
    FIRST,
    LAB,
    LAB_SEED,
    NO_DATA_OPTIONS,
    OURS,
    QUICK_LAB,
    RIVAL,
    SHOWN,
    TUNED,
    LabBudget,
    TimedBudget,
    resolve,
    settings_of,
    tuning_of,
)
from distrl.bench.parts import code_version, parts_for
from distrl.bench.plots import Words, draw_bars, draw_lines, save
from distrl.bench.statistics import Strata
from distrl.bench.timed_runs import Timed

EPISODES, WALL_CLOCK = "equal episodes", "equal wall-clock"
"""What results files call the two comparisons."""


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What each method got."""

    episodes: int
    """In each arena, at equal episodes."""
    lag: int
    """Versions between the policy that learned and the one that acted."""
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
    """What came of the same eight tries for A-RIDE over every other algorithm; nothing where it is not among the methods."""
    relative_no_options: dict[str, Row | None]
    """A-RIDE without its data options over every other algorithm; likewise."""
    relative_wall_clock: dict[str, Row | None]
    """Over every other scheme, at equal wall-clock."""
    seeds: int
    test_tasks: int
    """At equal episodes."""
    test_tasks_wall_clock: int
    budget: Budget
    updates: dict[str, int]
    """That each method made in each arena, at equal episodes."""
    given_away: dict[str, GivenAway]
    """By arena, how far matching words alone lead: what the string-matching prior gives away."""
    tuning: dict[str, dict[str, str]]
    """By comparison and method."""
    settings: dict[str, dict[str, dict[str, str]]]
    """By comparison and method, what it has instead of the defaults."""
    code: str
    """Changes with any source file that may change what a training run comes to."""
    made_on: dict[str, int]
    """How many of the laboratory runs were made on what."""
    config_hash: str


def run(options: BenchOptions) -> SuccessFigures:
    """The figures, as `distrl bench success` reports them."""
    seeds, parts, budget = begin(options), parts_for(options), QUICK_LAB if options.quick else LAB
    entries = [Entry(method=method, arena=arena) for arena in ARENAS for method in ALGORITHMS]
    labs = run_labs(entries, budget, seeds, parts, first_seed=LAB_SEED)
    clock, timed = timed_comparison(options.quick, seeds, parts)
    figures = sum_up(labs, timed, (budget, clock), arenas_given_away(budget.most_test_tasks))
    if options.out is not None:
        _draw(labs, timed, budget, options.out)
    return figures


def arenas_given_away(most: int) -> dict[str, GivenAway]:
    """Of every arena that is compared in."""
    return {arena.name: given_away(arena, most) for arena in (*ARENAS, FIRST)}


def sum_up(
    labs: Sequence[Ran], timed: Sequence[Timed], budgets: tuple[LabBudget, TimedBudget], away: dict[str, GivenAway]
) -> SuccessFigures:
    """The figures from both kinds of runs."""
    budget, clock = budgets
    scores, timed_scores = lab_scores(labs), {one.method.name: [one.outcomes_ST()] for one in timed}
    over, over_timed = rows(compare(OURS, scores)), rows(compare(OURS, timed_scores))
    sync = over_timed.get(RIVAL) or [None, None, None]
    used = [resolve(*ran.entry.layers(budget)) for ran in labs]
    methods, schemes = [ran.entry.method for ran in labs], [one.method for one in timed]
    return SuccessFigures(
        iqm=rows(measure(scores)),
        iqm_by_arena=by_arena(labs),
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
        seeds=len(labs[0].results),
        test_tasks=sum(outcome_ST.shape[1] for outcome_ST in scores[OURS]),
        test_tasks_wall_clock=timed_scores[OURS][0].shape[1],
        budget=Budget(episodes=budget.episodes, lag=budget.lag, wall_s=clock.wall_s),
        updates={ran.entry.method.name: ran.results[0].curve[-1].updates for ran in labs},
        given_away=away,
        tuning={EPISODES: tuning_of(methods), WALL_CLOCK: tuning_of(schemes)},
        settings={EPISODES: settings_of(methods), WALL_CLOCK: settings_of(schemes)},
        code=code_version(),
        made_on=made_on(labs),
        config_hash=hash_all([*used, *timed_configs(timed, clock)]),
    )


def lab_scores(labs: Sequence[Ran]) -> dict[str, Strata]:
    """The outcomes of each method, an array for each arena."""
    names = dict.fromkeys(ran.entry.method.name for ran in labs)
    return {name: [ran.outcomes_ST() for ran in labs if ran.entry.method.name == name] for name in names}


def by_arena(labs: Sequence[Ran]) -> dict[str, dict[str, Row | None]]:
    """The IQM of each method in each arena alone."""
    arenas = dict.fromkeys(ran.entry.arena.name for ran in labs)
    return {
        arena: rows(measure({r.entry.method.name: [r.outcomes_ST()] for r in labs if r.entry.arena.name == arena}))
        for arena in arenas
    }


def _over(name: str, scores: dict[str, Strata]) -> dict[str, Row | None]:
    return rows(compare(name, scores)) if name in scores else {}


def _value(found: Row | None) -> float | None:
    return None if found is None else found[0]


def _draw(labs: Sequence[Ran], timed: Sequence[Timed], budget: LabBudget, folder: Path) -> None:
    share = "success on held-out tasks (IQM, 95 %)"
    equal = Words(title=f"After {budget.episodes:,} episodes", x=share)
    save(draw_bars(bars(measure(lab_scores(labs))), equal), folder, "success")
    clock = Words(title="After equal wall-clock", x=share)
    ends = measure({SHOWN.get(name := one.method.name, name): [one.outcomes_ST()] for one in timed})
    save(draw_bars(bars(ends), clock), folder, "success-time")
    over_time = Words(title="Success over time", x="seconds since the first version", y="success, held-out tasks")
    save(draw_lines(time_curves(timed), over_time), folder, "success-over-time")
    for arena in dict.fromkeys(ran.entry.arena.name for ran in labs):
        lines = [
            band(ran.entry.method.name, ran.episodes_K(), ran.curve_SK())
            for ran in labs
            if ran.entry.arena.name == arena
        ]
        words = Words(title=f"Success over episodes: {arena}", x="episodes", y="success, tuning tasks")
        save(draw_lines(lines, words), folder, f"success-over-episodes-{arena.replace(' ', '-')}")

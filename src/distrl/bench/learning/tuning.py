"""`distrl bench tuning`: how the settings of the compared methods were chosen, with the same number of tries for each.

Every try is a run of the single-process trainer on the tuning split, with a seed that no reported value has; the mean
over all arenas decides. A method's search is greedy, each step from the best settings so far: three learning rates, one
more beyond or between them, two numbers of updates per episode, and two changes of its own. The tables of `methods` hold
the result. `distrl bench timed_tuning` does the same for equal wall-clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from distrl.bench.base import BenchOptions
from distrl.bench.learning.methods import (
    ARENAS,
    CLONING,
    DIGIRL,
    EARLIER_ARIDE,
    GRPO,
    HALF_AN_UPDATE,
    NO_OPTIONS,
    OURS,
    PPO,
    QUICK_SETTINGS,
    SAME_DATA,
    TUNING_SEED,
    UNBALANCED,
    UNIFORM_REPLAY,
    UNIFORM_SUCCESSES,
    Arena,
    EpisodeBudget,
    Method,
    Settings,
    hash_all,
    resolve,
)
from distrl.bench.learning.trainer_runs import Entry, EntryRuns, made_on, run_trainers
from distrl.bench.result_cache import cache_for
from distrl.tasks.base import held_out

TUNING_BUDGET = EpisodeBudget(episodes=768, evaluate_every=0, tune_tasks=300, most_test_tasks=0)
QUICK_TUNING_BUDGET = EpisodeBudget(
    episodes=64, chunk=32, evaluate_every=0, tune_tasks=20, most_test_tasks=0, settings=QUICK_SETTINGS
)
CANDIDATES = (
    Method(name=OURS, settings={**EARLIER_ARIDE, **HALF_AN_UPDATE, **UNBALANCED}),
    Method(name="digirl", settings={**DIGIRL, **NO_OPTIONS, **HALF_AN_UPDATE}),
    Method(name="filtered_bc", settings={**CLONING, **NO_OPTIONS, **HALF_AN_UPDATE}),
    Method(name=SAME_DATA, settings={**DIGIRL, **HALF_AN_UPDATE}),
    Method(name="filtered_bc, same data", settings={**CLONING, **HALF_AN_UPDATE}),
    Method(name="ppo", settings={**PPO, **NO_OPTIONS, **HALF_AN_UPDATE}),
    Method(name="grpo", settings={**GRPO, **NO_OPTIONS, **HALF_AN_UPDATE}),
)
"""The settings that tuning starts from."""


def _rate(rate: str) -> Method:
    return Method(name=f"learning rate {rate}", settings={"learner.learning_rate": rate})


def _updates(number: str) -> Method:
    return Method(name=f"{number} updates per episode", settings={"learner.updates_per_episode": number})


RATES = ("0.001", "0.0002", "0.00005")
ONE_MORE = {"0.001": "0.003", "0.0002": "0.0005", "0.00005": "0.00001"}
"""The fourth rate, by the best of these: beyond it where it is at an end, above it where it is not."""
RARE = Method(name="rare templates favoured", settings={"replay.class_balance": "0.5"})
PLAIN = Method(name="words not renamed", settings={"policy.pointer.word_swap_share": "0"})
FRESH = Method(name="nothing older than 3 versions", settings={"replay.max_staleness": "3"})
OWN_TRIES = {
    "aride": (RARE, Method(name="certain-bad steps pushed down", settings={"algorithm.aride.unlikelihood": "certain"})),
    "digirl": (
        Method(name="every surprising episode", settings={"algorithm.digirl.top_share": "1.0"}),
        Method(name="successes kept and drawn as failures are", settings=UNIFORM_REPLAY),
    ),
    "filtered_bc": (RARE, Method(name="all successes alike", settings=UNIFORM_SUCCESSES)),
    "ppo": (PLAIN, FRESH),
    "grpo": (PLAIN, FRESH),
}
MEAN = "mean"


class Search(msgspec.Struct, kw_only=True):
    """The state of the search for a method's settings."""

    method: Method
    chosen: dict[str, str] = {}
    """On top of the method's own."""
    kept: list[str] = []
    """Names of the tries that gave these."""
    tries: dict[str, dict[str, float]] = {}
    """Success in each arena, and the mean of them."""

    @property
    def best(self) -> float:
        """The best mean of all tries so far."""
        return max((row[MEAN] for row in self.tries.values()), default=-1.0)

    def take(self, tried: Sequence[tuple[Method, dict[str, float]]]) -> None:
        """Add the tries of one step; the best of them becomes the base of the next step if it is the best of all."""
        before = self.best
        rows = {one.name: {**row, MEAN: round(sum(row.values()) / len(row), 4)} for one, row in tried}
        best = max((one for one, _ in tried), key=lambda one: rows[one.name][MEAN])
        self.tries = {**self.tries, **rows}
        if rows[best.name][MEAN] > before:
            self.chosen, self.kept = {**self.chosen, **best.settings}, [*self.kept, best.name]

    def entry(self, one: Method, arena: Arena) -> Entry:
        """A try in an arena, on top of the settings chosen so far."""
        return Entry(
            method=replace(self.method, name=f"{self.method.name}: {one.name}"),
            arena=arena,
            settings={**self.chosen, **one.settings},
        )


Step = Callable[[Search], tuple[Method, ...]]
STEPS: tuple[Step, ...] = (
    lambda search: tuple(_rate(rate) for rate in RATES),
    lambda search: (_rate(ONE_MORE[search.chosen["learner.learning_rate"]]),),
    lambda search: (_updates("1.0"), _updates("2.0")),
    lambda search: OWN_TRIES[search.method.name.partition(",")[0]],
)
"""The tries of every method, with or without data options: eight."""


class TuningFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the tuning tasks."""

    tries: dict[str, dict[str, dict[str, float]]]
    """By method and try, in their order: success in each arena and the mean of them."""
    start: dict[str, float]
    """Success in each arena before anything was learned, and the mean of them."""
    kept: dict[str, list[str]]
    """By method, the tries that gave its settings."""
    chosen: dict[str, Settings]
    """By method, these settings, on top of those that tuning started from."""
    tries_each: int
    tasks: dict[str, int]
    """Tuning tasks of each arena: fewer than the budget allows where the split has no more."""
    seeds: int
    first_seed: int
    budget: EpisodeBudget
    made_on: dict[str, int]
    """How many of the runs were made on which machine."""
    config_hash: str


def run(options: BenchOptions) -> TuningFigures:
    """Measure everything that `distrl bench tuning` reports."""
    budget, seeds, cache = (
        QUICK_TUNING_BUDGET if options.quick else TUNING_BUDGET,
        options.seeds or 1,
        cache_for(options),
    )
    searches, runs = [Search(method=method) for method in CANDIDATES], list[EntryRuns]()
    for step in STEPS:
        asked = [(search, one) for search in searches for one in step(search)]
        entries = [search.entry(one, arena) for search, one in asked for arena in ARENAS]
        found = run_trainers(entries, budget, seeds, cache, first_seed=TUNING_SEED)
        _take(searches, asked, found)
        runs += found
    return summarise(searches, runs, budget)


def _take(searches: Sequence[Search], asked: Sequence[tuple[Search, Method]], found: Sequence[EntryRuns]) -> None:
    """Give every search its own tries of a step."""
    ends = [round(float(one.curve_SK()[:, -1].mean()), 4) for one in found]
    names = [arena.name for arena in ARENAS]
    rows = [dict(zip(names, ends[at : at + len(names)], strict=True)) for at in range(0, len(ends), len(names))]
    for search in searches:
        search.take([(one, row) for (owner, one), row in zip(asked, rows, strict=True) if owner is search])


def summarise(searches: Sequence[Search], runs: Sequence[EntryRuns], budget: EpisodeBudget) -> TuningFigures:
    """The tries of each method and the chosen settings."""
    start = {one.entry.arena.name: round(float(one.curve_SK()[:, 0].mean()), 4) for one in reversed(runs)}
    return TuningFigures(
        tries={search.method.name: search.tries for search in searches},
        start={**start, MEAN: round(sum(start.values()) / len(start), 4)},
        kept={search.method.name: search.kept for search in searches},
        chosen={search.method.name: search.chosen for search in searches},
        tries_each=len(searches[0].tries),
        tasks={arena.name: len(held_out(resolve(arena.settings).tasks, budget.tune_tasks, "tune")) for arena in ARENAS},
        seeds=len(runs[0].results),
        first_seed=TUNING_SEED,
        budget=budget,
        made_on=made_on(runs),
        config_hash=hash_all(resolve(*one.entry.layers(budget)) for one in runs),
    )

"""`distrl bench tuning`: how the settings of the compared methods were chosen, with as many tries for each of them.

Every try is a laboratory run on the tuning split, with a seed that no reported figure has; the mean over all arenas
decides. A method's search goes step by step, each step from the best that was found before it: three learning rates, one
more beyond or between them, two numbers of updates per episode, and two changes of its own. The tables of `methods` hold
what came of it. `distrl bench timed_tuning` does the same for equal wall-clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from distrl.bench.base import BenchOptions
from distrl.bench.comparison import hash_all
from distrl.bench.lab_runs import Entry, Ran, made_on, run_labs
from distrl.bench.methods import (
    ALIKE,
    ARENAS,
    AS_IT_CAME,
    CLONING,
    DIGIRL,
    EARLIER,
    EVEN,
    GENTLE,
    HASTE,
    NO_OPTIONS,
    OURS,
    SAME_DATA,
    TUNING_SEED,
    UNBALANCED,
    Arena,
    LabBudget,
    Method,
    Settings,
    resolve,
)
from distrl.bench.parts import parts_for
from distrl.evaluation.evaluate import held_out

TUNING_LAB = LabBudget(episodes=768, evaluate_every=0, tune_tasks=300, most_test_tasks=0)
QUICK_TUNING_LAB = LabBudget(episodes=64, chunk=32, evaluate_every=0, tune_tasks=20, most_test_tasks=0, settings=HASTE)
CANDIDATES = (
    Method(name=OURS, settings={**EARLIER, **GENTLE, **UNBALANCED}),
    Method(name="digirl", settings={**DIGIRL, **NO_OPTIONS, **GENTLE}),
    Method(name="filtered_bc", settings={**CLONING, **NO_OPTIONS, **GENTLE}),
    Method(name=SAME_DATA, settings={**DIGIRL, **GENTLE}),
    Method(name="filtered_bc, same data", settings={**CLONING, **GENTLE}),
    Method(name="ppo", settings={"algorithm.name": "ppo", **AS_IT_CAME, **NO_OPTIONS, **GENTLE}),
    Method(
        name="grpo",
        settings={"algorithm.name": "grpo", "rollout.group_size": "8", **AS_IT_CAME, **NO_OPTIONS, **GENTLE},
    ),
)
"""What tuning begins with."""


def _rate(rate: str) -> Method:
    return Method(name=f"learning rate {rate}", settings={"learner.learning_rate": rate})


def _updates(number: str) -> Method:
    return Method(name=f"{number} updates per episode", settings={"learner.updates_per_episode": number})


RATES = ("0.001", "0.0002", "0.00005")
ONE_MORE = {"0.001": "0.003", "0.0002": "0.0005", "0.00005": "0.00001"}
"""By the best of these: beyond it where it is at an end, and above it where it is not."""
RARE = Method(name="rare templates favoured", settings={"replay.balance": "0.5"})
PLAIN = Method(name="words not renamed", settings={"policy.rename_share": "0"})
FRESH = Method(name="nothing older than 3 versions", settings={"replay.max_staleness": "3"})
OWN_TRIES = {
    "aride": (RARE, Method(name="certain-bad steps pushed down", settings={"algorithm.push_down": "certain"})),
    "digirl": (
        Method(name="every surprising episode", settings={"algorithm.digirl.top_share": "1.0"}),
        Method(name="successes kept and drawn as failures are", settings=EVEN),
    ),
    "filtered_bc": (RARE, Method(name="all successes alike", settings=ALIKE)),
    "ppo": (PLAIN, FRESH),
    "grpo": (PLAIN, FRESH),
}
MEAN = "mean"


class Search(msgspec.Struct, kw_only=True):
    """How far the search for a method's settings has come."""

    method: Method
    chosen: dict[str, str] = {}
    """On top of the method's own."""
    kept: list[str] = []
    """Names of the tries that these are of."""
    tries: dict[str, dict[str, float]] = {}
    """Success in each arena, and the mean of them."""

    @property
    def best(self) -> float:
        """Of all tries so far."""
        return max((row[MEAN] for row in self.tries.values()), default=-1.0)

    def take(self, tried: Sequence[tuple[Method, dict[str, float]]]) -> None:
        """Note the tries of one step, and go on from the best of them where it is the best of all."""
        before = self.best
        rows = {one.name: {**row, MEAN: round(sum(row.values()) / len(row), 4)} for one, row in tried}
        best = max((one for one, _ in tried), key=lambda one: rows[one.name][MEAN])
        self.tries = {**self.tries, **rows}
        if rows[best.name][MEAN] > before:
            self.chosen, self.kept = {**self.chosen, **best.settings}, [*self.kept, best.name]

    def entry(self, one: Method, arena: Arena) -> Entry:
        """A try in an arena, from where the search stands."""
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
"""What is tried for each method, whichever data options it has: eight tries."""


class TuningFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the tuning tasks."""

    tries: dict[str, dict[str, dict[str, float]]]
    """By method and try, in their order: success in each arena and the mean of them."""
    start: dict[str, float]
    """Success in each arena before anything was learned, and the mean of them."""
    kept: dict[str, list[str]]
    """By method, the tries that its settings are of."""
    chosen: dict[str, Settings]
    """By method, these settings, on top of what tuning began with."""
    tries_each: int
    tasks: dict[str, int]
    """Of each arena: fewer than the budget allows where its tuning split has no more."""
    seeds: int
    first_seed: int
    budget: LabBudget
    made_on: dict[str, int]
    """How many of the laboratory runs were made on what."""
    config_hash: str


def run(options: BenchOptions) -> TuningFigures:
    """The figures, as `distrl bench tuning` reports them."""
    budget, seeds, parts = QUICK_TUNING_LAB if options.quick else TUNING_LAB, options.seeds or 1, parts_for(options)
    searches, runs = [Search(method=method) for method in CANDIDATES], list[Ran]()
    for step in STEPS:
        asked = [(search, one) for search in searches for one in step(search)]
        entries = [search.entry(one, arena) for search, one in asked for arena in ARENAS]
        found = run_labs(entries, budget, seeds, parts, first_seed=TUNING_SEED)
        _take(searches, asked, found)
        runs += found
    return sum_up(searches, runs, budget)


def _take(searches: Sequence[Search], asked: Sequence[tuple[Search, Method]], found: Sequence[Ran]) -> None:
    """Give every search the tries of a step that were made for it."""
    ends = [round(float(ran.curve_SK()[:, -1].mean()), 4) for ran in found]
    names = [arena.name for arena in ARENAS]
    rows = [dict(zip(names, ends[at : at + len(names)], strict=True)) for at in range(0, len(ends), len(names))]
    for search in searches:
        search.take([(one, row) for (owner, one), row in zip(asked, rows, strict=True) if owner is search])


def sum_up(searches: Sequence[Search], runs: Sequence[Ran], budget: LabBudget) -> TuningFigures:
    """What was tried for each method, and what came of it."""
    start = {ran.entry.arena.name: round(float(ran.curve_SK()[:, 0].mean()), 4) for ran in reversed(runs)}
    return TuningFigures(
        tries={search.method.name: search.tries for search in searches},
        start={**start, MEAN: round(sum(start.values()) / len(start), 4)},
        kept={search.method.name: search.kept for search in searches},
        chosen={search.method.name: search.chosen for search in searches},
        tries_each=len(searches[0].tries),
        tasks={arena.name: len(held_out(resolve(arena.settings), budget.tune_tasks, "tune")) for arena in ARENAS},
        seeds=len(runs[0].results),
        first_seed=TUNING_SEED,
        budget=budget,
        made_on=made_on(runs),
        config_hash=hash_all(resolve(*ran.entry.layers(budget)) for ran in runs),
    )

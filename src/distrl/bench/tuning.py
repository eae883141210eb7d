"""`distrl bench tuning`: how the settings of the compared methods were chosen, with as many tries for each of them.

Every try is a laboratory run on the tuning split, with a seed that no reported figure has. The mean over all arenas
decides, and the tables of `methods` hold what came of it. `distrl bench timed_tuning` does the same for equal wall-clock.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from distrl.bench.base import BenchOptions
from distrl.bench.comparison import hash_all
from distrl.bench.lab_runs import Entry, Ran, made_on, run_labs
from distrl.bench.methods import (
    ALIKE,
    ARENAS,
    AS_IT_CAME,
    AS_PUBLISHED,
    CLONING,
    DIGIRL,
    GENTLE,
    HASTE,
    OURS,
    TUNING_SEED,
    LabBudget,
    Method,
    resolve,
)
from distrl.bench.parts import parts_for

TUNING_LAB = LabBudget(episodes=1024, evaluate_every=0, tune_tasks=300, most_test_tasks=0)
QUICK_TUNING_LAB = LabBudget(episodes=64, chunk=32, evaluate_every=0, tune_tasks=20, most_test_tasks=0, settings=HASTE)
CANDIDATES = (
    Method(name=OURS, settings=GENTLE),
    Method(name="digirl", settings={**DIGIRL, **AS_PUBLISHED, **GENTLE}),
    Method(name="filtered_bc", settings={**CLONING, **AS_PUBLISHED, **GENTLE}),
    Method(name="digirl, same data", settings={**DIGIRL, **GENTLE}),
    Method(name="filtered_bc, same data", settings={**CLONING, **GENTLE}),
    Method(name="ppo", settings={"algorithm.name": "ppo", **AS_IT_CAME, **AS_PUBLISHED, **GENTLE}),
    Method(
        name="grpo",
        settings={"algorithm.name": "grpo", "rollout.group_size": "8", **AS_IT_CAME, **AS_PUBLISHED, **GENTLE},
    ),
)
"""What tuning began with."""
COMMON_TRIES = (
    Method(name="as it is"),
    Method(name="twice the learning rate", settings={"learner.learning_rate": "0.002"}),
    Method(name="half the learning rate", settings={"learner.learning_rate": "0.0005"}),
    Method(name="a fifth of the learning rate", settings={"learner.learning_rate": "0.0002"}),
    Method(name="twice the updates", settings={"learner.updates_per_episode": "1.0"}),
    Method(name="four times the updates", settings={"learner.updates_per_episode": "2.0"}),
)
RARE = Method(name="rare templates favoured", settings={"replay.balance": "0.5"})
PLAIN = Method(
    name="words not renamed, a fifth of the learning rate",
    settings={"policy.rename_share": "0", "learner.learning_rate": "0.0002"},
)
OWN_TRIES = {
    "aride": (RARE, Method(name="certain-bad steps pushed down", settings={"algorithm.push_down": "certain"})),
    "digirl": (
        Method(name="every surprising episode", settings={"algorithm.digirl.top_share": "1.0"}),
        Method(name="the most surprising tenth", settings={"algorithm.digirl.top_share": "0.1"}),
    ),
    "filtered_bc": (
        RARE,
        Method(name="all successes alike", settings=ALIKE),
    ),
    "ppo": (PLAIN, Method(name="a twentieth of the learning rate", settings={"learner.learning_rate": "0.00005"})),
    "grpo": (PLAIN, Method(name="a twentieth of the learning rate", settings={"learner.learning_rate": "0.00005"})),
}
"""What was tried for each algorithm, on top of what its settings were before: the same number for all."""


MEAN = "mean"


class TuningFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the tuning tasks."""

    tries: dict[str, dict[str, dict[str, float]]]
    """By method and try, success in each arena and the mean of them."""
    best: dict[str, str]
    """By method, the try with the highest mean."""
    tries_each: int
    seeds: int
    first_seed: int
    budget: LabBudget
    made_on: dict[str, int]
    """How many of the laboratory runs were made on what."""
    config_hash: str


def run(options: BenchOptions) -> TuningFigures:
    """The figures, as `distrl bench tuning` reports them."""
    budget, seeds = QUICK_TUNING_LAB if options.quick else TUNING_LAB, options.seeds or 1
    return sum_up(run_labs(entries(), budget, seeds, parts_for(options), first_seed=TUNING_SEED), budget)


def tries_for(method: Method) -> tuple[Method, ...]:
    """What is tried for a method of `CANDIDATES`, whichever data options it has."""
    return (*COMMON_TRIES, *OWN_TRIES[method.name.partition(",")[0]])


def entries() -> list[Entry]:
    """Every try of every method in every arena."""
    return [
        Entry(method=replace(method, name=f"{method.name}: {one.name}"), arena=arena, settings=one.settings)
        for arena in ARENAS
        for method in CANDIDATES
        for one in tries_for(method)
    ]


def sum_up(runs: Sequence[Ran], budget: LabBudget) -> TuningFigures:
    """The tries of each method, and the best of them."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for ran in runs:
        method, _, name = ran.entry.method.name.partition(": ")
        row = found.setdefault(method, {}).setdefault(name, {})
        row[ran.entry.arena.name] = round(float(ran.curve_SK()[:, -1].mean()), 4)
    for row in (row for tries in found.values() for row in tries.values()):
        row[MEAN] = round(sum(row.values()) / len(row), 4)
    return TuningFigures(
        tries=found,
        best={method: max(tries, key=lambda name: tries[name][MEAN]) for method, tries in found.items()},
        tries_each=len(next(iter(found.values()))),
        seeds=len(runs[0].results),
        first_seed=TUNING_SEED,
        budget=budget,
        made_on=made_on(runs),
        config_hash=hash_all(resolve(*ran.entry.layers(budget)) for ran in runs),
    )

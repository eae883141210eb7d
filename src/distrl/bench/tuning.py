"""`distrl bench tuning`: how the settings of the compared methods were chosen, with as many tries for each of them.

Every try is a laboratory run on the tuning split, with a seed that no reported figure has. The mean over all arenas
decides. Ours and its synchronous rival are tried once more as they are compared at equal wall-clock. The tables of
`methods` hold what came of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from distrl.bench.base import BenchOptions
from distrl.bench.comparison import hash_all
from distrl.bench.lab_runs import Entry, Ran, run_labs
from distrl.bench.methods import (
    ARENAS,
    CANDIDATES,
    FIRST,
    QUICK_TUNING_CLOCK,
    QUICK_TUNING_LAB,
    TIMED_TRIES,
    TUNING_CLOCK,
    TUNING_LAB,
    TUNING_SEED,
    UNTUNED_SCHEMES,
    LabBudget,
    Method,
    resolve,
    tries_for,
)
from distrl.bench.parts import parts_for
from distrl.bench.timed_runs import Timed, run_timed

MEAN = "mean"


class TuningFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the tuning tasks."""

    tries: dict[str, dict[str, dict[str, float]]]
    """By method and try, success in each arena and the mean of them."""
    best: dict[str, str]
    """By method, the try with the highest mean."""
    timed: dict[str, dict[str, float]]
    """At equal wall-clock: by method and try, success at the end of the budget."""
    timed_best: dict[str, str]
    tries_each: int
    seeds: int
    first_seed: int
    budget: LabBudget
    config_hash: str


def run(options: BenchOptions) -> TuningFigures:
    """The figures, as `distrl bench tuning` reports them."""
    budget, clock = (QUICK_TUNING_LAB, QUICK_TUNING_CLOCK) if options.quick else (TUNING_LAB, TUNING_CLOCK)
    seeds, parts = options.seeds or 1, parts_for(options)
    timed = run_timed(timed_tries(), FIRST, clock, range(TUNING_SEED, TUNING_SEED + seeds), parts)
    return sum_up(run_labs(entries(), budget, seeds, parts, first_seed=TUNING_SEED), timed, budget)


def entries() -> list[Entry]:
    """Every try of every method in every arena."""
    return [
        Entry(method=replace(method, name=f"{method.name}: {one.name}"), arena=arena, settings=one.settings)
        for arena in ARENAS
        for method in CANDIDATES
        for one in tries_for(method)
    ]


def timed_tries() -> list[Method]:
    """Every try at equal wall-clock, ours and its rival's in turn, so that each runs beside the other's."""
    rows = [
        [
            Method(name=f"{scheme.name}: {one.name}", settings={**scheme.settings, **one.settings})
            for one in TIMED_TRIES[scheme.name]
        ]
        for scheme in UNTUNED_SCHEMES
    ]
    return [one for pair in zip(*rows, strict=True) for one in pair]


def sum_up(runs: Sequence[Ran], timed: Sequence[Timed], budget: LabBudget) -> TuningFigures:
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
        timed=(by_clock := _by_clock(timed)),
        timed_best={method: max(tries, key=lambda name: tries[name]) for method, tries in by_clock.items()},
        tries_each=len(next(iter(found.values()))),
        seeds=len(runs[0].results),
        first_seed=TUNING_SEED,
        budget=budget,
        config_hash=hash_all(resolve(*ran.entry.layers(budget)) for ran in runs),
    )


def _by_clock(timed: Sequence[Timed]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for one in timed:
        method, _, name = one.method.name.partition(": ")
        found.setdefault(method, {})[name] = round(float(one.outcomes_ST().mean()), 4)
    return found

"""`distrl bench tuning`: how the settings of the compared methods were chosen, with as many tries for each of them.

Every try is a laboratory run on the tuning split, with a seed that no reported figure has. The mean over all arenas
decides. The tables of `methods` hold what came of it.
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
    QUICK_TUNING_LAB,
    TUNING_LAB,
    TUNING_SEED,
    LabBudget,
    resolve,
    tries_for,
)
from distrl.bench.parts import parts_for

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
    config_hash: str


def run(options: BenchOptions) -> TuningFigures:
    """The figures, as `distrl bench tuning` reports them."""
    budget = QUICK_TUNING_LAB if options.quick else TUNING_LAB
    seeds = options.seeds or 1
    return sum_up(run_labs(entries(), budget, seeds, parts_for(options), first_seed=TUNING_SEED), budget)


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
        config_hash=hash_all(resolve(*ran.entry.layers(budget)) for ran in runs),
    )

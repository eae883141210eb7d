"""`distrl bench staleness`: what acting with older and older policies costs, with and without correcting for it.

In the laboratory the acting policy lags a fixed number of versions behind the learner. An episode can be sampled for as
many versions after its arrival whatever the lag, so that the lag is all that differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from distrl.bench.base import BenchOptions
from distrl.bench.comparison import band, begin, generator, hash_all
from distrl.bench.lab_runs import Entry, Ran, run_labs
from distrl.bench.methods import (
    BOUNDS,
    CORRECTIONS,
    EVERYDAY,
    QUICK_BOUNDS,
    QUICK_STALE_LAB,
    STALE_LAB,
    LabBudget,
    Method,
    resolve,
)
from distrl.bench.parts import parts_for
from distrl.bench.plots import Line, Words, draw_lines, save
from distrl.bench.statistics import Interval, interval, relative

WINDOW = 8
"""Versions after its arrival for which an episode can be sampled."""
MARGIN = 0.1
"""A lag is tolerated where the whole interval shows a relative loss of less than this."""
TUNING = "Every lag keeps the settings of the default, which were chosen at a lag of 2; none was tuned again."

Runs = Mapping[str, Sequence[Ran]]
"""By correction, the runs at each bound."""


class StalenessFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Success on held-out tasks (IQM) at each bound, and how far the lag is tolerated."""

    bounds: list[int]
    """How many versions old the acting policy is."""
    corrected: list[float]
    """Importance ratios in the value targets: the default."""
    corrected_fully: list[float]
    """In the policy term as well, as published."""
    uncorrected: list[float]
    intervals: dict[str, list[list[float | None]]]
    """[low, high] at each bound, by correction."""
    tolerated: dict[str, int]
    """The largest bound up to which success is not lower by 10 % or more than at 0, by correction."""
    seeds: int
    test_tasks: int
    budget: LabBudget
    tuning: str
    config_hash: str


def run(options: BenchOptions) -> StalenessFigures:
    """The figures, as `distrl bench staleness` reports them."""
    seeds = begin(options)
    budget, bounds = (QUICK_STALE_LAB, QUICK_BOUNDS) if options.quick else (STALE_LAB, BOUNDS)
    table = {name: [entry(method, bound) for bound in bounds] for name, method in CORRECTIONS.items()}
    found = iter(run_labs([one for row in table.values() for one in row], budget, seeds, parts_for(options)))
    runs = {name: [next(found) for _ in row] for name, row in table.items()}
    figures = sum_up(runs, bounds, budget)
    if options.out is not None:
        words = Words(title="What staleness costs", x="versions of lag", y="success, held-out tasks")
        lines = [_line(CORRECTIONS[name].name, bounds, row) for name, row in runs.items()]
        save(draw_lines(lines, words), options.out, "staleness")
    return figures


def entry(method: Method, bound: int) -> Entry:
    """A correction at a bound."""
    return Entry(method=method, arena=EVERYDAY, lag=bound, settings={"replay.max_staleness": str(bound + WINDOW)})


def sum_up(runs: Runs, bounds: Sequence[int], budget: LabBudget) -> StalenessFigures:
    """The figures of all corrections at all bounds."""
    found = {name: [interval([ran.outcomes_ST()], generator()) for ran in row] for name, row in runs.items()}
    values = {name: [round(one.value, 4) for one in row] for name, row in found.items()}
    some = next(iter(runs.values()))[0]
    return StalenessFigures(
        bounds=list(bounds),
        corrected=values["corrected"],
        corrected_fully=values["corrected_fully"],
        uncorrected=values["uncorrected"],
        intervals={name: [one.row()[1:] for one in row] for name, row in found.items()},
        tolerated={name: tolerated(row, bounds) for name, row in runs.items()},
        seeds=len(some.results),
        test_tasks=len(some.results[0].outcomes),
        budget=budget,
        tuning=TUNING,
        config_hash=hash_all(resolve(*ran.entry.layers(budget)) for row in runs.values() for ran in row),
    )


def tolerated(row: Sequence[Ran], bounds: Sequence[int]) -> int:
    """The largest bound up to which no loss of `MARGIN` is within the interval; what is uncertain is not tolerated."""
    reached = bounds[0]
    for bound, ran in zip(bounds[1:], row[1:], strict=True):
        change = relative([ran.outcomes_ST()], [row[0].outcomes_ST()], generator())
        if not _is_safe(change):
            break
        reached = bound
    return reached


def _is_safe(change: Interval | None) -> bool:
    return change is not None and change.low is not None and change.low > -MARGIN


def _line(name: str, bounds: Sequence[int], row: Sequence[Ran]) -> Line:
    scores_SK = np.stack([ran.outcomes_ST().mean(axis=1) for ran in row], axis=1)
    return band(name, list(bounds), scores_SK)

"""Made-up results of training runs, with outcomes that a test can compute by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from distrl.bench.learning.methods import EVERYDAY, WALL_CLOCK_BUDGET, Arena, Method
from distrl.bench.learning.single_process import Point
from distrl.bench.learning.timed_runs import TimedResult, TimedRuns
from distrl.bench.learning.trainer_runs import Entry, EntryRuns, TrainerResult
from support.summaries import a_summary

SEEDS, TASKS = 5, 50
TIMES_S = np.linspace(0.0, WALL_CLOCK_BUDGET.wall_s, WALL_CLOCK_BUDGET.points + 1)


def outcomes(share: float, seed: int, *, tasks: int = TASKS) -> list[bool]:
    """So many of the tasks solved, not the same ones for every seed."""
    row = np.arange(tasks) < share * tasks
    return [bool(one) for one in np.random.default_rng(seed).permutation(row)]


def point(episodes: int, success: float, *, updates: int = 0) -> Point:
    """An evaluation during training."""
    return Point(episodes=episodes, success=success, train_success=0.0, updates=updates, wall_s=0.0, losses={})


def entry_runs(
    method: Method, share: float | Sequence[float], *, arena: Arena = EVERYDAY, made_on: str = "here", updates: int = 0
) -> EntryRuns:
    """Runs of a method that end with this success, or with one for each seed."""
    shares = [share] * SEEDS if isinstance(share, float) else list(share)
    results = [
        TrainerResult(
            curve=[point(0, 0.2), point(512, one, updates=updates)], outcomes=outcomes(one, seed), made_on=made_on
        )
        for seed, one in enumerate(shares)
    ]
    return EntryRuns(entry=Entry(method=method, arena=arena), results=results)


def timed_runs(
    method: Method, *, reaches_at_s: float, end: float = 0.6, episodes: int = 100, restarts: int = 0
) -> TimedRuns:
    """A method whose success rises linearly from 0.1 to its end, and stays there."""
    curve = 0.1 + (end - 0.1) * np.minimum(1.0, TIMES_S / reaches_at_s)
    results = [
        TimedResult(
            wall_s=TIMES_S.tolist(), success=curve.tolist(), versions=[0] * len(TIMES_S), outcomes=outcomes(curve[-1], seed),
            summary=replace(a_summary(episodes=episodes + seed), restarts=restarts),
        )
        for seed in range(SEEDS)
    ]  # fmt: skip
    return TimedRuns(method=method, results=results)

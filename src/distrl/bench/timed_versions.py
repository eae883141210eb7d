"""Success over the time of a finished run: the versions that were in use at regular moments, played on test tasks.

Time begins when version 0 is published: the cloning before it is the same for all methods of a seed. What is published
after the budget, when a run winds down, does not count. Run as a module, it evaluates the run of one sheet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from distrl.bench.crew import do_as_child
from distrl.bench.methods import TimedBudget
from distrl.bench.outcomes import outcomes
from distrl.bench.parts import keep_result, read_sheet, tell_share
from distrl.config.schema import Config
from distrl.evaluation.evaluate import held_out
from distrl.learner.weights import WeightsFolder
from distrl.runtime.assembly import make_policy, prepare_torch
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.summary import Summary, read_summary
from distrl.types import PolicyVersion


class TimedJob(msgspec.Struct, frozen=True, kw_only=True):
    """One run, with all that decides its outcome."""

    config: Config
    budget: TimedBudget
    test_tasks: int
    beside: tuple[str, ...]
    """Hashes of the configurations that run at the same time."""
    machine: str


class TimedResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    wall_s: list[float]
    success: list[float]
    """On the first `curve_tasks` of the test tasks, of the version in use at each of these moments."""
    versions: list[int]
    outcomes: list[bool]
    """Of the last of them on each test task."""
    summary: Summary


def finished_run(root: Path) -> RunFolder | None:
    """The run in this folder, if it came to its own end."""
    for file in root.glob("*/summary.json"):
        run = RunFolder(file.parent)
        summary = read_summary(run)
        if summary is not None and not summary.interrupted:
            return run
    return None


def versions_in_use(published: Sequence[PolicyVersion], wall_s: Sequence[float]) -> list[PolicyVersion]:
    """The newest version at each moment, counted from the publication of the first."""
    zero_s = published[0].published_s
    return [[one for one in published if one.published_s - zero_s <= moment_s][-1] for moment_s in wall_s]


def evaluate_run(job: TimedJob, run: RunFolder, tell: Callable[[float], None] = lambda share: None) -> TimedResult:
    """Success of the versions that were in use at regular moments of a finished run; `tell` hears the share done."""
    summary = read_summary(run)
    assert summary is not None, "the run is finished"
    wall_s = moments(job.budget)
    used = versions_in_use(published_by(run), wall_s)
    played = _play(job, run, used, tell)
    return TimedResult(
        wall_s=wall_s,
        success=[float(np.mean(played[version.version][: job.budget.curve_tasks])) for version in used],
        versions=[version.version for version in used],
        outcomes=played[used[-1].version],
        summary=summary,
    )


def moments(budget: TimedBudget) -> list[float]:
    """The moments that count, in seconds since the first version."""
    regular = (budget.wall_s * point / budget.points for point in range(budget.points + 1))
    return sorted({*regular, *budget.early_s})


def published_by(run: RunFolder) -> list[PolicyVersion]:
    """Every version of a run, oldest first."""
    files = sorted(run.weights.glob("v*.json"))
    return [msgspec.json.decode(file.read_bytes(), type=PolicyVersion) for file in files]


def _play(
    job: TimedJob, run: RunFolder, versions: list[PolicyVersion], tell: Callable[[float], None]
) -> dict[int, list[bool]]:
    """The outcomes of each version on the tasks of the curve, and of the last one on all test tasks."""
    policy, weights = make_policy(job.config), WeightsFolder(run.weights)
    tasks = held_out(job.config, job.test_tasks, job.budget.split)
    different = {version.version: version for version in versions}
    played: dict[int, list[bool]] = {}
    for number, version in different.items():
        weights.load(policy, version)
        some = tasks if version == versions[-1] else tasks[: job.budget.curve_tasks]
        played[number] = outcomes(policy, some, job.config)
        tell(len(played) / len(different))
    return played


def evaluate_sheet(sheet: Path) -> None:
    """Evaluate the run of a sheet and keep what comes of it."""
    job, run = read_sheet(sheet, TimedJob), finished_run(sheet.with_suffix(".run"))
    assert run is not None, "it was trained before"
    prepare_torch()  # after the settings are read: without denormals, msgspec takes 0 for a number above 0
    keep_result(sheet, evaluate_run(job, run, partial(tell_share, sheet)))


if __name__ == "__main__":
    do_as_child(evaluate_sheet)

"""Many laboratory runs at equal episodes, one core each, every one of them kept.

Curves on the way are taken on the tuning split; the test split is played once, by the last policy. Run as a module, it
does the one job on the sheet that it is given.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from distrl.bench.base import num_cores
from distrl.bench.crew import Crew, Work, do_all, do_as_child, say_on_stderr
from distrl.bench.lab import Lab, Plan, Point
from distrl.bench.methods import Arena, LabBudget, Method, resolve
from distrl.bench.outcomes import outcomes
from distrl.bench.parts import Parts, keep_result, read_sheet
from distrl.bench.statistics import Floats
from distrl.config.schema import Config
from distrl.evaluation.evaluate import held_out
from distrl.runtime.assembly import prepare_torch

DEADLINE_S = 6 * 3600.0
PROGRESS = ".progress"


class LabJob(msgspec.Struct, frozen=True, kw_only=True):
    """One run, with all that decides its outcome."""

    config: Config
    budget: LabBudget
    test_tasks: int


class LabResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    curve: list[Point]
    """On the tuning split."""
    outcomes: list[bool]
    """Of the last policy on each test task."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A method in an arena: one row of a comparison."""

    method: Method
    arena: Arena
    settings: dict[str, str] = {}
    """On top of the method's and the budget's."""
    lag: int | None = None
    """Instead of the budget's."""

    @property
    def label(self) -> str:
        lag = "" if self.lag is None else f", lag {self.lag}"
        return f"{self.method.name} on {self.arena.name}{lag}"


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """An entry with the results of all its seeds, in their order."""

    entry: Entry
    results: list[LabResult]

    def outcomes_ST(self) -> Floats:
        """Success by seed and test task."""
        return np.array([result.outcomes for result in self.results], dtype=np.float64)

    def curve_SK(self) -> Floats:
        """Success on the tuning tasks by seed and point."""
        return np.array([[point.success for point in result.curve] for result in self.results])

    def episodes_K(self) -> list[int]:
        """Episodes played at each point."""
        return [point.episodes for point in self.results[0].curve]


def run_labs(entries: Sequence[Entry], budget: LabBudget, seeds: int, parts: Parts) -> list[Ran]:
    """All entries with all seeds; what has been run before is not run again."""
    jobs = {(entry.label, seed): _job(entry, budget, seed) for seed in range(seeds) for entry in entries}
    works = list(_missing(jobs, parts))
    crew = Crew(at_once=num_cores(), say=say_on_stderr, before_each=parts.check_code)
    do_all(f"runs of {budget.episodes} episodes", works, crew)
    return [
        Ran(entry=entry, results=[_result(parts, jobs[entry.label, seed]) for seed in range(seeds)])
        for entry in entries
    ]


def _job(entry: Entry, budget: LabBudget, seed: int) -> LabJob:
    lag = budget.lag if entry.lag is None else entry.lag
    return LabJob(
        config=resolve(entry.arena, entry.method, {**budget.settings, **entry.settings, "run.seed": str(seed)}),
        budget=msgspec.structs.replace(budget, lag=lag),
        test_tasks=min(entry.arena.test_tasks, budget.most_test_tasks),
    )


def _missing(jobs: dict[tuple[str, int], LabJob], parts: Parts) -> Iterator[Work]:
    """What is still to be done, each job once, however many entries ask for it."""
    asked: set[Path] = set()
    for (label, seed), job in jobs.items():
        if parts.read(job, LabResult) is None and parts.path(job, ".job") not in asked:
            sheet = parts.write_sheet(job)
            asked.add(sheet)
            progress = sheet.with_suffix(PROGRESS)
            progress.unlink(missing_ok=True)
            yield Work(
                label=f"{label}, seed {seed}",
                command=(sys.executable, "-m", "distrl.bench.lab_runs", str(sheet)),
                log=sheet.with_suffix(".log"),
                deadline_s=DEADLINE_S,
                share=partial(_read_share, progress),
            )


def _read_share(file: Path, _elapsed_s: float) -> float:
    try:
        return float(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0.0


def _result(parts: Parts, job: LabJob) -> LabResult:
    found = parts.read(job, LabResult)
    assert found is not None, "do_all raises where a run made nothing"
    return found


def do_job(job: LabJob, progress: Path) -> LabResult:
    """Train, evaluate on the way, and play the test tasks at the end."""
    budget, config = job.budget, job.config
    plan = Plan(
        config=config,
        episodes=budget.episodes,
        chunk=budget.chunk,
        lag=budget.lag,
        evaluate_every=budget.evaluate_every,
    )
    lab = Lab(plan, held_out(config, budget.tune_tasks, "tune"))
    curve = lab.run(lambda point: _tell(progress, point, budget.episodes))
    return LabResult(curve=curve, outcomes=outcomes(lab.policy, held_out(config, job.test_tasks), config))


def _tell(progress: Path, point: Point, episodes: int) -> None:
    progress.write_text(f"{point.episodes / episodes:.3f}", encoding="ascii")


def do_sheet(sheet: Path) -> None:
    """Do the job on a sheet and keep what comes of it."""
    job = read_sheet(sheet, LabJob)
    prepare_torch()  # after the settings are read: without denormals, msgspec takes 0 for a number above 0
    keep_result(sheet, do_job(job, sheet.with_suffix(PROGRESS)))


if __name__ == "__main__":
    do_as_child(do_sheet)

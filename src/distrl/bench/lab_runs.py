"""Many laboratory runs at equal episodes, one core each, every one of them kept.

Curves on the way are taken on the tuning split; the test split is played once, by the last policy. Run as a module, it
does the one job on the sheet that it is given.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from distrl.bench.base import machine, num_cores
from distrl.bench.crew import Crew, Work, do_all, do_as_child, say_on_stderr
from distrl.bench.lab import Lab, Plan, Point, WarmStart, warm_start
from distrl.bench.methods import Arena, LabBudget, Method, resolve
from distrl.bench.outcomes import outcomes
from distrl.bench.parts import Parts, code_version, keep_result, read_share, read_sheet, tell_share
from distrl.bench.statistics import Floats
from distrl.config.schema import Config
from distrl.errors import DistrlError
from distrl.evaluation.evaluate import held_out
from distrl.experience.durable import replace
from distrl.policies.base import Policy
from distrl.runtime.assembly import make_policy, prepare_torch

DEADLINE_S = 6 * 3600.0
LIBRARIES = ("torch", "numpy")


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
    made_on: str
    """Processor and libraries."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A method in an arena: one row of a comparison."""

    method: Method
    arena: Arena
    settings: dict[str, str] = {}
    """On top of the budget's and the method's."""
    lag: int | None = None
    """Instead of the budget's."""

    def layers(self, budget: LabBudget) -> list[dict[str, str]]:
        """What decides its configuration, but for the seed."""
        return [self.arena.settings, budget.settings, self.method.settings, self.settings]

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


def run_labs(
    entries: Sequence[Entry], budget: LabBudget, seeds: int, parts: Parts, *, first_seed: int = 0
) -> list[Ran]:
    """All entries with all seeds; what has been run before is not run again."""
    rows = [[_job(entry, budget, first_seed + n) for n in range(seeds)] for entry in entries]
    _refuse_mixtures(rows, first_seed, parts)
    # Seed by seed: an interrupted comparison then has whole seeds of all its entries.
    labelled = [
        (f"{entry.label}, seed {first_seed + n}", row[n])
        for n in range(seeds)
        for entry, row in zip(entries, rows, strict=True)
    ]
    crew = Crew(at_once=num_cores(), say=say_on_stderr, before_each=parts.check_code)
    do_all(f"runs of {budget.episodes} episodes", list(_missing(labelled, parts)), crew)
    _refuse_mixtures(rows, first_seed, parts)  # once more: parts may have been copied in meanwhile
    return [
        Ran(entry=entry, results=[_result(parts, job) for job in row]) for entry, row in zip(entries, rows, strict=True)
    ]


def _refuse_mixtures(rows: Sequence[Sequence[LabJob]], first_seed: int, parts: Parts) -> None:
    """All runs of a seed are compared with each other, and other machines round other numbers from the warm start on."""
    for n, jobs in enumerate(zip(*rows, strict=True)):
        kept = [parts.read(job, LabResult) for job in jobs]
        places = {result.made_on if result else this_machine() for result in kept}
        if len(places) > 1:
            raise DistrlError(
                f"the runs of seed {first_seed + n} would be of different machines: {'; '.join(sorted(places))}",
                expected="all runs of one seed from one kind of machine: only there they begin with the same policy",
                fix="make what is missing of this seed where the rest was made, or remove its parts of one machine",
            )


def _job(entry: Entry, budget: LabBudget, seed: int) -> LabJob:
    lag = budget.lag if entry.lag is None else entry.lag
    return LabJob(
        config=resolve(*entry.layers(budget), {"run.seed": str(seed)}),
        budget=msgspec.structs.replace(budget, lag=lag),
        test_tasks=min(entry.arena.test_tasks, budget.most_test_tasks),
    )


def _missing(jobs: Sequence[tuple[str, LabJob]], parts: Parts) -> Iterator[Work]:
    """What is still to be done, each job once, however many entries ask for it."""
    asked: set[Path] = set()
    for label, job in jobs:
        sheet = parts.path(job, ".job")
        if sheet not in asked and parts.read(job, LabResult) is None:
            asked.add(sheet)
            yield _work(label, parts.write_sheet(job))


def _work(label: str, sheet: Path) -> Work:
    return Work(
        label=label,
        command=(sys.executable, "-m", "distrl.bench.lab_runs", str(sheet)),
        log=sheet.with_suffix(".log"),
        deadline_s=DEADLINE_S,
        share=lambda _: read_share(sheet),
    )


def _result(parts: Parts, job: LabJob) -> LabResult:
    found = parts.read(job, LabResult)
    assert found is not None, "do_all raises where a run made nothing"
    return found


def do_job(job: LabJob, tell: Callable[[float], None] = lambda share: None, warm: WarmStart = warm_start) -> LabResult:
    """Train, evaluate on the way, and play the test tasks at the end; `tell` hears the share that is done."""
    budget, config = job.budget, job.config
    plan = Plan(
        config=config,
        episodes=budget.episodes,
        chunk=budget.chunk,
        lag=budget.lag,
        evaluate_every=budget.evaluate_every,
    )
    lab = Lab(plan, held_out(config, budget.tune_tasks, "tune"), warm)
    curve = lab.run(lambda point: tell(point.episodes / budget.episodes))
    tasks = held_out(config, job.test_tasks) if job.test_tasks else []
    with lab.averaged():
        found = outcomes(lab.policy, tasks, config) if tasks else []
    return LabResult(curve=curve, outcomes=found, made_on=this_machine())


def this_machine() -> str:
    """What a run is made on, in one line."""
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    return f"{machine().processor}, Python {machine().python}, {libraries}"


def made_on(runs: Iterable[Ran]) -> dict[str, int]:
    """How many of these runs were made on what."""
    return dict(Counter(result.made_on for ran in runs for result in ran.results))


def do_sheet(sheet: Path) -> None:
    """Do the job on a sheet and keep what comes of it."""
    job = read_sheet(sheet, LabJob)
    prepare_torch()  # after the settings are read: without denormals, msgspec takes 0 for a number above 0
    keep_result(sheet, do_job(job, partial(tell_share, sheet), partial(shared_warm_start, sheet.parent)))


def shared_warm_start(folder: Path, policy: Policy[Any], config: Config) -> None:
    """As `warm_start`, but cloned once for all runs of the folder that begin alike, which is most of a short run.

    The policy that clones is never the one that goes on: whether a run was the first must not change what comes of it.
    """
    path = folder / f"warm-{_beginning(config)}.safetensors"
    if not path.exists():
        cloned = make_policy(config)
        warm_start(cloned, config)
        replace(path, cloned.dump())
    policy.restore(path.read_bytes(), source=str(path))


def _beginning(config: Config) -> str:
    """Twelve characters that change with all that decides how a run begins."""
    cloning = msgspec.structs.replace(config.warm_start, keep=False)
    decides = [code_version(), config.policy, cloning, config.tasks, config.devices.wild, config.rollout.history]
    return sha256(msgspec.json.encode([*decides, config.run.seed])).hexdigest()[:12]


if __name__ == "__main__":
    do_as_child(do_sheet)

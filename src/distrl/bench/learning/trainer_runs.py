"""Many runs of the single-process trainer at equal episodes, each a child process on one core, each result cached.

Curves are measured on the tuning split; the test split is played once, by the last policy. As a child process
(`python -m distrl.bench.learning.trainer_runs JOB_FILE`), this module makes one run.
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
from distrl.bench.jobs import Job, JobRunner, log_progress, run_as_child
from distrl.bench.learning.methods import Arena, EpisodeBudget, Method, resolve
from distrl.bench.learning.single_process import Plan, Point, SingleProcessTrainer, WarmStart, play_tasks, warm_start
from distrl.bench.result_cache import (
    ResultCache,
    code_version,
    read_job_file,
    read_progress,
    write_progress,
    write_result,
)
from distrl.bench.statistics import Floats
from distrl.config.schema import Config
from distrl.errors import DistrlError
from distrl.experience.durable import replace
from distrl.policies.base import Policy
from distrl.runtime.factory import make_policy, prepare_torch
from distrl.tasks.base import held_out

DEADLINE_S = 6 * 3600.0
LIBRARIES = ("torch", "numpy")


class TrainerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides the outcome of one run."""

    config: Config
    budget: EpisodeBudget
    test_tasks: int


class TrainerResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one run came to."""

    curve: list[Point]
    """On the tuning split."""
    outcomes: list[bool]
    """Of the last policy on each test task."""
    made_on: str
    """Processor and versions of the libraries."""
    judge_errors: dict[str, float] = {}
    """Share of the verdicts on failures, on successes and on all training episodes that were wrong."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A method in an arena: one row of a comparison."""

    method: Method
    arena: Arena
    settings: dict[str, str] = {}
    """On top of the budget's and the method's."""
    lag: int | None = None
    """Instead of the budget's."""

    def layers(self, budget: EpisodeBudget) -> list[dict[str, str]]:
        """What decides its configuration, except for the seed."""
        return [self.arena.settings, budget.settings, self.method.settings, self.settings]

    @property
    def label(self) -> str:
        """Its name in progress messages."""
        lag = "" if self.lag is None else f", lag {self.lag}"
        return f"{self.method.name} on {self.arena.name}{lag}"


class EntryRuns(msgspec.Struct, frozen=True, kw_only=True):
    """An entry with the results of all its seeds, in their order."""

    entry: Entry
    results: list[TrainerResult]

    def outcomes_ST(self) -> Floats:
        """Success by seed and test task."""
        return np.array([result.outcomes for result in self.results], dtype=np.float64)

    def curve_SK(self) -> Floats:
        """Success on the tuning tasks by seed and point."""
        return np.array([[point.success for point in result.curve] for result in self.results])

    def episodes_K(self) -> list[int]:
        """Episodes played at each point."""
        return [point.episodes for point in self.results[0].curve]


def run_trainers(
    entries: Sequence[Entry], budget: EpisodeBudget, seeds: int, cache: ResultCache, *, first_seed: int = 0
) -> list[EntryRuns]:
    """All entries with all seeds; what has been run before is not run again."""
    rows = [[make_spec(entry, budget, first_seed + n) for n in range(seeds)] for entry in entries]
    _refuse_mixed_machines(rows, first_seed, cache)
    # Seed by seed: an interrupted comparison then has whole seeds of all its entries.
    labelled = [
        (f"{entry.label}, seed {first_seed + n}", row[n])
        for n in range(seeds)
        for entry, row in zip(entries, rows, strict=True)
    ]
    runner = JobRunner(max_parallel=num_cores(), report=log_progress, before_each=cache.check_code)
    runner.run(f"runs of {budget.episodes} episodes", list(_missing_jobs(labelled, cache)))
    _refuse_mixed_machines(rows, first_seed, cache)  # once more: results may have been copied in meanwhile
    return [
        EntryRuns(entry=entry, results=[_result(cache, spec) for spec in row])
        for entry, row in zip(entries, rows, strict=True)
    ]


def _refuse_mixed_machines(rows: Sequence[Sequence[TrainerSpec]], first_seed: int, cache: ResultCache) -> None:
    """Runs of one seed are compared with each other, and another machine rounds differently from the warm start on."""
    for n, specs in enumerate(zip(*rows, strict=True)):
        cached = [cache.read(spec, TrainerResult) for spec in specs]
        places = {result.made_on if result else this_machine() for result in cached}
        if len(places) > 1:
            raise DistrlError(
                f"the runs of seed {first_seed + n} would be of different machines: {'; '.join(sorted(places))}",
                expected="all runs of one seed from one kind of machine: only those start with the same policy",
                fix="make the missing runs of this seed where the others were made, or remove the results of one machine",
            )


def make_spec(entry: Entry, budget: EpisodeBudget, seed: int) -> TrainerSpec:
    """The run of an entry with one seed."""
    lag = budget.lag if entry.lag is None else entry.lag
    return TrainerSpec(
        config=resolve(*entry.layers(budget), {"run.seed": str(seed)}),
        budget=msgspec.structs.replace(budget, lag=lag),
        test_tasks=min(entry.arena.test_tasks, budget.most_test_tasks),
    )


def _missing_jobs(labelled: Sequence[tuple[str, TrainerSpec]], cache: ResultCache) -> Iterator[Job]:
    """A job for each run without a result, once, however many entries need it."""
    asked: set[Path] = set()
    for label, spec in labelled:
        job_file = cache.path(spec, ".job")
        if job_file not in asked and cache.read(spec, TrainerResult) is None:
            asked.add(job_file)
            yield _job(label, cache.write_job_file(spec))


def _job(label: str, job_file: Path) -> Job:
    return Job(
        label=label,
        command=(sys.executable, "-m", "distrl.bench.learning.trainer_runs", str(job_file)),
        log=job_file.with_suffix(".log"),
        deadline_s=DEADLINE_S,
        progress=lambda _: read_progress(job_file),
    )


def _result(cache: ResultCache, spec: TrainerSpec) -> TrainerResult:
    found = cache.read(spec, TrainerResult)
    assert found is not None, "the job runner raises where a run has no result"
    return found


def train(
    spec: TrainerSpec, report: Callable[[float], None] = lambda share: None, warm: WarmStart = warm_start
) -> TrainerResult:
    """Train, evaluate on the way, and play the test tasks at the end; `report` gets the share that is done."""
    budget, config = spec.budget, spec.config
    plan = Plan(
        config=config,
        episodes=budget.episodes,
        chunk=budget.chunk,
        lag=budget.lag,
        evaluate_every=budget.evaluate_every,
    )
    trainer = SingleProcessTrainer(plan, held_out(config.tasks, budget.tune_tasks, "tune"), warm)
    curve = trainer.run(lambda point: report(point.episodes / budget.episodes))
    tasks = held_out(config.tasks, spec.test_tasks) if spec.test_tasks else []
    with trainer.averaged_weights():
        found = play_tasks(trainer.policy, tasks, config) if tasks else []
    return TrainerResult(curve=curve, outcomes=found, made_on=this_machine(), judge_errors=trainer.error_rates())


def this_machine() -> str:
    """Processor and versions of the libraries here, in one line."""
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    return f"{machine().processor}, Python {machine().python}, {libraries}"


def made_on(runs: Iterable[EntryRuns]) -> dict[str, int]:
    """How many of these runs were made on which machine."""
    return dict(Counter(result.made_on for one in runs for result in one.results))


def run_job_file(job_file: Path) -> None:
    """Make the run of a job file and store its result."""
    spec = read_job_file(job_file, TrainerSpec)
    prepare_torch()  # after the settings are read: without denormals, msgspec takes 0 for a number above 0
    write_result(job_file, train(spec, partial(write_progress, job_file), partial(shared_warm_start, job_file.parent)))


def shared_warm_start(folder: Path, policy: Policy[Any], config: Config) -> None:
    """As `warm_start`, but cloned once for all runs of the folder that start alike: cloning is most of a short run.

    The policy that clones is never the one that trains: whether a run was the first must not change its result.
    """
    path = folder / f"warm-{_warm_start_hash(config)}.safetensors"
    if not path.exists():
        cloned = make_policy(config)
        warm_start(cloned, config)
        replace(path, cloned.dump())
    policy.restore(path.read_bytes(), source=str(path))


def _warm_start_hash(config: Config) -> str:
    """Twelve characters that change with everything that decides the policy after the warm start."""
    cloning = msgspec.structs.replace(config.warm_start, keep=False)
    decides = [
        code_version(),
        config.policy,
        cloning,
        config.tasks,
        config.devices.sim.perturbations,
        config.rollout.history,
    ]
    return sha256(msgspec.json.encode([*decides, config.run.seed])).hexdigest()[:12]


if __name__ == "__main__":
    run_as_child(run_job_file)

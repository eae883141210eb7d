"""Real training runs at equal wall-clock: success as a function of time, for every method and seed.

Each run is a `distrl train` of its own on phones as slow as emulators, pinned to one core. Two run side by side where
there are two cores, of the same seed and in turn beside every other, so that rivals meet the same weather on the
machine and the same neighbours. Nothing is evaluated while they run. All versions are kept, and those that were in use at the moments of a
regular grid are evaluated afterwards (`timed_versions`), so that evaluation costs no method anything.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from distrl.bench.base import machine, num_cores
from distrl.bench.crew import Crew, Work, do_all, say_on_stderr, usable_cores
from distrl.bench.methods import TIMED, Arena, Method, TimedBudget, resolve
from distrl.bench.parts import Parts, read_share
from distrl.bench.statistics import Floats
from distrl.bench.timed_versions import TimedJob, TimedResult, finished_run, moments, published_by, versions_in_use
from distrl.config.load import config_hash, dump_toml
from distrl.errors import DistrlError
from distrl.experience.durable import replace
from distrl.runtime.run_folder import RunFolder

SIDE_BY_SIDE = 2
START_S = 60.0
"""About what a run needs besides its budget: loading, cloning and winding down."""
PATIENCE_S = 900.0
"""Longest time besides its budget."""
EVALUATION_DEADLINE_S = 2 * 3600.0


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """A method with the results of all its seeds, in their order."""

    method: Method
    results: list[TimedResult]

    def outcomes_ST(self) -> Floats:
        """Success at the end of the budget by seed and test task."""
        return np.array([result.outcomes for result in self.results], dtype=np.float64)

    def curve_SK(self) -> Floats:
        """Success by seed and moment."""
        return np.array([result.success for result in self.results])

    def wall_s_K(self) -> Floats:
        """The moments, in seconds since the first version."""
        return np.array(self.results[0].wall_s)


def run_timed(
    methods: Sequence[Method], arena: Arena, budget: TimedBudget, seeds: Sequence[int], parts: Parts
) -> list[Timed]:
    """All methods with all seeds; what has been run before is not run again."""
    groups = [_jobs(group, arena, budget) for group in group_rivals(methods, seeds, _side_by_side())]
    missing = [group for group in groups if not all(_has_run(parts, job) for _, job in group)]
    for number, group in enumerate(missing):
        left_min = (len(missing) - number) * (budget.wall_s + START_S) / 60
        _train(f"training {number + 1} of {len(missing)}, about {left_min:.0f} min for all", group, parts)
    jobs = dict(pair for group in groups for pair in group)
    _evaluate(jobs, parts)
    return [
        Timed(method=method, results=[_result(parts, jobs[_label(method, seed)]) for seed in seeds])
        for method in methods
    ]


def layers(arena: Arena, method: Method, budget: TimedBudget) -> list[dict[str, str]]:
    """What decides the configuration of a run, but for the seed."""
    return [TIMED, arena.settings, method.settings, budget.settings, {"run.minutes": str(budget.minutes)}]


def group_rivals(methods: Sequence[Method], seeds: Sequence[int], size: int) -> list[list[tuple[Method, int]]]:
    """Who runs at the same time: methods of one seed, the first beside another one with every seed.

    Those left over meet their like of other seeds.
    """
    whole = len(methods) - len(methods) % size
    groups = []
    for number, seed in enumerate(seeds):
        turned = turn(methods[:whole], number)
        groups += [[(method, seed) for method in turned[at : at + size]] for at in range(0, whole, size)]
    rest = [(method, seed) for method in methods[whole:] for seed in seeds]
    return groups + [rest[at : at + size] for at in range(0, len(rest), size)]


def turn(methods: Sequence[Method], places: int) -> list[Method]:
    """The methods with all but the first moved on by so many places."""
    first, others = list(methods[:1]), list(methods[1:])
    at = places % len(others) if others else 0
    return first + others[at:] + others[:at]


def _side_by_side() -> int:
    return min(SIDE_BY_SIDE, num_cores())


def _label(method: Method, seed: int) -> str:
    return f"{method.name}, seed {seed}"


def _jobs(group: list[tuple[Method, int]], arena: Arena, budget: TimedBudget) -> list[tuple[str, TimedJob]]:
    configs = [resolve(*layers(arena, method, budget), {"run.seed": str(seed)}) for method, seed in group]
    hashes = [config_hash(config) for config in configs]
    place = machine()
    return [
        (
            _label(method, seed),
            TimedJob(
                config=config,
                budget=budget,
                test_tasks=min(arena.test_tasks, budget.most_test_tasks),
                beside=tuple(hashes[:at] + hashes[at + 1 :]),
                machine=f"{place.processor}, {place.cores} cores, Python {place.python}",
            ),
        )
        for at, ((method, seed), config) in enumerate(zip(group, configs, strict=True))
    ]


# --- the timed part ---------------------------------------------------------------------------------------------------


def _has_run(parts: Parts, job: TimedJob) -> bool:
    return parts.read(job, TimedResult) is not None or finished_run(parts.path(job, ".run")) is not None


def _train(what: str, group: list[tuple[str, TimedJob]], parts: Parts) -> None:
    """Run a group from the start, all of it: half a pair would have the machine to itself."""
    cores = usable_cores()[: len(group)]
    works = [
        # Each method has each core in its turn: one of them may be the busier.
        _training(label, job, parts, cores[(at + job.config.run.seed) % len(cores)])
        for at, (label, job) in enumerate(group)
    ]
    do_all(what, works, Crew(at_once=len(works), say=say_on_stderr, before_each=parts.check_code))
    for label, job in group:
        run = finished_run(parts.path(job, ".run"))
        if run is None:
            raise DistrlError(
                f"{label} ended before its budget was spent",
                expected="a run that nobody stops",
                fix="start the same command again: finished runs are kept",
            )
        _trim(job, run)


def _trim(job: TimedJob, run: RunFolder) -> None:
    """Leave of a run what its evaluation needs: hundreds of versions and all their episodes would fill the disk."""
    shutil.rmtree(run.experience, ignore_errors=True)
    shutil.rmtree(run.checkpoints, ignore_errors=True)
    needed = {version.file for version in versions_in_use(published_by(run), moments(job.budget))}
    for path in run.weights.glob("v*.safetensors"):
        if path.name not in needed:
            path.unlink()


def _training(label: str, job: TimedJob, parts: Parts, core: int) -> Work:
    root, settings = parts.path(job, ".run"), parts.path(job, ".toml")
    shutil.rmtree(root, ignore_errors=True)
    parts.forget(job)
    replace(settings, dump_toml(job.config).encode())
    expected_s = job.budget.wall_s + START_S
    return Work(
        label=label,
        command=(sys.executable, "-m", "distrl", "train", str(settings), "--run.root", str(root)),
        log=parts.path(job, ".log"),
        deadline_s=job.budget.wall_s + PATIENCE_S,
        share=lambda elapsed_s: elapsed_s / expected_s,
        core=core,
    )


# --- afterwards -------------------------------------------------------------------------------------------------------


def _evaluate(jobs: dict[str, TimedJob], parts: Parts) -> None:
    crew = Crew(at_once=num_cores(), say=say_on_stderr, before_each=parts.check_code)
    do_all("evaluating what was published", list(_evaluations(jobs, parts)), crew)
    for job in jobs.values():
        shutil.rmtree(parts.path(job, ".run"), ignore_errors=True)


def _evaluations(jobs: dict[str, TimedJob], parts: Parts) -> Iterator[Work]:
    for label, job in jobs.items():
        if parts.read(job, TimedResult) is None:
            yield _evaluation(label, parts.write_sheet(job))


def _evaluation(label: str, sheet: Path) -> Work:
    return Work(
        label=label,
        command=(sys.executable, "-m", "distrl.bench.timed_versions", str(sheet)),
        log=sheet.with_suffix(".eval.log"),
        deadline_s=EVALUATION_DEADLINE_S,
        share=lambda _: read_share(sheet),
    )


def _result(parts: Parts, job: TimedJob) -> TimedResult:
    found = parts.read(job, TimedResult)
    assert found is not None, "do_all raises where an evaluation made nothing"
    return found

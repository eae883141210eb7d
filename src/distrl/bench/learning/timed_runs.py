"""Real training runs at equal wall-clock: success as a function of time, for every method and seed.

Each run is a `distrl train` on phones as slow as emulators, pinned to one core. Where there are two cores, two methods of
the same seed run in parallel, ours beside every other in turn, so that compared runs have the same load on the machine.
Nothing is evaluated while they run: all versions are kept, and those in use at fixed evaluation times are played on
held-out tasks afterwards, so that evaluation takes no time from any method.

Time begins when version 0 is published, because the warm start before it is the same for all methods of a seed. A version
that is published after the budget, while the run shuts down, does not count. As a child process (`python -m
distrl.bench.learning.timed_runs JOB_FILE`), this module evaluates one finished run.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from distrl.bench.base import machine, num_cores
from distrl.bench.jobs import Job, JobRunner, log_progress, run_as_child, usable_cores
from distrl.bench.learning.methods import TIMED_SETTINGS, Arena, Method, TimedBudget, resolve
from distrl.bench.learning.single_process import play_tasks
from distrl.bench.result_cache import ResultCache, read_job_file, read_progress, write_progress, write_result
from distrl.bench.statistics import Floats
from distrl.config.load import config_hash, dump_toml
from distrl.config.schema import Config
from distrl.errors import DistrlError
from distrl.experience.durable import replace
from distrl.runtime.factory import make_policy, prepare_torch
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.summary import Summary, read_summary
from distrl.tasks.base import held_out
from distrl.transport.weight_files import WeightsFolder
from distrl.types import PolicyVersion

MAX_PARALLEL = 2
START_S = 60.0
"""About what a run takes besides its budget: loading, cloning and shutting down."""
EXTRA_S = 900.0
"""The most that a run may take besides its budget."""
EVALUATION_DEADLINE_S = 2 * 3600.0


class TimedSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides the outcome of one run."""

    config: Config
    budget: TimedBudget
    test_tasks: int
    beside: tuple[str, ...]
    """Hashes of the configurations that run at the same time."""
    machine: str


class TimedResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one run came to."""

    wall_s: list[float]
    success: list[float]
    """Of the version in use at each of these times, on the first `curve_tasks` of the test tasks."""
    versions: list[int]
    outcomes: list[bool]
    """Of the last of them on each test task."""
    summary: Summary


class TimedRuns(msgspec.Struct, frozen=True, kw_only=True):
    """A method with the results of all its seeds, in their order."""

    method: Method
    results: list[TimedResult]

    def outcomes_ST(self) -> Floats:
        """Success at the end of the budget by seed and test task."""
        return np.array([result.outcomes for result in self.results], dtype=np.float64)

    def curve_SK(self) -> Floats:
        """Success by seed and evaluation time."""
        return np.array([result.success for result in self.results])

    def wall_s_K(self) -> Floats:
        """The evaluation times, in seconds since the first version."""
        return np.array(self.results[0].wall_s)


def run_timed(
    methods: Sequence[Method], arena: Arena, budget: TimedBudget, seeds: Sequence[int], cache: ResultCache
) -> list[TimedRuns]:
    """All methods with all seeds; what has been run before is not run again."""
    groups = [_specs(group, arena, budget) for group in group_runs(methods, seeds, _num_parallel())]
    missing = [group for group in groups if not all(_is_trained(cache, spec) for _, spec in group)]
    for number, group in enumerate(missing):
        left_min = (len(missing) - number) * (budget.wall_s + START_S) / 60
        _train(f"training {number + 1} of {len(missing)}, about {left_min:.0f} min for all", group, cache)
    specs = dict(pair for group in groups for pair in group)
    _evaluate(specs, cache)
    return [
        TimedRuns(method=method, results=[_result(cache, specs[_label(method, seed)]) for seed in seeds])
        for method in methods
    ]


def layers(arena: Arena, method: Method, budget: TimedBudget) -> list[dict[str, str]]:
    """What decides the configuration of a run, except for the seed."""
    return [TIMED_SETTINGS, arena.settings, method.settings, budget.settings, {"run.minutes": str(budget.minutes)}]


def group_runs(methods: Sequence[Method], seeds: Sequence[int], size: int) -> list[list[tuple[Method, int]]]:
    """Which runs are made at the same time: methods of one seed, the first beside another one with every seed.

    A method without a partner runs beside itself with other seeds.
    """
    whole = len(methods) - len(methods) % size
    groups = []
    for number, seed in enumerate(seeds):
        rotated = rotate(methods[:whole], number)
        groups += [[(method, seed) for method in rotated[at : at + size]] for at in range(0, whole, size)]
    rest = [(method, seed) for method in methods[whole:] for seed in seeds]
    return groups + [rest[at : at + size] for at in range(0, len(rest), size)]


def rotate(methods: Sequence[Method], places: int) -> list[Method]:
    """The methods with all but the first rotated by this many places."""
    first, others = list(methods[:1]), list(methods[1:])
    at = places % len(others) if others else 0
    return first + others[at:] + others[:at]


def _num_parallel() -> int:
    return min(MAX_PARALLEL, num_cores())


def _label(method: Method, seed: int) -> str:
    return f"{method.name}, seed {seed}"


def _specs(group: list[tuple[Method, int]], arena: Arena, budget: TimedBudget) -> list[tuple[str, TimedSpec]]:
    configs = [resolve(*layers(arena, method, budget), {"run.seed": str(seed)}) for method, seed in group]
    hashes = [config_hash(config) for config in configs]
    place = machine()
    return [
        (
            _label(method, seed),
            TimedSpec(
                config=config,
                budget=budget,
                test_tasks=min(arena.test_tasks, budget.most_test_tasks),
                beside=tuple(hashes[:at] + hashes[at + 1 :]),
                machine=f"{place.processor}, {place.cores} cores, Python {place.python}",
            ),
        )
        for at, ((method, seed), config) in enumerate(zip(group, configs, strict=True))
    ]


# --- training ---------------------------------------------------------------------------------------------------------


def _is_trained(cache: ResultCache, spec: TimedSpec) -> bool:
    return cache.read(spec, TimedResult) is not None or finished_run(cache.path(spec, ".run")) is not None


def _train(title: str, group: list[tuple[str, TimedSpec]], cache: ResultCache) -> None:
    """Train a whole group from the start: half a pair would have the machine to itself."""
    cores = usable_cores()[: len(group)]
    jobs = [
        # Each method uses each core in turn: one of them may be busier.
        _training_job(label, spec, cache, cores[(at + spec.config.run.seed) % len(cores)])
        for at, (label, spec) in enumerate(group)
    ]
    runner = JobRunner(max_parallel=len(jobs), report=log_progress, before_each=cache.check_code)
    runner.run(title, jobs)
    for label, spec in group:
        run = finished_run(cache.path(spec, ".run"))
        if run is None:
            raise DistrlError(
                f"{label} ended before its budget was used up",
                expected="a run that nobody stops",
                fix="start the same command again: finished runs are kept",
            )
        _trim(spec, run)


def _trim(spec: TimedSpec, run: RunFolder) -> None:
    """Remove everything that the evaluation does not need: hundreds of versions and all episodes would fill the disk."""
    shutil.rmtree(run.experience, ignore_errors=True)
    shutil.rmtree(run.checkpoints, ignore_errors=True)
    needed = {version.file for version in versions_in_use(published_versions(run), evaluation_times(spec.budget))}
    for path in run.weights.glob("v*.safetensors"):
        if path.name not in needed:
            path.unlink()


def _training_job(label: str, spec: TimedSpec, cache: ResultCache, core: int) -> Job:
    root, settings = cache.path(spec, ".run"), cache.path(spec, ".toml")
    shutil.rmtree(root, ignore_errors=True)
    cache.discard(spec)
    replace(settings, dump_toml(spec.config).encode())
    expected_s = spec.budget.wall_s + START_S
    return Job(
        label=label,
        command=(sys.executable, "-m", "distrl", "train", "--no-view", str(settings), "--run.root", str(root)),
        log=cache.path(spec, ".log"),
        deadline_s=spec.budget.wall_s + EXTRA_S,
        progress=lambda elapsed_s: elapsed_s / expected_s,
        core=core,
    )


# --- evaluation -------------------------------------------------------------------------------------------------------


def _evaluate(specs: dict[str, TimedSpec], cache: ResultCache) -> None:
    runner = JobRunner(max_parallel=num_cores(), report=log_progress, before_each=cache.check_code)
    runner.run("evaluating published versions", list(_evaluation_jobs(specs, cache)))
    for spec in specs.values():
        shutil.rmtree(cache.path(spec, ".run"), ignore_errors=True)


def _evaluation_jobs(specs: dict[str, TimedSpec], cache: ResultCache) -> Iterator[Job]:
    for label, spec in specs.items():
        if cache.read(spec, TimedResult) is None:
            yield _evaluation_job(label, cache.write_job_file(spec))


def _evaluation_job(label: str, job_file: Path) -> Job:
    return Job(
        label=label,
        command=(sys.executable, "-m", "distrl.bench.learning.timed_runs", str(job_file)),
        log=job_file.with_suffix(".eval.log"),
        deadline_s=EVALUATION_DEADLINE_S,
        progress=lambda _: read_progress(job_file),
    )


def _result(cache: ResultCache, spec: TimedSpec) -> TimedResult:
    found = cache.read(spec, TimedResult)
    assert found is not None, "the job runner raises where an evaluation has no result"
    return found


def finished_run(root: Path) -> RunFolder | None:
    """The run in this folder, if it finished without interruption."""
    for file in root.glob("*/summary.json"):
        run = RunFolder(file.parent)
        summary = read_summary(run)
        if summary is not None and not summary.interrupted:
            return run
    return None


def versions_in_use(published: Sequence[PolicyVersion], wall_s: Sequence[float]) -> list[PolicyVersion]:
    """The newest version at each time, counted from the publication of the first version."""
    zero_s = published[0].published_s
    return [[one for one in published if one.published_s - zero_s <= time_s][-1] for time_s in wall_s]


def evaluate_run(spec: TimedSpec, run: RunFolder, report: Callable[[float], None] = lambda share: None) -> TimedResult:
    """Success of the versions in use at the evaluation times of a finished run; `report` gets the share that is done."""
    summary = read_summary(run)
    assert summary is not None, "the run is finished"
    wall_s = evaluation_times(spec.budget)
    used = versions_in_use(published_versions(run), wall_s)
    played = _play(spec, run, used, report)
    return TimedResult(
        wall_s=wall_s,
        success=[float(np.mean(played[version.version][: spec.budget.curve_tasks])) for version in used],
        versions=[version.version for version in used],
        outcomes=played[used[-1].version],
        summary=summary,
    )


def evaluation_times(budget: TimedBudget) -> list[float]:
    """When versions are evaluated, in seconds since the first version."""
    regular = (budget.wall_s * point / budget.points for point in range(budget.points + 1))
    return sorted({*regular, *budget.early_s})


def published_versions(run: RunFolder) -> list[PolicyVersion]:
    """Every version of a run, oldest first."""
    files = sorted(run.weights.glob("v*.json"))
    return [msgspec.json.decode(file.read_bytes(), type=PolicyVersion) for file in files]


def _play(
    spec: TimedSpec, run: RunFolder, versions: list[PolicyVersion], report: Callable[[float], None]
) -> dict[int, list[bool]]:
    """The outcomes of each version on the tasks of the curve, and of the last one on all test tasks."""
    policy, weights = make_policy(spec.config), WeightsFolder(run.weights)
    tasks = held_out(spec.config.tasks, spec.test_tasks, spec.budget.split)
    different = {version.version: version for version in versions}
    played: dict[int, list[bool]] = {}
    for number, version in different.items():
        weights.load(policy, version)
        some = tasks if version == versions[-1] else tasks[: spec.budget.curve_tasks]
        played[number] = play_tasks(policy, some, spec.config)
        report(len(played) / len(different))
    return played


def evaluate_job_file(job_file: Path) -> None:
    """Evaluate the run of a job file and store its result."""
    spec, run = read_job_file(job_file, TimedSpec), finished_run(job_file.with_suffix(".run"))
    assert run is not None, "it was trained before it is evaluated"
    prepare_torch()  # after the settings are read: without denormals, msgspec takes 0 for a number above 0
    write_result(job_file, evaluate_run(spec, run, partial(write_progress, job_file)))


if __name__ == "__main__":
    run_as_child(evaluate_job_file)

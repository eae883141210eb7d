"""Runs at equal wall-clock: pairs of runs, versions at evaluation times, and what is made again after an interruption."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from distrl.bench.jobs import Job, JobRunner
from distrl.bench.learning import timed_runs
from distrl.bench.learning.methods import Arena, Method, TimedBudget
from distrl.bench.learning.timed_runs import (
    TimedResult,
    TimedSpec,
    evaluate_run,
    group_runs,
    run_timed,
    versions_in_use,
)
from distrl.bench.result_cache import ResultCache, write_result
from distrl.errors import DistrlError
from distrl.runtime.factory import make_policy
from distrl.runtime.run_folder import RunFolder
from distrl.transport.weight_files import WeightsFolder
from distrl.types import PolicyVersion
from support.learners import make_version, small_config
from support.summaries import a_summary

BUDGET = TimedBudget(minutes=1, points=3, most_test_tasks=3)
ARENA = Arena(name="tiny", settings={"tasks.suite": "sim-start"}, test_tasks=5)
ONE, TWO, THREE = (
    Method(name="one"),
    Method(name="two", settings={"learner.mode": "sync"}),
    Method(name="three", settings={"algorithm.kind": "filtered_bc"}),
)


def published(*moments_s: float) -> list[PolicyVersion]:
    return [replace(make_version(n), published_s=1000.0 + moment_s) for n, moment_s in enumerate(moments_s)]


def test_methods_of_one_seed_run_together_and_a_method_without_a_partner_beside_itself() -> None:
    pairs = group_runs([ONE, TWO, THREE], range(3), 2)
    assert pairs == [
        [(ONE, 0), (TWO, 0)],
        [(ONE, 1), (TWO, 1)],
        [(ONE, 2), (TWO, 2)],
        [(THREE, 0), (THREE, 1)],
        [(THREE, 2)],
    ]
    assert group_runs([ONE, TWO], range(2), 1) == [[(ONE, 0)], [(TWO, 0)], [(ONE, 1)], [(TWO, 1)]]


def test_the_first_method_runs_beside_every_other_in_its_turn() -> None:
    four = Method(name="four")
    pairs = group_runs([ONE, TWO, THREE, four], (7, 8, 9), 2)
    assert [pair[1][0] for pair in pairs if pair[0][0] == ONE] == [TWO, THREE, four]
    assert {method.name for pair in pairs for method, seed in pair if seed == 8} == {"one", "two", "three", "four"}


def test_the_newest_version_counts_and_what_comes_after_the_budget_does_not() -> None:
    used = versions_in_use(published(0.0, 15.0, 20.0, 59.0, 61.0), [0.0, 20.0, 40.0, 60.0])
    assert [version.version for version in used] == [0, 2, 2, 3]


def make_run(root: Path, job: TimedSpec) -> RunFolder:
    """A finished run: three versions of other weights, the last one published too late."""
    run = RunFolder(root / "20260101-sim")
    weights = WeightsFolder(run.weights, keep=100)
    for version in published(0.0, 30.0, 70.0):
        policy = make_policy(replace(job.config, run=replace(job.config.run, seed=version.version)))
        weights.publish(policy, version)
    for folder in (run.experience, run.checkpoints):
        folder.mkdir()
        (folder / "large").touch()
    run.summary.write_bytes(msgspec.json.encode(a_summary()))
    return run


def test_versions_are_evaluated_at_the_evaluation_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = TimedSpec(
        config=small_config(tasks={"suite": "sim-start"}), budget=BUDGET, test_tasks=3, beside=(), machine="this"
    )
    run, loaded = make_run(tmp_path, job), list[int]()
    load = WeightsFolder.load
    monkeypatch.setattr(WeightsFolder, "load", lambda *args: (loaded.append(args[2].version), load(*args))[1])
    result = evaluate_run(job, run)
    assert (result.wall_s, result.versions) == ([0.0, 20.0, 40.0, 60.0], [0, 0, 1, 1])
    assert loaded == [0, 1], "each version once, and none that came too late"
    assert len(result.outcomes) == 3
    assert result.success[-1] == sum(result.outcomes) / 3


class Played:
    """Stands where processes would be started: notes what was asked for and makes what they would have made."""

    def __init__(self, cache: ResultCache, monkeypatch: pytest.MonkeyPatch, *, interrupted: bool = False) -> None:
        self.asked: list[list[str]] = []
        self.cores: dict[str, int] = {}
        self.broken: set[str] = set()
        self._cache, self._interrupted = cache, interrupted
        monkeypatch.setattr(JobRunner, "run", lambda runner, title, jobs: self.run_jobs(jobs))
        monkeypatch.setattr(timed_runs, "_num_parallel", lambda: 2)

    def run_jobs(self, jobs: list[Job]) -> None:
        if jobs:
            self.asked.append([f"{'train' if job.core is not None else 'evaluate'} {job.label}" for job in jobs])
        for job in jobs:
            root = Path(job.command[-1])
            if job.label in self.broken:
                raise DistrlError(f"1 of 2 runs failed: {job.label}")
            if job.core is None:
                result = TimedResult(wall_s=[0.0], success=[0.5], versions=[0], outcomes=[True], summary=a_summary())
                write_result(root, result)
            else:
                self.cores[job.label] = job.core
                spec = TimedSpec(config=small_config(), budget=BUDGET, test_tasks=3, beside=(), machine="")
                run = make_run(root, spec)
                run.summary.write_bytes(msgspec.json.encode(replace(a_summary(), interrupted=self._interrupted)))


def test_runs_are_trained_in_pairs_then_evaluated_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ResultCache(tmp_path)
    played = Played(cache, monkeypatch)
    found = run_timed([ONE, TWO], ARENA, BUDGET, range(1), cache)
    assert played.asked == [
        ["train one, seed 0", "train two, seed 0"],
        ["evaluate one, seed 0", "evaluate two, seed 0"],
    ]
    assert [one.method.name for one in found] == ["one", "two"]
    assert list(tmp_path.glob("*.run")) == [], "evaluated, the runs are not needed any more"
    assert run_timed([ONE, TWO], ARENA, BUDGET, range(1), cache) == found
    assert len(played.asked) == 2


def test_what_was_trained_is_not_trained_again_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ResultCache(tmp_path)
    played = Played(cache, monkeypatch)
    played.broken = {"one, seed 1"}
    with pytest.raises(DistrlError, match="one, seed 1"):
        run_timed([ONE, TWO], ARENA, BUDGET, range(2), cache)
    assert list(tmp_path.glob("*.run/*/experience")) == [], "only weights are kept for the evaluation"
    kept = sorted(file.name for file in tmp_path.glob("*.run/*/weights/*.safetensors"))
    assert kept == ["v000000.safetensors", "v000000.safetensors", "v000001.safetensors", "v000001.safetensors"]
    played.broken, played.asked = set(), []
    run_timed([ONE, TWO], ARENA, BUDGET, range(2), cache)
    assert played.asked[0] == ["train one, seed 1", "train two, seed 1"]
    assert sorted(played.asked[1]) == [f"evaluate {name}, seed {seed}" for name in ("one", "two") for seed in (0, 1)]


def test_half_a_pair_is_run_again_with_its_partner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ResultCache(tmp_path)
    played = Played(cache, monkeypatch)
    run_timed([ONE, TWO], ARENA, BUDGET, range(1), cache)
    sorted(tmp_path.glob("timedspec-*.json"))[0].unlink()
    played.asked = []
    run_timed([ONE, TWO], ARENA, BUDGET, range(1), cache)
    assert played.asked[0] == ["train one, seed 0", "train two, seed 0"]


def test_a_method_has_each_core_in_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(ResultCache(tmp_path), monkeypatch)
    monkeypatch.setattr(timed_runs, "usable_cores", lambda: [4, 5, 6])
    run_timed([ONE, TWO], ARENA, BUDGET, range(2), ResultCache(tmp_path))
    assert played.cores == {"one, seed 0": 4, "two, seed 0": 5, "one, seed 1": 5, "two, seed 1": 4}


def test_a_run_that_somebody_stopped_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Played(ResultCache(tmp_path), monkeypatch, interrupted=True)
    with pytest.raises(DistrlError, match="one, seed 0 ended before its budget was used up"):
        run_timed([ONE, TWO], ARENA, BUDGET, range(1), ResultCache(tmp_path))


def test_a_run_beside_another_method_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ResultCache(tmp_path)
    played = Played(cache, monkeypatch)
    run_timed([ONE, TWO], ARENA, BUDGET, range(1), cache)
    played.asked = []
    run_timed([ONE, THREE], ARENA, BUDGET, range(1), cache)
    assert played.asked[0] == ["train one, seed 0", "train three, seed 0"]

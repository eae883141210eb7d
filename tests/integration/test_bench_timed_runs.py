"""Runs at equal wall-clock: who runs beside whom, which version counts when, what is kept and what is run again."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from distrl.bench import timed_runs
from distrl.bench.methods import Arena, Method, TimedBudget
from distrl.bench.parts import Parts, keep_result
from distrl.bench.timed_runs import group_rivals, run_timed
from distrl.bench.timed_versions import TimedJob, TimedResult, evaluate_run, versions_in_use
from distrl.errors import DistrlError
from distrl.learner.weights import WeightsFolder
from distrl.runtime.assembly import make_policy
from distrl.runtime.run_folder import RunFolder
from distrl.types import PolicyVersion
from support.learners import make_version, small_config
from support.summaries import a_summary

BUDGET = TimedBudget(minutes=1, points=3, most_test_tasks=3)
ARENA = Arena(name="tiny", settings={"tasks.suite": "sim-start"}, test_tasks=5)
ONE, TWO, THREE = (
    Method(name="one"),
    Method(name="two", settings={"learner.mode": "sync"}),
    Method(name="three", settings={"algorithm.name": "filtered_bc"}),
)


def published(*moments_s: float) -> list[PolicyVersion]:
    return [replace(make_version(n), published_s=1000.0 + moment_s) for n, moment_s in enumerate(moments_s)]


def test_rivals_of_one_seed_run_together_and_those_left_over_meet_their_like() -> None:
    pairs = group_rivals([ONE, TWO, THREE], range(3), 2)
    assert pairs == [
        [(ONE, 0), (TWO, 0)],
        [(ONE, 1), (TWO, 1)],
        [(ONE, 2), (TWO, 2)],
        [(THREE, 0), (THREE, 1)],
        [(THREE, 2)],
    ]
    assert group_rivals([ONE, TWO], range(2), 1) == [[(ONE, 0)], [(TWO, 0)], [(ONE, 1)], [(TWO, 1)]]


def test_the_first_method_runs_beside_every_other_in_its_turn() -> None:
    four = Method(name="four")
    pairs = group_rivals([ONE, TWO, THREE, four], (7, 8, 9), 2)
    assert [pair[1][0] for pair in pairs if pair[0][0] == ONE] == [TWO, THREE, four]
    assert {method.name for pair in pairs for method, seed in pair if seed == 8} == {"one", "two", "three", "four"}


def test_the_newest_version_counts_and_what_comes_after_the_budget_does_not() -> None:
    used = versions_in_use(published(0.0, 15.0, 20.0, 59.0, 61.0), [0.0, 20.0, 40.0, 60.0])
    assert [version.version for version in used] == [0, 2, 2, 3]


def make_run(root: Path, job: TimedJob) -> RunFolder:
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


def test_versions_are_evaluated_at_regular_moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = TimedJob(
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

    def __init__(self, parts: Parts, monkeypatch: pytest.MonkeyPatch, *, interrupted: bool = False) -> None:
        self.asked: list[list[str]] = []
        self.cores: dict[str, int] = {}
        self.broken: set[str] = set()
        self._parts, self._interrupted = parts, interrupted
        monkeypatch.setattr(timed_runs, "do_all", self.do_all)
        monkeypatch.setattr(timed_runs, "_side_by_side", lambda: 2)

    def do_all(self, what: str, works: list[timed_runs.Work], crew: object) -> None:
        if works:
            self.asked.append([f"{'train' if work.core is not None else 'evaluate'} {work.label}" for work in works])
        for work in works:
            root = Path(work.command[-1])
            if work.label in self.broken:
                raise DistrlError(f"1 of 2 runs failed: {work.label}")
            if work.core is None:
                result = TimedResult(wall_s=[0.0], success=[0.5], versions=[0], outcomes=[True], summary=a_summary())
                keep_result(root, result)
            else:
                self.cores[work.label] = work.core
                job = TimedJob(config=small_config(), budget=BUDGET, test_tasks=3, beside=(), machine="")
                run = make_run(root, job)
                run.summary.write_bytes(msgspec.json.encode(replace(a_summary(), interrupted=self._interrupted)))


def test_runs_are_trained_in_pairs_then_evaluated_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(tmp_path)
    played = Played(parts, monkeypatch)
    found = run_timed([ONE, TWO], ARENA, BUDGET, range(1), parts)
    assert played.asked == [
        ["train one, seed 0", "train two, seed 0"],
        ["evaluate one, seed 0", "evaluate two, seed 0"],
    ]
    assert [one.method.name for one in found] == ["one", "two"]
    assert list(tmp_path.glob("*.run")) == [], "evaluated, the runs are not needed any more"
    assert run_timed([ONE, TWO], ARENA, BUDGET, range(1), parts) == found
    assert len(played.asked) == 2


def test_what_was_trained_is_not_trained_again_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(tmp_path)
    played = Played(parts, monkeypatch)
    played.broken = {"one, seed 1"}
    with pytest.raises(DistrlError, match="one, seed 1"):
        run_timed([ONE, TWO], ARENA, BUDGET, range(2), parts)
    assert list(tmp_path.glob("*.run/*/experience")) == [], "only weights are kept for the evaluation"
    kept = sorted(file.name for file in tmp_path.glob("*.run/*/weights/*.safetensors"))
    assert kept == ["v000000.safetensors", "v000000.safetensors", "v000001.safetensors", "v000001.safetensors"]
    played.broken, played.asked = set(), []
    run_timed([ONE, TWO], ARENA, BUDGET, range(2), parts)
    assert played.asked[0] == ["train one, seed 1", "train two, seed 1"]
    assert sorted(played.asked[1]) == [f"evaluate {name}, seed {seed}" for name in ("one", "two") for seed in (0, 1)]


def test_half_a_pair_is_run_again_with_its_rival(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(tmp_path)
    played = Played(parts, monkeypatch)
    run_timed([ONE, TWO], ARENA, BUDGET, range(1), parts)
    sorted(tmp_path.glob("timedjob-*.json"))[0].unlink()
    played.asked = []
    run_timed([ONE, TWO], ARENA, BUDGET, range(1), parts)
    assert played.asked[0] == ["train one, seed 0", "train two, seed 0"]


def test_a_method_has_each_core_in_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(Parts(tmp_path), monkeypatch)
    monkeypatch.setattr(timed_runs, "usable_cores", lambda: [4, 5, 6])
    run_timed([ONE, TWO], ARENA, BUDGET, range(2), Parts(tmp_path))
    assert played.cores == {"one, seed 0": 4, "two, seed 0": 5, "one, seed 1": 5, "two, seed 1": 4}


def test_a_run_that_somebody_stopped_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Played(Parts(tmp_path), monkeypatch, interrupted=True)
    with pytest.raises(DistrlError, match="one, seed 0 ended before its budget was spent"):
        run_timed([ONE, TWO], ARENA, BUDGET, range(1), Parts(tmp_path))


def test_a_run_beside_another_rival_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(tmp_path)
    played = Played(parts, monkeypatch)
    run_timed([ONE, TWO], ARENA, BUDGET, range(1), parts)
    played.asked = []
    run_timed([ONE, THREE], ARENA, BUDGET, range(1), parts)
    assert played.asked[0] == ["train one, seed 0", "train three, seed 0"]

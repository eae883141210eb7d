"""Runs of the single-process trainer as child processes: a tiny comparison, interrupted and continued."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from distrl.bench.jobs import Job, JobRunner
from distrl.bench.learning import trainer_runs
from distrl.bench.learning.methods import Arena, EpisodeBudget, Method, resolve
from distrl.bench.learning.trainer_runs import Entry, EntryRuns, TrainerResult, made_on, make_spec, run_trainers
from distrl.bench.result_cache import ResultCache, write_result
from distrl.errors import DistrlError

TINY = {
    "policy.pointer.width": "16", "policy.pointer.layers": "1", "warm_start.demonstrations": "4", "warm_start.epochs": "1",
    "learner.first_update_episodes": "8", "learner.batch_trajectories": "4",
}  # fmt: skip
ARENA = Arena(name="tiny", settings={"tasks.suite": "sim-start", "tasks.max_oracle_steps": "3"}, test_tasks=5)
BUDGET = EpisodeBudget(episodes=16, chunk=8, lag=1, evaluate_every=8, tune_tasks=3, most_test_tasks=4, settings=TINY)
ARIDE = Entry(method=Method(name="aride"), arena=ARENA)
CLONE = Entry(method=Method(name="filtered_bc", settings={"algorithm.kind": "filtered_bc"}), arena=ARENA)


@pytest.mark.long
def test_a_comparison_runs_once_and_is_found_again_and_runs_that_begin_alike_share_their_warm_start(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    twin = Entry(method=Method(name="the same by another name"), arena=ARENA)
    first = run_trainers([ARIDE, CLONE, twin], BUDGET, 1, ResultCache(tmp_path))
    reported = capfd.readouterr().err
    assert "runs of 16 episodes: 2 runs, " in reported, "the twin needs no run of its own"
    assert "2 of 2 done" in reported
    assert first[0].results == first[2].results
    assert first[0].outcomes_ST().shape == (1, 4)
    assert first[0].curve_SK().shape == (1, 3)
    assert first[0].episodes_K() == [0, 8, 16]
    assert ", torch " in first[0].results[0].made_on
    assert run_trainers([ARIDE, CLONE], BUDGET, 1, ResultCache(tmp_path)) == first[:2]
    assert capfd.readouterr().err == "", "nothing was left to run"
    assert len(list(tmp_path.glob("warm-*.safetensors"))) == 1, "runs that begin alike share their warm start"
    check_a_warm_start_that_was_found(tmp_path, first[0])


def check_a_warm_start_that_was_found(folder: Path, first: EntryRuns) -> None:
    """It changes nothing; and a run that begins otherwise makes its own."""
    for made in folder.glob("trainerspec-*"):
        made.unlink()
    more = Entry(method=Method(name="more", settings={"rollout.history": "2"}), arena=ARENA)
    again, _ = run_trainers([ARIDE, more], BUDGET, 1, ResultCache(folder))
    assert len(list(folder.glob("warm-*.safetensors"))) == 2
    assert [point.losses for point in first.results[0].curve] == [point.losses for point in again.results[0].curve]


def test_only_what_is_missing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, asked = ResultCache(tmp_path), list[str]()
    nothing = TrainerResult(curve=[], outcomes=[True], made_on=trainer_runs.this_machine())

    def pretend(runner: JobRunner, title: str, jobs: list[Job]) -> None:
        for work in jobs:
            asked.append(work.label)
            write_result(Path(work.command[-1]), nothing)

    monkeypatch.setattr(JobRunner, "run", pretend)
    run_trainers([ARIDE], BUDGET, 2, cache)
    assert asked == ["aride on tiny, seed 0", "aride on tiny, seed 1"]
    run_trainers([ARIDE, CLONE], BUDGET, 3, cache)
    assert asked[2:] == [
        "filtered_bc on tiny, seed 0",
        "filtered_bc on tiny, seed 1",
        "aride on tiny, seed 2",
        "filtered_bc on tiny, seed 2",
    ]
    stale = Entry(method=ARIDE.method, arena=ARENA, lag=4, settings={"replay.max_staleness": "12"})
    run_trainers([stale], BUDGET, 1, cache)
    assert asked[6:] == ["aride on tiny, lag 4, seed 0"]


def test_outcomes_and_curves_are_given_seed_by_seed() -> None:
    ran = EntryRuns(
        entry=ARIDE,
        results=[
            TrainerResult(curve=[], outcomes=[True, False], made_on="here"),
            TrainerResult(curve=[], outcomes=[True, True], made_on="there"),
        ],
    )
    assert np.array_equal(ran.outcomes_ST(), [[1.0, 0.0], [1.0, 1.0]])
    assert made_on([ran, ran]) == {"here": 2, "there": 2}


def test_runs_of_one_seed_from_different_machines_are_refused_before_any_is_made(tmp_path: Path) -> None:
    cache = ResultCache(tmp_path)
    for seed in (0, 1):
        elsewhere = TrainerResult(curve=[], outcomes=[True], made_on="elsewhere")
        write_result(cache.write_job_file(make_spec(ARIDE, BUDGET, seed)), elsewhere)
    assert len(run_trainers([ARIDE], BUDGET, 2, cache)) == 1, "whole seeds may be of other machines"
    before = sorted(tmp_path.iterdir())
    with pytest.raises(DistrlError, match=r"seed 0 would be of different machines: .*elsewhere"):
        run_trainers([ARIDE, CLONE], BUDGET, 2, cache)
    assert sorted(tmp_path.iterdir()) == before


def test_results_of_another_machine_that_are_copied_in_during_the_runs_are_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = iter([trainer_runs.this_machine(), "elsewhere"])

    def pretend(runner: JobRunner, title: str, jobs: list[Job]) -> None:
        for work in jobs:
            write_result(Path(work.command[-1]), TrainerResult(curve=[], outcomes=[True], made_on=next(places)))

    monkeypatch.setattr(JobRunner, "run", pretend)
    with pytest.raises(DistrlError, match=r"seed 0 would be of different machines: .*elsewhere"):
        run_trainers([ARIDE, CLONE], BUDGET, 1, ResultCache(tmp_path))


def test_what_a_method_sets_stands_over_what_the_budget_sets() -> None:
    own = Entry(method=Method(name="own", settings={"policy.pointer.width": "32"}), arena=ARENA)
    assert (resolve(*own.layers(BUDGET)).policy.pointer.width, resolve(*ARIDE.layers(BUDGET)).policy.pointer.width) == (
        32,
        16,
    )

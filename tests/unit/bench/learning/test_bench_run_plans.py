"""Which runs are made, in which order and pairs, and which versions of them are evaluated when."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from distrl.bench.learning import single_process
from distrl.bench.learning.methods import EVERYDAY, FIRST, TIMED_SETTINGS, Arena, EpisodeBudget, Method, TimedBudget
from distrl.bench.learning.single_process import play_tasks
from distrl.bench.learning.timed_runs import (
    evaluation_times,
    finished_run,
    group_runs,
    layers,
    published_versions,
    rotate,
    versions_in_use,
)
from distrl.bench.learning.trainer_runs import Entry, made_on, make_spec, this_machine
from distrl.config.schema import Config
from distrl.runtime.run_folder import RunFolder
from distrl.types import PolicyVersion
from support.bench_runs import TIMES_S, entry_runs, timed_runs
from support.learners import make_version
from support.summaries import a_summary
from support.trajectories import TASK, make_trajectory

METHODS = [Method(name=name) for name in "abcdef"]
some_methods = st.integers(1, 6).map(lambda number: METHODS[:number])
BUDGET = EpisodeBudget(episodes=64, chunk=8, lag=2, evaluate_every=8, tune_tasks=3, most_test_tasks=400)


# --- which runs at the same time --------------------------------------------------------------------------------------


@given(some_methods, st.integers(0, 6), st.integers(1, 3))
def test_every_method_runs_once_with_every_seed_and_no_group_is_too_large(
    methods: list[Method], num_seeds: int, size: int
) -> None:
    groups = group_runs(methods, range(num_seeds), size)
    runs = Counter((method.name, seed) for group in groups for method, seed in group)
    assert runs == Counter((method.name, seed) for method in methods for seed in range(num_seeds))
    assert all(1 <= len(group) <= size for group in groups)


@given(st.sampled_from([2, 4, 6]), st.integers(1, 6))
def test_an_even_number_of_methods_always_runs_in_pairs_of_one_seed(number: int, num_seeds: int) -> None:
    for group in group_runs(METHODS[:number], range(num_seeds), 2):
        assert len(group) == 2
        assert len({seed for _, seed in group}) == 1


def test_with_enough_seeds_ours_has_run_beside_every_other_equally_often() -> None:
    groups = group_runs(METHODS[:4], range(6), 2)
    partners = Counter(group[1][0].name for group in groups if group[0][0] == METHODS[0])
    assert partners == {"b": 2, "c": 2, "d": 2}


@given(some_methods, st.integers(0, 20))
def test_a_rotation_keeps_the_first_and_loses_none(methods: list[Method], places: int) -> None:
    found = rotate(methods, places)
    assert found[0] == methods[0]
    assert sorted(one.name for one in found) == [one.name for one in methods]


def test_a_rotation_by_all_places_changes_nothing() -> None:
    assert rotate(METHODS[:4], 0) == rotate(METHODS[:4], 3) == METHODS[:4]
    assert [one.name for one in rotate(METHODS[:4], 1)] == ["a", "c", "d", "b"]


def test_at_equal_wall_clock_the_budget_stands_over_the_method_and_the_method_over_the_arena() -> None:
    budget = TimedBudget(minutes=3, points=1, settings={"run.name": "budget"})
    method = Method(name="a", settings={"run.name": "method", "tasks.suite": "sim-general"})
    merged = {key: value for layer in layers(FIRST, method, budget) for key, value in layer.items()}
    assert (merged["run.name"], merged["tasks.suite"], merged["run.minutes"]) == ("budget", "sim-general", "3")
    assert merged.items() >= TIMED_SETTINGS.items()


# --- which version when -----------------------------------------------------------------------------------------------


def published(*times_s: float, start_s: float = 1000.0) -> list[PolicyVersion]:
    return [replace(make_version(n), published_s=start_s + time_s) for n, time_s in enumerate(times_s)]


@given(
    st.lists(st.floats(0.1, 600.0), max_size=20).map(lambda gaps: [0.0, *np.cumsum(gaps)]),
    st.lists(st.floats(0.0, 1000.0), min_size=1, max_size=10).map(sorted),
)
def test_the_version_in_use_is_the_newest_that_was_there_and_never_goes_back(
    times_s: list[float], asked_s: list[float]
) -> None:
    """With a clock that starts at 0: there the times are compared without rounding."""
    used = versions_in_use(published(*times_s, start_s=0.0), asked_s)
    assert [one.version for one in used] == [sum(time_s <= asked for time_s in times_s) - 1 for asked in asked_s]


def test_a_version_counts_from_the_very_moment_of_its_publication() -> None:
    used = versions_in_use(published(0.0, 20.0), [19.999, 20.0, 20.001])
    assert [one.version for one in used] == [0, 1, 1]


@given(st.integers(1, 30), st.floats(0.5, 30.0), st.lists(st.floats(0.1, 20.0), max_size=5))
def test_evaluation_times_are_sorted_and_hold_start_end_and_the_early_ones(
    points: int, minutes: float, early_s: list[float]
) -> None:
    found = evaluation_times(TimedBudget(minutes=minutes, points=points, early_s=tuple(early_s)))
    assert found == sorted(set(found))
    assert {0.0, *early_s} <= set(found)
    assert found[-1] == pytest.approx(max(60.0 * minutes, *early_s, 0.0))


def test_an_early_time_that_is_a_regular_one_counts_once() -> None:
    assert evaluation_times(TimedBudget(minutes=1, points=2, early_s=(30.0, 5.0))) == [0.0, 5.0, 30.0, 60.0]


def write_run(root: Path, name: str, **changes: object) -> RunFolder:
    run = RunFolder(root / name)
    run.path.mkdir(parents=True)
    run.summary.write_bytes(msgspec.json.encode(replace(a_summary(), **changes)))
    return run


def test_only_a_run_that_ended_by_itself_is_finished(tmp_path: Path) -> None:
    assert finished_run(tmp_path / "nowhere") is None
    (tmp_path / "without-summary").mkdir()
    assert finished_run(tmp_path) is None
    write_run(tmp_path, "interrupted", interrupted=True)
    assert finished_run(tmp_path) is None
    whole = write_run(tmp_path, "whole")
    found = finished_run(tmp_path)
    assert found is not None
    assert found.path == whole.path


def test_the_versions_of_a_run_are_read_oldest_first(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.weights.mkdir()
    for version in reversed(published(*range(12))):
        (run.weights / f"v{version.version:06d}.json").write_bytes(msgspec.json.encode(version))
    (run.weights / "latest.json").write_bytes(b"{}")
    assert [version.version for version in published_versions(run)] == list(range(12))


def test_the_curves_and_outcomes_of_timed_runs_are_arrays_by_seed() -> None:
    found = timed_runs(METHODS[0], reaches_at_s=300.0)
    assert found.curve_SK().shape == (5, len(TIMES_S))
    assert found.outcomes_ST().shape == (5, 50)
    assert found.outcomes_ST().mean() == pytest.approx(0.6)
    assert found.wall_s_K().tolist() == TIMES_S.tolist()


# --- runs of the single-process trainer -------------------------------------------------------------------------------


def test_a_spec_holds_the_whole_configuration_with_its_seed() -> None:
    spec = make_spec(Entry(method=METHODS[0], arena=EVERYDAY), BUDGET, 17)
    assert spec.config.run.seed == 17
    assert spec.config.tasks.suite == "sim-general"
    assert (spec.budget, spec.test_tasks) == (BUDGET, 297)


def test_the_budget_bounds_the_test_tasks_of_an_arena() -> None:
    few = replace(BUDGET, most_test_tasks=40)
    assert make_spec(Entry(method=METHODS[0], arena=EVERYDAY), few, 0).test_tasks == 40
    small = Arena(name="small", settings={}, test_tasks=7)
    assert make_spec(Entry(method=METHODS[0], arena=small), few, 0).test_tasks == 7


@pytest.mark.parametrize(("lag", "expected"), [(None, 2), (0, 0), (16, 16)])
def test_the_lag_of_an_entry_stands_over_that_of_the_budget(lag: int | None, expected: int) -> None:
    entry = Entry(method=METHODS[0], arena=EVERYDAY, lag=lag)
    assert make_spec(entry, BUDGET, 0).budget.lag == expected
    assert entry.label == f"a on everyday{'' if lag is None else f', lag {lag}'}"


def test_two_seeds_and_two_methods_are_different_specs() -> None:
    other = Method(name="b", settings={"replay.alpha": "0"})
    specs = [
        make_spec(Entry(method=method, arena=EVERYDAY), BUDGET, seed)
        for method in (METHODS[0], other)
        for seed in (0, 1)
    ]
    assert len({msgspec.json.encode(spec) for spec in specs}) == 4
    renamed = Entry(method=Method(name="another name"), arena=EVERYDAY)
    assert make_spec(renamed, BUDGET, 0) == specs[0], "a name alone is no other run"


def test_later_layers_of_an_entry_stand_over_earlier_ones() -> None:
    arena = Arena(name="tiny", settings={"run.name": "arena", "replay.alpha": "0.1"}, test_tasks=1)
    budget = replace(BUDGET, settings={"run.name": "budget", "replay.beta": "0.2"})
    method = Method(name="a", settings={"run.name": "method"})
    for settings, name in (({}, "method"), ({"run.name": "entry"}, "entry")):
        config = make_spec(Entry(method=method, arena=arena, settings=settings), budget, 0).config
        assert (config.run.name, config.replay.alpha, config.replay.beta) == (name, 0.1, 0.2)


def test_machines_are_counted_over_all_runs() -> None:
    runs = [entry_runs(METHODS[0], 0.5, made_on="here"), entry_runs(METHODS[1], 0.5, made_on="there")]
    assert made_on(runs) == {"here": 5, "there": 5}
    assert made_on([]) == {}


def test_a_machine_is_its_processor_and_its_libraries() -> None:
    assert this_machine() == this_machine()
    for word in ("Python 3.", "torch ", "numpy "):
        assert word in this_machine()


def test_a_lost_episode_is_a_failure_and_outcomes_keep_the_order_of_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [replace(TASK, id=f"task-{number}") for number in range(4)]
    played = [
        replace(make_trajectory(success=success), task=tasks[number])
        for number, success in ((3, True), (0, False), (1, True))
    ]
    asked: list[int] = []

    def evaluate(policy: object, given: list[object], how: single_process.Evaluation) -> list[object]:
        asked.append(how.seed)
        return list(played)

    monkeypatch.setattr(single_process, "evaluate", evaluate)
    config = Config()
    found = play_tasks(None, tasks, replace(config, run=replace(config.run, seed=9)))  # type: ignore[arg-type]
    assert found == [False, True, False, True]
    assert asked == [9], "evaluated with the seed of the run"

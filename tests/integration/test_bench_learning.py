"""From the outcomes of runs to the published figures of success, efficiency, ablation and staleness."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from distrl.bench import ablation, efficiency, staleness, success, timed_tuning, tuning
from distrl.bench.ablation import VARIANTS
from distrl.bench.base import BenchOptions, describe, find, keep
from distrl.bench.lab import Point
from distrl.bench.lab_runs import Entry, LabResult, Ran
from distrl.bench.matcher import GivenAway
from distrl.bench.methods import (
    ARENAS,
    CLOCK,
    EVERYDAY,
    LAB,
    NO_DATA_OPTIONS,
    TUNED,
    TUNING_SEED,
    Arena,
    LabBudget,
    Method,
    resolve,
)
from distrl.bench.staleness import BOUNDS, CORRECTIONS, STALE_LAB
from distrl.bench.timed_runs import Timed
from distrl.bench.timed_versions import TimedResult
from distrl.config.schema import Config
from distrl.errors import UsageError
from support.summaries import a_summary

SEEDS, TASKS = 5, 50
OURS, DIGIRL, CLONE = Method(name="aride"), Method(name="digirl"), Method(name="filtered_bc")
SYNC = Method(name="digirl_sync")
AWAY = {"everyday": GivenAway(fulfilled=0.01, right_steps=0.3, test_tasks=TASKS)}
MOMENTS = np.linspace(0.0, CLOCK.wall_s, CLOCK.points + 1)


def outcomes(share: float, seed: int) -> list[bool]:
    """So many of the tasks, not the same ones for every seed."""
    row = np.arange(TASKS) < share * TASKS
    return [bool(one) for one in np.random.default_rng(seed).permutation(row)]


def ran(method: Method, share: float, *, arena: Arena = EVERYDAY) -> Ran:
    curve = [
        Point(episodes=episodes, success=share, train_success=0.0, updates=0, wall_s=0.0, losses={})
        for episodes in (0, 512)
    ]
    results = [LabResult(curve=curve, outcomes=outcomes(share, seed), made_on="here") for seed in range(SEEDS)]
    return Ran(entry=Entry(method=method, arena=arena), results=results)


def timed(method: Method, *, reaches_at_s: float, end: float = 0.6) -> Timed:
    """A method whose success climbs from 0.1 to its end at a steady pace, and stays there."""
    curve = 0.1 + (end - 0.1) * np.minimum(1.0, MOMENTS / reaches_at_s)
    results = [
        TimedResult(
            wall_s=MOMENTS.tolist(), success=curve.tolist(), versions=[0] * len(MOMENTS), outcomes=outcomes(curve[-1], seed),
            summary=a_summary(),
        )
        for seed in range(SEEDS)
    ]  # fmt: skip
    return Timed(method=method, results=results)


# --- success ----------------------------------------------------------------------------------------------------------


def compared() -> success.SuccessFigures:
    shares = ((OURS, 0.6), (DIGIRL, 0.5), (CLONE, 0.4))
    labs = [ran(method, share, arena=arena) for arena in ARENAS for method, share in shares]
    clock = [timed(OURS, reaches_at_s=CLOCK.wall_s / 2), timed(SYNC, reaches_at_s=2 * CLOCK.wall_s)]
    return success.sum_up(labs, clock, (LAB, CLOCK), AWAY)


def test_success_reports_both_comparisons_under_the_names_of_its_file() -> None:
    found = compared()
    assert found.iqm["aride"] is not None
    assert found.iqm["aride"][0] == 0.6
    assert set(found.iqm_by_arena) == {arena.name for arena in ARENAS}
    assert found.relative_vs_async_digirl == pytest.approx(0.2)
    assert found.relative_vs_async_filtered_bc == pytest.approx(0.5)
    assert found.relative_vs_digirl == pytest.approx(0.6 / 0.36 - 1, abs=0.01)
    assert found.relative_low is not None
    assert found.relative_high is not None
    assert found.relative_low < found.relative_vs_digirl < found.relative_high
    assert (found.seeds, found.test_tasks, found.test_tasks_wall_clock) == (5, 2 * TASKS, TASKS)
    assert (found.budget.episodes, found.budget.wall_s) == (LAB.episodes, CLOCK.wall_s)


def test_a_ride_with_as_many_tries_as_the_others_and_without_its_data_options_is_compared_too() -> None:
    shares = ((OURS, 0.6), (Method(name=TUNED), 0.4), (Method(name=NO_DATA_OPTIONS), 0.3), (DIGIRL, 0.5))
    labs = [ran(method, share, arena=arena) for arena in ARENAS for method, share in shares]
    found = success.sum_up(labs, [timed(OURS, reaches_at_s=300.0)], (LAB, CLOCK), AWAY)
    assert set(found.relative_eight_tries) == {"aride", NO_DATA_OPTIONS, "digirl"}
    over, bare = found.relative_eight_tries["digirl"], found.relative_no_options["digirl"]
    assert over is not None
    assert bare is not None
    assert (over[0], bare[0]) == (pytest.approx(-0.2), pytest.approx(-0.4))
    assert compared().relative_eight_tries == compared().relative_no_options == {}


def test_a_rival_that_is_not_there_is_none_and_not_an_error() -> None:
    labs = [ran(method, 0.5, arena=arena) for arena in ARENAS for method in (OURS, CLONE)]
    found = success.sum_up(
        labs, [timed(OURS, reaches_at_s=300.0), timed(CLONE, reaches_at_s=400.0)], (LAB, CLOCK), AWAY
    )
    assert (found.relative_vs_digirl, found.relative_low, found.relative_vs_async_digirl) == (None, None, None)
    assert set(found.relative_wall_clock) == {"filtered_bc"}


def test_a_results_file_carries_what_it_takes_to_repeat_it(tmp_path: Path) -> None:
    figures = compared()
    keep(figures, describe("success", "distrl bench success", BenchOptions(), figures), tmp_path / "success.json")
    found = json.loads((tmp_path / "success.json").read_text())
    assert {"command", "machine", "seeds", "config_hash", "date", "iqm", "budget", "tuning"} <= found.keys()
    assert (found["seeds"], found["config_hash"]) == (5, figures.config_hash)
    assert found["tuning"]["equal episodes"].keys() == found["iqm"].keys()
    assert found["tuning"]["equal wall-clock"].keys() == found["iqm_wall_clock"].keys()


# --- efficiency -------------------------------------------------------------------------------------------------------


def test_a_method_that_learns_three_times_as_fast_is_three_times_as_fast() -> None:
    found = efficiency.sum_up(
        [timed(OURS, reaches_at_s=CLOCK.wall_s / 3), timed(SYNC, reaches_at_s=CLOCK.wall_s)], CLOCK
    )
    assert found.rival == "digirl_sync"
    assert found.speedup_vs_digirl_sync == pytest.approx(3.0, rel=0.15)
    assert found.low == pytest.approx(found.speedup_vs_digirl_sync)
    assert (found.bound, found.censored) == ("exact", {"aride": 0, "digirl_sync": 0})
    assert found.wall_s["aride"] < found.wall_s["digirl_sync"] <= found.budget_s
    assert found.seeds == 5


def test_each_method_is_also_raced_to_where_it_ends_itself() -> None:
    half, slow = CLOCK.wall_s / 2, CLOCK.wall_s
    ours, sync = timed(OURS, reaches_at_s=half), timed(SYNC, reaches_at_s=slow)
    other = timed(Method(name="aride_sync"), reaches_at_s=slow, end=0.3)
    found = efficiency.sum_up([ours, sync, other], CLOCK)
    assert found.speedup_to_their_end["digirl_sync"] == found.speedup["digirl_sync"]
    lower = found.speedup_to_their_end["aride_sync"]
    assert lower is not None
    assert lower[0] is not None
    assert lower[0] > 2.5, "ours passes 0.3 on its way to more"


def test_a_rival_that_does_not_get_there_makes_the_speedup_a_lower_bound() -> None:
    lazy = timed(SYNC, reaches_at_s=1e9)
    found = efficiency.sum_up([timed(OURS, reaches_at_s=300.0), lazy], CLOCK)
    assert (found.bound, found.censored) == ("lower", {"aride": 0, "digirl_sync": 5})
    assert found.wall_s["digirl_sync"] == CLOCK.wall_s
    assert found.speedup_vs_digirl_sync == pytest.approx(CLOCK.wall_s / found.wall_s["aride"], rel=0.01)
    assert found.low is not None
    assert found.high is None, "it may be any faster than that"


# --- ablation ---------------------------------------------------------------------------------------------------------


def test_ablation_reports_each_variant_and_its_distance_from_the_default() -> None:
    found = ablation.sum_up([ran(VARIANTS[0], 0.6), ran(VARIANTS[1], 0.5), ran(VARIANTS[3], 0.6)], LAB)
    assert list(found.iqm) == [VARIANTS[0].name, VARIANTS[1].name, VARIANTS[3].name]
    worse, alike = found.difference[VARIANTS[1].name], found.difference[VARIANTS[3].name]
    assert worse is not None
    assert alike is not None
    assert worse[0] == pytest.approx(-0.1)
    assert worse[2] is not None
    assert worse[2] < 0.0
    assert alike == [0.0, 0.0, 0.0]
    assert found.settings[VARIANTS[1].name] == VARIANTS[1].settings


# --- staleness --------------------------------------------------------------------------------------------------------


def stale_runs(shares: dict[str, list[float]]) -> dict[str, dict[int, Ran]]:
    return {
        name: {bound: ran(CORRECTIONS[name], share) for bound, share in zip(BOUNDS, row, strict=True)}
        for name, row in shares.items()
    }


def test_staleness_reports_what_is_tolerated_and_what_correcting_adds() -> None:
    shares = {
        "corrected": [0.6, 0.6, 0.6, 0.6, 0.6, 0.6],
        "uncorrected": [0.6, 0.4, 0.6, 0.6, 0.6, 0.6],
        "ppo_corrected": [0.5, 0.5, 0.5, 0.5, 0.5, 0.5],
        "ppo_ratios": [0.5, 0.5, 0.5, 0.4, 0.4, 0.4],
        "ppo_uncorrected": [0.5, 0.4, 0.3, 0.3, 0.3, 0.3],
    }
    found = staleness.sum_up(stale_runs(shares), BOUNDS, STALE_LAB)
    assert found.bounds == [0, 1, 2, 4, 8, 16]
    assert (found.corrected, found.uncorrected) == (shares["corrected"], shares["uncorrected"])
    assert found.tolerated["corrected"] == 16
    assert found.tolerated["uncorrected"] == found.tolerated["ppo_uncorrected"] == 0
    assert found.change["corrected"]["16"] == pytest.approx([0.0, 0.0, 0.0])
    slower = found.change["uncorrected"]["1"]
    assert slower is not None
    assert slower[0] == pytest.approx(-1 / 3, abs=1e-3)
    assert set(found.correction_at_8) == {"corrected", "ppo_corrected", "ppo_ratios"}
    gained, lost = found.correction_at_8["ppo_corrected"], found.change_at_8["ppo_uncorrected"]
    assert gained is not None
    assert lost is not None
    assert (gained[0], lost[0]) == (pytest.approx(0.2), pytest.approx(-0.2))


def test_a_lag_leaves_episodes_as_long_in_the_replay_as_no_lag_and_nothing_else_is_stale() -> None:
    none, long = (staleness.entry(CORRECTIONS["corrected"], bound) for bound in (0, 16))
    assert (none.lag, long.lag) == (0, 16)
    assert (none.settings["replay.max_staleness"], long.settings["replay.max_staleness"]) == ("2", "18")
    assert none.settings["replay.keep_successes"] == none.settings["warm_start.keep"] == "false"


# --- tuning -----------------------------------------------------------------------------------------------------------


def pretend_labs(score: Callable[[Config, str], float]) -> Callable[..., list[Ran]]:
    """Laboratory runs that come to what `score` says of their configuration and arena."""

    def run_labs(entries: list[Entry], budget: LabBudget, seeds: int, parts: object, *, first_seed: int) -> list[Ran]:
        assert first_seed == TUNING_SEED
        found = [resolve(*entry.layers(budget)) for entry in entries]
        ends = [score(config, entry.arena.name) for config, entry in zip(found, entries, strict=True)]
        return [tuned(entry, end) for entry, end in zip(entries, ends, strict=True)]

    return run_labs


def tuned(entry: Entry, end: float) -> Ran:
    points = [
        Point(episodes=played, success=share, train_success=0.0, updates=0, wall_s=0.0, losses={})
        for played, share in ((0, 0.25), (768, end))
    ]
    return Ran(entry=entry, results=[LabResult(curve=points, outcomes=[], made_on="here")])


def test_a_search_goes_on_from_the_best_of_each_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Best at a learning rate between two that are tried first, with two updates, and with neither of its own changes."""

    def score(config: Config, arena: str) -> float:
        rate, updates = config.learner.learning_rate, config.learner.updates_per_episode
        off = abs(math.log10(rate) - math.log10(4e-4)) + abs(updates - 2.0) + 10 * config.replay.balance
        return round((0.9 if arena == "everyday" else 0.5) - 0.01 * off - 0.1 * (config.replay.alpha == 0), 4)

    monkeypatch.setattr(tuning, "run_labs", pretend_labs(score))
    found = tuning.run(BenchOptions(out=tmp_path))
    assert found.tries_each == 8
    assert {len(tries) for tries in found.tries.values()} == {8}, "as many for every method"
    assert found.kept["aride"] == ["learning rate 0.0002", "learning rate 0.0005", "2.0 updates per episode"]
    assert found.chosen["aride"] == {"learner.learning_rate": "0.0005", "learner.updates_per_episode": "2.0"}
    assert found.tries["aride"]["2.0 updates per episode"] == {"everyday": 0.899, "shopping": 0.499, "mean": 0.699}
    assert found.start == {"everyday": 0.25, "shopping": 0.25, "mean": 0.25}
    assert found.made_on == {"here": 7 * 8 * len(ARENAS)}


@pytest.mark.parametrize(("liked", "last"), [(1.0, "0.003"), (1e-9, "0.00001")])
def test_a_best_rate_at_an_end_is_followed_beyond_it(
    liked: float, last: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def score(config: Config, arena: str) -> float:
        return 0.5 - 0.01 * abs(math.log10(config.learner.learning_rate) - math.log10(liked))

    monkeypatch.setattr(tuning, "run_labs", pretend_labs(score))
    found = tuning.run(BenchOptions(out=tmp_path))
    assert all(chosen["learner.learning_rate"] == last for chosen in found.chosen.values())


def test_the_best_try_at_equal_wall_clock_is_that_which_ends_highest() -> None:
    races = [timed(Method(name=f"aride: {name}"), reaches_at_s=at_s) for name, at_s in (("a", 100.0), ("b", 1e4))]
    found = timed_tuning.sum_up(races, CLOCK)
    assert (found.best, found.tries_each, found.tune_tasks) == ({"aride": "a"}, 2, TASKS)


@pytest.mark.parametrize("name", ["success", "efficiency", "ablation", "staleness"])
def test_too_few_seeds_are_refused_before_anything_runs(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--seeds 3"):
        find(name).run(BenchOptions(seeds=2, quick=True, out=tmp_path))
    assert list(tmp_path.iterdir()) == []

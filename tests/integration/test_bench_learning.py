"""From the outcomes of runs to the published figures of success, efficiency, ablation and staleness."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from distrl.bench import ablation, efficiency, staleness, success, timed_tuning, tuning
from distrl.bench.ablation import VARIANTS
from distrl.bench.base import BenchOptions, describe, find, keep
from distrl.bench.lab import Point
from distrl.bench.lab_runs import Entry, LabResult, Ran
from distrl.bench.matcher import GivenAway
from distrl.bench.methods import ARENAS, CLOCK, EVERYDAY, LAB, Arena, Method
from distrl.bench.staleness import BOUNDS, CORRECTIONS, STALE_LAB
from distrl.bench.timed_runs import Timed
from distrl.bench.timed_versions import TimedResult
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


def test_success_reports_both_comparisons_under_the_agreed_names() -> None:
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


def test_the_target_is_most_of_what_the_rival_gained() -> None:
    rival = np.tile(np.linspace(0.1, 0.6, 11), (5, 1))
    end = (0.55 + 0.6) / 2
    assert efficiency.choose_target(rival) == pytest.approx(0.1 + 0.9 * (end - 0.1))
    assert efficiency.choose_target(np.full((5, 11), 0.3)) == pytest.approx(0.32), "above the start in any case"


def test_a_rival_that_does_not_get_there_makes_the_speedup_a_lower_bound() -> None:
    lazy = timed(SYNC, reaches_at_s=1e9)
    found = efficiency.sum_up([timed(OURS, reaches_at_s=300.0), lazy], CLOCK)
    assert (found.bound, found.censored) == ("lower", {"aride": 0, "digirl_sync": 5})
    assert found.wall_s["digirl_sync"] == CLOCK.wall_s
    assert found.speedup_vs_digirl_sync == pytest.approx(CLOCK.wall_s / found.wall_s["aride"], rel=0.01)
    assert found.low is not None
    assert found.high is None, "it may be any faster than that"


def test_an_earlier_target_is_reached_earlier() -> None:
    race = efficiency.Race(rival=timed(SYNC, reaches_at_s=CLOCK.wall_s), budget=CLOCK)
    ours, theirs = timed(OURS, reaches_at_s=CLOCK.wall_s / 3), timed(SYNC, reaches_at_s=CLOCK.wall_s)
    assert race.speedup(ours, theirs, 0.5).value == pytest.approx(3.0, rel=0.2)
    assert efficiency.choose_target(theirs.curve_SK(), 0.5) < efficiency.choose_target(theirs.curve_SK(), 0.9)


def test_censoring_of_ours_is_said_as_well() -> None:
    assert efficiency.bound_of(0, 0) == "exact"
    assert efficiency.bound_of(2, 0) == "upper"
    assert efficiency.bound_of(1, 3) == "unknown"


def test_without_digirl_the_speedups_over_the_others_are_there() -> None:
    other = timed(Method(name="aride_sync"), reaches_at_s=600.0)
    found = efficiency.sum_up([timed(OURS, reaches_at_s=200.0), other], CLOCK)
    assert (found.rival, found.speedup_vs_digirl_sync, found.bound) == ("aride_sync", None, None)
    assert found.speedup["aride_sync"] is not None


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
    found = {}
    for name, row in shares.items():
        bounds = staleness.bounds_for(name, BOUNDS)
        found[name] = {bound: ran(CORRECTIONS[name], share) for bound, share in zip(bounds, row, strict=True)}
    return found


def test_staleness_reports_what_is_tolerated_and_what_correcting_adds() -> None:
    shares = {
        "corrected": [0.6, 0.6, 0.6, 0.6, 0.6, 0.6],
        "uncorrected": [0.6, 0.4, 0.6, 0.6, 0.6, 0.6],
        "signed_corrected": [0.5, 0.4],
        "signed_uncorrected": [0.5, 0.2],
        "ppo_corrected": [0.5, 0.5],
        "ppo_uncorrected": [0.5, 0.3],
    }
    found = staleness.sum_up(stale_runs(shares), BOUNDS, STALE_LAB)
    assert found.bounds == [0, 1, 2, 4, 8, 16]
    assert (found.corrected, found.uncorrected) == (shares["corrected"], shares["uncorrected"])
    assert found.tolerated["corrected"] == 16
    assert found.tolerated["uncorrected"] == found.tolerated["signed_corrected"] == 0
    assert set(found.correction_at_8) == {"corrected", "signed_corrected", "ppo_corrected"}
    gained, lost = found.correction_at_8["signed_corrected"], found.loss_at_8["ppo_uncorrected"]
    assert gained is not None
    assert lost is not None
    assert (gained[0], lost[0]) == (pytest.approx(0.2), pytest.approx(-0.2))


def test_a_lag_leaves_episodes_as_long_in_the_replay_as_no_lag_and_nothing_else_is_stale() -> None:
    none, long = (staleness.entry(CORRECTIONS["corrected"], bound) for bound in (0, 16))
    assert (none.lag, long.lag) == (0, 16)
    assert (none.settings["replay.max_staleness"], long.settings["replay.max_staleness"]) == ("16", "32")
    assert none.settings["replay.keep_successes"] == "false"


# --- tuning -----------------------------------------------------------------------------------------------------------


def test_the_best_try_is_that_with_the_best_mean_over_all_arenas() -> None:
    shares = {"a": (0.5, 0.1), "b": (0.2, 0.5)}
    runs = [
        ran(Method(name=f"aride: {name}"), both[number], arena=arena)
        for number, arena in enumerate(ARENAS)
        for name, both in shares.items()
    ]
    found = tuning.sum_up(runs, LAB)
    assert found.best == {"aride": "b"}
    assert found.tries["aride"]["a"] == {"everyday": 0.5, "shopping": 0.1, "mean": 0.3}
    assert found.tries_each == 2


def test_the_best_try_at_equal_wall_clock_is_that_which_ends_highest() -> None:
    races = [timed(Method(name=f"aride: {name}"), reaches_at_s=at_s) for name, at_s in (("a", 100.0), ("b", 1e4))]
    found = timed_tuning.sum_up(races, CLOCK)
    assert (found.best, found.tries_each, found.tune_tasks) == ({"aride": "a"}, 2, TASKS)


@pytest.mark.parametrize("name", ["success", "efficiency", "ablation", "staleness"])
def test_too_few_seeds_are_refused_before_anything_runs(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--seeds 3"):
        find(name).run(BenchOptions(seeds=2, quick=True, out=tmp_path))
    assert list(tmp_path.iterdir()) == []

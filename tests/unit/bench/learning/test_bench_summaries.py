"""From made-up runs with known outcomes to what success, efficiency, ablation, staleness and tuning report."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from msgspec.structs import replace

from distrl.bench.base import BenchOptions, find, provenance_of, write_results
from distrl.bench.learning import ablation, efficiency, staleness, success, timed_tuning, tuning
from distrl.bench.learning.ablation import VARIANTS
from distrl.bench.learning.methods import (
    ARENAS,
    EPISODE_BUDGET,
    NO_DATA_OPTIONS,
    TUNED,
    TUNING_SEED,
    WALL_CLOCK_BUDGET,
    EpisodeBudget,
    Method,
    resolve,
)
from distrl.bench.learning.single_process import Point
from distrl.bench.learning.staleness import BOUNDS, CORRECTIONS, STALENESS_BUDGET
from distrl.bench.learning.string_matcher import StringMatchScore
from distrl.bench.learning.timed_runs import TimedRuns
from distrl.bench.learning.trainer_runs import Entry, EntryRuns, TrainerResult
from distrl.config.schema import Config
from distrl.errors import UsageError
from support.bench_runs import TASKS, entry_runs, timed_runs

OURS, DIGIRL, CLONE = Method(name="aride"), Method(name="digirl"), Method(name="filtered_bc")
SYNC = Method(name="digirl_sync")
STRING_MATCH = {"everyday": StringMatchScore(fulfilled=0.01, right_steps=0.3, test_tasks=TASKS)}


# --- success ----------------------------------------------------------------------------------------------------------


def compared() -> success.SuccessFigures:
    shares = ((OURS, 0.6), (DIGIRL, 0.5), (CLONE, 0.4))
    trained = [entry_runs(method, share, arena=arena) for arena in ARENAS for method, share in shares]
    clock = [
        timed_runs(OURS, reaches_at_s=WALL_CLOCK_BUDGET.wall_s / 2),
        timed_runs(SYNC, reaches_at_s=2 * WALL_CLOCK_BUDGET.wall_s),
    ]
    return success.summarise(trained, clock, (EPISODE_BUDGET, WALL_CLOCK_BUDGET), STRING_MATCH)


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
    assert (found.budget.episodes, found.budget.wall_s) == (EPISODE_BUDGET.episodes, WALL_CLOCK_BUDGET.wall_s)


def test_a_ride_with_as_many_tries_as_the_others_and_without_its_data_options_is_compared_too() -> None:
    shares = ((OURS, 0.6), (Method(name=TUNED), 0.4), (Method(name=NO_DATA_OPTIONS), 0.3), (DIGIRL, 0.5))
    trained = [entry_runs(method, share, arena=arena) for arena in ARENAS for method, share in shares]
    found = success.summarise(
        trained, [timed_runs(OURS, reaches_at_s=300.0)], (EPISODE_BUDGET, WALL_CLOCK_BUDGET), STRING_MATCH
    )
    assert set(found.relative_eight_tries) == {"aride", NO_DATA_OPTIONS, "digirl"}
    over, bare = found.relative_eight_tries["digirl"], found.relative_no_options["digirl"]
    assert over is not None
    assert bare is not None
    assert (over[0], bare[0]) == (pytest.approx(-0.2), pytest.approx(-0.4))
    assert compared().relative_eight_tries == compared().relative_no_options == {}


def test_a_baseline_that_is_not_there_is_none_and_not_an_error() -> None:
    trained = [entry_runs(method, 0.5, arena=arena) for arena in ARENAS for method in (OURS, CLONE)]
    found = success.summarise(
        trained,
        [timed_runs(OURS, reaches_at_s=300.0), timed_runs(CLONE, reaches_at_s=400.0)],
        (EPISODE_BUDGET, WALL_CLOCK_BUDGET),
        STRING_MATCH,
    )
    assert (found.relative_vs_digirl, found.relative_low, found.relative_vs_async_digirl) == (None, None, None)
    assert set(found.relative_wall_clock) == {"filtered_bc"}


def test_a_results_file_carries_what_it_takes_to_repeat_it(tmp_path: Path) -> None:
    figures = compared()
    write_results(
        figures, provenance_of("success", "distrl bench success", BenchOptions(), figures), tmp_path / "success.json"
    )
    found = json.loads((tmp_path / "success.json").read_text())
    assert {"command", "machine", "seeds", "config_hash", "date", "iqm", "budget", "tuning"} <= found.keys()
    assert (found["seeds"], found["config_hash"]) == (5, figures.config_hash)
    assert found["tuning"]["equal episodes"].keys() == found["iqm"].keys()
    assert found["tuning"]["equal wall-clock"].keys() == found["iqm_wall_clock"].keys()


# --- efficiency -------------------------------------------------------------------------------------------------------


def test_a_method_that_learns_three_times_as_fast_is_three_times_as_fast() -> None:
    found = efficiency.summarise(
        [
            timed_runs(OURS, reaches_at_s=WALL_CLOCK_BUDGET.wall_s / 3),
            timed_runs(SYNC, reaches_at_s=WALL_CLOCK_BUDGET.wall_s),
        ],
        WALL_CLOCK_BUDGET,
    )
    assert found.rival == "digirl_sync"
    assert found.speedup_vs_digirl_sync == pytest.approx(3.0, rel=0.15)
    assert found.low == pytest.approx(found.speedup_vs_digirl_sync)
    assert (found.bound, found.censored) == ("exact", {"aride": 0, "digirl_sync": 0})
    assert found.wall_s["aride"] < found.wall_s["digirl_sync"] <= found.budget_s
    assert found.seeds == 5


def test_ours_is_also_compared_with_each_method_to_its_own_end() -> None:
    half, slow = WALL_CLOCK_BUDGET.wall_s / 2, WALL_CLOCK_BUDGET.wall_s
    ours, sync = timed_runs(OURS, reaches_at_s=half), timed_runs(SYNC, reaches_at_s=slow)
    other = timed_runs(Method(name="aride_sync"), reaches_at_s=slow, end=0.3)
    found = efficiency.summarise([ours, sync, other], WALL_CLOCK_BUDGET)
    assert found.speedup_to_their_end["digirl_sync"] == found.speedup["digirl_sync"]
    lower = found.speedup_to_their_end["aride_sync"]
    assert lower is not None
    assert lower[0] is not None
    assert lower[0] > 2.5, "ours passes 0.3 on its way to more"


def test_a_baseline_that_never_reaches_the_target_makes_the_speedup_a_lower_bound() -> None:
    lazy = timed_runs(SYNC, reaches_at_s=1e9)
    found = efficiency.summarise([timed_runs(OURS, reaches_at_s=300.0), lazy], WALL_CLOCK_BUDGET)
    assert (found.bound, found.censored) == ("lower", {"aride": 0, "digirl_sync": 5})
    assert found.wall_s["digirl_sync"] == WALL_CLOCK_BUDGET.wall_s
    assert found.speedup_vs_digirl_sync == pytest.approx(WALL_CLOCK_BUDGET.wall_s / found.wall_s["aride"], rel=0.01)
    assert found.low is not None
    assert found.high is None, "it may be any faster than that"


# --- ablation ---------------------------------------------------------------------------------------------------------


def test_ablation_reports_each_variant_and_its_distance_from_the_default() -> None:
    found = ablation.summarise(
        [entry_runs(VARIANTS[0], 0.6), entry_runs(VARIANTS[1], 0.5), entry_runs(VARIANTS[3], 0.6)], EPISODE_BUDGET
    )
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


def stale_runs(shares: dict[str, list[float]]) -> dict[str, dict[int, EntryRuns]]:
    return {
        name: {bound: entry_runs(CORRECTIONS[name], share) for bound, share in zip(BOUNDS, row, strict=True)}
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
    found = staleness.summarise(stale_runs(shares), BOUNDS, STALENESS_BUDGET)
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


def pretend_trainers(score: Callable[[Config, str], float]) -> Callable[..., list[EntryRuns]]:
    """Runs of the single-process trainer that end with what `score` says of their configuration and arena."""

    def run_trainers(
        entries: list[Entry], budget: EpisodeBudget, seeds: int, cache: object, *, first_seed: int
    ) -> list[EntryRuns]:
        assert first_seed == TUNING_SEED
        found = [resolve(*entry.layers(budget)) for entry in entries]
        ends = [score(config, entry.arena.name) for config, entry in zip(found, entries, strict=True)]
        return [tuned(entry, end) for entry, end in zip(entries, ends, strict=True)]

    return run_trainers


def tuned(entry: Entry, end: float) -> EntryRuns:
    points = [
        Point(episodes=played, success=share, train_success=0.0, updates=0, wall_s=0.0, losses={})
        for played, share in ((0, 0.25), (768, end))
    ]
    return EntryRuns(entry=entry, results=[TrainerResult(curve=points, outcomes=[], made_on="here")])


def test_a_search_goes_on_from_the_best_of_each_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Best at a learning rate between two that are tried first, with two updates, and with neither of its own changes."""

    def score(config: Config, arena: str) -> float:
        rate, updates = config.learner.learning_rate, config.learner.updates_per_episode
        off = abs(math.log10(rate) - math.log10(4e-4)) + abs(updates - 2.0) + 10 * config.replay.class_balance
        return round((0.9 if arena == "everyday" else 0.5) - 0.01 * off - 0.1 * (config.replay.alpha == 0), 4)

    monkeypatch.setattr(tuning, "run_trainers", pretend_trainers(score))
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

    monkeypatch.setattr(tuning, "run_trainers", pretend_trainers(score))
    found = tuning.run(BenchOptions(out=tmp_path))
    assert all(chosen["learner.learning_rate"] == last for chosen in found.chosen.values())


def test_the_best_try_at_equal_wall_clock_is_that_which_ends_highest() -> None:
    tries = [timed_runs(Method(name=f"aride: {name}"), reaches_at_s=at_s) for name, at_s in (("a", 100.0), ("b", 1e4))]
    found = timed_tuning.summarise(tries, WALL_CLOCK_BUDGET)
    assert (found.best, found.tries_each, found.tune_tasks) == ({"aride": "a"}, 2, TASKS)


@pytest.mark.parametrize("name", ["success", "efficiency", "ablation", "staleness"])
def test_too_few_seeds_are_refused_before_anything_runs(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--seeds 3"):
        find(name).run(BenchOptions(seeds=2, quick=True, out=tmp_path))
    assert list(tmp_path.iterdir()) == []


# --- success: more known answers --------------------------------------------------------------------------------------


def test_two_arenas_count_alike_whatever_their_tasks() -> None:
    trained = [entry_runs(OURS, 0.2, arena=ARENAS[0]), entry_runs(OURS, 0.8, arena=ARENAS[1])]
    found = success.summarise(
        trained, [timed_runs(OURS, reaches_at_s=300.0)], (EPISODE_BUDGET, WALL_CLOCK_BUDGET), STRING_MATCH
    )
    assert found.iqm["aride"] is not None
    assert found.iqm["aride"][0] == 0.5
    alone = [found.iqm_by_arena[arena.name]["aride"] for arena in ARENAS]
    assert [one[0] for one in alone if one is not None] == [0.2, 0.8]


def test_the_middle_seeds_make_the_figure_of_a_method() -> None:
    trained = [entry_runs(OURS, [0.0, 0.4, 0.5, 0.6, 1.0], arena=arena) for arena in ARENAS]
    found = success.summarise(
        trained, [timed_runs(OURS, reaches_at_s=300.0)], (EPISODE_BUDGET, WALL_CLOCK_BUDGET), STRING_MATCH
    )
    assert found.iqm["aride"] is not None
    assert found.iqm["aride"][0] == pytest.approx(0.5), "one seed of five is cut off at each end"


def test_success_says_how_many_updates_were_made_and_where() -> None:
    trained = [
        entry_runs(method, 0.5, arena=arena, updates=updates, made_on=place)
        for arena, place in zip(ARENAS, ("here", "there"), strict=True)
        for method, updates in ((OURS, 200), (DIGIRL, 100))
    ]
    found = success.summarise(
        trained, [timed_runs(OURS, reaches_at_s=300.0)], (EPISODE_BUDGET, WALL_CLOCK_BUDGET), STRING_MATCH
    )
    assert found.updates == {"aride": 200, "digirl": 100}
    assert found.made_on == {"here": 10, "there": 10}
    assert found.given_away == STRING_MATCH
    assert (found.budget.lag, found.budget.episodes) == (EPISODE_BUDGET.lag, EPISODE_BUDGET.episodes)


def test_a_method_that_solves_nothing_is_compared_with_as_none() -> None:
    trained = [
        entry_runs(method, share, arena=arena) for arena in ARENAS for method, share in ((OURS, 0.5), (CLONE, 0.0))
    ]
    found = success.summarise(
        trained, [timed_runs(OURS, reaches_at_s=300.0)], (EPISODE_BUDGET, WALL_CLOCK_BUDGET), STRING_MATCH
    )
    assert found.relative == {"filtered_bc": None}
    assert found.relative_vs_async_filtered_bc is None


def test_the_hash_of_success_changes_with_a_setting_of_any_method() -> None:
    def summarised(settings: dict[str, str]) -> str:
        method = Method(name="digirl", settings=settings)
        trained = [entry_runs(one, 0.5, arena=arena) for arena in ARENAS for one in (OURS, method)]
        clock = [timed_runs(OURS, reaches_at_s=300.0)]
        return success.summarise(trained, clock, (EPISODE_BUDGET, WALL_CLOCK_BUDGET), STRING_MATCH).config_hash

    assert summarised({}) == summarised({})
    assert summarised({}) != summarised({"learner.learning_rate": "0.5"})


# --- efficiency: more known answers -----------------------------------------------------------------------------------


def test_efficiency_reports_start_end_and_the_means_of_the_runs() -> None:
    ours = timed_runs(OURS, reaches_at_s=300.0, end=0.6, episodes=1000, restarts=1)
    found = efficiency.summarise([ours, timed_runs(SYNC, reaches_at_s=600.0, end=0.4)], WALL_CLOCK_BUDGET)
    assert found.start == 0.1
    assert found.end == {"aride": 0.6, "digirl_sync": 0.4}
    assert found.episodes == {"aride": 1002.0, "digirl_sync": 102.0}, "means of 1000 to 1004 and of 100 to 104"
    assert found.restarts == 5
    assert found.device_utilisation["aride"] == 0.9
    assert (found.moments_s[0], found.moments_s[-1]) == (0.0, found.budget_s)
    assert (found.seeds, found.test_tasks) == (5, TASKS)


def test_the_target_is_nine_tenths_of_the_gain_of_the_baseline() -> None:
    sync = timed_runs(SYNC, reaches_at_s=100.0, end=0.6)
    found = efficiency.summarise([timed_runs(OURS, reaches_at_s=100.0, end=0.6), sync], WALL_CLOCK_BUDGET)
    assert found.target_success == pytest.approx(0.1 + 0.9 * 0.5)
    assert set(found.speedup_at) == {"50%", "75%", "90%"}
    assert found.speedup_at["90%"] == found.speedup["digirl_sync"] == [1.0, 1.0, 1.0]


def test_ours_that_never_reaches_the_target_makes_the_speedup_an_upper_bound() -> None:
    found = efficiency.summarise(
        [timed_runs(OURS, reaches_at_s=300.0, end=0.2), timed_runs(SYNC, reaches_at_s=300.0, end=0.8)],
        WALL_CLOCK_BUDGET,
    )
    assert (found.bound, found.censored) == ("upper", {"aride": 5, "digirl_sync": 0})
    assert found.wall_s["aride"] == WALL_CLOCK_BUDGET.wall_s
    assert found.low == 0.0
    assert found.high is not None
    assert found.high < 1.0


def test_the_quick_comparison_has_ours_and_the_baseline_alone() -> None:
    assert [method.name for method in efficiency.schemes(True)] == ["aride", "digirl_sync"]
    assert len(efficiency.schemes(False)) == 4


def test_a_curve_of_a_plot_has_the_name_that_plots_use() -> None:
    (line,) = efficiency.time_curves([timed_runs(SYNC, reaches_at_s=300.0)])
    assert (line.name, line.x[-1]) == ("DigiRL's scheme", WALL_CLOCK_BUDGET.wall_s)
    (other,) = efficiency.time_curves([timed_runs(Method(name="my own"), reaches_at_s=300.0)])
    assert other.name == "my own"


# --- ablation: more known answers -------------------------------------------------------------------------------------


def test_a_variant_that_is_better_has_a_difference_above_zero() -> None:
    found = ablation.summarise([entry_runs(VARIANTS[0], 0.4), entry_runs(VARIANTS[1], 0.8)], EPISODE_BUDGET)
    better = found.difference[VARIANTS[1].name]
    assert better is not None
    assert better[0] == pytest.approx(0.4)
    assert better[1] is not None
    assert better[1] > 0.0
    assert VARIANTS[0].name not in found.difference, "the default is not compared with itself"
    assert (found.seeds, found.test_tasks, found.budget) == (5, TASKS, EPISODE_BUDGET)


def test_the_first_variant_is_what_the_others_are_compared_with() -> None:
    turned = ablation.summarise([entry_runs(VARIANTS[1], 0.5), entry_runs(VARIANTS[0], 0.6)], EPISODE_BUDGET)
    (found,) = turned.difference.values()
    assert found is not None
    assert found[0] == pytest.approx(0.1)


# --- staleness: more known answers ------------------------------------------------------------------------------------


def runs_at(*shares: float) -> dict[int, EntryRuns]:
    return {bound: entry_runs(CORRECTIONS["corrected"], share) for bound, share in zip(BOUNDS, shares, strict=False)}


@pytest.mark.parametrize(
    ("shares", "bound"),
    [
        ((0.6, 0.6, 0.6, 0.6, 0.6, 0.6), 16),
        ((0.6, 0.6, 0.6, 0.2, 0.6, 0.6), 2),
        ((0.6, 0.2, 0.6, 0.6, 0.6, 0.6), 0),
        ((0.2, 0.8, 0.8, 0.8, 0.8, 0.8), 16),
        ((0.6,), 0),
    ],
)
def test_a_lag_is_tolerated_up_to_the_first_that_may_cost_a_tenth(shares: tuple[float, ...], bound: int) -> None:
    """What comes after a lag that is not tolerated does not count, however good it is."""
    assert staleness.tolerated(runs_at(*shares)) == bound


def test_nothing_is_tolerated_where_no_lag_solves_nothing() -> None:
    """A relative loss of nothing is undefined."""
    assert staleness.tolerated(runs_at(0.0, 0.5, 0.5)) == 0


def test_staleness_says_what_each_form_sets_and_how_episodes_become_versions() -> None:
    found = staleness.summarise(
        stale_runs({name: [0.5] * len(BOUNDS) for name in CORRECTIONS}), BOUNDS, STALENESS_BUDGET
    )
    assert found.settings.keys() == CORRECTIONS.keys()
    for name, settings in found.settings.items():
        assert settings.items() >= CORRECTIONS[name].settings.items()
        assert settings["replay.keep_successes"] == "false"
        assert "replay.max_staleness" not in settings
    assert (found.episodes, found.episodes_per_version, found.window) == (1152, 24, 2)
    assert found.start == 0.2
    assert found.made_on == {"here": len(CORRECTIONS) * len(BOUNDS) * 5}
    assert set(found.change["corrected"]) == {str(bound) for bound in BOUNDS[1:]}


# --- tuning: more known answers ---------------------------------------------------------------------------------------


def tried(name: str, value: float) -> tuple[Method, dict[str, float]]:
    return Method(name=name, settings={"run.name": name}), {"everyday": value, "shopping": value}


def test_a_search_keeps_the_best_and_a_tie_changes_nothing() -> None:
    search = tuning.Search(method=OURS)
    assert search.best == -1.0
    search.take([tried("a", 0.4), tried("b", 0.6), tried("c", 0.5)])
    assert (search.best, search.kept, search.chosen) == (0.6, ["b"], {"run.name": "b"})
    search.take([tried("d", 0.6)])
    assert (search.kept, search.chosen) == (["b"], {"run.name": "b"})
    search.take([tried("e", 0.7)])
    assert (search.kept, search.chosen) == (["b", "e"], {"run.name": "e"})
    assert list(search.tries) == ["a", "b", "c", "d", "e"], "all tries are reported"


def test_two_searches_do_not_share_what_they_found() -> None:
    one, other = tuning.Search(method=OURS), tuning.Search(method=DIGIRL)
    one.take([tried("a", 0.4)])
    assert (other.tries, other.kept, other.chosen) == ({}, [], {})


def test_a_try_stands_over_what_was_chosen_before() -> None:
    search = tuning.Search(method=OURS, chosen={"learner.learning_rate": "0.1", "replay.alpha": "0.5"})
    entry = search.entry(Method(name="rate", settings={"learner.learning_rate": "0.2"}), ARENAS[0])
    assert entry.settings == {"learner.learning_rate": "0.2", "replay.alpha": "0.5"}
    assert entry.method.name == "aride: rate"


def test_tries_at_equal_wall_clock_alternate_between_the_two_methods() -> None:
    names = [one.name.partition(":")[0] for one in timed_tuning.timed_tries()]
    assert names == ["aride", "digirl_sync"] * 6
    assert len({one.name for one in timed_tuning.timed_tries()}) == 12


def test_the_tries_of_two_methods_are_reported_apart() -> None:
    runs = [
        timed_runs(Method(name=f"{method}: {name}"), reaches_at_s=100.0, end=end, episodes=episodes)
        for method, name, end, episodes in (
            ("aride", "a", 0.4, 100), ("digirl_sync", "a", 0.6, 10), ("aride", "b", 0.8, 200), ("digirl_sync", "b", 0.2, 20),
        )
    ]  # fmt: skip
    found = timed_tuning.summarise(runs, WALL_CLOCK_BUDGET)
    assert found.tries == {"aride": {"a": 0.4, "b": 0.8}, "digirl_sync": {"a": 0.6, "b": 0.2}}
    assert found.best == {"aride": "b", "digirl_sync": "a"}
    assert found.episodes["aride"] == {"a": 102.0, "b": 202.0}
    assert (found.tries_each, found.seeds, found.first_seed) == (2, 5, TUNING_SEED)


# --- whole benchmarks on made-up runs ---------------------------------------------------------------------------------


def pretend_timed(methods: list[Method], *_: object) -> list[TimedRuns]:
    return [timed_runs(method, reaches_at_s=300.0 * (n + 1)) for n, method in enumerate(methods)]


def pretend_entries(entries: list[Entry], *_: object, first_seed: int) -> list[EntryRuns]:
    found = [entry_runs(entry.method, 0.3 + 0.02 * n, arena=entry.arena) for n, entry in enumerate(entries)]
    return [replace(one, entry=entry) for one, entry in zip(found, entries, strict=True)]


@pytest.mark.parametrize(
    ("name", "plots"),
    [
        ("ablation", {"ablation"}),
        ("efficiency", {"efficiency"}),
        ("staleness", {"staleness"}),
        (
            "success",
            {
                "success", "success-time", "success-over-time", "success-over-episodes-everyday",
                "success-over-episodes-shopping",
            },
        ),
        ("timed_tuning", set()),
    ],
)  # fmt: skip
def test_a_benchmark_writes_its_plots_and_can_be_kept(
    name: str, plots: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module(f"distrl.bench.learning.{name}")
    for runner, pretended in (("run_trainers", pretend_entries), ("run_timed", pretend_timed)):
        for owner in (module, efficiency):
            if hasattr(owner, runner):
                monkeypatch.setattr(owner, runner, pretended)
    if name == "success":
        monkeypatch.setattr(success, "string_match_by_arena", lambda max_tasks: STRING_MATCH)
    options = BenchOptions(quick=True, out=tmp_path)
    figures = module.run(options)
    write_results(figures, provenance_of(name, f"distrl bench {name}", options, figures), tmp_path / f"{name}.json")
    assert {file.stem for file in tmp_path.glob("*.png")} == {file.stem for file in tmp_path.glob("*.svg")} == plots
    found = json.loads((tmp_path / f"{name}.json").read_bytes())
    assert found["config_hash"] == figures.config_hash
    assert found["seeds"] == figures.seeds

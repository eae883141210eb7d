"""The tables of methods: every row fits the schema, and every comparison is fair."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import pytest

from distrl.bench.base import names
from distrl.bench.learning.ablation import ABLATION_BUDGET, QUICK_VARIANTS, VARIANTS
from distrl.bench.learning.methods import (
    ALGORITHMS,
    ARENAS,
    BASELINE,
    EPISODE_BUDGET,
    EPISODE_SEED,
    FIRST,
    OURS,
    PLOT_NAMES,
    QUICK_EPISODE_BUDGET,
    QUICK_SETTINGS,
    QUICK_WALL_CLOCK_BUDGET,
    SCHEMES,
    TIMED_SETTINGS,
    TRIED_TIMED,
    TUNED,
    TUNING_SEED,
    WALL_CLOCK_BUDGET,
    Arena,
    EpisodeBudget,
    Method,
    TimedBudget,
    hash_all,
    resolve,
    settings_of,
    tuning_of,
)
from distrl.bench.learning.staleness import (
    BOUNDS,
    CORRECTIONS,
    LAG_ALONE,
    QUICK_BOUNDS,
    QUICK_STALENESS_BUDGET,
    STALENESS_BUDGET,
)
from distrl.bench.learning.timed_runs import evaluation_times
from distrl.bench.learning.timed_tuning import TIMED_TRIES, UNTUNED_SCHEMES
from distrl.bench.learning.timed_tuning import TUNING_BUDGET as TIMED_TUNING_BUDGET
from distrl.bench.learning.tuning import CANDIDATES, ONE_MORE, OWN_TRIES, RATES, TUNING_BUDGET
from distrl.bench.statistics import SEEDS
from distrl.config.load import config_hash, load_config
from distrl.config.reference import flatten
from distrl.errors import ConfigError
from distrl.runtime.factory import make_algorithm
from distrl.tasks.base import held_out

CONFIGS = Path(__file__).parents[4] / "configs"
RESULTS = Path(__file__).parents[4] / "docs" / "results"
RENAMED = {"replay.balance": "replay.class_balance"}
"""Settings that were called otherwise when the results were made."""
EVERYTHING = [*ALGORITHMS, *SCHEMES, *VARIANTS, *CORRECTIONS.values()]


@pytest.mark.parametrize("method", EVERYTHING, ids=lambda method: method.name)
def test_every_method_fits_the_schema_and_leaves_the_prior_as_the_arena_has_it(method: Method) -> None:
    for arena, more in product(
        (*ARENAS, FIRST), ({}, TIMED_SETTINGS, QUICK_EPISODE_BUDGET.settings, QUICK_WALL_CLOCK_BUDGET.settings)
    ):
        own = resolve(more, arena.settings, method.settings).policy
        assert own.pointer.string_match == resolve(arena.settings).policy.pointer.string_match


@pytest.mark.parametrize("candidate", CANDIDATES, ids=lambda one: one.name)
def test_every_method_is_compared_with_what_its_tuning_chose(candidate: Method) -> None:
    name = TUNED if candidate.name == OURS else candidate.name
    (method,) = (one for one in ALGORITHMS if one.name == name)
    found = json.loads((RESULTS / "tuning.json").read_bytes())["chosen"][candidate.name]
    chosen = {RENAMED.get(key, key): value for key, value in found.items()}
    assert config_hash(resolve(method.settings)) == config_hash(resolve(candidate.settings, chosen))


def test_the_baseline_is_compared_with_the_best_of_its_tries() -> None:
    (scheme,) = (one for one in SCHEMES if one.name == BASELINE)
    (untuned,) = (one for one in UNTUNED_SCHEMES if one.name == BASELINE)
    best = json.loads((RESULTS / "timed_tuning.json").read_bytes())["best"][BASELINE]
    (chosen,) = (one for one in TIMED_TRIES[BASELINE] if one.name == best)
    assert config_hash(resolve(scheme.settings)) == config_hash(resolve(untuned.settings, chosen.settings))


def test_ours_is_the_default_of_the_library() -> None:
    assert ALGORITHMS[0].settings == SCHEMES[0].settings == {}


@pytest.mark.parametrize("table", [ALGORITHMS, SCHEMES, VARIANTS], ids=["algorithms", "schemes", "variants"])
def test_no_two_rows_of_a_table_are_the_same(table: tuple[Method, ...]) -> None:
    assert len({method.name for method in table}) == len(table)
    found = {config_hash(resolve(ARENAS[0].settings, ABLATION_BUDGET.settings, method.settings)) for method in table}
    assert len(found) == len(table)


def test_ours_comes_first_and_the_first_variant_changes_nothing() -> None:
    assert ALGORITHMS[0].name == SCHEMES[0].name == OURS
    assert VARIANTS[0].settings == {}
    assert 1 < QUICK_VARIANTS <= len(VARIANTS)


def test_at_equal_episodes_nothing_is_synchronous() -> None:
    """The single-process trainer sets the staleness; a learner that waits for rounds would wait for ever in it."""
    for method in (*ALGORITHMS, *VARIANTS, *CORRECTIONS.values()):
        assert resolve(ARENAS[0].settings, method.settings).learner.mode == "async"


IDLE = {
    "digirl, same data": {"replay.beta": "0.4"},
    "filtered_bc, same data": {"replay.beta": "0.4"},
    "ppo": {"replay.td_weight": "50", "replay.beta": "0.4"},
    "grpo": {"replay.td_weight": "50", "replay.beta": "0.4"},
}
"""By method, what its loss and its sampling do not look at: the files leave these out."""
SWAPPED = {"policy.pointer.word_swap_share": "0.5"}
"""What the results were made with; the files of methods whose ratios multiply the policy term have 0."""


@pytest.mark.parametrize("name", [name for name in IDLE if name != "ppo"])
def test_the_file_of_each_algorithm_holds_what_its_tries_chose(name: str) -> None:
    (method,) = (one for one in ALGORITHMS if one.name == name)
    file = CONFIGS / f"{name.partition(',')[0].replace('_', '-')}.toml"
    measured = IDLE[name] | (SWAPPED if name == "grpo" else {})
    assert config_hash(load_config(file, measured)) == config_hash(resolve(method.settings))


def test_the_file_of_ppo_holds_what_was_found_with_stale_data() -> None:
    found = resolve(CORRECTIONS["ppo_corrected"].settings, LAG_ALONE)
    assert config_hash(load_config(CONFIGS / "ppo.toml", IDLE["ppo"])) == config_hash(found)


def test_the_baseline_at_equal_wall_clock_had_six_tries_there() -> None:
    assert TRIED_TIMED.startswith("Six tries")
    assert len(TIMED_TRIES[BASELINE]) == 6


def test_the_published_form_is_that_of_its_file() -> None:
    published = next(method for method in VARIANTS if method.name == "as published")
    whole = load_config(CONFIGS / "aride-published.toml", SWAPPED)
    assert config_hash(resolve(published.settings)) == config_hash(whole)


def test_every_scheme_has_a_neighbour_to_run_beside() -> None:
    assert len(SCHEMES) % 2 == 0


def test_every_method_says_how_it_was_tuned() -> None:
    assert all(tuning_of([*ALGORITHMS, *SCHEMES]).values())


@pytest.mark.parametrize("arenas", [ARENAS, (FIRST,)], ids=["equal episodes", "all else"])
def test_five_hundred_held_out_tasks_stand_behind_a_figure(arenas: tuple[Arena, ...]) -> None:
    tasks = [task for arena in arenas for task in held_out(resolve(arena.settings).tasks, arena.test_tasks)]
    assert len({task.id for task in tasks}) == len(tasks) >= 500
    assert {task.split for task in tasks} == {"test"}


@pytest.mark.parametrize(
    "budget", [EPISODE_BUDGET, QUICK_EPISODE_BUDGET, ABLATION_BUDGET, STALENESS_BUDGET, QUICK_STALENESS_BUDGET]
)
def test_budgets_are_made_of_whole_chunks(budget: EpisodeBudget) -> None:
    assert budget.episodes % budget.chunk == budget.evaluate_every % budget.chunk == 0


def test_the_largest_lag_is_a_part_of_the_run() -> None:
    assert max(BOUNDS) <= STALENESS_BUDGET.episodes // STALENESS_BUDGET.chunk / 3
    assert max(QUICK_BOUNDS) <= QUICK_STALENESS_BUDGET.episodes // QUICK_STALENESS_BUDGET.chunk / 2
    assert BOUNDS[0] == QUICK_BOUNDS[0] == 0


def test_runs_at_equal_wall_clock_evaluate_nothing_on_the_way_and_keep_every_version() -> None:
    config = resolve(TIMED_SETTINGS, FIRST.settings)
    assert (config.evaluation.every_s, config.evaluation.episodes) == (0, 1)
    assert config.learner.keep_versions > 60 * WALL_CLOCK_BUDGET.wall_s
    assert config.devices.sim.latency.profile == "emulator"


def test_a_later_layer_comes_over_an_earlier_one() -> None:
    config = resolve({"run.seed": "1", "run.minutes": "2"}, {"run.seed": "3"})
    assert (config.run.seed, config.run.minutes) == (3, 2)
    with pytest.raises(ConfigError, match="no setting"):
        resolve({"run.sede": "1"})


def test_only_modules_that_measure_are_benchmarks() -> None:
    assert {"ablation", "efficiency", "staleness", "success", "sim"} <= set(names())
    assert not {"base", "single_process", "trainer_runs", "methods", "plots", "statistics", "__init__"} & set(names())


# --- layers and hashes ------------------------------------------------------------------------------------------------


def changed_keys(settings: Mapping[str, str]) -> set[str]:
    """The keys whose values differ from the defaults under these settings."""
    before, after = flatten(resolve()), flatten(resolve(settings))
    return {key for key in after if after[key] != before[key]}


@pytest.mark.parametrize("variant", VARIANTS[1:], ids=lambda variant: variant.name)
def test_a_variant_changes_something_and_nothing_but_what_it_names(variant: Method) -> None:
    found = changed_keys(variant.settings)
    assert found
    assert found <= set(variant.settings)


@pytest.mark.parametrize("row", [*ALGORITHMS[1:], *SCHEMES[1:], *CORRECTIONS.values()], ids=lambda row: row.name)
def test_a_method_changes_nothing_but_what_it_names(row: Method) -> None:
    assert changed_keys(row.settings) <= set(row.settings)


@pytest.mark.parametrize("scheme", UNTUNED_SCHEMES, ids=lambda scheme: scheme.name)
def test_every_try_at_equal_wall_clock_fits_the_schema_and_differs_from_the_others(scheme: Method) -> None:
    layered = [
        resolve(TIMED_SETTINGS, FIRST.settings, scheme.settings, one.settings) for one in TIMED_TRIES[scheme.name]
    ]
    assert len({config_hash(config) for config in layered}) == len(TIMED_TRIES[scheme.name])
    assert TIMED_TRIES[scheme.name][0].settings == {}, "the first try is what it starts with"


@pytest.mark.parametrize("candidate", CANDIDATES, ids=lambda one: one.name)
def test_every_own_try_of_a_candidate_fits_the_schema_and_changes_it(candidate: Method) -> None:
    tries = OWN_TRIES[candidate.name.partition(",")[0]]
    found = {config_hash(resolve(candidate.settings, one.settings)) for one in tries}
    assert len(found) == len(tries) == 2
    assert config_hash(resolve(candidate.settings)) not in found


def test_the_fourth_learning_rate_is_none_of_the_first_three() -> None:
    assert set(ONE_MORE) == set(RATES)
    assert not set(ONE_MORE.values()) & set(RATES)
    assert len(set(ONE_MORE.values())) == len(RATES)


def test_the_hash_of_a_comparison_changes_with_any_configuration_and_with_their_order() -> None:
    first, second = resolve({"run.seed": "1"}), resolve({"run.seed": "2"})
    assert hash_all([first, second]) == hash_all(iter([first, second]))
    assert len({hash_all([first, second]), hash_all([second, first]), hash_all([first]), hash_all([])}) == 4
    assert len(hash_all([first])) == 12


def test_settings_and_tuning_are_listed_by_method() -> None:
    methods = [Method(name="a", settings={"run.seed": "1"}, tuning="None."), Method(name="b")]
    assert settings_of(methods) == {"a": {"run.seed": "1"}, "b": {}}
    assert tuning_of(methods) == {"a": "None.", "b": ""}


def test_what_does_not_fit_the_schema_is_refused() -> None:
    for wrong in ({"algorithm.aride.gamma": "2"}, {"learner.learning_rate": "fast"}, {"nowhere.at_all": "1"}):
        with pytest.raises(ConfigError):
            resolve(wrong)


def test_an_algorithm_that_nobody_knows_is_refused_when_it_is_made() -> None:
    with pytest.raises(ConfigError, match="alphago"):
        make_algorithm(resolve({"algorithm.kind": "alphago"}))


@pytest.mark.parametrize("method", EVERYTHING, ids=lambda method: method.name)
def test_a_setting_of_another_algorithm_on_top_of_a_method_is_refused(method: Method) -> None:
    kind = resolve(method.settings).algorithm.kind
    other = "digirl" if kind != "digirl" else "aride"
    with pytest.raises(ConfigError, match=f"is read by {other} alone, and algorithm.kind is {kind}"):
        resolve(method.settings, {f"algorithm.{other}.gamma": "0.9"})


# --- budgets and seeds ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [WALL_CLOCK_BUDGET, QUICK_WALL_CLOCK_BUDGET, TIMED_TUNING_BUDGET])
def test_versions_are_evaluated_from_the_start_to_the_end_of_the_budget(budget: TimedBudget) -> None:
    times = evaluation_times(budget)
    assert (times[0], times[-1]) == (0.0, budget.wall_s)
    assert times == sorted(set(times))
    assert len(times) == budget.points + 1 + len(set(budget.early_s))
    assert all(0.0 < early_s < budget.wall_s for early_s in budget.early_s)


def test_seconds_are_sixty_times_the_minutes() -> None:
    assert TimedBudget(minutes=0.5, points=2).wall_s == 30.0


def test_no_reported_seed_was_tuned_on() -> None:
    reported = {*range(SEEDS), *range(EPISODE_SEED, EPISODE_SEED + SEEDS)}
    assert not reported & set(range(TUNING_SEED, TUNING_SEED + 20))


def test_tuning_plays_no_test_task() -> None:
    assert (TUNING_BUDGET.most_test_tasks, TIMED_TUNING_BUDGET.split) == (0, "tune")


@pytest.mark.parametrize("arena", [*ARENAS, FIRST], ids=lambda arena: arena.name)
def test_tuning_tasks_and_test_tasks_of_an_arena_have_nothing_in_common(arena: Arena) -> None:
    config = resolve(arena.settings)
    tune, test = ({task.instruction for task in held_out(config.tasks, 200, split)} for split in ("tune", "test"))
    assert tune
    assert not tune & test


@pytest.mark.parametrize("method", [*ALGORITHMS, *SCHEMES], ids=lambda method: method.name)
def test_quick_settings_shorten_every_method(method: Method) -> None:
    quick = resolve(method.settings, QUICK_SETTINGS)
    assert quick.warm_start.demonstrations <= 80
    assert quick.learner.updates_per_episode == 0.5
    assert quick.algorithm == resolve(method.settings).algorithm, "what is compared stays as it is"


def test_every_method_at_equal_wall_clock_has_a_name_for_plots() -> None:
    assert set(PLOT_NAMES) == {method.name for method in SCHEMES}
    assert len(set(PLOT_NAMES.values())) == len(PLOT_NAMES)

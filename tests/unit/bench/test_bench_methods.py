"""What is compared: every record fits the schema, and every comparison is fair."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from distrl.bench.ablation import ABLATION_LAB, QUICK_VARIANTS, VARIANTS
from distrl.bench.base import names
from distrl.bench.methods import (
    ALGORITHMS,
    ARENAS,
    CLOCK,
    FIRST,
    LAB,
    OURS,
    QUICK_CLOCK,
    QUICK_LAB,
    RIVAL,
    SCHEMES,
    TIMED,
    TRIED_TIMED,
    TUNED,
    Arena,
    LabBudget,
    Method,
    resolve,
    tuning_of,
)
from distrl.bench.staleness import BOUNDS, CORRECTIONS, PLAINLY_STALE, QUICK_BOUNDS, QUICK_STALE_LAB, STALE_LAB
from distrl.bench.timed_tuning import TIMED_TRIES, UNTUNED_SCHEMES
from distrl.bench.tuning import CANDIDATES
from distrl.config.load import config_hash, load_config
from distrl.errors import ConfigError
from distrl.evaluation.evaluate import held_out

CONFIGS = Path(__file__).parents[3] / "configs"
RESULTS = Path(__file__).parents[3] / "docs" / "results"
EVERYTHING = [*ALGORITHMS, *SCHEMES, *VARIANTS, *CORRECTIONS.values()]


@pytest.mark.parametrize("method", EVERYTHING, ids=lambda method: method.name)
def test_every_method_fits_the_schema_and_leaves_the_prior_as_the_arena_has_it(method: Method) -> None:
    for arena, more in product((*ARENAS, FIRST), ({}, TIMED, QUICK_LAB.settings, QUICK_CLOCK.settings)):
        own = resolve(more, arena.settings, method.settings).policy
        assert own.string_match == resolve(arena.settings).policy.string_match


@pytest.mark.parametrize("candidate", CANDIDATES, ids=lambda one: one.name)
def test_every_method_is_compared_with_what_its_tuning_chose(candidate: Method) -> None:
    name = TUNED if candidate.name == OURS else candidate.name
    (method,) = (one for one in ALGORITHMS if one.name == name)
    chosen = json.loads((RESULTS / "tuning.json").read_bytes())["chosen"][candidate.name]
    assert config_hash(resolve(method.settings)) == config_hash(resolve(candidate.settings, chosen))


def test_the_rival_is_compared_with_the_best_of_its_tries() -> None:
    (scheme,) = (one for one in SCHEMES if one.name == RIVAL)
    (untuned,) = (one for one in UNTUNED_SCHEMES if one.name == RIVAL)
    best = json.loads((RESULTS / "timed_tuning.json").read_bytes())["best"][RIVAL]
    (chosen,) = (one for one in TIMED_TRIES[RIVAL] if one.name == best)
    assert config_hash(resolve(scheme.settings)) == config_hash(resolve(untuned.settings, chosen.settings))


def test_ours_is_the_default_of_the_library() -> None:
    assert ALGORITHMS[0].settings == SCHEMES[0].settings == {}


@pytest.mark.parametrize("table", [ALGORITHMS, SCHEMES, VARIANTS], ids=["algorithms", "schemes", "variants"])
def test_no_two_rows_of_a_table_are_the_same(table: tuple[Method, ...]) -> None:
    assert len({method.name for method in table}) == len(table)
    found = {config_hash(resolve(ARENAS[0].settings, ABLATION_LAB.settings, method.settings)) for method in table}
    assert len(found) == len(table)


def test_ours_comes_first_and_the_first_variant_changes_nothing() -> None:
    assert ALGORITHMS[0].name == SCHEMES[0].name == OURS
    assert VARIANTS[0].settings == {}
    assert 1 < QUICK_VARIANTS <= len(VARIANTS)


def test_at_equal_episodes_nothing_is_synchronous() -> None:
    """The laboratory sets the staleness by hand; a learner that waits for rounds would wait for ever in it."""
    for method in (*ALGORITHMS, *VARIANTS, *CORRECTIONS.values()):
        assert resolve(ARENAS[0].settings, method.settings).learner.mode == "async"


IDLE = {
    "digirl, same data": {"algorithm.entropy_weight": "0.003", "replay.beta": "0.4"},
    "filtered_bc, same data": {"algorithm.entropy_weight": "0.003", "replay.beta": "0.4"},
    "ppo": {"replay.td_weight": "50", "replay.beta": "0.4"},
    "grpo": {"replay.td_weight": "50", "replay.beta": "0.4"},
}
"""By method, what its loss and its sampling do not look at: the files leave these out."""


@pytest.mark.parametrize("name", [name for name in IDLE if name != "ppo"])
def test_the_file_of_each_algorithm_holds_what_its_tries_chose(name: str) -> None:
    (method,) = (one for one in ALGORITHMS if one.name == name)
    file = CONFIGS / f"{name.partition(',')[0].replace('_', '-')}.toml"
    assert config_hash(load_config(file, IDLE[name])) == config_hash(resolve(method.settings))


def test_the_file_of_ppo_holds_what_was_found_with_stale_data() -> None:
    found = resolve(CORRECTIONS["ppo_corrected"].settings, PLAINLY_STALE)
    assert config_hash(load_config(CONFIGS / "ppo.toml", IDLE["ppo"])) == config_hash(found)


def test_the_rival_at_equal_wall_clock_had_six_tries_there() -> None:
    assert TRIED_TIMED.startswith("Six tries")
    assert len(TIMED_TRIES[RIVAL]) == 6


def test_the_published_form_is_that_of_its_file() -> None:
    published = next(method for method in VARIANTS if method.name == "as published")
    whole = load_config(CONFIGS / "aride-published.toml", {})
    assert config_hash(resolve(published.settings)) == config_hash(whole)


def test_every_scheme_has_a_neighbour_to_run_beside() -> None:
    assert len(SCHEMES) % 2 == 0


def test_every_method_says_what_was_spent_on_tuning_it() -> None:
    assert all(tuning_of([*ALGORITHMS, *SCHEMES]).values())


@pytest.mark.parametrize("arenas", [ARENAS, (FIRST,)], ids=["equal episodes", "all else"])
def test_five_hundred_held_out_tasks_stand_behind_a_figure(arenas: tuple[Arena, ...]) -> None:
    tasks = [task for arena in arenas for task in held_out(resolve(arena.settings), arena.test_tasks)]
    assert len({task.id for task in tasks}) == len(tasks) >= 500
    assert {task.split for task in tasks} == {"test"}


@pytest.mark.parametrize("budget", [LAB, QUICK_LAB, ABLATION_LAB, STALE_LAB, QUICK_STALE_LAB])
def test_budgets_are_made_of_whole_chunks(budget: LabBudget) -> None:
    assert budget.episodes % budget.chunk == budget.evaluate_every % budget.chunk == 0


def test_the_largest_lag_is_a_part_of_the_run() -> None:
    assert max(BOUNDS) <= STALE_LAB.episodes // STALE_LAB.chunk / 3
    assert max(QUICK_BOUNDS) <= QUICK_STALE_LAB.episodes // QUICK_STALE_LAB.chunk / 2
    assert BOUNDS[0] == QUICK_BOUNDS[0] == 0


def test_runs_at_equal_wall_clock_evaluate_nothing_on_the_way_and_keep_every_version() -> None:
    config = resolve(TIMED, FIRST.settings)
    assert (config.evaluation.every_s, config.evaluation.episodes) == (0, 1)
    assert config.learner.keep_versions > 60 * CLOCK.wall_s
    assert config.devices.latency.profile == "emulator"


def test_a_later_layer_comes_over_an_earlier_one() -> None:
    config = resolve({"run.seed": "1", "run.minutes": "2"}, {"run.seed": "3"})
    assert (config.run.seed, config.run.minutes) == (3, 2)
    with pytest.raises(ConfigError, match="no setting"):
        resolve({"run.sede": "1"})


def test_only_modules_that_measure_are_benchmarks() -> None:
    assert {"ablation", "efficiency", "staleness", "success", "sim"} <= set(names())
    assert not {"base", "lab", "lab_runs", "methods", "plots", "statistics", "__init__"} & set(names())

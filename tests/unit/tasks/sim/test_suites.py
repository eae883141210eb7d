"""What every suite promises as a whole: all of it solvable, none of it by luck, splits that share nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from random import Random
from statistics import median

import pytest

from distrl.cli.episode import random_agent
from distrl.config.schema import PerturbationConfig
from distrl.devices.sim.content_pools import PEOPLE
from distrl.devices.sim.products import BRANDS, KINDS
from distrl.devices.sim.world import start_state
from distrl.tasks.base import tasks_of
from distrl.tasks.sim.oracle import Played, play, play_oracle
from distrl.tasks.sim.suites import SUITES
from distrl.tasks.sim.templates import Draft, SimSuite, TemplateFn, Templates
from distrl.types import Split, Task
from support.sims import answer_of, is_impossible

BIG = ("sim-general", "sim-shopping")
MANY: dict[Split, int | None] = {"train": 1500, "tune": None, "test": None}
"""How many tasks of each split are read; None: all of them."""
PERTURBED = PerturbationConfig(popup_rate=0.3, slow_rate=0.3, update_rate=0.5)
every_suite = pytest.mark.parametrize("name", SUITES)
every_big_suite = pytest.mark.parametrize("name", BIG)


@cache
def posed(name: str, split: Split) -> tuple[Task, ...]:
    return tuple(tasks_of(SUITES[name], split, MANY[split]))


@cache
def oracle_on_test(name: str) -> tuple[Played, ...]:
    """The oracle's episodes on all test tasks, on phones that never misbehave."""
    return tuple(play_oracle(task) for task in posed(name, "test"))


# --- the tasks can be done, and not by accident ---------------------------------------------------------------------


@every_suite
def test_the_oracle_solves_every_test_task_within_its_limit(name: str) -> None:
    tasks = posed(name, "test")
    assert len(tasks) == 600
    for task, played in zip(tasks, oracle_on_test(name), strict=True):
        assert played.verdict.success, (task.id, task.instruction, played.verdict)
        assert len(played.actions) <= task.max_steps, (task.id, task.instruction)


@every_suite
def test_the_oracle_solves_test_tasks_under_perturbations(name: str) -> None:
    for task in posed(name, "test")[::3]:
        played = play_oracle(task, PERTURBED)
        assert played.verdict.success, (task.id, task.instruction, played.verdict)


@every_suite
def test_a_random_agent_solves_almost_nothing(name: str) -> None:
    tasks = posed(name, "test")[::2]
    solved = [task.id for n, task in enumerate(tasks) if play(task, random_agent(Random(n))).verdict.success]
    assert len(tasks) == 300
    assert len(solved) <= 6, solved


# --- there is enough of them, long and short ------------------------------------------------------------------------


def test_the_oracle_needs_between_one_and_fifteen_steps_and_usually_five_or_more() -> None:
    lengths = [len(played.actions) for name in BIG for played in oracle_on_test(name)]
    assert (min(lengths), max(lengths)) == (1, 15)
    assert median(lengths) >= 5


def test_there_are_at_least_eighty_templates() -> None:
    assert len({template.name for suite in SUITES.values() for template in suite.templates}) >= 80


@every_suite
def test_every_template_of_a_suite_poses_test_tasks(name: str) -> None:
    found = {task.template for task in posed(name, "test")}
    assert found == {template.name for template in SUITES[name].templates}


@every_big_suite
@pytest.mark.parametrize("split", ["train", "test"])
def test_big_suites_ask_questions_and_ask_for_what_cannot_be_done(name: str, split: Split) -> None:
    tasks = posed(name, split)
    assert sum(bool(answer_of(task)) for task in tasks) >= len(tasks) // 20
    assert sum(is_impossible(task) for task in tasks) >= len(tasks) // 50


# --- the splits share nothing ---------------------------------------------------------------------------------------


def found_in(tasks: Iterable[Task]) -> dict[str, set[Split]]:
    """The splits in which each text stands, whatever its capitals and spaces."""
    splits: dict[str, set[Split]] = defaultdict(set)
    for task in tasks:
        splits[" ".join(task.instruction.casefold().split())].add(task.split)
    return splits


def test_no_instruction_is_in_two_splits_of_any_suites() -> None:
    tasks = [task for name in SUITES for split in MANY for task in posed(name, split)]
    shared = {text: splits for text, splits in found_in(tasks).items() if len(splits) > 1}
    assert not shared


def test_templates_that_say_the_same_agree_on_its_split_even_where_one_is_for_test_alone() -> None:
    templates = Templates()
    templates.add(speaker("one"))
    templates.add(speaker("other"))
    templates.add_for_test(speaker("late"))
    twins = SimSuite("twins", templates, sizes={"train": 90, "tune": 40, "test": 90})
    tasks = [task for split in MANY for task in tasks_of(twins, split)]
    assert {task.template for task in tasks if task.split == "test"} == {"one", "other", "late"}
    found = found_in(tasks)
    assert all(len(splits) == 1 for splits in found.values())
    assert len(found) < len(tasks), "the same was said more than once"


def speaker(name: str) -> TemplateFn:
    """A template that says one of eighty things, which others say too."""

    def fill(t: Draft) -> None:
        t.say(f"Count to {t.random.randrange(80)}")
        t.cannot_be_done()

    fill.__name__ = name
    return fill


@every_suite
def test_every_split_has_enough_texts_of_its_own(name: str) -> None:
    for split in MANY:
        tasks = posed(name, split)
        assert all(task.split == split for task in tasks)
        assert len(found_in(tasks)) > len(tasks) // 2


# --- names that only test tasks know --------------------------------------------------------------------------------


def last_fifth(pool: Iterable[str]) -> set[str]:
    names = list(pool)
    return set(names[len(names) - len(names) // 5 :])


def texts_in_sight(tasks: Iterable[Task]) -> Iterator[str]:
    """All that a policy could read in these tasks: what is said, and what the phones hold."""
    for task in tasks:
        yield task.instruction
        for table in start_state(task).tables.values():
            yield from (value for record in table.values() for value in record.values() if isinstance(value, str))


def named(names: Iterable[str], texts: Iterable[str]) -> set[str]:
    """Those names that stand somewhere in the texts."""
    everything = "\n".join(set(texts)).casefold()
    return {name for name in names if name.casefold() in everything}


@pytest.mark.parametrize(
    ("name", "held_out"),
    [
        ("sim-general", last_fifth(PEOPLE)),
        ("sim-shopping", set().union(*map(last_fifth, BRANDS.values()))),
    ],
    ids=["people", "brands"],
)
def test_held_out_names_are_seen_in_test_tasks_alone(name: str, held_out: set[str]) -> None:
    assert len(held_out) >= 6
    for split in ("train", "tune"):
        assert named(held_out, texts_in_sight(posed(name, split)[:400])) == set()
    assert named(held_out, texts_in_sight(posed(name, "test"))) == held_out
    assert named(held_out, (task.instruction for task in posed(name, "test")))


def test_held_out_kinds_of_goods_are_asked_for_in_test_tasks_alone() -> None:
    held_out = last_fifth(KINDS)
    asked = {split: named(held_out, (task.instruction for task in posed("sim-shopping", split))) for split in MANY}
    assert asked == {"train": set(), "tune": set(), "test": held_out}
    sold = {
        record["kind"]
        for task in posed("sim-shopping", "train")[:400]
        for table in start_state(task).tables.values()
        for record in table.values()
        if "brand" in record
    }
    assert sold == set(KINDS) - held_out

"""Every template over settings and the everyday apps: solvable, not solved at the start, and fair to a policy that copies."""

from __future__ import annotations

from functools import cache
from statistics import median

import pytest
from msgspec.structs import replace

from distrl.config.schema import WildConfig
from distrl.devices.sim.layout import elements_of
from distrl.devices.sim.phone import show
from distrl.devices.sim.state import end_state
from distrl.devices.sim.world import start_state
from distrl.tasks.sim.judge import judge
from distrl.tasks.sim.oracle import Played, play_oracle
from distrl.tasks.sim.suites import calendar, clock, contacts, mail, messages, notes, settings, suite
from distrl.tasks.sim.templates import SPLITS, Suite, Template, refuse_overlap
from distrl.types import Finish, Split, Task

TEMPLATES = [
    template for module in (settings, contacts, messages, mail, calendar, clock, notes) for template in module.templates
]
SIZES: dict[Split, int] = {"train": 12, "tune": 12, "test": 12}
WILD = WildConfig(popup_rate=0.3, slow_rate=0.3, update_rate=0.5)
every_template = pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)


@cache
def drawn(name: str) -> dict[Split, list[Task]]:
    """Twelve tasks of every split that the template is in; drawing takes longer than most checks."""
    (template,) = (template for template in TEMPLATES if template.name == name)
    alone = Suite("alone", [template], sizes=SIZES)
    splits: tuple[Split, ...] = ("test",) if template.test_only else SPLITS
    return {split: list(alone.tasks(split)) for split in splits}


def tasks_of(template: Template, each: int) -> list[Task]:
    """A few tasks of every split that the template is in."""
    return [task for tasks in drawn(template.name).values() for task in tasks[:each]]


def last_texts(played: Played) -> list[str]:
    return [element.text for element in elements_of(show(played.states[-1]), "")]


@every_template
def test_the_oracle_succeeds_on_tame_and_wild_phones(template: Template) -> None:
    for task in tasks_of(template, 2):
        tame, wild = play_oracle(task), play_oracle(task, WILD)
        assert tame.verdict.success, (task.instruction, tame.verdict)
        assert wild.verdict.success, (task.instruction, wild.verdict)
        assert len(tame.actions) <= task.max_steps


@every_template
def test_no_task_is_fulfilled_before_it_starts(template: Template) -> None:
    for task in tasks_of(template, 4):
        start = start_state(task)
        for claim in (Finish(), Finish(status="impossible")):
            verdict = judge(task, start, end_state(start, replace(start, claim=claim)))
            assert verdict.success == (task.goal.impossible and claim.status == "impossible"), task.instruction


@every_template
def test_what_is_typed_stands_word_by_word_in_the_instruction(template: Template) -> None:
    for task in tasks_of(template, 6):
        words = task.instruction.split()
        for move in task.route:
            typed = move.text.split() if move.verb == "type" else []
            spans = [words[at : at + len(typed)] for at in range(len(words))]
            assert not typed or typed in spans, (task.instruction, move.text)


@every_template
def test_an_answer_is_the_whole_text_of_an_element_on_the_last_screen(template: Template) -> None:
    for task in tasks_of(template, 2):
        if task.goal.answer:
            for played in (play_oracle(task), play_oracle(task, WILD)):
                assert task.goal.answer in last_texts(played), task.instruction


@every_template
def test_a_template_has_many_instructions_and_shares_none_between_splits(template: Template) -> None:
    tasks = tasks_of(template, 12)
    refuse_overlap(tasks)
    assert len({task.instruction for task in tasks}) >= (8 if template.test_only else 16)


def test_the_set_has_questions_impossible_tasks_siblings_and_long_routes() -> None:
    tasks = [tasks_of(template, 1)[0] for template in TEMPLATES]
    lengths = [len(play_oracle(task).actions) for task in tasks]
    assert len(TEMPLATES) >= 42
    assert sum(template.test_only for template in TEMPLATES) >= 5
    assert sum(bool(task.goal.answer) for task in tasks) >= 8
    assert sum(task.goal.impossible for task in tasks) >= 4
    assert sum(length >= 9 for length in lengths) >= 8
    assert min(lengths) == 1
    assert max(lengths) <= 16
    assert median(lengths) >= 6


def test_all_of_them_are_in_the_general_suite() -> None:
    assert {template.name for template in TEMPLATES} <= {template.name for template in suite("sim-general").templates}

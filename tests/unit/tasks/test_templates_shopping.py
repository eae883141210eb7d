"""Every template of the shopping suite can be done, is not done at the start, and can be typed and answered."""

from __future__ import annotations

import statistics
from functools import lru_cache

import pytest
from msgspec.structs import replace

from distrl.config.schema import WildConfig
from distrl.devices.sim.layout import elements_of
from distrl.devices.sim.phone import show
from distrl.devices.sim.state import end_state
from distrl.devices.sim.world import TAME, start_state
from distrl.tasks.sim.judge import judge
from distrl.tasks.sim.oracle import Played, play_oracle
from distrl.tasks.sim.suites import suite
from distrl.tasks.sim.templates import SPLITS, refuse_overlap
from distrl.types import Finish, Task

SUITE = suite("sim-shopping")
WILD = WildConfig(popup_rate=0.3, slow_rate=0.3, update_rate=0.5)
NAMES = [template.name for template in SUITE.templates]


@lru_cache(maxsize=1)
def drawn() -> tuple[Task, ...]:
    """Two or more tasks of every template in every split that has it."""
    return tuple(task for split in SPLITS for task in SUITE.tasks(split, 2 * len(NAMES)))


def tasks_of(template: str) -> list[Task]:
    return [task for task in drawn() if task.template == template]


def finished(played: Played, task: Task) -> bool:
    """Whether the oracle did it, with the answer in sight exactly once where there is one."""
    texts = [element.text for element in elements_of(show(played.states[-2]), "")]
    return played.verdict.success and (not task.goal.answer or texts.count(task.goal.answer) == 1)


@pytest.mark.parametrize("template", NAMES)
def test_the_oracle_succeeds_on_tame_and_on_wild_phones(template: str) -> None:
    for task in tasks_of(template):
        assert finished(play_oracle(task, TAME), task), task.instruction
        assert finished(play_oracle(task, WILD), task), task.instruction


@pytest.mark.parametrize("template", NAMES)
def test_nothing_is_done_at_the_start(template: str) -> None:
    for task in tasks_of(template):
        start = start_state(task)
        assert not judge(task, start, end_state(start, replace(start, claim=Finish()))).success, task.instruction


@pytest.mark.parametrize("template", NAMES)
def test_what_is_typed_is_a_span_of_the_instruction(template: str) -> None:
    for task in tasks_of(template):
        said = [word.strip(".,:?") for word in task.instruction.split()]
        for move in task.route:
            typed = move.text.split()
            spans = [said[start : start + len(typed)] for start in range(len(said))]
            assert move.verb != "type" or typed in spans, (task.instruction, move.text)


def test_every_split_has_instances_of_every_template_meant_for_it() -> None:
    test_only = {template.name for template in SUITE.templates if template.test_only}
    for split in SPLITS:
        found = {task.template for task in drawn() if task.split == split}
        assert found == (set(NAMES) if split == "test" else set(NAMES) - test_only)


def test_splits_share_no_instruction() -> None:
    refuse_overlap(drawn())


def test_the_suite_is_as_wide_and_as_long_as_promised() -> None:
    lengths = [len(play_oracle(task).actions) for task in drawn() if task.split == "test"]
    assert len(NAMES) >= 40
    assert (min(lengths), max(lengths) <= 16) == (2, True)
    assert statistics.median(lengths) >= 6
    assert len({task.template for task in drawn() if task.goal.answer}) >= 7
    assert len({task.template for task in drawn() if task.goal.impossible}) >= 3
    assert sum(template.test_only for template in SUITE.templates) >= 5

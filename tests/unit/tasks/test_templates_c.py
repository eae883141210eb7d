"""The templates over maps, the app store, music, files and photos: each can be posed, solved and judged."""

from __future__ import annotations

import statistics
from functools import cache

import pytest
from msgspec.structs import replace

from distrl.config.schema import WildConfig
from distrl.devices.sim.layout import elements_of
from distrl.devices.sim.phone import show
from distrl.devices.sim.state import end_state
from distrl.devices.sim.world import start_state
from distrl.tasks.sim.judge import judge
from distrl.tasks.sim.oracle import play_oracle
from distrl.tasks.sim.suites import files, maps, music, photos, store
from distrl.tasks.sim.templates import SPLITS, Suite, Template
from distrl.types import Finish, Split, Task, TypeText

TEMPLATES: list[Template] = [
    template for module in (files, maps, music, photos, store) for template in module.templates
]
WILD = WildConfig(popup_rate=0.3, slow_rate=0.3, update_rate=0.5)
CASES = [(template, split) for template in TEMPLATES for split in SPLITS if split == "test" or not template.test_only]


@cache
def tasks_of(template: Template, split: Split, count: int = 2) -> list[Task]:
    sizes: dict[Split, int] = {"train": count, "tune": count, "test": count}
    return list(Suite("sim-general", [template], sizes=sizes).tasks(split))


def _name(value: object) -> str:
    return value.name if isinstance(value, Template) else str(value)


@pytest.mark.parametrize(("template", "split"), CASES, ids=_name)
def test_the_oracle_succeeds_on_a_tame_and_on_a_wild_phone(template: Template, split: Split) -> None:
    for task in tasks_of(template, split):
        for wild in (None, WILD):
            played = play_oracle(task, wild) if wild else play_oracle(task)
            assert played.verdict.success, (task.instruction, played.verdict)


@pytest.mark.parametrize("template", TEMPLATES, ids=_name)
def test_nothing_is_done_at_the_start(template: Template) -> None:
    for task in tasks_of(template, "test"):
        start = start_state(task)
        assert not judge(task, start, end_state(start, replace(start, claim=Finish()))).success, task.instruction


@pytest.mark.parametrize("template", TEMPLATES, ids=_name)
def test_what_the_oracle_types_and_answers_can_be_pointed_at(template: Template) -> None:
    """A policy copies words of the instruction and text of the screen; it does not make up either."""
    for task in tasks_of(template, "test"):
        played = play_oracle(task)
        words = f" {task.instruction.replace(',', '').replace('?', '').replace(':', '')} "
        for action in played.actions:
            assert not isinstance(action, TypeText) or f" {action.text} " in words, task.instruction
        last = played.states[-1]
        shown = [element.text for element in elements_of(show(last), last.focus) if element.class_name != "Title"]
        assert not task.goal.answer or task.goal.answer in shown, task.instruction


def test_the_templates_are_of_all_lengths_and_kinds() -> None:
    tasks = [tasks_of(template, "test", 1)[0] for template in TEMPLATES]
    lengths = [len(play_oracle(task).actions) for task in tasks]
    assert min(lengths) == 2
    assert statistics.median(lengths) >= 6
    assert sum(9 <= length <= 15 for length in lengths) >= 6
    assert sum(bool(task.goal.answer) for task in tasks) >= 5
    assert sum(task.goal.impossible for task in tasks) >= 2
    assert sum(template.test_only for template in TEMPLATES) >= 4

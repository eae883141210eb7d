"""Renaming a task renames all of its parts: what is said, set up, asked for, shown, answered and done."""

from __future__ import annotations

import pytest

from distrl.devices.sim.names import is_name, names_in
from distrl.devices.sim.world import other_names, start_state
from distrl.tasks.sim.oracle import play_oracle
from distrl.tasks.sim.renaming import rename, rename_text
from distrl.types import Task
from support.sims import (
    TEMPLATES,
    answer_of,
    is_impossible,
    phone_of,
    setup_of,
    shape_of,
    solution_of,
    start_of,
    tasks_of,
    wants_of,
)

NUMBER = 1030
ABOUT_NAMES = (
    "contacts-call", "contacts-delete", "contacts-message", "messages-reply", "messages-delete", "mail-reply",
    "mail-ask-sender", "notes-pin", "notes-edit", "calendar-ask-place", "music-play-song", "music-add-to-playlist",
)  # fmt: skip


def training_tasks(name: str) -> list[Task]:
    return [task for task in tasks_of(name) if task.split == "train"]


def other(task: Task, name: str) -> str:
    return other_names(phone_of(task), NUMBER, held_out=False).names[name]


@pytest.mark.parametrize("name", ABOUT_NAMES)
def test_a_renamed_task_asks_for_the_same_in_other_words(name: str) -> None:
    for task in training_tasks(name):
        renamed = rename(task, NUMBER)
        assert renamed.instruction != task.instruction
        assert shape_of(renamed) == shape_of(task)
        assert is_impossible(renamed) == is_impossible(task)
        assert start_of(renamed) == start_of(task)
        assert [move.verb for move in solution_of(renamed)] == [move.verb for move in solution_of(task)]
        assert renamed.id == f"{task.id}+{NUMBER}"
        assert renamed.max_steps == task.max_steps
        assert play_oracle(renamed).verdict.success


@pytest.mark.parametrize("name", [name for name in TEMPLATES if not TEMPLATES[name].test_only])
def test_every_template_survives_renaming(name: str) -> None:
    task = training_tasks(name)[0]
    renamed = rename(task, NUMBER)
    assert play_oracle(renamed).verdict.success, renamed.instruction
    assert not (names_in(start_state(task).tables) - _added(task)) & names_in(start_state(renamed).tables)


def _added(task: Task) -> set[str]:
    """Names that the set-up of the task brings along."""
    return {str(value) for put in setup_of(task) for value in (put.fields or {}).values() if is_name(str(value))}


def test_wants_answers_and_moves_speak_of_the_other_names() -> None:
    task = training_tasks("contacts-call")[0]
    who = str(wants_of(task)[0].fields["who"])
    renamed = rename(task, NUMBER)
    assert wants_of(renamed)[0].fields["who"] == other(task, who)
    assert who not in renamed.instruction
    assert other(task, who) in renamed.instruction
    chat = training_tasks("messages-delete")[0]
    assert wants_of(rename(chat, NUMBER))[0].id == other(chat, wants_of(chat)[0].id)
    asked = training_tasks("mail-ask-sender")[0]
    assert answer_of(rename(asked, NUMBER)) == other(asked, answer_of(asked))


def test_phone_numbers_and_the_time_in_a_city_are_others_too_and_the_answers_go_with_them() -> None:
    for name in ("contacts-ask-phone", "clock-ask-city"):
        told = set[str]()
        for task in training_tasks(name):
            for number in range(NUMBER, NUMBER + 3):
                renamed = rename(task, number)
                assert play_oracle(renamed).verdict.success, renamed.instruction
                assert len(answer_of(renamed)) == len(answer_of(task))
                told |= {answer_of(renamed)}
            assert answer_of(task) not in told
        assert len(told) >= 3


def test_a_name_that_the_set_up_adds_is_renamed_too() -> None:
    for template in TEMPLATES.values():
        for task in [] if template.test_only else training_tasks(template.name):
            added = {name for name in _added(task) if name in task.instruction}
            renamed = rename(task, NUMBER)
            for put, changed in zip(setup_of(task), setup_of(renamed), strict=True):
                assert (put.table, (put.fields or {}).keys()) == (changed.table, (changed.fields or {}).keys())
            for name in added & set(map(str, names_in(start_state(task).tables))):
                assert name not in renamed.instruction


@pytest.mark.parametrize("name", ["settings-switch", "settings-ringtone", "files-sort", "store-switch-auto-update"])
def test_what_speaks_of_no_names_stays_as_it_was_said(name: str) -> None:
    for task in training_tasks(name):
        assert rename(task, NUMBER).instruction == task.instruction


@pytest.mark.parametrize(
    ("text", "others", "renamed"),
    [
        ("Call Ruth", {"Ruth": "Kip"}, "Call Kip"),
        ("Call Ruth Whitman, not Ruth", {"Ruth": "Kip", "Ruth Whitman": "Ada Lo"}, "Call Ada Lo, not Kip"),
        ("Ruthless", {"Ruth": "Kip"}, "Ruthless"),
        ("Tell Ruth's friend", {"Ruth": "Kip"}, "Tell Kip's friend"),
        ("Swap Ann and Bob", {"Ann": "Bob", "Bob": "Ann"}, "Swap Bob and Ann"),
        ("What is 2 + 2?", {"2 + 2": "4"}, "What is 4?"),
        ("Nobody here", {}, "Nobody here"),
        ("", {"Ruth": "Kip"}, ""),
    ],
)
def test_names_are_replaced_whole_once_and_the_longest_first(text: str, others: dict[str, str], renamed: str) -> None:
    assert rename_text(text, others) == renamed

"""The suite of web apps: seeds, splits, and its judge on changes."""

from __future__ import annotations

import asyncio

import pytest

from distrl.config.schema import TasksConfig, WebAppsConfig
from distrl.devices.web.apps.base import Tables, changes_between, tables_of
from distrl.errors import TaskError
from distrl.tasks.base import SPLITS, find_suite, find_task, refuse_overlap, tasks_of
from distrl.tasks.judges import Attempt, AutoJudge
from distrl.tasks.webapps.suite import WebAppsSuite
from distrl.tasks.webapps.templates import TEMPLATES
from distrl.types import (
    AppCheck,
    AppEnd,
    AppSetup,
    Change,
    Ending,
    EndState,
    Finish,
    Put,
    Task,
    Value,
    Verdict,
    Want,
)  # fmt: skip

SMALL = WebAppsConfig(train_seeds=20, test_seeds=5)


def test_there_are_at_least_twelve_templates_and_any_stretch_has_all_of_them() -> None:
    suite = WebAppsSuite(SMALL)
    assert len(TEMPLATES) >= 12
    for split in SPLITS:
        first = list(tasks_of(suite, split, len(TEMPLATES)))
        assert [task.template for task in first] == list(TEMPLATES)
    assert find_task(suite, first[3].id) == first[3]


def test_no_instruction_is_in_two_splits_and_the_same_number_gives_the_same_task() -> None:
    suite = WebAppsSuite(SMALL)
    tasks = [task for split in SPLITS for task in tasks_of(suite, split)]
    refuse_overlap(tasks)
    assert tasks == [task for split in SPLITS for task in tasks_of(WebAppsSuite(SMALL), split)]
    assert len({task.instruction for task in tasks}) > 0.5 * len(tasks)


def test_no_task_is_solved_at_its_start() -> None:
    for task in tasks_of(WebAppsSuite(SMALL), "train"):
        assert isinstance(task.setup, AppSetup)
        assert isinstance(task.check, AppCheck)
        held = tables_of(task.setup.records)
        for want in task.check.wants:
            record = held.get(want.table, {}).get(want.id)
            if want.absent:
                assert record is not None, task.instruction
            else:
                assert record is None or any(record[name] != value for name, value in want.fields.items()), (
                    task.instruction
                )


def test_templates_are_chosen_by_name_or_app() -> None:
    suite = find_suite(TasksConfig(suite="webapps", webapps=WebAppsConfig(templates=("mail", "wiki.tag"))))
    assert isinstance(suite, WebAppsSuite)
    assert suite.templates == ["mail.delete", "mail.open", "mail.question", "mail.read_all", "wiki.tag"]
    with pytest.raises(TaskError, match=r"no template 'wiki\.tug'"):
        WebAppsSuite(WebAppsConfig(templates=("wiki.tug",)))


# --- the judge ----------------------------------------------------------------------------------------------------------


def judged(check: AppCheck, changes: tuple[Change, ...], claim: Finish | None = Finish()) -> Verdict:  # noqa: B008
    task = Task(
        id="webapps/test/0",
        suite="webapps",
        template="t",
        split="test",
        instruction="i",
        setup=AppSetup(app="mail"),
        check=check,
    )
    end = EndState(claim=claim, device=AppEnd(changes=changes))
    return asyncio.run(AutoJudge().judge(Attempt(task=task, end=end, ending=Ending.FINISHED)))


def change(id: str, before: dict[str, Value] | None, after: dict[str, Value] | None, table: str = "messages") -> Change:
    return Change(table=table, id=id, before=before, after=after)


GONE = AppCheck(wants=(Want(table="messages", id="a", absent=True),))
UNREAD: dict[str, Value] = {"text": "t", "read": False}
READ: dict[str, Value] = {"text": "t", "read": True}


def test_a_goal_that_is_reached_and_claimed_is_a_success() -> None:
    assert judged(GONE, (change("a", UNREAD, None),)).success
    assert judged(GONE, (change("a", UNREAD, None), change("b", UNREAD, READ))).success, "reading is incidental"


def test_what_else_changed_makes_a_failure_with_its_reason() -> None:
    found = judged(GONE, (change("a", UNREAD, None), change("b", UNREAD, None)))
    assert (found.outcome, found.side_effects, found.progress) == ("failure", ("messages/b is gone",), 1.0)
    assert "messages/b is gone" in found.reason
    made = judged(GONE, (change("a", UNREAD, None), change("c", None, UNREAD)))
    assert made.side_effects == ("messages/c was made",)
    edited = judged(GONE, (change("a", UNREAD, None), change("b", UNREAD, {"text": "u", "read": True})))
    assert edited.side_effects == ("messages/b.text changed",)


def test_reading_counts_where_the_task_is_about_it() -> None:
    check = AppCheck(wants=(Want(table="messages", id="a", fields={"read": True}),))
    assert judged(check, (change("a", UNREAD, READ),)).success
    assert judged(check, (change("a", UNREAD, READ), change("b", UNREAD, READ))).side_effects == (
        "messages/b.read changed",
    )


def test_what_is_missing_is_named_and_no_claim_is_no_success() -> None:
    idle = judged(GONE, ())
    assert (idle.outcome, idle.reason, idle.false_completion) == ("failure", "missing: messages/a gone", True)
    silent = judged(GONE, (change("a", UNREAD, None),), None)
    assert (silent.outcome, silent.false_completion) == ("failure", False)
    given_up = judged(GONE, (change("a", UNREAD, None),), Finish(status="impossible"))
    assert given_up.outcome == "failure"


def test_an_answer_is_compared_and_something_new_has_to_be_new() -> None:
    asked = AppCheck(answer="1,234.00")
    assert judged(asked, (), Finish(answer=" 1,234.00 ")).success
    assert "the answer '1,234.00'" in judged(asked, (), Finish(answer="4")).reason
    new = AppCheck(wants=(Want(table="accounts", fields={"balance": 5}),))
    assert judged(new, (change("x", None, {"balance": 5}, "accounts"),)).success
    assert not judged(new, (change("x", {"balance": 4}, {"balance": 5}, "accounts"),)).success


def test_changes_are_records_that_came_went_or_differ() -> None:
    before = tables_of((Put(table="t", id="a", fields={"x": 1}), Put(table="t", id="b", fields={"x": 2})))
    after: Tables = {"t": {"b": {"x": 3}, "c": {"x": 4}}, "empty": {}}
    found = changes_between(before, after)
    assert [(each.id, each.before, each.after) for each in found] == [
        ("a", {"x": 1}, None), ("b", {"x": 2}, {"x": 3}), ("c", None, {"x": 4}),
    ]  # fmt: skip
    assert changes_between(before, before) == ()

"""Held-out tasks, played once each on phones that never wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from distrl.config.load import load_config
from distrl.config.schema import Config
from distrl.devices.base import TimeScales
from distrl.errors import DeviceError, DeviceLost, JudgeError, TaskError
from distrl.evaluation import evaluate as evaluation
from distrl.evaluation.evaluate import (
    NO_DEVICE_S,
    TRIES,
    Evaluation,
    deadline_s,
    evaluate,
    longest_try_s,
    refuse_without_outcomes,
)
from distrl.evaluation.report import make_report
from distrl.runtime.factory import make_evaluation
from distrl.tasks.base import held_out
from distrl.tasks.judges import Attempt
from distrl.tasks.sim.oracle import Oracle
from distrl.transport.memory import LeaseTable, MemoryLeases
from distrl.types import Action, Ending, Finish, Observation, Press, Task, Verdict
from support.rollouts import PATIENT, SUITE, Page, ScriptedPolicy, a_page_task

CONFIG = load_config(None, {"tasks.suite": SUITE, "evaluation.devices": 4, "devices.sim.faults.crash_rate": 0.5})


def how(config: Config = CONFIG, **changes: Any) -> Evaluation:
    return replace(make_evaluation(config, seed=0), **changes)


def test_each_task_is_played_once_whatever_the_faults_of_training() -> None:
    tasks = held_out(CONFIG.tasks, 10)
    found = evaluate(ScriptedPolicy(lambda seen: Finish()), tasks, how(version=4))
    assert sorted(trajectory.task.id for trajectory in found) == sorted(task.id for task in tasks)
    assert {step.version for trajectory in found for step in trajectory.steps} == {4}


def test_a_policy_that_knows_the_way_succeeds() -> None:
    unperturbed = load_config(
        None, {f"devices.sim.perturbations.{name}_rate": 0.0 for name in ("popup", "slow", "update")}
    )
    tasks = held_out(unperturbed.tasks, 6)
    oracles = {task.instruction: Oracle(task) for task in tasks}

    def act(seen: Observation) -> Action:
        return oracles[seen.instruction].act(seen.elements)

    found = evaluate(ScriptedPolicy(act), tasks, how(unperturbed))
    assert [trajectory.verdict.success for trajectory in found] == [True] * 6


def test_it_is_heard_of_at_every_decision_so_that_a_slow_start_is_no_silence() -> None:
    heard: list[int] = []
    tasks = [replace(task, max_steps=5) for task in held_out(CONFIG.tasks, 2)]
    evaluate(ScriptedPolicy(lambda seen: Press("home")), tasks, how(beat=heard.append))
    assert heard.count(0) >= 10
    assert heard[-1] == 2


def test_an_error_in_the_policy_is_raised() -> None:
    def fail(seen: Observation) -> Action:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        evaluate(ScriptedPolicy(fail), held_out(CONFIG.tasks, 2), how())


def test_held_out_tasks_keep_to_the_limits_of_the_run() -> None:
    short = load_config(None, {"tasks.max_oracle_steps": 4})
    tasks = held_out(short.tasks, 20)
    assert len(tasks) == 20
    assert all(task.oracle_steps <= 4 and task.split == "test" for task in tasks)


def test_a_limit_that_no_task_meets_is_refused() -> None:
    with pytest.raises(TaskError, match="max-oracle-steps"):
        held_out(load_config(None, {"tasks.suite": "sim-shopping", "tasks.max_oracle_steps": 1}).tasks, 5)


# --- devices that are lost


def on(pages: list[Page], **changes: Any) -> Evaluation:
    return how(devices=lambda: pages, **changes)  # type: ignore[arg-type, return-value]


def fail_at(*calls: int, error: Exception) -> Callable[[], Awaitable[object]]:
    """Raises at these calls, counted from 0."""
    number = iter(range(1000))

    async def happens() -> None:
        if next(number) in calls:
            raise error

    return happens


@pytest.mark.parametrize("error", [DeviceLost("gone"), ConnectionResetError("reset by peer"), TimeoutError()])
def test_a_task_whose_device_was_lost_is_played_again_on_another_one(error: Exception) -> None:
    bad, good = Page("bad"), Page("good")
    bad.happens["reset"] = fail_at(*range(1000), error=error)
    tasks = [a_page_task(index) for index in range(6)]
    found = evaluate(ScriptedPolicy(), tasks, on([bad, good]))
    assert sorted(one.task.id for one in found) == sorted(task.id for task in tasks)
    assert {one.device for one in found} == {"good"}
    assert all(one.verdict.success for one in found)
    assert bad.calls[-1] == good.calls[-1] == "close"


def test_a_device_that_came_back_plays_on() -> None:
    page = Page()
    page.happens["perform"] = fail_at(1, error=BrokenPipeError("broken"))
    found = evaluate(ScriptedPolicy(), [a_page_task(0), a_page_task(1)], on([page]))
    assert [one.ending for one in found] == [Ending.ENVIRONMENT] * 2
    assert page.calls.count("restart") == 1


def test_an_attempt_without_a_first_step_is_counted_as_one_without_an_outcome() -> None:
    page = Page()
    page.happens["reset"] = fail_at(0, 1, error=DeviceLost("gone"))  # both tries of the first task
    found = evaluate(ScriptedPolicy(), [a_page_task(0), a_page_task(1)], on([page]))
    assert [(one.task.id, len(one.steps), one.verdict.outcome) for one in found] == [
        ("pages/train/0", 0, "unknown"),
        ("pages/train/1", 3, "success"),
    ]
    assert found[0].verdict.reason == "the device was lost before the first step: gone"
    report = make_report(found, suite="pages", version=0)
    assert (report.n, report.unknown, report.success) == (2, 1, 0.5)


def test_an_attempt_that_is_lost_twice_in_the_middle_is_kept_as_far_as_it_got() -> None:
    page = Page(ends_after=5)
    page.happens["capture"] = fail_at(3, 7, error=DeviceLost("gone"))
    (found,) = evaluate(ScriptedPolicy(), [a_page_task()], on([page]))
    assert (found.ending, len(found.steps), found.verdict.outcome) == (Ending.DEVICE_LOST, 2, "unknown")


def test_devices_that_never_come_back_cost_outcomes_and_do_not_end_the_evaluation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluation, "LEASE_S", 0.01)
    monkeypatch.setattr(evaluation, "BEAT_S", 0.02)
    page, beats = Page(times=replace(PATIENT, backoff_s=600.0)), list[int]()
    page.happens["reset"] = fail_at(1, error=DeviceLost("gone"))
    tasks = [a_page_task(index) for index in range(20)]
    told = list[str]()
    monkeypatch.setattr(evaluation, "TELL_S", 0.1)
    how = on([page], beat=beats.append, no_device_s=1.0, tell=told.append)
    found = evaluate(ScriptedPolicy(), tasks, how)
    report = make_report(found, suite="pages", version=0)
    assert (report.n, report.unknown, report.success) == (20, 19, 1 / 20)
    why = f"1 restarting ({page.name} waits for its next restart: gone)"
    assert report.unknown_because == {f"no device for 1 s: {why}": 19}
    assert told == [f"no device is free: {why}"], "once, however often it is waited for"
    assert beats.count(1) >= 5, "it said that it was alive while it waited"


def test_a_device_that_is_back_after_a_long_while_plays_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "LEASE_S", 0.05)
    page = Page(times=replace(PATIENT, backoff_s=0.2))
    page.happens["reset"] = fail_at(0, error=DeviceLost("gone"))
    tasks = [a_page_task(index) for index in range(20)]
    found = evaluate(ScriptedPolicy(), tasks, on([page], no_device_s=0.0))
    outcomes = [one.verdict.outcome for one in found]
    assert outcomes[0] == "unknown"
    assert outcomes[-1] == "success"


def test_devices_that_another_role_has_are_waited_for() -> None:
    table, pages = LeaseTable(), [Page("shared-0"), Page("shared-1")]
    worker = MemoryLeases(table, "worker-0")
    assert worker.take("shared-0")
    tasks = [a_page_task(index) for index in range(4)]
    found = evaluate(ScriptedPolicy(), tasks, on(pages, leases=MemoryLeases(table, "evaluator")))
    assert {one.device for one in found} == {"shared-1"}
    assert (table.next, table.holder) == ({}, {"shared-0": "worker-0"})


def test_an_evaluation_without_any_outcome_is_an_error_and_no_success_of_0() -> None:
    page, tasks = Page(), [a_page_task(1), a_page_task(2)]
    page.happens["reset"] = fail_at(*range(1000), error=DeviceLost("it is locked"))
    with pytest.raises(DeviceError, match=r"none of 2 episodes has an outcome.* it is locked") as refused:
        refuse_without_outcomes(evaluate(ScriptedPolicy(), tasks, on([page])))
    assert (refused.value.exit_code, refused.value.fix) == (3, "distrl devices check")

    page.happens["reset"] = fail_at(0, 1, error=DeviceLost("it is locked"))
    refuse_without_outcomes(evaluate(ScriptedPolicy(), tasks, on([page])))

    brief = replace(CONFIG, judge=replace(CONFIG.judge, deadline_s=0.05))
    late = how(brief, devices=lambda: [Page()], judge=FailingJudge())
    with pytest.raises(JudgeError, match=r"none of 1 episodes has an outcome.* took over 0\.05 s") as unjudged:
        refuse_without_outcomes(evaluate(ScriptedPolicy(), tasks[:1], late))
    assert unjudged.value.exit_code == 3
    refuse_without_outcomes(evaluate(ScriptedPolicy(), tasks, late))
    refuse_without_outcomes([])


class FailingJudge:
    async def judge(self, attempt: Attempt) -> Verdict:
        if attempt.task.id.endswith("/1"):
            await asyncio.Event().wait()
        return Verdict(outcome="success")


def test_a_judge_that_takes_too_long_costs_one_outcome() -> None:
    config = load_config(None, {"judge.deadline_s": 0.02})
    tasks = [a_page_task(index) for index in range(3)]
    found = evaluate(ScriptedPolicy(), tasks, on([Page()], config=config, judge=FailingJudge()))
    assert [one.verdict.outcome for one in found] == ["success", "unknown", "success"]
    assert make_report(found, suite="pages", version=0).unknown == 1


# --- how long it may take


def needed_for(tasks: list[Task], pages: list[Page], config: Config = CONFIG) -> float:
    """What an evaluation said that it needs."""
    needed: list[float] = []
    evaluate(ScriptedPolicy(), tasks, on(pages, config=config, needs=needed.append))
    (found,) = needed
    return found


def some_pages(count: int, **times: float) -> list[Page]:
    return [Page(f"page-{n}", times=TimeScales(**{"backoff_s": 0.001, **times})) for n in range(count)]


def test_how_long_it_may_take_follows_from_the_devices_times_and_the_number_of_tasks() -> None:
    tasks, pages = [a_page_task(n) for n in range(5)], some_pages(2, episode_s=50.0)
    try_s = longest_try_s(CONFIG, tasks, pages)  # type: ignore[arg-type]
    assert try_s > 50.0 + CONFIG.judge.deadline_s
    assert needed_for(tasks, pages) == TRIES * try_s * 3 + NO_DEVICE_S


def test_the_tasks_own_limits_count() -> None:
    tasks = [a_page_task(0), replace(a_page_task(1), max_s=7000.0)]
    assert needed_for(tasks, some_pages(2)) - needed_for(tasks[:1], some_pages(2)) > 7000.0


@pytest.mark.parametrize(("episodes", "rounds"), [(1, 1), (2, 1), (3, 2), (300, 150)])
def test_more_tasks_may_take_longer_and_more_devices_less(episodes: int, rounds: int) -> None:
    assert deadline_s(700.0, episodes, 2) == TRIES * 700.0 * rounds + 700.0


def test_a_budget_of_the_run_goes_before_that_of_the_devices() -> None:
    config = load_config(None, {"rollout.episode_budget_s": 3.0, "judge.deadline_s": 1.0})
    assert needed_for([a_page_task()], some_pages(1, episode_s=9000.0), config) < 9000.0

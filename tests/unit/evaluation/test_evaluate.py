"""Held-out tasks, played once each on phones that never wait."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from distrl.config.load import load_config
from distrl.errors import TaskError
from distrl.evaluation.evaluate import Evaluation, evaluate, held_out
from distrl.tasks.sim.oracle import Oracle
from distrl.types import Action, Finish, Observation, Press
from support.rollouts import SUITE, ScriptedPolicy

CONFIG = load_config(None, {"tasks.suite": SUITE, "evaluation.devices": 4, "devices.faults.crash_rate": 0.5})


def test_each_task_is_played_once_whatever_the_faults_of_training() -> None:
    tasks = held_out(CONFIG, 10)
    found = evaluate(ScriptedPolicy(lambda seen: Finish()), tasks, Evaluation(config=CONFIG, version=4))
    assert sorted(trajectory.task.id for trajectory in found) == sorted(task.id for task in tasks)
    assert {step.version for trajectory in found for step in trajectory.steps} == {4}


def test_a_policy_that_knows_the_way_succeeds() -> None:
    tame = load_config(None, {f"devices.wild.{name}_rate": 0.0 for name in ("popup", "slow", "update")})
    tasks = held_out(tame, 6)
    oracles = {task.instruction: Oracle(task) for task in tasks}

    def act(seen: Observation) -> Action:
        return oracles[seen.instruction].act(seen.elements)

    found = evaluate(ScriptedPolicy(act), tasks, Evaluation(config=tame))
    assert [trajectory.verdict.success for trajectory in found] == [True] * 6


def test_it_is_heard_of_at_every_decision_so_that_a_slow_start_is_no_silence() -> None:
    heard: list[int] = []
    tasks = [replace(task, max_steps=5) for task in held_out(CONFIG, 2)]
    evaluate(ScriptedPolicy(lambda seen: Press("home")), tasks, Evaluation(config=CONFIG, beat=heard.append))
    assert heard.count(0) >= 10
    assert heard[-1] == 2


def test_an_error_in_the_policy_is_raised() -> None:
    def fail(seen: Observation) -> Action:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        evaluate(ScriptedPolicy(fail), held_out(CONFIG, 2), Evaluation(config=CONFIG))


def test_held_out_tasks_keep_to_the_limits_of_the_run() -> None:
    short = load_config(None, {"tasks.max_oracle_steps": 4})
    tasks = held_out(short, 20)
    assert len(tasks) == 20
    assert all(len(task.route) <= 4 and task.split == "test" for task in tasks)


def test_a_limit_that_no_task_meets_is_refused() -> None:
    with pytest.raises(TaskError, match="max-oracle-steps"):
        held_out(load_config(None, {"tasks.suite": "sim-shopping", "tasks.max_oracle_steps": 1}), 5)

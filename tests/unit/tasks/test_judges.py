"""Judges: what they find, and that a judge which fails or takes too long costs one verdict and nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from distrl.config.schema import JudgeConfig
from distrl.errors import DeviceError, TaskError
from distrl.rollout.episode import attempt_of, with_verdict
from distrl.tasks.judges import LAST_SCREENS, Attempt, AutoJudge, Judge, RewardJudge, find_judge, judge_attempt
from distrl.tasks.sim.judge import SimJudge
from distrl.types import CustomCheck, Ending, EndState, Finish, RewardCheck, SimCheck, SimEnd, Task, Verdict
from support.rollouts import DEAF_S, ignore_cancellation
from support.trajectories import TASK, make_step, make_trajectory

PAID = replace(TASK, check=RewardCheck(at_least=2.0))


def attempt(
    task: Task = PAID, *, reward: float = 0.0, claim: Finish | None = None, ending: Ending = Ending.FINISHED
) -> Attempt:
    return Attempt(task=task, end=EndState(claim=claim, reward=reward), ending=ending)


def verdict(judge: Judge, on: Attempt) -> Verdict:
    return asyncio.run(judge.judge(on))


class Odd:
    """A judge that does something else first."""

    def __init__(self, does: Callable[[], Awaitable[object]]) -> None:
        self._does = does

    async def judge(self, attempt: Attempt) -> Verdict:
        await self._does()
        return Verdict(outcome="success")


# --- the device's own reward


@pytest.mark.parametrize(
    ("reward", "outcome", "progress"),
    [
        (-1.0, "failure", 0.0),
        (0.0, "failure", 0.0),
        (1.0, "failure", 0.5),
        (1.999, "failure", 0.9995),
        (2.0, "success", 1.0),
        (7.0, "success", 1.0),
    ],
)
def test_a_reward_that_is_large_enough_is_a_success(reward: float, outcome: str, progress: float) -> None:
    found = verdict(RewardJudge(), attempt(reward=reward))
    assert (found.outcome, found.progress) == (outcome, pytest.approx(progress))
    assert found.reason == f"reward {reward:g} of 2"


@pytest.mark.parametrize("at_least", [0.0, -0.5])
def test_a_reward_that_every_episode_has_is_nothing_to_check(at_least: float) -> None:
    with pytest.raises(TaskError, match="has nothing to check"):
        RewardCheck(at_least=at_least)


class Careless:
    """A judge that returns or raises what no judge should."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self._answer = answer

    async def judge(self, attempt: Attempt) -> Verdict:
        found: Verdict = self._answer()
        return found


def cancelled() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("answer", "why"), [(lambda: None, "has to return a Verdict"), (cancelled, "the judge cancelled itself")]
)
def test_a_judge_that_answers_wrongly_costs_its_verdict_alone(answer: Callable[[], Any], why: str) -> None:
    found = asyncio.run(judge_attempt(Careless(answer), attempt(), deadline_s=5.0))
    assert (found.outcome, why in found.reason) == ("unknown", True)


def test_a_claim_that_the_device_does_not_pay_for_is_a_false_completion() -> None:
    assert verdict(RewardJudge(), attempt(claim=Finish())).false_completion
    assert not verdict(RewardJudge(), attempt(claim=Finish(status="impossible"))).false_completion
    assert not verdict(RewardJudge(), attempt(claim=Finish(), reward=2.0)).false_completion
    assert not verdict(RewardJudge(), attempt(ending=Ending.ENVIRONMENT)).false_completion


def test_the_reward_judge_refuses_tasks_of_another_kind_with_the_fix() -> None:
    with pytest.raises(TaskError, match="knows RewardCheck alone") as caught:
        verdict(RewardJudge(), attempt(TASK))
    assert 'judge.kind = "auto"' in caught.value.fix


# --- the judge that the check calls for


def test_auto_takes_the_judge_that_the_check_calls_for() -> None:
    judge = AutoJudge()
    assert verdict(judge, attempt(reward=2.0)).success
    impossible = replace(TASK, check=SimCheck(impossible=True))
    for status, success in (("impossible", True), ("complete", False)):
        end = EndState(claim=Finish(status=status), device=SimEnd())  # type: ignore[arg-type]
        assert verdict(judge, Attempt(task=impossible, end=end, ending=Ending.FINISHED)).success is success


def test_auto_refuses_a_check_of_your_own_with_the_fix() -> None:
    task = replace(TASK, check=CustomCheck(values={"page": "checkout"}))
    with pytest.raises(TaskError, match=f"no built-in judge knows the CustomCheck of {TASK.id}") as caught:
        verdict(AutoJudge(), attempt(task))
    assert caught.value.fix == "judge.kind = package.module:attribute"


@pytest.mark.parametrize(("kind", "made"), [("auto", AutoJudge), ("reward", RewardJudge), ("sim", SimJudge)])
def test_the_configuration_names_the_judge(kind: str, made: type) -> None:
    assert isinstance(find_judge(JudgeConfig(kind=kind)), made)


# --- deadline and faults


def judged(judge: Judge, on: Attempt, deadline_s: float = 10.0) -> Verdict:
    return asyncio.run(judge_attempt(judge, on, deadline_s=deadline_s))


def test_a_judge_that_takes_too_long_leaves_the_outcome_unknown() -> None:
    found = judged(Odd(asyncio.Event().wait), attempt(), 0.01)
    assert found == Verdict(outcome="unknown", reason="the judge took over 0.01 s")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ZeroDivisionError("by zero"), "the judge failed: ZeroDivisionError: by zero"),
        (DeviceError("gone", fix="look"), "the judge failed: DeviceError: gone"),
        (ValueError("x" * 900), "the judge failed: ValueError: xxx"),
        (ConnectionResetError("reset"), "the judge failed: ConnectionResetError: reset"),
    ],
)
def test_a_judge_that_raises_leaves_the_outcome_unknown_with_the_reason(error: Exception, reason: str) -> None:
    async def fail() -> None:
        raise error

    found = judged(Odd(fail), attempt())
    assert found.outcome == "unknown"
    assert found.reason.startswith(reason)
    assert len(found.reason) < 400


def test_a_timeout_inside_a_judge_is_told_from_its_deadline() -> None:
    async def fail() -> None:
        raise TimeoutError("its own")

    assert judged(Odd(fail), attempt()).reason == "the judge failed: TimeoutError: its own"


def test_a_judge_that_does_not_heed_its_deadline_is_left_and_its_late_success_is_discarded() -> None:
    began_s = time.monotonic()
    found = judged(Odd(ignore_cancellation), attempt(), 0.01)
    assert found == Verdict(outcome="unknown", reason="the judge took over 0.01 s")
    assert time.monotonic() - began_s < 0.5 * DEAF_S


def test_a_judge_that_answers_when_it_is_cancelled_has_no_say() -> None:
    async def wait_for_ever() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    found = judged(Odd(wait_for_ever), attempt(), 0.01)
    assert found == Verdict(outcome="unknown", reason="the judge took over 0.01 s")


def test_whoever_is_cancelled_is_not_judged() -> None:
    async def scene() -> None:
        judging = asyncio.create_task(judge_attempt(Odd(asyncio.Event().wait), attempt(), deadline_s=60.0))
        await asyncio.sleep(0)
        judging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await judging

    asyncio.run(scene())


def test_an_episode_that_a_fault_ended_is_not_put_to_the_judge() -> None:
    async def fail() -> None:
        raise AssertionError("it was asked")

    found = judged(Odd(fail), attempt(ending=Ending.DEVICE_LOST))
    assert found == Verdict(outcome="unknown", reason="a fault ended the episode")


# --- what a judge is shown, and what becomes of its verdict


def test_a_judge_is_shown_the_last_screens_and_can_look_at_their_pictures() -> None:
    played = make_trajectory(num_steps=6)
    last = make_step(6).observation
    cut = replace(played, ending=Ending.STEP_LIMIT, last=last)
    assert attempt_of(played).screens == tuple(step.observation for step in played.steps[-LAST_SCREENS:])
    assert attempt_of(cut).screens[-1] == last
    assert len(attempt_of(cut).screens) == LAST_SCREENS
    shown = attempt_of(played, picture=lambda reference: reference.encode())
    assert shown.picture is not None
    assert shown.picture("x") == b"x"
    assert (shown.claim, shown.task, shown.ending) == (Finish(), TASK, Ending.FINISHED)


@pytest.mark.parametrize(("outcome", "reward"), [("success", 1.0), ("failure", 0.0), ("unknown", 0.0)])
def test_a_success_earns_one_at_the_last_step_and_nothing_else_does(outcome: str, reward: float) -> None:
    played = make_trajectory(success=False)
    found = with_verdict(played, Verdict(outcome=outcome))  # type: ignore[arg-type]
    assert [step.reward for step in found.steps] == [0.0, 0.0, 0.0, reward]
    assert found.verdict.outcome == outcome


def test_a_penalty_of_the_last_step_stays() -> None:
    played = make_trajectory(success=False)
    steps = (*played.steps[:-1], replace(played.steps[-1], reward=-0.25))
    assert with_verdict(replace(played, steps=steps), Verdict(outcome="success")).steps[-1].reward == 0.75


@pytest.mark.parametrize("make", [lambda: CustomCheck(values={}), SimCheck])
def test_a_check_needs_something_to_check(make: Callable[[], object]) -> None:
    with pytest.raises(TaskError, match="has nothing to check") as caught:
        make()
    assert "give it a SimCheck" in caught.value.fix

"""The judge seam: an attempt in, a verdict out. Judges are asynchronous and run after the device's lease was returned.

A judge may take long and may fail: a deadline and a limit on how many run at once are the caller's (`judge_attempt`),
and a failure costs that verdict alone, which is then unknown. A late answer is discarded. Built in are the device's own reward and, in
`tasks.sim.judge`, the state of simulated phones; "auto" takes whichever the task's check calls for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import msgspec

from distrl import plugins
from distrl.config.schema import JudgeConfig
from distrl.devices.calls import abandon_on_cancel
from distrl.errors import TaskError
from distrl.types import AndroidCheck, Ending, EndState, Finish, Observation, RewardCheck, SimCheck, Task, Verdict

JUDGES: dict[type, str] = {SimCheck: "sim", RewardCheck: "reward", AndroidCheck: "android"}
"""The built-in judge of each check."""
LAST_SCREENS = 4
"""Observations that a judge is shown, the last ones."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """All that a judge may look at."""

    task: Task
    end: EndState
    """How the device was left, with the agent's claim."""
    ending: Ending
    screens: tuple[Observation, ...] = ()
    """What the agent saw last, oldest first; pictures are references, which `picture` resolves."""
    picture: Callable[[str], bytes] | None = None
    """The bytes of a screenshot by its reference; None: no pictures were kept."""

    @property
    def claim(self) -> Finish | None:
        """What the agent said at the end; None: it said nothing."""
        return self.end.claim


@runtime_checkable
class Judge(Protocol):
    """Says what an attempt came to."""

    async def judge(self, attempt: Attempt) -> Verdict:
        """The verdict; raising means that there is none."""


class RewardJudge:
    """Success where the device's own rewards add up to what the task asks for."""

    def __init__(self, settings: object = None) -> None:
        """It has no settings."""

    async def judge(self, attempt: Attempt) -> Verdict:
        """The verdict on a task with a `RewardCheck`."""
        check, reward = attempt.task.check, attempt.end.reward
        if not isinstance(check, RewardCheck):
            raise TaskError(
                f"task {attempt.task.id} has a {type(check).__name__}, and the reward judge knows RewardCheck alone",
                fix='judge.kind = "auto", or the judge that goes with this suite',
            )
        success = reward >= check.at_least
        reason = f"the device gave {reward:g}, asked for {check.at_least:g}"
        share = reward / check.at_least
        claimed = attempt.claim is not None and attempt.claim.status == "complete"
        return Verdict(
            outcome="success" if success else "failure",
            reason=reason,
            progress=min(1.0, max(0.0, share)),
            false_completion=claimed and not success,
        )


class AutoJudge:
    """Takes the built-in judge that the task's check calls for."""

    def __init__(self, settings: object = None) -> None:
        self._judges: dict[str, Judge] = {}

    async def judge(self, attempt: Attempt) -> Verdict:
        """The verdict of the judge for this kind of check."""
        return await self._for(attempt.task).judge(attempt)

    def _for(self, task: Task) -> Judge:
        name = JUDGES.get(type(task.check), "")
        if not name:
            raise TaskError(
                f"no built-in judge knows the {type(task.check).__name__} of {task.id}",
                expected="a judge of your own for checks of your own",
                fix="judge.kind = package.module:attribute",
            )
        if name not in self._judges:
            self._judges[name] = plugins.make("judges", name, {}, {})
        return self._judges[name]


def find_judge(config: JudgeConfig) -> Judge:
    """The judge that the configuration names."""
    made = plugins.make("judges", config.kind, {}, config.options)
    return plugins.check_type("judges", config.kind, made, Judge)  # type: ignore[type-abstract]


async def judge_attempt(judge: Judge, attempt: Attempt, *, deadline_s: float) -> Verdict:
    """The verdict; unknown, with the reason, where a fault ended the attempt or the judge fails or takes too long."""
    if attempt.ending.is_error:
        return Verdict(outcome="unknown", reason="a fault ended the episode")
    try:
        async with asyncio.timeout(deadline_s) as deadline:
            return _checked(await abandon_on_cancel(judge.judge(attempt), name=f"verdict on {attempt.task.id}"))
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise  # whoever waits for the verdict is being stopped
        return Verdict(outcome="unknown", reason="the judge cancelled itself")
    except Exception as error:  # a judge may raise anything (a model's API, your code): it costs this verdict alone
        late, failed = f"took over {deadline_s:g} s", f"failed: {type(error).__name__}: {str(error)[:300]}"
        return Verdict(outcome="unknown", reason=f"the judge {late if deadline.expired() else failed}")


def _checked(found: object) -> Verdict:
    if not isinstance(found, Verdict):
        raise TypeError(f"a judge has to return a Verdict, and this one returned {found!r:.80}")
    return found

"""The judge seam: an attempt in, a verdict out. Judges are asynchronous and run after the device's lease was returned.

A judge may take long and may fail: a deadline and a limit on how many run at once are the caller's (`judge_attempt`),
and a failure costs that verdict alone, which is then unknown. A late answer is discarded. Built in are the device's own reward and,
in modules of their own, the state of simulated and Android phones, a model's verdict and an ensemble; "auto" takes whichever
the task's check calls for.
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
from distrl.types import (
    AndroidCheck,
    AppCheck,
    Ending,
    EndState,
    Finish,
    ModelCheck,
    Observation,
    RewardCheck,
    SimCheck,
    Task,
    Verdict,
    WebEnd,
)

JUDGES: dict[type, str] = {
    SimCheck: "sim",
    RewardCheck: "reward",
    AndroidCheck: "android",
    AppCheck: "app",
    ModelCheck: "model",
}
"""The built-in judge of each check."""
READ_ALL = ("auto", "model", "ensemble")
"""Built-in judges that are given the whole section `[judge]`."""
FIGURES = ("requests", "retries", "cached", "tokens_in", "tokens_out", "cost")
"""What is reported of judges that ask a model; in an ensemble, of all of them together."""
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
        reason = f"reward {reward:.4g} of {check.at_least:.4g}"
        share = reward / check.at_least
        end = attempt.end.device
        changes = end.changes if isinstance(end, WebEnd) else ()
        if isinstance(end, WebEnd) and end.progress is not None:  # a judge of its own gave the reward, and says why
            share, reason = max(share, end.progress), end.reason
        claimed = attempt.claim is not None and attempt.claim.status == "complete"
        return Verdict(
            outcome="success" if success else "failure",
            reason=reason,
            progress=min(1.0, max(0.0, share)),
            false_completion=claimed and not success,
            side_effects=changes,
        )


class AutoJudge:
    """Takes the built-in judge that the task's check calls for."""

    def __init__(self, settings: JudgeConfig | None = None) -> None:
        self._config = settings or JudgeConfig()
        # Where a model is configured, what it lacks is said at the start and not after the first episode.
        self._judges: dict[str, Judge] = {"model": make_judge("model", self._config)} if self._config.model.url else {}

    async def judge(self, attempt: Attempt) -> Verdict:
        """The verdict of the judge for this kind of check."""
        return await self.for_task(attempt.task).judge(attempt)

    def for_task(self, task: Task) -> Judge:
        """The judge of a task; `TaskError` or `ConfigError` where there is none or it lacks settings."""
        name = JUDGES.get(type(task.check), "")
        if not name:
            raise TaskError(
                f"no built-in judge knows the {type(task.check).__name__} of {task.id}",
                expected="a judge of your own for checks of your own",
                fix="judge.kind = package.module:attribute",
            )
        if name not in self._judges:
            self._judges[name] = make_judge(name, self._config)
        return self._judges[name]

    def counters(self) -> dict[str, float]:
        """What those of the judges that count have counted."""
        counting = [getattr(judge, "counters", dict[str, float]) for judge in self._judges.values()]
        return {key: value for counters in counting for key, value in counters().items()}


def find_judge(config: JudgeConfig) -> Judge:
    """The judge that the configuration names."""
    return make_judge(config.kind, config)


def make_judge(name: str, config: JudgeConfig) -> Judge:
    """The judge with this name: the one that the configuration names, or a built-in one that works for it."""
    options = config.options if name == config.kind else {}
    made = plugins.make("judges", name, dict.fromkeys(READ_ALL, config), options)
    return plugins.check_type("judges", name, made, Judge)  # type: ignore[type-abstract]


def judge_figures(judge: Judge) -> dict[str, float]:
    """What a judge that asks a model has used so far, by name; nothing for the others."""
    counters: Callable[[], dict[str, float]] = getattr(judge, "counters", dict[str, float])
    counted = counters()
    sums = {name: [value for key, value in counted.items() if key.rpartition("/")[2] == name] for name in FIGURES}
    return {name: sum(values) for name, values in sums.items() if values}


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

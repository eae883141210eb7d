"""Play held-out tasks with one pinned policy on devices of a pool, and judge what came of it.

Every task is attempted and counted. A device that is lost is restarted by its pool, and the task is tried once more on
another one; an attempt that came to nothing twice is counted as one without an outcome. So are those that no device was
there for: devices that are all down cost outcomes, and end nothing.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from distrl.config.schema import Config
from distrl.devices.base import Clock, Device, DeviceLeases
from distrl.devices.pool import DevicePool
from distrl.errors import DeviceError, JudgeError, LossCause
from distrl.policies.base import Policy
from distrl.rollout.batching import Batcher, Batching, Decider, all_or_first_error
from distrl.rollout.deadlines import longest_attempt_s
from distrl.rollout.episode import (
    EpisodeLimits,
    EpisodeTools,
    KeepFrame,
    attempt_of,
    run_episode,
    with_verdict,
)
from distrl.tasks.judges import Judge, judge_attempt
from distrl.types import Decision, Ending, EndState, Observation, Task, Trajectory, Verdict

TEMPERATURE = 0.5
"""Of the choices in an evaluation: likelier than in training, but a loop is not repeated for ever."""
BEAT_S = 0.25
TRIES = 2
"""Attempts at a task, where the device is lost in the first."""
LEASE_S = 1.0
"""How long an attempt waits for a device before it says that it is alive."""
TELL_S = 5.0
"""How long there may be no device before people are told why."""
NO_DEVICE_S = 600.0
"""How long an evaluation waits while it gets no device at all; at least as long as an attempt may last."""


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """How to evaluate."""

    config: Config
    devices: Callable[[], list[Device]]
    """Makes the devices; called once per evaluation."""
    judge: Judge
    seed: int = 0
    temperature: float = TEMPERATURE
    version: int = 0
    beat: Callable[[int], None] = lambda done: None
    """Hears how many episodes are done, often."""
    keep_frame: KeepFrame | None = None
    """Where the policy finds the pictures that it is shown; None: none are taken."""
    picture: Callable[[str], bytes] | None = None
    """The bytes of a picture by reference, for a judge that wants to see."""
    leases: DeviceLeases | None = None
    """How devices are shared with other roles; None: nobody else has them."""
    no_device_s: float | None = None
    """How long to wait while there is no device at all, before the rest of the tasks are done without one; None: ten
    minutes, or as long as an attempt may last."""
    tell: Callable[[str], None] = lambda text: None
    """Hears why there is no device once there has been none for some seconds, and again where that changes."""
    needs: Callable[[float], None] = lambda seconds: None
    """Hears how long the evaluation may take before it counts as stuck."""


def evaluate(policy: Policy[Any], tasks: Iterable[Task], how: Evaluation) -> list[Trajectory]:
    """One judged trajectory for each task, in the order in which they ended."""

    def here(num_devices: int) -> Decider:
        batching = Batching(batch_size=num_devices, batch_wait_s=0.0, temperature=how.temperature, seed=how.seed)
        batcher = Batcher(policy, None, batching)
        batcher.version = how.version
        return batcher

    return evaluate_by(here, tasks, how)


def evaluate_by(make_decider: Callable[[int], Decider], tasks: Iterable[Task], how: Evaluation) -> list[Trajectory]:
    """The same by whoever decides: made once it is known how many devices ask at once. It sees to version and temperature."""
    return asyncio.run(_evaluate(make_decider, list(tasks), how))


async def _evaluate(make_decider: Callable[[int], Decider], tasks: list[Task], how: Evaluation) -> list[Trajectory]:
    made = how.devices()
    devices = made[: len(tasks)]
    longest_s = longest_try_s(how.config, tasks, devices)
    how.needs(deadline_s(longest_s, len(tasks), len(devices)))
    supply = _Supply(max(NO_DEVICE_S, longest_s) if how.no_device_s is None else how.no_device_s, how.tell)
    pool = DevicePool(made, leases=how.leases)  # all of them, so that all are closed
    decider = make_decider(len(devices))
    done: list[Trajectory] = []
    queue = iter(enumerate(tasks))
    deciding = asyncio.create_task(decider.run(), name="decisions")
    playing = [
        asyncio.create_task(_lane(queue, pool, supply, decider, how, done), name=f"lane {n}")
        for n in range(len(devices))
    ]
    beating = asyncio.create_task(_beat(how, done), name="heartbeat")
    try:
        await all_or_first_error(playing, deciding, beating)
    finally:
        for task in (deciding, beating, *playing):
            task.cancel()
        await asyncio.gather(deciding, beating, *playing, return_exceptions=True)
        await pool.close()
    return done


async def _beat(how: Evaluation, done: list[Trajectory]) -> None:
    """Say how far it is, also while all lanes wait for devices or verdicts."""
    while True:
        how.beat(len(done))
        await asyncio.sleep(BEAT_S)


async def _lane(
    queue: Iterator[tuple[int, Task]],
    pool: DevicePool,
    supply: _Supply,
    decider: Decider,
    how: Evaluation,
    done: list[Trajectory],
) -> None:
    """One task after another, on whatever device is free."""

    async def decide(seen: Observation) -> tuple[Decision, int]:
        how.beat(len(done))  # at every decision: on a busy machine, the first episode may be long in coming
        return await decider.decide(seen)

    tools = EpisodeTools(decide=decide, clock=time.monotonic, keep_frame=how.keep_frame)
    for number, task in queue:
        trajectory = await _attempt(f"evaluation-{number}", task, pool, supply, tools, how)
        attempt = attempt_of(trajectory, picture=how.picture)
        verdict = await judge_attempt(how.judge, attempt, deadline_s=how.config.judge.deadline_s)
        done.append(with_verdict(trajectory, verdict) if trajectory.steps else trajectory)
        how.beat(len(done))


async def _attempt(
    id: str, task: Task, pool: DevicePool, supply: _Supply, tools: EpisodeTools, how: Evaluation
) -> Trajectory:
    """The trajectory of the last try; an empty one, ended by a fault, where there was never a first step."""
    limits, trajectory, lost = _limits(how.config), None, ""
    for _ in range(TRIES):
        device = await supply.lease(pool)
        if device is None:
            why = f"no device for {supply.patience_s:g} s: {pool.describe()}"
            return trajectory or nothing_played(id, task, why=why)
        lost, cause = "the evaluation broke off", LossCause.CRASH
        try:
            played = await run_episode(id, device, task, tools, limits)
            trajectory, lost, cause = played.trajectory or trajectory, played.lost, played.cause
        finally:
            pool.release(device, lost=lost, cause=cause)
        if not played.lost:
            break
    why = f"the device was lost before the first step: {(lost.splitlines() or [''])[0]}"
    return trajectory or nothing_played(id, task, why=why)


class _Supply:
    """Devices for all lanes, and how long there has been none: once that was too long, each attempt waits for a moment only."""

    def __init__(self, patience_s: float, tell: Callable[[str], None], *, clock: Clock = time.monotonic) -> None:
        self.patience_s, self._tell, self._clock = patience_s, tell, clock
        self._last_s, self._told = clock(), ""

    async def lease(self, pool: DevicePool) -> Device | None:
        """A device, once one is free; lost ones may have to restart first, shared ones to be given back. None: there is none."""
        while True:
            try:
                device = await pool.lease(LEASE_S)
            except DeviceError:
                lacking_s = self._clock() - self._last_s
                if lacking_s >= TELL_S and self._told != (why := pool.describe()):
                    self._told = why
                    self._tell(f"no device is free: {why}")
                if lacking_s >= self.patience_s:
                    return None
            else:
                self._last_s = self._clock()
                return device


def nothing_played(id: str, task: Task, *, why: str) -> Trajectory:
    """The record of an attempt that a fault ended before its first step."""
    verdict = Verdict(outcome="unknown", reason=why)
    return Trajectory(id=id, task=task, steps=(), ending=Ending.DEVICE_LOST, verdict=verdict, end=EndState())


def refuse_without_outcomes(found: Sequence[Trajectory]) -> None:
    """Raise where no episode has an outcome: faults of the devices or of the judge are no success of 0, and nothing to report."""
    reasons = [one.verdict.reason if not one.verdict.known else "" for one in found]
    if not reasons or not all(reasons):
        return
    seen = f"none of {len(reasons)} episodes has an outcome, the first because: {reasons[0]}"
    if all(one.ending is Ending.DEVICE_LOST for one in found):
        raise DeviceError(seen, expected="a device that can be used", fix="distrl devices check")
    raise JudgeError(seen, expected="verdicts", fix="mend the judge: docs/judges.md, Errors")


def longest_try_s(config: Config, tasks: Iterable[Task], devices: Iterable[Device]) -> float:
    """How long one try at one of these tasks may last, with its verdict."""
    times, limits_s = [device.times for device in devices], [task.max_s for task in tasks]
    return longest_attempt_s(_limits(config), times, max_s=limits_s, judge_s=config.judge.deadline_s)


def deadline_s(try_s: float, num_tasks: int, num_devices: int) -> float:
    """How long an evaluation may take before it counts as stuck.

    Its tasks come one after the other on each device, each is tried as often as it may be, and devices that are shared
    or lost are waited for once.
    """
    return TRIES * try_s * math.ceil(num_tasks / num_devices) + max(NO_DEVICE_S, try_s)


def _limits(config: Config) -> EpisodeLimits:
    rollout = config.rollout
    return EpisodeLimits(
        budget_s=rollout.episode_budget_s,
        step_deadline_s=rollout.step_deadline_s,
        history=rollout.history,
        repeat_penalty=rollout.repeat_penalty,
    )

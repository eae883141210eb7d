"""Can the tasks of a suite be used on the devices of a configuration? Each is set up, claimed at once, and judged.

What comes of that: a task is usable where the claim is called a failure, solved at the start where it is a success, and not usable
where its set-up or its judge fails or takes too long. It is the way that an episode takes, on real devices, with no policy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec

from distrl.devices.base import DEVICE_FAULTS, Device, DeviceLeases, cause_of
from distrl.devices.pool import DevicePool
from distrl.errors import DeviceError, LossCause, TaskError
from distrl.tasks.base import SPLITS, Suite
from distrl.tasks.judges import Attempt, Judge, judge_attempt
from distrl.types import Ending, EndState, Finish, Split, Task

Found = Literal["usable", "solved at the start", "fails", "late", "cannot be loaded"]
LEASE_S = 1.0
NO_DEVICE_S = 120.0
"""A check that gets no device for so long gives up."""


class CheckedTask(msgspec.Struct, frozen=True, kw_only=True):
    """What one task came to."""

    template: str
    split: str
    found: Found
    why: str = ""
    level: str = ""
    """The suite's own measure of how hard it is; empty: it has none."""
    instruction: str = ""
    """With what was drawn for it; empty: it was never set up."""
    set_up_s: float = 0.0


class TaskCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What `tasks check --json` gives."""

    suite: str
    version: str
    """Of what the suite is made from, where it tells."""
    usable: int
    counts: dict[str, int]
    levels: dict[str, int]
    """Usable tasks by level."""
    left_out: dict[str, str]
    """Every task that cannot be used, with the reason."""
    tasks: tuple[CheckedTask, ...]
    wall_s: float


class CheckLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a check may take over each part of a task."""

    task_s: float
    judge_s: float


def first_of_each(suite: Suite, splits: Sequence[Split] = SPLITS) -> Iterator[Task]:
    """The first task of every template, of the first split that has it."""
    seen: set[str] = set()
    for split in splits:
        for index in range(suite.size(split)):
            task = suite.task(split, index)
            if task.template not in seen:
                seen.add(task.template)
                yield task


async def check_tasks(
    tasks: Sequence[Task],
    devices: Sequence[Device],
    judge: Judge,
    limits: CheckLimits,
    tell: Callable[[CheckedTask], None],
    leases: DeviceLeases | None = None,
) -> list[CheckedTask]:
    """Each of these on whatever device is free; `tell` hears of each as it is done. Closes the devices."""
    pool, queue = DevicePool(devices, leases=leases), iter(tasks)
    done: list[CheckedTask] = []

    async def lane() -> None:
        for task in queue:
            device = await _lease(pool)
            lost, cause = "the check broke off", LossCause.CRASH
            try:
                checked, lost, cause = await _check(device, task, judge, limits)
            finally:
                pool.release(device, lost=lost, cause=cause)
            done.append(checked)
            tell(checked)

    try:
        async with asyncio.TaskGroup() as lanes:
            for _ in devices:
                lanes.create_task(lane())
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    finally:
        await pool.close()
    return done


async def _lease(pool: DevicePool) -> Device:
    began_s = time.monotonic()
    while True:
        try:
            return await pool.lease(LEASE_S)
        except DeviceError:
            if time.monotonic() - began_s > NO_DEVICE_S:
                raise


async def _check(device: Device, task: Task, judge: Judge, limits: CheckLimits) -> tuple[CheckedTask, str, LossCause]:
    """What a task came to, and why its device was lost over it, where it was."""
    began_s, instruction, set_up_s = time.monotonic(), "", 0.0

    def found(what: Found, why: str = "") -> CheckedTask:
        return CheckedTask(
            template=task.template, split=task.split, found=what, why=" ".join(why.split())[:300],
            instruction=instruction, set_up_s=round(set_up_s, 3),
        )  # fmt: skip

    try:
        async with asyncio.timeout(limits.task_s) as deadline:
            await device.reset(task)
            instruction = (await device.capture(screenshot=False)).instruction or task.instruction
            set_up_s = time.monotonic() - began_s
            done = await device.perform(Finish())
            end = EndState(claim=Finish(), reward=done.reward, device=await device.end_state())
    except TaskError as error:
        return found("fails", str(error)), "", LossCause.CRASH
    except DEVICE_FAULTS as error:
        late = isinstance(error, TimeoutError) and deadline.expired()
        why = f"took over {limits.task_s:g} s" if late else str(error)
        blameless = cause_of(error) is LossCause.SERVER  # the task failed, and not its device
        return found("late" if late else "fails", why), "" if blameless else why or "it was lost", cause_of(error)
    verdict = await judge_attempt(judge, Attempt(task=task, end=end, ending=Ending.FINISHED), deadline_s=limits.judge_s)
    match verdict.outcome:
        case "success":
            return found("solved at the start", verdict.reason or "a claim at once is a success"), "", LossCause.CRASH
        case "failure":
            return found("usable"), "", LossCause.CRASH
    return found("fails", verdict.reason), "", LossCause.CRASH

"""The only episode loop: capture, decide, act, until the agent, the device, a limit or a fault ends it.

What comes out is not judged yet: the verdict is the judge's, who is asked once the device's lease is returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from distrl.devices.base import DEVICE_FAULTS, Capture, Clock, Device, Performed, cause_of
from distrl.devices.calls import abandon_on_cancel
from distrl.errors import LossCause
from distrl.rollout.observing import ObservationBuilder
from distrl.tasks.judges import LAST_SCREENS, Attempt
from distrl.types import (
    Decision,
    DeviceEnd,
    Ending,
    EndState,
    Finish,
    Observation,
    Step,
    Task,
    Trajectory,
    Verdict,
)

T = TypeVar("T")
Decide = Callable[[Observation], Awaitable[tuple[Decision, int]]]
"""Answers an observation with a decision and the policy version that made it."""
KeepFrame = Callable[[bytes], str]
"""Stores a picture and returns its reference."""

SCREENSHOT_TRIES = 2
NOT_JUDGED = Verdict(outcome="unknown", reason="not judged yet")


class EpisodeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What an episode may cost, and how much a policy is shown; times of 0 are the device's own."""

    budget_s: float = 0.0
    step_deadline_s: float = 0.0
    history: int
    repeat_penalty: float


class BusyMeter:
    """How long devices have been at work, summed over all of them, as their driver sees it, and how long they could have been."""

    def __init__(self, clock: Clock, *, num_devices: int = 1) -> None:
        self._clock, self._num_devices = clock, num_devices
        self._counted_s: float | None = None
        """Up to when device time was counted; None: not begun."""
        self._device_total_s = 0.0
        self._num_busy, self._since_s, self._total_s = 0, clock(), 0.0

    def busy_s(self) -> float:
        """Seconds inside calls to devices so far, those under way included."""
        now_s = self._clock()
        self._total_s += self._num_busy * (now_s - self._since_s)
        self._since_s = now_s
        return self._total_s

    def device_s(self) -> float:
        """Seconds since the first call to a device, once for each of the devices: what `busy_s` is a share of."""
        if self._counted_s is not None:
            now_s = self._clock()
            self._device_total_s += self._num_devices * (now_s - self._counted_s)
            self._counted_s = now_s
        return self._device_total_s

    def set_devices(self, count: int) -> None:
        """From now on there are so many."""
        self.device_s()
        self._num_devices = count

    def __enter__(self) -> None:
        self.busy_s()
        self._counted_s = self._since_s if self._counted_s is None else self._counted_s
        self._num_busy += 1

    def __exit__(self, *_: object) -> None:
        self.busy_s()
        self._num_busy -= 1


class EpisodeTools(msgspec.Struct, frozen=True, kw_only=True):
    """What an episode needs besides a device and a task."""

    decide: Decide
    clock: Clock
    keep_frame: KeepFrame | None = None
    """None: no pictures are kept."""
    wait_for_frame_memory: Callable[[], Awaitable[None]] | None = None
    """Waits while too many pictures are held in memory; None: nobody has to wait."""
    stopping: Callable[[], bool] = lambda: False
    """True when whoever runs the episode wants it to end now."""
    meter: BusyMeter | None = None
    """Counts the time that the device takes."""
    deadlines: set[asyncio.Timeout] = msgspec.field(default_factory=set)
    """Of all calls to devices that are under way, for whoever wants to bring them forward."""
    booted: set[str] = msgspec.field(default_factory=set)
    """Names of the devices that were reset before: the first reset of a device may have to boot it."""


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one attempt."""

    trajectory: Trajectory | None
    """Without a verdict; None where the attempt ended before its first step."""
    lost: str = ""
    """Why the device was lost; empty: it was not."""
    cause: LossCause = LossCause.CRASH
    """What kind of a loss it was."""


async def run_episode(id: str, device: Device, task: Task, tools: EpisodeTools, limits: EpisodeLimits) -> Played:
    """Play `task` once and return everything seen and done, not judged yet.

    A device that raises or misses a deadline ends the episode as DEVICE_LOST, an episode over its budget as
    TIME_LIMIT: both keep the value of what was seen last, to be bootstrapped. A bug in the policy raises.
    """
    episode = _Episode(device, task, tools, limits)
    lost, cause, end = "", LossCause.CRASH, None
    try:
        ending = await episode.play()
        end = await episode.end_state()
    except _DeviceFault as fault:
        cut_by_stop = tools.stopping() and fault.late
        lost, cause = "" if cut_by_stop else fault.why, fault.cause
        ending = Ending.TIME_LIMIT if cut_by_stop else Ending.DEVICE_LOST
        episode.forget_unseen()
    trajectory = await episode.record(id, ending, end) if episode.steps else None
    return Played(trajectory=trajectory, lost=lost, cause=cause)


def attempt_of(trajectory: Trajectory, *, picture: Callable[[str], bytes] | None = None) -> Attempt:
    """What a judge is shown of a trajectory."""
    seen = [step.observation for step in trajectory.steps] + ([trajectory.last] if trajectory.last else [])
    return Attempt(
        task=trajectory.task,
        end=trajectory.end,
        ending=trajectory.ending,
        screens=tuple(seen[-LAST_SCREENS:]),
        picture=picture,
    )


def with_verdict(trajectory: Trajectory, verdict: Verdict) -> Trajectory:
    """The trajectory as judged; its last step carries the outcome."""
    last = trajectory.steps[-1]
    rewarded = replace(last, reward=last.reward + float(verdict.success))
    return replace(trajectory, steps=(*trajectory.steps[:-1], rewarded), verdict=verdict)


class _DeviceFault(Exception):
    """A call to the device raised one of `DEVICE_FAULTS`; what anyone else raises is never taken for one."""

    def __init__(self, why: str, cause: LossCause, *, late: bool = False) -> None:
        super().__init__(why)
        self.why, self.cause, self.late = why, cause, late


class _Episode:
    """The state of one attempt."""

    def __init__(self, device: Device, task: Task, tools: EpisodeTools, limits: EpisodeLimits) -> None:
        self._device, self._task, self._tools, self._limits = device, task, tools, limits
        self._budget_s = task.max_s or limits.budget_s or device.times.episode_s
        self._step_s = limits.step_deadline_s or device.times.step_s
        self._reset_s = max(self._step_s, device.times.reset_s)
        self._started_s = tools.clock()
        self._builder = ObservationBuilder(task.instruction, history=limits.history)
        self._seen: Observation | None = None
        self._claim: Finish | None = None
        self._reward = 0.0
        self.steps: list[Step] = []

    async def play(self) -> Ending:
        """Act until there is a reason to stop."""
        booted, name = self._tools.booted, self._device.name
        boot_s = 0.0 if name in booted else self._device.times.boot_s
        await self._within(self._device.reset(self._task), boot_s + self._reset_s)
        booted.add(name)
        while True:
            self._seen = await self._observe()
            if self._tools.stopping() or self._elapsed_s() > self._budget_s:
                return Ending.TIME_LIMIT
            if len(self.steps) >= self._task.max_steps:
                return Ending.STEP_LIMIT
            decision, version = await self._tools.decide(self._seen)
            performed = await self._act(self._seen, decision, version)
            if isinstance(decision.action, Finish):
                self._claim = decision.action
                return Ending.FINISHED
            if performed.done:
                return Ending.ENVIRONMENT

    async def _observe(self) -> Observation:
        keep, wait_for_memory = self._tools.keep_frame, self._tools.wait_for_frame_memory
        if wait_for_memory is not None:
            await wait_for_memory()
        capture = await self._capture(screenshot=keep is not None)
        if capture.instruction and not self.steps:
            self._task = replace(self._task, instruction=capture.instruction)
        return self._builder.observe(capture, screenshot=keep(capture.screenshot) if keep else "")

    async def _capture(self, *, screenshot: bool) -> Capture:
        """The screen; a damaged picture is asked for once more, and twice in a row is a lost device."""
        for _ in range(SCREENSHOT_TRIES):
            capture = await self._within(self._device.capture(screenshot=screenshot), self._step_s)
            if not screenshot or is_whole(capture.screenshot):
                return capture
        why = f"{self._device.name} sent {SCREENSHOT_TRIES} damaged pictures in a row"
        raise _DeviceFault(why, LossCause.DAMAGED)

    async def _act(self, seen: Observation, decision: Decision, version: int) -> Performed:
        before_s = self._tools.clock()
        done: Performed = await self._within(self._device.perform(decision.action), self._step_s)
        noop = not (done.valid and done.changed) and not isinstance(decision.action, Finish)
        self.steps.append(
            Step(
                observation=seen,
                decision=decision,
                version=version,
                reward=-self._limits.repeat_penalty if noop else 0.0,
                device_reward=done.reward,
                valid=done.valid,
                changed=done.changed,
                content=done.content,
                device_s=round(self._tools.clock() - before_s, 4),
            )
        )
        self._reward += done.reward
        self._builder.record(seen, decision.action, done)
        return done

    async def end_state(self) -> DeviceEnd | None:
        """How the device was left."""
        return await self._within(self._device.end_state(), self._step_s)

    def forget_unseen(self) -> None:
        """Drop the last step if nobody saw what came of it: the value of what follows it is not known."""
        if self.steps and self.steps[-1].observation is self._seen:
            self.steps.pop()

    async def record(self, id: str, ending: Ending, end: DeviceEnd | None) -> Trajectory:
        """The trajectory, with the value of what was seen after a cut."""
        cut_off = None if ending.is_terminal else self._seen
        last_value = 0.0 if cut_off is None else (await self._tools.decide(cut_off))[0].value
        return Trajectory(
            id=id,
            task=self._task,
            steps=tuple(self.steps),
            ending=ending,
            verdict=NOT_JUDGED,
            end=EndState(claim=self._claim, reward=self._reward, device=end),
            last=cut_off,
            last_value=last_value,
            device=self._device.name,
            wall_s=round(self._elapsed_s(), 4),
        )

    async def _within(self, work: Coroutine[Any, Any, T], deadline_s: float) -> T:
        """What comes of a call to the device; past its deadline it is cancelled and not waited for."""
        try:
            async with asyncio.timeout(deadline_s) as deadline:
                return await self._metered(work, deadline)
        except TimeoutError as error:
            why = str(error) or f"it took over {deadline_s:g} s to answer"
            raise _DeviceFault(why, LossCause.LATE, late=True) from error
        except DEVICE_FAULTS as error:
            name = self._device.name
            why = f"{name} is lost: {error}" if isinstance(error, OSError) else str(error) or f"{name} is lost"
            raise _DeviceFault(why, cause_of(error)) from error

    async def _metered(self, work: Coroutine[Any, Any, T], deadline: asyncio.Timeout) -> T:
        self._tools.deadlines.add(deadline)
        try:
            with self._tools.meter or nullcontext():
                return await abandon_on_cancel(work, name=f"call to {self._device.name}")
        finally:
            self._tools.deadlines.discard(deadline)

    def _elapsed_s(self) -> float:
        return self._tools.clock() - self._started_s


def is_whole(picture: bytes) -> bool:
    """Whether an encoded picture has its beginning and its end: JPEG or PNG, which is what devices send."""
    jpeg = picture.startswith(b"\xff\xd8") and picture.endswith(b"\xff\xd9")
    return jpeg or (picture.startswith(b"\x89PNG") and picture.endswith(b"IEND\xaeB`\x82"))

"""The only episode loop: capture, decide, act, until the agent, the device, a limit or a fault ends it.

What comes out is not judged yet: the verdict is the judge's, who is asked once the device's lease is returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from distrl.devices.base import Capture, Clock, Device, Performed
from distrl.errors import DeviceError, DeviceLost
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
    """How long devices have been at work, summed over all of them, as their driver sees it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._num_busy, self._since_s, self._total_s = 0, clock(), 0.0

    def busy_s(self) -> float:
        """Seconds inside calls to devices so far, those under way included."""
        now_s = self._clock()
        self._total_s += self._num_busy * (now_s - self._since_s)
        self._since_s = now_s
        return self._total_s

    def __enter__(self) -> None:
        self.busy_s()
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


async def run_episode(id: str, device: Device, task: Task, tools: EpisodeTools, limits: EpisodeLimits) -> Played:
    """Play `task` once and return everything seen and done, not judged yet.

    A device that raises or misses a deadline ends the episode as DEVICE_LOST, an episode over its budget as
    TIME_LIMIT: both keep the value of what was seen last, to be bootstrapped. A bug in the policy raises.
    """
    episode = _Episode(device, task, tools, limits)
    lost, end = "", None
    try:
        ending = await episode.play()
        end = await episode.end_state()
    except (DeviceError, TimeoutError) as error:
        hurried = tools.stopping() and isinstance(error, TimeoutError)
        lost = "" if hurried else str(error) or episode.deadline_missed
        ending = Ending.TIME_LIMIT if hurried else Ending.DEVICE_LOST
        episode.forget_unseen()
    return Played(trajectory=await episode.record(id, ending, end) if episode.steps else None, lost=lost)


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


class _Episode:
    """The state of one attempt."""

    def __init__(self, device: Device, task: Task, tools: EpisodeTools, limits: EpisodeLimits) -> None:
        self._device, self._task, self._tools, self._limits = device, task, tools, limits
        self._budget_s = task.max_s or limits.budget_s or device.times.episode_s
        self._step_s = limits.step_deadline_s or device.times.step_s
        self._reset_s = max(self._step_s, device.times.reset_s)
        self._deadline_s = self._reset_s
        self._started_s = tools.clock()
        self._builder = ObservationBuilder(task.instruction, history=limits.history)
        self._seen: Observation | None = None
        self._claim: Finish | None = None
        self._reward = 0.0
        self.steps: list[Step] = []

    @property
    def deadline_missed(self) -> str:
        """Why a device that said nothing was lost."""
        return f"it took over {self._deadline_s:g} s to answer"

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
        keep = self._tools.keep_frame
        capture = await self._capture(screenshot=keep is not None)
        return self._builder.observe(capture, screenshot=keep(capture.screenshot) if keep else "")

    async def _capture(self, *, screenshot: bool) -> Capture:
        """The screen; a damaged picture is asked for once more, and twice in a row is a lost device."""
        for _ in range(SCREENSHOT_TRIES):
            capture = await self._within(self._device.capture(screenshot=screenshot), self._step_s)
            if not screenshot or is_whole(capture.screenshot):
                return capture
        name = self._device.name
        raise DeviceLost(f"{name} sent {SCREENSHOT_TRIES} damaged pictures in a row", fix="return its lease")

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

    async def _within(self, work: Awaitable[T], deadline_s: float) -> T:
        self._deadline_s = deadline_s
        async with asyncio.timeout(deadline_s) as deadline:
            self._tools.deadlines.add(deadline)
            try:
                if self._tools.meter is None:
                    return await work
                with self._tools.meter:
                    return await work
            except OSError as error:  # a broken socket or pipe is the device's fault, whoever raises it
                if isinstance(error, TimeoutError):
                    raise
                raise DeviceLost(f"{self._device.name} is lost: {error}", fix="return its lease") from error
            finally:
                self._tools.deadlines.discard(deadline)

    def _elapsed_s(self) -> float:
        return self._tools.clock() - self._started_s


def is_whole(picture: bytes) -> bool:
    """Whether an encoded picture has its beginning and its end: JPEG or PNG, which is what devices send."""
    jpeg = picture.startswith(b"\xff\xd8") and picture.endswith(b"\xff\xd9")
    return jpeg or (picture.startswith(b"\x89PNG") and picture.endswith(b"IEND\xaeB`\x82"))

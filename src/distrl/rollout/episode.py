"""One attempt at one task: look, decide, act, until the agent says that it is done or something cuts it short."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from distrl.devices.base import Clock, Device, Performed
from distrl.errors import DeviceError, DeviceLost
from distrl.types import (
    Action,
    Decision,
    Ending,
    EndState,
    Finish,
    LongPress,
    Observation,
    Past,
    Step,
    Tap,
    Task,
    Trajectory,
    TypeText,
    UiElement,
    Verdict,
)

T = TypeVar("T")
Decide = Callable[[Observation], Awaitable[tuple[Decision, int]]]
"""Answers an observation with a decision and the policy version that made it."""
JudgeTask = Callable[[Task, EndState], Verdict]
KeepFrame = Callable[[bytes], str]
"""Stores a picture and returns its reference."""


PICTURE_TRIES = 2


class EpisodeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When to stop waiting, and what an episode may cost."""

    budget_s: float
    step_deadline_s: float
    history: int
    repeat_penalty: float


class EpisodeTools(msgspec.Struct, frozen=True, kw_only=True):
    """What an episode needs besides a device and a task."""

    decide: Decide
    judge: JudgeTask
    clock: Clock
    keep_frame: KeepFrame | None = None
    """None: no pictures are kept."""
    cut: Callable[[], bool] = lambda: False
    """True when whoever runs the episode wants it to end now."""
    waits: set[asyncio.Timeout] = msgspec.field(default_factory=set)
    """The deadlines of all calls to devices that are under way, for whoever wants to bring them forward."""


Outcome = tuple[EndState, Verdict]
UNKNOWN: Outcome = (EndState(), Verdict(success=False))
"""Of an episode whose device can no longer be asked."""


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one attempt."""

    trajectory: Trajectory | None
    """None where it ended before the first step."""
    lost: str = ""
    """Why the device was lost; empty: it was not."""


async def run_episode(id: str, device: Device, task: Task, tools: EpisodeTools, limits: EpisodeLimits) -> Played:
    """Play `task` once and return everything seen and done.

    A lost device ends the episode as DEVICE_LOST, an episode over its budget as TIME_LIMIT: both are cut off with the
    value of what was seen last, and used. A bug in the policy raises.
    """
    episode = _Episode(device, task, tools, limits)
    lost = ""
    try:
        ending = await episode.play()
        outcome = await episode.judge()
    except (DeviceError, TimeoutError) as error:
        hurried = tools.cut() and isinstance(error, TimeoutError)
        lost = "" if hurried else str(error) or f"it took over {limits.step_deadline_s:g} s to answer"
        ending, outcome = Ending.TIME_LIMIT if hurried else Ending.DEVICE_LOST, UNKNOWN
        episode.forget_unseen()
    return Played(trajectory=await episode.record(id, ending, outcome) if episode.steps else None, lost=lost)


class _Episode:
    """The state of one attempt."""

    def __init__(self, device: Device, task: Task, tools: EpisodeTools, limits: EpisodeLimits) -> None:
        self._device, self._task, self._tools, self._limits = device, task, tools, limits
        self._started_s = tools.clock()
        self._recent: list[Past] = []
        self._seen: Observation | None = None
        self.steps: list[Step] = []

    async def play(self) -> Ending:
        """Act until there is a reason to stop."""
        await self._within(self._device.reset(self._task))
        while True:
            self._seen = await self._look()
            if self._tools.cut() or self._spent_s() > self._limits.budget_s:
                return Ending.TIME_LIMIT
            if len(self.steps) >= self._task.max_steps:
                return Ending.STEP_LIMIT
            decision, version = await self._tools.decide(self._seen)
            await self._act(self._seen, decision, version)
            if isinstance(decision.action, Finish):
                return Ending.FINISHED

    async def _look(self) -> Observation:
        elements = await self._within(self._device.observe())
        keep = self._tools.keep_frame
        screenshot = keep(await self._picture()) if keep else ""
        recent = tuple(self._recent[-self._limits.history :]) if self._limits.history else ()
        return Observation(instruction=self._task.instruction, elements=elements, screenshot=screenshot, recent=recent)

    async def _picture(self) -> bytes:
        """The screen as a whole picture: a damaged one is asked for once more, and twice in a row is a lost device."""
        for _ in range(PICTURE_TRIES):
            picture = await self._within(self._device.screenshot())
            if is_whole(picture):
                return picture
        raise DeviceLost(f"{self._device.name} sent {PICTURE_TRIES} damaged pictures in a row", fix="return its lease")

    async def _act(self, seen: Observation, decision: Decision, version: int) -> None:
        before_s = self._tools.clock()
        done: Performed = await self._within(self._device.perform(decision.action))
        wasted = not (done.valid and done.changed) and not isinstance(decision.action, Finish)
        self.steps.append(
            Step(
                observation=seen,
                decision=decision,
                version=version,
                reward=-self._limits.repeat_penalty if wasted else 0.0,
                valid=done.valid,
                changed=done.changed,
                content=done.content,
                device_s=round(self._tools.clock() - before_s, 4),
            )
        )
        target = target_of(decision.action, seen.elements)
        self._recent.append(
            Past(
                action=decision.action,
                target=target,
                valid=done.valid,
                changed=done.changed,
                screenshot=seen.screenshot,
            )
        )

    async def judge(self) -> Outcome:
        """How the device was left, and what that is worth."""
        end = await self._within(self._device.end_state())
        return end, self._tools.judge(self._task, end)

    def forget_unseen(self) -> None:
        """Drop the last step if nobody saw what came of it: the value of what follows it is not known."""
        if self.steps and self.steps[-1].observation is self._seen:
            self.steps.pop()

    async def record(self, id: str, ending: Ending, outcome: Outcome) -> Trajectory:
        """The trajectory; its last step carries the outcome."""
        end, verdict = outcome
        last = self.steps[-1]
        self.steps[-1] = msgspec.structs.replace(last, reward=last.reward + float(verdict.success))
        cut_off = None if ending.terminal else self._seen
        last_value = 0.0 if cut_off is None else (await self._tools.decide(cut_off))[0].value
        return Trajectory(
            id=id,
            task=self._task,
            steps=tuple(self.steps),
            ending=ending,
            verdict=verdict,
            end=end,
            last=cut_off,
            last_value=last_value,
            device=self._device.name,
            wall_s=round(self._spent_s(), 4),
        )

    async def _within(self, work: Awaitable[T]) -> T:
        async with asyncio.timeout(self._limits.step_deadline_s) as deadline:
            self._tools.waits.add(deadline)
            try:
                return await work
            finally:
                self._tools.waits.discard(deadline)

    def _spent_s(self) -> float:
        return self._tools.clock() - self._started_s


def is_whole(picture: bytes) -> bool:
    """Whether an encoded picture has its beginning and its end: JPEG or PNG, which is what devices send."""
    jpeg = picture.startswith(b"\xff\xd8") and picture.endswith(b"\xff\xd9")
    return jpeg or (picture.startswith(b"\x89PNG") and picture.endswith(b"IEND\xaeB`\x82"))


def target_of(action: Action, elements: tuple[UiElement, ...]) -> str:
    """The text of what an action touched or typed."""
    if isinstance(action, TypeText):
        return action.text
    if not isinstance(action, Tap | LongPress):
        return ""
    under = [e for e in elements if e.bounds.contains(action.x, action.y) and (e.text or e.description)]
    best = min(under, key=lambda e: (not e.clickable, e.bounds.bottom - e.bounds.top), default=None)
    return (best.text or best.description) if best else ""

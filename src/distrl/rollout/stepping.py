"""One episode step by step, for whoever decides between two steps: a Gymnasium environment, a person at the keyboard.

Observations and their history are built as in every other episode, and a judge is shown and allowed what it is in every other
one: the last screens, a deadline, and failures that cost the verdict alone. Stepping also works inside an event loop, such as in a
notebook. `drive` needs none: its device must not suspend, as simulated phones without delays do not. A device that takes its
time is driven by the loop of an `EventLoopThread`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from distrl.config.schema import JudgeConfig
from distrl.devices.base import Capture, Device, Performed, SavesState
from distrl.errors import DeviceError, UsageError
from distrl.experience.frames import FrameCache
from distrl.rollout.observing import ObservationBuilder
from distrl.tasks.judges import LAST_SCREENS, Attempt, Judge, judge_attempt
from distrl.types import Action, Ending, EndState, Finish, Observation, Past, Task, Verdict

T = TypeVar("T")
JUDGE_DEADLINE_S = JudgeConfig().deadline_s


def drive(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    except RuntimeError as error:
        if "no running event loop" not in str(error):
            raise
    work.close()
    raise UsageError(
        "the device takes its time, and stepping by hand cannot wait for it",
        expected="a device whose calls return at once, such as a simulated phone of the profile instant",
        fix="drive it by an EventLoopThread, as distrl.make_env(config=...) does",
    )


def run_aside(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that needs an event loop: in a thread of its own, since this one may have a loop running."""
    with ThreadPoolExecutor(1, thread_name_prefix="verdict") as beside:
        return beside.submit(asyncio.run, work).result()


class Drive(Protocol):
    """Gives the result of a call to a device or a judge."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> T: ...


class EventLoopThread:
    """`Drive` for devices that wait: an event loop in a thread of its own, in which every call has a deadline."""

    def __init__(self, *, name: str, deadline_s: float) -> None:
        self._deadline_s, self._loop = deadline_s, asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        """What comes of `work`; `DeviceError` where it takes longer than the deadline."""
        asked = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return asked.result(self._deadline_s)
        except TimeoutError as error:
            if asked.done():
                raise  # the device's own
            raise DeviceError(
                f"{self._thread.name}: a call took over {self._deadline_s:g} s",
                expected="an answer within `boot_s` and `reset_s` of the device's `times`",
                fix="look at the device, or give it longer `times`",
            ) from error
        finally:
            asked.cancel()

    def close(self) -> None:
        """End the loop; a call that never ends is left to itself."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(self._deadline_s)
        if not self._thread.is_alive():
            self._loop.close()


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    """A moment of an episode."""

    device: bytes
    recent: tuple[Past, ...]
    num_steps: int
    reward: float
    screens: tuple[Observation, ...] = ()


class SteppedEpisode:
    """An attempt at one task on a device that was just reset.

    With `frames`, each observation has its picture, which stays there for the judge, as in a run that keeps screenshots.
    """

    def __init__(
        self, device: Device, task: Task, *, history: int, drive: Drive = drive, frames: FrameCache | None = None
    ) -> None:
        self._device, self.task, self._drive, self._frames = device, task, drive, frames
        self._acted_on: tuple[Observation, ...] = ()
        self._shown: Observation | None = None
        self._builder = ObservationBuilder(task.instruction, history=history)
        self._claim: Finish | None = None
        self._done, self._reward = False, 0.0
        self.num_steps = 0
        self._drive(device.reset(task))

    @property
    def terminated(self) -> bool:
        """Whether the agent or the device ended the episode."""
        return self._claim is not None or self._done

    @property
    def truncated(self) -> bool:
        """Whether the step limit cut it off."""
        return not self.terminated and self.num_steps >= self.task.max_steps

    @property
    def over(self) -> bool:
        """Whether no step may follow."""
        return self.terminated or self.truncated

    def capture(self, *, screenshot: bool = False) -> Capture:
        """The screen as it is now."""
        return self._drive(self._device.capture(screenshot=screenshot))

    def observe(self) -> Observation:
        """What a policy would be shown now."""
        capture = self.capture(screenshot=self._frames is not None)
        reference = self._frames.put(capture.screenshot) if self._frames is not None else ""
        self._shown = self._builder.observe(capture, screenshot=reference)
        if capture.instruction and not self.num_steps:
            self.task = replace(self.task, instruction=capture.instruction)
        return self._shown

    def act(self, observation: Observation, action: Action) -> Performed:
        """Carry out one action that was chosen on `observation`."""
        performed = self._drive(self._device.perform(action))
        self._builder.record(observation, action, performed)
        self._acted_on, self._shown = (*self._acted_on, observation)[-LAST_SCREENS:], None
        self.num_steps += 1
        self._reward += performed.reward
        self._done = self._done or performed.done
        self._claim = action if isinstance(action, Finish) else None
        return performed

    def end_state(self) -> EndState:
        """How things stand now, as a judge would be told."""
        return EndState(claim=self._claim, reward=self._reward, device=self._drive(self._device.end_state()))

    def verdict(self, judge: Judge, *, deadline_s: float = JUDGE_DEADLINE_S) -> Verdict:
        """What the episode came to; unknown, with the reason, where the judge fails or takes longer than `deadline_s`."""
        ending = Ending.FINISHED if self._claim else Ending.ENVIRONMENT if self._done else Ending.STEP_LIMIT
        screens, picture = self._last_screens(), None if self._frames is None else self._frames.get
        attempt = Attempt(task=self.task, end=self.end_state(), ending=ending, screens=screens, picture=picture)
        judging = judge_attempt(judge, attempt, deadline_s=deadline_s)
        return self._drive(judging) if isinstance(self._drive, EventLoopThread) else run_aside(judging)

    def _last_screens(self) -> tuple[Observation, ...]:
        """What was acted on last and, where nobody ended the episode, what came of the last action."""
        if self.terminated:
            return self._acted_on
        return (*self._acted_on, self._shown or self.observe())[-LAST_SCREENS:]

    def save_state(self) -> bytes:
        """Device, history and counters as they are, to come back to in the same task."""
        device = self._drive(self._saving().save_state())
        saved = _Saved(
            device=device,
            recent=self._builder.recent,
            num_steps=self.num_steps,
            reward=self._reward,
            screens=self._acted_on,
        )
        return msgspec.msgpack.encode(saved)

    def load_state(self, state: bytes) -> None:
        """Go back to what `save_state` gave; an episode that had ended since goes on from there."""
        device = self._saving()
        try:
            saved = msgspec.msgpack.decode(state, type=_Saved)
        except msgspec.DecodeError as error:
            raise UsageError(f"this is no saved state: {error}", fix="give it what save_state gave") from None
        self._drive(device.load_state(saved.device))
        self._builder.recent, self.num_steps, self._reward = saved.recent, saved.num_steps, saved.reward
        self._acted_on, self._shown = saved.screens, None
        self._claim, self._done = None, False

    def _saving(self) -> SavesState:
        if isinstance(self._device, SavesState):
            return self._device
        raise UsageError(f"{self._device.name} cannot save its state", fix="use a device that has save_state")

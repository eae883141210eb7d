"""A person plays a task: on a device of their own, with the limits and the judge of every other episode.

Nothing here touches a device that a run is using: each attempt gets a simulated phone that is made for it and is gone after it. The
seam is `Device`; which kinds may be made is decided in `_device`. An attempt is left behind once nobody has asked for it for `IDLE_S`.
A success can be kept as a demonstration, in a run folder that `distrl sft --data` reads.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from threading import Lock

import msgspec

from distrl import plugins
from distrl.config.load import load_config
from distrl.config.schema import Config, JudgeConfig
from distrl.devices.base import Device, Fleet, find_devices, is_own
from distrl.errors import DeviceError, DistrlError, TaskError, UsageError
from distrl.experience.frames import FrameCache, FrameStore
from distrl.experience.store import ExperienceStore
from distrl.rollout.stepping import EventLoopThread, SteppedEpisode
from distrl.runtime.run_folder import RunFolder, create_run
from distrl.tasks.base import shown_id
from distrl.tasks.judges import find_judge
from distrl.types import (
    Action,
    Decision,
    Ending,
    EndState,
    Finish,
    LongPress,
    Observation,
    SettingValue,
    SimSetup,
    Step,
    Swipe,
    Tap,
    Task,
    Trajectory,
    TypeText,
    Verdict,
)

IDLE_S = 600.0
"""After so long without a request, an attempt is left behind."""
MOST = 4
"""Attempts at once."""
MOST_SCREENS = 200
"""Pictures of one attempt in memory."""
LONGEST_TEXT = 2000
"""Letters that can be typed at once."""
HISTORY = 6
MARGIN_S = 5.0
"""Beside the time that a device and the judge may take."""
KIND = "sim"
"""Of devices: made for one attempt, and nothing that settings name is started for it."""


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What the device made of one action."""

    action: Action
    target: str
    valid: bool
    changed: bool
    why: str


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt as its page shows it."""

    id: str
    task: str
    template: str
    instruction: str
    device: str
    step: int
    max_steps: int
    over: bool
    observation: Observation
    picture: bool
    """Whether the device gives pictures."""
    steps: list[Said]
    verdict: Verdict | None
    """None: it goes on."""
    kept: str
    """The run folder that holds it as a demonstration; empty: none."""
    idle_s: float


class Attempt:
    """One person's attempt at one task on a device that nobody else has. Its owner lets one thread at a time in."""

    def __init__(self, id: str, device: Device, task: Task, config: Config) -> None:
        self.id, self.config, self.kept = id, config, ""
        self.verdict: Verdict | None = None
        self.lock = Lock()
        self._device, self._frames, self._judging = device, FrameCache(MOST_SCREENS), JudgeConfig()
        self._steps: list[Step] = []
        self._said: list[Said] = []
        self._began_s = time.monotonic()
        times = device.times
        longest_s = max(times.boot_s + times.reset_s, times.step_s, self._judging.deadline_s)
        self._drive = EventLoopThread(name=f"a person on {device.name}", deadline_s=longest_s + MARGIN_S)
        with ExitStack() as half_done:
            half_done.callback(self.close)
            self._episode = SteppedEpisode(device, task, history=HISTORY, drive=self._drive, frames=self._frames)
            self._seen = self._episode.observe()
            half_done.pop_all()

    @property
    def task(self) -> Task:
        """What is to be done."""
        return self._episode.task

    @property
    def over(self) -> bool:
        """Whether no action may follow."""
        return self._episode.over

    def show(self) -> Shown:
        """How it stands."""
        task = self._episode.task
        return Shown(
            id=self.id,
            task=shown_id(task.id, self.config.tasks.suite),
            template=task.template,
            instruction=task.instruction,
            device=self._device.name,
            step=self._episode.num_steps,
            max_steps=task.max_steps,
            over=self.over,
            observation=self._seen,
            picture=bool(self.picture()),
            steps=self._said,
            verdict=self.verdict,
            kept=self.kept,
            idle_s=IDLE_S,
        )

    def picture(self) -> bytes:
        """The screen as it is now: JPEG or PNG; empty where the device has no picture."""
        return self._frames.get(self._seen.screenshot)

    def act(self, step: int, action: Action) -> None:
        """Carry out an action that was chosen on the screen of this step; `UsageError` where that screen is gone."""
        if self.over:
            raise UsageError("this attempt has ended", fix="begin another one")
        if step != self._episode.num_steps:
            raise UsageError(
                f"step {step} is over: the screen has changed since", expected=f"step {self._episode.num_steps}"
            )
        check_action(action)
        seen, began_s = self._seen, time.monotonic()
        done = self._episode.act(seen, action)
        self._seen = self._episode.observe()
        decision = Decision(action=action, choice=(), logp=0.0, entropy=0.0, value=0.0)
        self._steps.append(
            Step(
                observation=seen, decision=decision, version=0, device_reward=done.reward, valid=done.valid, changed=done.changed,
                content=done.content, device_s=round(time.monotonic() - began_s, 4),
            )
        )  # fmt: skip
        target = self._seen.recent[-1].target if self._seen.recent else ""
        self._said.append(Said(action=action, target=target, valid=done.valid, changed=done.changed, why=done.why))
        if self.over:
            self.verdict = self._episode.verdict(find_judge(self._judging), deadline_s=self._judging.deadline_s)

    def trajectory(self) -> Trajectory:
        """The attempt as a demonstration; `UsageError` where it is no success, from which nobody should learn."""
        if self.verdict is None or not self.verdict.success:
            raise UsageError(
                "only a success can be kept as a demonstration",
                expected="an attempt that the judge calls a success",
                fix="try the task again",
            )
        claim = self._steps[-1].decision.action
        last = msgspec.structs.replace(self._steps[-1], reward=1.0)
        return Trajectory(
            id=f"person-{self.id}",
            task=self._episode.task,
            steps=(*self._steps[:-1], last),
            ending=Ending.FINISHED if isinstance(claim, Finish) else Ending.ENVIRONMENT,
            verdict=self.verdict,
            end=EndState(claim=claim if isinstance(claim, Finish) else None),
            source="demonstration",
            worker="person",
            device=self._device.name,
            wall_s=round(time.monotonic() - self._began_s, 3),
        )

    def pictures(self) -> list[bytes]:
        """Those that its steps refer to, as far as the device has pictures."""
        found = (self._frames.get(step.observation.screenshot) for step in self._steps)
        return [picture for picture in found if picture]

    def close(self) -> None:
        """Let go of the device."""
        with suppress(DistrlError, TimeoutError, OSError):
            self._drive(self._device.close())
        self._drive.close()


def check_action(action: Action) -> None:
    """`UsageError` where a place is beside the screen, or a text too long."""
    places = []
    if isinstance(action, Tap | LongPress):
        places = [action.x, action.y]
    elif isinstance(action, Swipe):
        places = [action.x, action.y, action.to_x, action.to_y]
    text = action.text if isinstance(action, TypeText) else action.answer if isinstance(action, Finish) else ""
    if not all(0.0 <= place < 1.0 for place in places):
        raise UsageError("this place is beside the screen", expected="coordinates from 0 to below 1")
    if len(text) > LONGEST_TEXT:
        raise UsageError(f"this text has {len(text)} letters", expected=f"at most {LONGEST_TEXT}")


class Attempts:
    """All attempts that go on, and where those that are kept go."""

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._root, self._clock = root, clock
        self._lock = Lock()
        self._going: dict[str, Attempt] = {}
        self._asked_s: dict[str, float] = {}
        self._demonstrations: RunFolder | None = None

    def take(self, task: Task, config: Config) -> Attempt:
        """A device for one person, at the start of `task`."""
        with self._lock:
            self._leave_idle()
            if len(self._going) >= MOST:
                raise UsageError(
                    f"{MOST} people are playing already",
                    expected="one of them to leave",
                    fix=f"close one of their pages, or wait {IDLE_S / 60:g} minutes",
                )
            id = secrets.token_hex(16)
            attempt = Attempt(id, _device(task, config, owner=f"person-{id[:6]}"), task, config)
            self._going[id], self._asked_s[id] = attempt, self._clock()
            return attempt

    def get(self, id: str) -> Attempt:
        """The attempt of this id, which is not idle for now; `TaskError` where it is gone."""
        with self._lock:
            self._leave_idle()
            if id not in self._going:
                raise TaskError(
                    "this attempt is over: its phone was given back",
                    expected=f"a page that was used within {IDLE_S / 60:g} minutes",
                    fix="begin another one, from the fleet or an episode",
                )
            self._asked_s[id] = self._clock()
            return self._going[id]

    def again(self, attempt: Attempt) -> Attempt:
        """Another attempt at the same task, in place of this one."""
        self.leave(attempt.id)
        return self.take(attempt.task, attempt.config)

    def leave(self, id: str) -> None:
        """Give its device back; nothing where it is gone already."""
        with self._lock:
            self._close(id)

    def close(self) -> None:
        """Give all devices back."""
        with self._lock:
            for id in list(self._going):
                self._close(id)

    def keep(self, attempt: Attempt) -> Path:
        """Store an attempt as a demonstration, once; the run folder that holds it."""
        trajectory, pictures = attempt.trajectory(), attempt.pictures()
        with self._lock:
            if not attempt.kept:
                if self._demonstrations is None:
                    self._demonstrations = create_run(_config_of(trajectory, self._root), now=datetime.now())
                folder = self._demonstrations
                if pictures:
                    FrameStore(folder.experience).put_all(pictures)
                with ExperienceStore(folder.experience) as store:
                    store.add(trajectory)
                attempt.kept = str(folder.path)
            return Path(attempt.kept)

    def leave_idle(self) -> None:
        """Give back the devices of those whose page nobody uses."""
        with self._lock:
            self._leave_idle()

    def _leave_idle(self) -> None:
        for id in [id for id, asked_s in self._asked_s.items() if self._clock() - asked_s > IDLE_S]:
            self._close(id)

    def _close(self, id: str) -> None:
        attempt = self._going.pop(id, None)
        self._asked_s.pop(id, None)
        if attempt is not None:
            attempt.close()


def can_be_taken(task: Task, config: Config) -> bool:
    """Whether a device can be made for a person who wants to try this task of a run."""
    return config.devices.kind == KIND and isinstance(task.setup, SimSetup)


def offers_tasks_by_id(config: Config) -> bool:
    """Whether tasks of a run with these settings can be taken by their ids: of a suite of one's own nothing is loaded for that."""
    return config.devices.kind == KIND and config.tasks.suite in plugins.BUILT_IN["suites"]


def _device(task: Task, config: Config, *, owner: str) -> Device:
    """A device that is made for this owner alone; `TaskError` or `DeviceError` where there is none."""
    if not can_be_taken(task, config):
        raise TaskError(
            f"{task.id} is no task of simulated phones, and only these can be taken by hand",
            expected="a task of a suite of simulated phones",
            fix="distrl tasks list",
        )
    fleet = Fleet(owner=owner, count=1, seed=config.run.seed, purpose="evaluation")
    device, *others = find_devices(config.devices, fleet)
    if others or not is_own(device.name, owner):
        raise DeviceError(f"{device.name} may be in use by a run", expected="a device that is made for one person")
    return device


def _config_of(trajectory: Trajectory, root: Path) -> Config:
    """Settings of a run folder that holds demonstrations."""
    suite = trajectory.task.suite
    kept: dict[str, SettingValue] = {"run.root": str(root), "run.name": "demonstrations"}
    kept["rollout.keep_screenshots"] = True
    if suite in plugins.BUILT_IN["suites"]:
        kept["tasks.suite"] = suite
    return load_config(None, kept)

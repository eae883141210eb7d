"""What the devices of a worker show and how far their episodes have come, noted as they go and put together when someone asks.

Noting costs an episode two assignments per step: what is seen and decided is kept by reference, and nothing is copied.
"""

from __future__ import annotations

import time
from functools import partial

from msgspec.structs import replace

from distrl.devices.base import Clock
from distrl.devices.health import DeviceStatus, Health
from distrl.devices.pool import DevicePool
from distrl.experience.frames import FrameBuffer
from distrl.rollout.episode import Decide
from distrl.telemetry.live import DeviceState, DeviceView, DeviceViews, with_pictures
from distrl.types import Action, Decision, Observation, Task

STATES: dict[Health, DeviceState] = {
    Health.HEALTHY: "idle",
    Health.LEASED: "idle",
    Health.PROBED: "idle",
    Health.RESTARTING: "restarting",
    Health.QUARANTINED: "quarantined",
    Health.ABSENT: "absent",
}
"""Of a device that plays no episode."""


class _Running:
    """An episode under way, as far as it has come."""

    def __init__(self, task: Task, *, began_s: float) -> None:
        self.task, self.began_s, self.instruction = task, began_s, task.instruction
        self.seen: Observation | None = None
        self.action: Action | None = None
        self.value, self.version, self.num_seen = 0.0, -1, 0

    def note_seen(self, seen: Observation) -> None:
        """The screen that is being decided on; of tasks whose page says what it asks, the first one tells."""
        if not self.num_seen:
            self.instruction = seen.instruction
        self.seen, self.action, self.num_seen = seen, None, self.num_seen + 1


class DevicesShown:
    """The devices of one worker."""

    def __init__(self, role: str, pool: DevicePool, frames: FrameBuffer | None, *, clock: Clock) -> None:
        self._role, self._pool, self._frames, self._clock = role, pool, frames, clock
        self._running: dict[str, _Running] = {}
        self._turn = 0

    def begin(self, device: str, task: Task, decide: Decide) -> Decide:
        """Note an episode from now on; to be asked in place of `decide`."""
        running = self._running[device] = _Running(task, began_s=self._clock())
        return partial(_note, running, decide)

    def end(self, device: str) -> None:
        """Its episode is over."""
        self._running.pop(device, None)

    def views(self) -> DeviceViews:
        """All devices as they are now."""
        shown = [self._view(status) for status in self._pool.status()]
        pictures = {}
        if self._frames is not None:
            pictures = self._frames.collect(view.seen.screenshot for view in shown if view.seen is not None)
            self._turn += 1
        return DeviceViews(time_s=time.time(), devices=with_pictures(shown, pictures, first=self._turn))

    def _view(self, status: DeviceStatus) -> DeviceView:
        running = self._running.get(status.name)
        if running is None:
            state = STATES[status.health]
            waiting = f"{status.waiting}" if state != "idle" else ""
            return DeviceView(device=status.name, role=self._role, state=state, waiting=waiting, losses=status.losses)
        seen = None if running.seen is None else replace(running.seen, recent=())
        return DeviceView(
            device=status.name,
            role=self._role,
            state="playing",
            losses=status.losses,
            task=running.task.id,
            template=running.task.template,
            instruction=running.instruction,
            max_steps=running.task.max_steps,
            step=running.num_seen,
            version=running.version,
            action=running.action,
            value=running.value,
            seen=seen,
            play_s=round(self._clock() - running.began_s, 1),
        )


async def _note(running: _Running, decide: Decide, seen: Observation) -> tuple[Decision, int]:
    running.note_seen(seen)
    decision, version = await decide(seen)
    running.action, running.value, running.version = decision.action, decision.value, version
    return decision, version

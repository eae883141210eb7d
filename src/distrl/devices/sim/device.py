"""A simulated phone as a device: the pure functions of `phone.py` plus latency and faults.

With the instant profile no method ever suspends, so its coroutines can be driven without an event loop. A phone that
crashed or froze raises `DeviceLost` on everything until it is restarted; one that lost its connection also does so
until its outage is over and someone reconnects by restarting it.
"""

from __future__ import annotations

import asyncio
import time
from typing import NoReturn

import msgspec

from distrl.config.schema import FaultConfig, LatencyConfig, WildConfig
from distrl.devices.base import Clock, Performed, Sleep
from distrl.devices.sim import phone
from distrl.devices.sim.apps import INCIDENTAL
from distrl.devices.sim.faults import Fault, Faults
from distrl.devices.sim.latency import Latency
from distrl.devices.sim.layout import WIDTH, Screen, elements_of
from distrl.devices.sim.state import Contents, PhoneState, end_state
from distrl.devices.sim.world import start_state
from distrl.errors import DeviceError, DeviceLost
from distrl.types import Action, EndState, Finish, Task, UiElement, Unparsed

FOREVER_S = 7 * 24 * 3600.0
"""How long a frozen phone stays silent: far beyond any deadline, so the caller's is what ends the wait."""


class SimSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What kind of phone to simulate."""

    wild: WildConfig = WildConfig()
    latency: LatencyConfig = LatencyConfig()
    faults: FaultConfig = FaultConfig()
    seed: int = 0
    """Decides delays and faults, together with the phone's name; content comes from each task."""
    picture_width: int = 360
    """Of its screenshots, in pixels; they are twice as high."""
    slow_machine: bool = False
    """Puts the phone on a machine half as fast, whatever the seed says."""


class _Shown(msgspec.Struct, frozen=True):
    """What one state shows, worked out once."""

    state: PhoneState
    screen: Screen
    elements: tuple[UiElement, ...]


class SimDevice:
    """One simulated phone, driven by one episode at a time."""

    def __init__(
        self, name: str, settings: SimSettings, *, sleep: Sleep = asyncio.sleep, clock: Clock = time.monotonic
    ) -> None:
        self.name = name
        self.busy_s = 0.0
        """Seconds that the phone itself needed for its work: neither idle nor lost."""
        self._wild = settings.wild
        self._scale = settings.picture_width / WIDTH
        self._latency = Latency(settings.latency, device=name, seed=settings.seed, slow_machine=settings.slow_machine)
        self._faults = Faults(settings.faults, device=name, seed=settings.seed)
        self._sleep, self._clock = sleep, clock
        self._start: PhoneState | None = None
        self._state: PhoneState | None = None
        self._shown: _Shown | None = None
        self._contents = Contents(INCIDENTAL)
        self._fault: Fault | None = None
        self._back_at_s = 0.0

    @property
    def state(self) -> PhoneState:
        """The phone as it is. Keep the value for a snapshot, assign it to go back."""
        if self._state is None:
            raise DeviceError(f"{self.name} has no task yet", fix="call reset(task) first")
        return self._state

    @state.setter
    def state(self, state: PhoneState) -> None:
        self._state = state

    @property
    def screen(self) -> Screen:
        """What the phone shows now, laid out."""
        return self._show().screen

    async def reset(self, task: Task) -> None:
        """Bring the phone to the start of `task`."""
        self._refuse_if_lost()
        await self._spend(self._latency.reset_s())
        self._start = self._state = start_state(task, self._wild)
        self._contents = Contents(INCIDENTAL)
        self._contents.number(self._start)

    async def observe(self) -> tuple[UiElement, ...]:
        """The UI elements on the screen."""
        self._refuse_if_lost()
        return self._show().elements

    async def screenshot(self) -> bytes:
        """The screen as a JPEG, drawn only now; a damaged one breaks off in the middle."""
        # Pillow and its fonts are loaded only where someone wants pictures.
        from distrl.devices.sim.render import draw, encode_jpeg

        self._refuse_if_lost()
        await self._spend(self._latency.screenshot_s())
        picture = encode_jpeg(draw(self.state, self._scale))
        return picture[: len(picture) // 2] if self._faults.next_frame_is_damaged() else picture

    async def perform(self, action: Action) -> Performed:
        """Carry out `action`; an impossible one is an invalid step, not an error."""
        self._refuse_if_lost()
        if isinstance(action, (Finish, Unparsed)):  # no gesture, so the phone has nothing to take its time over
            return self._carry_out(action)
        await self._spend(self._latency.action_s())
        fault = self._faults.next_step()
        if fault is None:
            return self._carry_out(action)
        await self._succumb(fault)

    async def end_state(self) -> EndState:
        """How the phone stands compared with the start of its task."""
        self._refuse_if_lost()
        if self._start is None:
            raise DeviceError(f"{self.name} has no task yet", fix="call reset(task) first")
        return end_state(self._start, self.state)

    async def restart(self) -> None:
        """Make a lost phone usable again; raises `DeviceLost` while its connection is still down."""
        if self._fault is Fault.DISCONNECT and self._clock() < self._back_at_s:
            self._refuse_if_lost()
        if seconds := self._latency.reset_s():  # no work: the phone is lost until this is over
            await self._sleep(seconds)
        self._forget()
        self._fault = None

    async def close(self) -> None:
        """Let go of the phone's content."""
        self._forget()

    def _show(self) -> _Shown:
        state = self.state
        if self._shown is None or self._shown.state is not state:
            screen = phone.show(state)
            self._shown = _Shown(state, screen, elements_of(screen, state.focus))
        return self._shown

    def _carry_out(self, action: Action) -> Performed:
        before = self._show()
        outcome = phone.perform(before.state, before.screen, action)
        self._state = outcome.state
        changed = self._show().elements != before.elements
        content = self._contents.number(outcome.state)
        return Performed(valid=outcome.valid, changed=changed, why=outcome.why, content=content)

    async def _succumb(self, fault: Fault) -> NoReturn:
        self._fault = fault
        if fault is Fault.DISCONNECT:
            self._back_at_s = self._clock() + self._latency.outage_s()
        if fault is Fault.FREEZE:
            await self._sleep(FOREVER_S)
        raise self._lost(fault)

    def _refuse_if_lost(self) -> None:
        if self._fault is not None:
            raise self._lost(self._fault)

    def _lost(self, fault: Fault) -> DeviceLost:
        return DeviceLost(f"{self.name} is lost: {fault}", fix="return its lease; the pool restarts it")

    def _forget(self) -> None:
        self._start = self._state = self._shown = None

    async def _spend(self, seconds: float) -> None:
        """Take the phone's own time over something; a caller that comes back late for the result adds nothing."""
        if seconds <= 0.0:
            return
        began_s = self._clock()
        try:
            await self._sleep(seconds)
        finally:
            self.busy_s += min(seconds, self._clock() - began_s)

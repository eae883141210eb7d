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

from distrl.config.schema import FaultConfig, LatencyConfig, PerturbationConfig, SimConfig
from distrl.devices.base import Capture, Clock, Fleet, Performed, Sleep, TimeScales
from distrl.devices.sim import phone
from distrl.devices.sim.apps import INCIDENTAL
from distrl.devices.sim.conditions import DELAYS, Fault, Faults, Latency, time_scale
from distrl.devices.sim.layout import WIDTH, Screen, elements_of
from distrl.devices.sim.state import Contents, PhoneState, end_state
from distrl.devices.sim.world import start_state
from distrl.errors import DeviceError, DeviceLost
from distrl.types import Action, Finish, SimEnd, Task, UiElement, Unparsed

SHORTEST_EPISODE_S, SHORTEST_DEADLINE_S = 30.0, 10.0
"""However fast the phones are, decisions and a busy machine take their time."""
FASTEST_SCALE = 0.05
"""Of the waits before a lost phone is restarted, where phones take no time."""
FOREVER_S = 7 * 24 * 3600.0
"""How long a frozen phone stays silent: far beyond any deadline, so the caller's is what ends the wait."""


class SimSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What kind of phone to simulate."""

    perturbations: PerturbationConfig = PerturbationConfig()
    latency: LatencyConfig = LatencyConfig()
    faults: FaultConfig = FaultConfig()
    seed: int = 0
    """Decides delays and faults, together with the phone's name; content comes from each task."""
    screenshot_width: int = 360
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
        self.name, self.times = name, time_scales(settings.latency)
        self._perturbations = settings.perturbations
        self._width_px, self._scale = settings.screenshot_width, settings.screenshot_width / WIDTH
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
        await self._take(self._latency.reset_s())
        self._start = self._state = start_state(task, self._perturbations)
        self._contents = Contents(INCIDENTAL)
        self._contents.number(self._start)

    async def capture(self, *, screenshot: bool) -> Capture:
        """The screen as it is now; a damaged JPEG breaks off in the middle."""
        self._refuse_if_lost()
        if screenshot:
            await self._take(self._latency.screenshot_s())
        shown = self._show()
        return Capture(
            elements=shown.elements,
            screenshot=self._draw() if screenshot else b"",
            width_px=self._width_px,
            height_px=2 * self._width_px,
            app=shown.state.place.app,
        )

    def _draw(self) -> bytes:
        # Pillow and its fonts are loaded only where someone wants pictures.
        from distrl.devices.sim.render import draw, encode_jpeg

        picture = encode_jpeg(draw(self.state, self._scale))
        return picture[: len(picture) // 2] if self._faults.next_frame_is_damaged() else picture

    async def save_state(self) -> bytes:
        """The phone as it is, in the middle of its task."""
        self._refuse_if_lost()
        return msgspec.msgpack.encode(self.state)

    async def load_state(self, state: bytes) -> None:
        """Go back to what `save_state` gave, in the same task."""
        self._refuse_if_lost()
        try:
            self._state = msgspec.msgpack.decode(state, type=PhoneState)
        except msgspec.DecodeError as error:
            raise DeviceError(
                f"this is no state of {self.name}: {error}", fix="give it what save_state gave"
            ) from error

    async def perform(self, action: Action) -> Performed:
        """Carry out `action`; an impossible one is an invalid step, not an error."""
        self._refuse_if_lost()
        if isinstance(action, (Finish, Unparsed)):  # no gesture, so the phone has nothing to take its time over
            return self._carry_out(action)
        await self._take(self._latency.action_s())
        fault = self._faults.next_step()
        if fault is None:
            return self._carry_out(action)
        await self._succumb(fault)

    async def end_state(self) -> SimEnd:
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

    async def _take(self, seconds: float) -> None:
        """Take the phone's own time over something."""
        if seconds > 0.0:
            await self._sleep(seconds)


def capture_of(state: PhoneState, *, width_px: int = WIDTH) -> Capture:
    """What a phone in this state shows, without a picture."""
    elements = elements_of(phone.show(state), state.focus)
    return Capture(elements=elements, width_px=width_px, height_px=2 * width_px, app=state.place.app)


def time_scales(latency: LatencyConfig) -> TimeScales:
    """The deadlines of a simulated phone: those of an emulator, at the pace of the simulation."""
    scale, delays = time_scale(latency), DELAYS[latency.profile]
    step_s = max(SHORTEST_DEADLINE_S, scale * delays.longest_action_s)
    return TimeScales(
        boot_s=step_s,
        reset_s=step_s,
        step_s=step_s,
        restart_s=60.0,
        episode_s=max(SHORTEST_EPISODE_S, scale * delays.long_episode_s),
        backoff_s=0.5 * (scale or FASTEST_SCALE),
    )


def make_devices(settings: SimConfig, fleet: Fleet) -> list[SimDevice]:
    """The simulated phones of one role, `worker-0/phone-3` and the like; evaluations play on instant, faultless ones."""
    evaluating = fleet.purpose == "evaluation"
    slow = fleet.workers[max(0, len(fleet.workers) - settings.latency.slow_workers) :]
    phones = SimSettings(
        perturbations=settings.perturbations,
        latency=LatencyConfig(profile="instant") if evaluating else settings.latency,
        faults=FaultConfig() if evaluating else settings.faults,
        seed=fleet.seed,
        screenshot_width=settings.screenshot_width,
        slow_machine=fleet.owner in slow,
    )
    return [SimDevice(f"{fleet.owner}/phone-{number}", phones) for number in range(fleet.count)]

"""Phones that every role of a run finds under the same names, as it would find those on a desk."""

from __future__ import annotations

from distrl.config.schema import LatencyConfig
from distrl.devices.base import Capture, Device, Fleet, Performed
from distrl.devices.sim.device import SimDevice, SimSettings
from distrl.types import Action, Task

NAMES = ("serial-0", "serial-1")
CALLS: list[tuple[str, str, str]] = []
"""Device, role and method of every call, in order, whichever thread made it."""


class SharedPhone(SimDevice):
    """A simulated phone that writes down who uses it."""

    def __init__(self, name: str, owner: str) -> None:
        super().__init__(name, SimSettings(latency=LatencyConfig(profile="instant")))
        self._owner = owner

    async def reset(self, task: Task) -> None:
        CALLS.append((self.name, self._owner, "reset"))
        await super().reset(task)

    async def capture(self, *, screenshot: bool) -> Capture:
        CALLS.append((self.name, self._owner, "capture"))
        return await super().capture(screenshot=screenshot)

    async def perform(self, action: Action) -> Performed:
        CALLS.append((self.name, self._owner, "perform"))
        return await super().perform(action)


def make_phones(settings: object, fleet: Fleet) -> list[Device]:
    """The same two phones for everyone."""
    return [SharedPhone(name, fleet.owner) for name in NAMES]

"""A device of your own: a phone behind a guard that refuses taps on what should never be touched.

    cd examples && distrl train --devices.kind custom_device:guarded_phones --run.minutes 1

It wraps the built-in phones, so it is short; examples/own_package has a device from scratch. A refused tap is an invalid step,
which the agent sees and learns to leave.
"""

from __future__ import annotations

from typing import Any

import msgspec

from distrl.config.schema import DevicesConfig
from distrl.devices.base import Capture, Device, Fleet, Performed, find_devices
from distrl.rollout.observing import target_of
from distrl.types import Action


class GuardSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[devices.options]` of guarded phones."""

    forbidden: tuple[str, ...] = ("Uninstall", "Factory reset")
    """Labels that may not be tapped."""


class GuardedPhone:
    """`distrl.devices.base.Device`; what is not defined here is the phone's own."""

    def __init__(self, phone: Device, settings: GuardSettings) -> None:
        self._phone, self._forbidden = phone, settings.forbidden
        self._seen: Capture = Capture()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._phone, name)

    async def capture(self, *, screenshot: bool) -> Capture:
        """The screen, remembered to know what a tap would touch."""
        self._seen = await self._phone.capture(screenshot=screenshot)
        return self._seen

    async def perform(self, action: Action) -> Performed:
        """Refuse what is forbidden, hand on the rest."""
        if target_of(action, self._seen.elements) in self._forbidden:
            return Performed(valid=False, changed=False, why="the guard forbids it")
        return await self._phone.perform(action)


def guarded_phones(settings: GuardSettings, fleet: Fleet) -> list[GuardedPhone]:
    """As many phones as the role asks for, each behind a guard."""
    return [GuardedPhone(phone, settings) for phone in find_devices(DevicesConfig(), fleet)]


guarded_phones.Settings = GuardSettings  # type: ignore[attr-defined]

"""The device seam: anything with a screen that takes gestures.

A device decides whether an action was valid. It raises `DeviceLost` when it can no longer be used, and never hangs
longer than its own deadlines. A simulated phone, an Android over ADB and a Chromium phone all look like this.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from distrl.types import Action, EndState, Task, UiElement

Clock = Callable[[], float]
"""Seconds that only ever go forward."""
Sleep = Callable[[float], Awaitable[object]]


class Performed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one action."""

    valid: bool
    changed: bool
    """Whether the screen looks different from before."""
    why: str = ""
    """Why it was invalid or had no effect."""
    content: int | None = None
    """Which content the device holds now: equal numbers in one episode, equal content; 0: that of the start; None: it
    cannot tell."""


class Device(Protocol):
    """One screen, driven by one episode at a time."""

    name: str

    async def reset(self, task: Task) -> None:
        """Bring the device to the start of `task`."""

    async def observe(self) -> tuple[UiElement, ...]:
        """The UI elements on the screen; empty where the device does not expose them."""

    async def screenshot(self) -> bytes:
        """The screen as an encoded picture, drawn or fetched only now."""

    async def perform(self, action: Action) -> Performed:
        """Carry out `action`; an impossible one is an invalid step, not an error."""

    async def end_state(self) -> EndState:
        """How the device stands compared with the start of its task, for the judge."""

    async def restart(self) -> None:
        """Make a lost device usable again; it must be reset before the next episode. Raises `DeviceLost` in vain."""

    async def close(self) -> None:
        """Let go of everything that the device holds."""

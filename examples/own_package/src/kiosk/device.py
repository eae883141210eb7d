"""The device: a kiosk with labelled buttons on a few pages.

It keeps the order for the judge. Where a price was asked for, it ends and rewards the episode itself.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Annotated, ClassVar

import msgspec

from distrl.devices.base import Capture, Fleet, Performed, TimeScales
from distrl.errors import TaskError
from distrl.types import Action, Bounds, CustomEnd, CustomSetup, Finish, Tap, Task, UiElement
from kiosk.tasks import DRINKS, EXTRAS, SIZES

PAGES = {
    "drink": (*DRINKS, "Prices"), "size": SIZES, "extra": EXTRAS, "review": ("Pay", "Start over"),
    "prices": DRINKS, "price": (), "paid": (),
}  # fmt: skip
NEXT = {"drink": "size", "size": "extra", "extra": "review"}
ROWS = 8


class KioskSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[devices.options]` of kiosks."""

    may_change: ClassVar[tuple[str, ...]] = ("step_s",)
    """A resumed run may have other delays."""
    step_s: Annotated[float, msgspec.Meta(ge=0.0)] = 0.01
    """Seconds that the screen takes to react."""


class Kiosk:
    """`distrl.devices.base.Device`."""

    times = TimeScales(boot_s=10.0, reset_s=10.0, step_s=10.0, restart_s=10.0, episode_s=60.0)

    def __init__(self, name: str, settings: KioskSettings, seed: str) -> None:
        self.name, self._settings, self._random = name, settings, Random(seed)

    async def reset(self, task: Task) -> None:
        """A new customer."""
        if not isinstance(task.setup, CustomSetup):
            raise TaskError(f"{task.id} is no task for a kiosk", fix="a suite of kiosk tasks")
        self._asked = task.setup.values.get("asked", "")
        self._order: dict[str, str | bool] = {}
        self._show("drink")
        await asyncio.sleep(self._settings.step_s)

    async def capture(self, *, screenshot: bool) -> Capture:
        """Title and buttons; there is no picture."""
        title = UiElement(bounds=Bounds(0.0, 0.0, 1.0, 1 / ROWS), text=self._page.capitalize())
        return Capture(elements=(title, *self._buttons), width_px=600, height_px=800, app="kiosk")

    async def perform(self, action: Action) -> Performed:
        """Press the button under a tap; the kiosk itself ends the episode once a price is shown."""
        if isinstance(action, Finish):
            return Performed(valid=True, changed=False)
        if not isinstance(action, Tap):
            return Performed(valid=False, changed=False, why="a kiosk takes taps alone")
        pressed = next((b.text for b in self._buttons if b.bounds.contains(action.x, action.y)), "")
        if not pressed:
            return Performed(valid=False, changed=False, why="there is no button")
        await asyncio.sleep(self._settings.step_s)
        self._press(pressed)
        priced = self._page == "price"
        return Performed(valid=True, changed=True, done=priced, reward=float(priced and pressed == self._asked))

    def _press(self, button: str) -> None:
        if self._page in NEXT and button != "Prices":
            self._order[self._page] = button
            self._show(NEXT[self._page])
        elif self._page == "review":
            self._order = {**self._order, "paid": True} if button == "Pay" else {}
            self._show("paid" if button == "Pay" else "drink")
        else:
            self._show("price" if self._page == "prices" else "prices")

    def _show(self, page: str) -> None:
        """Buttons come in another order each time, so that places tell nothing."""
        self._page, labels = page, self._random.sample(PAGES[page], len(PAGES[page]))
        rows = [Bounds(0.1, row / ROWS, 0.9, (row + 0.9) / ROWS) for row in range(1, ROWS)]
        buttons = zip(labels, rows, strict=False)
        self._buttons = [UiElement(bounds=row, text=text, class_name="Button", clickable=True) for text, row in buttons]

    async def end_state(self) -> CustomEnd:
        """The order as it stands, for the judge."""
        return CustomEnd(values={"paid": False, **self._order})

    async def restart(self) -> None:
        """A kiosk in memory is never lost."""

    async def close(self) -> None:
        """It holds nothing."""


def make_kiosks(settings: KioskSettings, fleet: Fleet) -> list[Kiosk]:
    """As many kiosks as the role asks for."""
    names = [f"{fleet.owner}/kiosk-{number}" for number in range(fleet.count)]
    return [Kiosk(name, settings, f"{fleet.seed} {name}") for name in names]

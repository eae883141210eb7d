"""The devices of a run as they are now, and which of them have changed since someone last looked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from distrl import Run
from distrl.dashboard.pace import Paced
from distrl.tasks.base import shown_id
from distrl.telemetry.live import DeviceView
from distrl.types import UiElement

LONGEST_TEXT = 48
FRESH_S = 0.5
"""How old tiles may be."""
SAME_S = 1.0
"""Two beginnings that are no further apart are of one episode."""


class Tile(msgspec.Struct, frozen=True, kw_only=True):
    """One device, light enough to be sent every second."""

    device: str
    role: str
    state: str
    waiting: str
    losses: int
    task: str
    template: str
    instruction: str
    step: int
    max_steps: int
    version: int
    action: object
    value: float
    began_s: float
    """When its episode began, as a date; the same in every tile of one episode, so that a device on which nothing happens is not sent again. 0: it plays none."""
    app: str
    width_px: int
    height_px: int
    elements: list[list[object]]
    """left, top, right, bottom in thousandths, text, kind (2: can be ticked, 1: can be clicked otherwise, 0: neither): what a tile draws."""
    picture: str
    """Changes with the picture; empty: there is none."""


class FleetView:
    """The devices of one run, with the newest picture of each; its owner lets one thread at a time in."""

    def __init__(self, run: Run) -> None:
        self._run, self._suite = run, ""
        self._pictures: dict[str, tuple[str, bytes]] = {}
        self._began_s: dict[str, float] = {}
        self._now = Paced(self.read, fresh_s=FRESH_S)

    def tiles(self) -> tuple[float, list[Tile]]:
        """When the devices were last heard of, and all of them; read once for all who look at the same time."""
        return self._now.get()

    def read(self) -> tuple[float, list[Tile]]:
        """The same, read now."""
        self._suite = self._suite or self._run.config.tasks.suite
        found, heard_s = list[Tile](), 0.0
        for views in self._run.devices():
            heard_s = max(heard_s, views.time_s)
            found += [self._tile(view, views.time_s) for view in views.devices]
        shown = {tile.device for tile in found}
        self._began_s = {device: began_s for device, began_s in self._began_s.items() if device in shown}
        self._pictures = {device: kept for device, kept in self._pictures.items() if device in shown}
        return heard_s, sorted(found, key=lambda tile: _natural(tile.device))

    def picture(self, device: str) -> bytes:
        """The newest picture of a device; empty where there is none."""
        return self._pictures.get(device, ("", b""))[1]

    def _began(self, view: DeviceView, time_s: float) -> float:
        if view.state != "playing":
            return 0.0
        began_s = time_s - view.play_s  # rounded by who wrote it: a little different each time
        known_s = self._began_s.get(view.device)
        if known_s is None or abs(began_s - known_s) >= SAME_S:
            self._began_s[view.device] = round(began_s, 1)
        return self._began_s[view.device]

    def _tile(self, view: DeviceView, time_s: float) -> Tile:
        if view.picture:
            self._pictures[view.device] = (blake2b(view.picture, digest_size=8).hexdigest(), view.picture)
        seen = view.seen
        return Tile(
            device=view.device,
            role=view.role,
            state=view.state,
            waiting=view.waiting,
            losses=view.losses,
            task=shown_id(view.task, self._suite),
            template=view.template,
            instruction=view.instruction,
            step=min(view.step, view.max_steps) if view.max_steps else view.step,
            max_steps=view.max_steps,
            version=view.version,
            action=view.action,
            value=round(view.value, 3),
            began_s=self._began(view, time_s),
            app=seen.app if seen else "",
            width_px=seen.width_px if seen else 0,
            height_px=seen.height_px if seen else 0,
            elements=[_light(element) for element in seen.elements] if seen else [],
            picture=self._pictures.get(view.device, ("", b""))[0],
        )


def changed(tiles: list[Tile], sent: Mapping[str, int]) -> tuple[list[msgspec.Raw], dict[str, int]]:
    """The tiles that are not as they were sent, as JSON, and what will have been sent then."""
    encoded = {tile.device: msgspec.json.encode(tile) for tile in tiles}
    now = {device: hash(tile) for device, tile in encoded.items()}
    return [msgspec.Raw(tile) for device, tile in encoded.items() if sent.get(device) != now[device]], now


def _light(element: UiElement) -> list[object]:
    bounds, text = element.bounds, element.text or element.description
    return [
        _thousandths(bounds.left), _thousandths(bounds.top), _thousandths(bounds.right), _thousandths(bounds.bottom),
        text[:LONGEST_TEXT], int(element.clickable) if element.checked is None else 2,
    ]  # fmt: skip


def _thousandths(share: float) -> int:
    """Rounding to decimals takes three times as long, and this is done for every element of every device in every second; 0: NaN or far off the screen."""
    return int(1000 * share + 0.5) if -10.0 < share < 10.0 else 0


def _natural(name: str) -> list[tuple[int, str]]:
    """Numbers in their order: phone-2 before phone-10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]

"""What the devices of a role show at this moment, for people who look: one small file per role, replaced about once a second.

It is no part of what roles tell each other: nothing depends on it, nothing waits for it, and what is lost is lost. Pictures take
turns, so that a role with many devices writes no more than `PICTURE_BYTES` at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from distrl.types import Action, Observation

SUFFIX = ".screens"
PICTURE_BYTES = 400_000
"""Of all pictures in one file."""

DeviceState = Literal["playing", "idle", "restarting", "quarantined", "absent"]


class DeviceView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One device as it is now, and how far its episode has come."""

    device: str
    role: str
    state: DeviceState
    waiting: str = ""
    """What it is waiting for; empty: for nothing but its episode."""
    losses: int = 0
    """How often it was lost so far."""
    task: str = ""
    """The id of its task; empty: it plays none."""
    template: str = ""
    instruction: str = ""
    max_steps: int = 0
    step: int = 0
    """From 1; 0: nothing was seen yet."""
    version: int = -1
    """That decided last; -1: none has."""
    action: Action | None = None
    """What was decided on `seen`; None: nothing yet."""
    value: float = 0.0
    """The policy's own estimate, of `seen`."""
    seen: Observation | None = None
    """The screen that was seen last, without its history."""
    picture: bytes = b""
    """JPEG or PNG of that screen, where pictures are taken and it was this device's turn."""
    play_s: float = 0.0
    """For how long it has been playing this episode."""


class DeviceViews(msgspec.Struct, frozen=True, kw_only=True):
    """All devices of one role."""

    time_s: float
    devices: tuple[DeviceView, ...]


class Screens(Protocol):
    """Where a role shows its devices."""

    def show(self, views: DeviceViews) -> None:
        """Replace what was shown before; never raises and never waits for anyone."""


class NoScreens:
    """Nobody can look."""

    def show(self, views: DeviceViews) -> None:
        """Show nothing."""


class FileScreens:
    """A file that is replaced, and that a disk without free space simply does not get."""

    def __init__(self, folder: Path, role: str) -> None:
        self._path = folder / f"{role}{SUFFIX}"

    def show(self, views: DeviceViews) -> None:
        """Replace the file. Not synced: it is out of date in a second."""
        draft = self._path.with_name(f".{self._path.name}.tmp")
        try:
            draft.write_bytes(msgspec.msgpack.encode(views))
            draft.replace(self._path)
        except OSError:  # of no use to the role, and no reason to stop
            draft.unlink(missing_ok=True)


def read_views(folder: Path) -> list[DeviceViews]:
    """What each role showed last, by the name of the role; a file that is damaged is left out."""
    found = []
    for path in sorted(folder.glob(f"[!.]*{SUFFIX}")):
        try:
            found.append(msgspec.msgpack.decode(path.read_bytes(), type=DeviceViews))
        except (OSError, ValueError):
            continue
    return found


def with_pictures(views: Iterable[DeviceView], pictures: dict[str, bytes], *, first: int) -> tuple[DeviceView, ...]:
    """The views with as many of these pictures (by reference) as fit, beginning with the device number `first`."""
    found, left = list(views), PICTURE_BYTES
    for number in range(len(found)):
        at = (first + number) % len(found)
        seen = found[at].seen
        picture = pictures.get(seen.screenshot, b"") if seen is not None else b""
        if not picture or len(picture) > left:
            continue
        left -= len(picture)
        found[at] = msgspec.structs.replace(found[at], picture=picture)
    return tuple(found)

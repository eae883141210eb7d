"""Leases of devices that several processes of one machine share, roles of a run or several runs: two locked files per device.

Both are locks of the operating system, so a process that is killed holds no device. Whoever holds the first has the
device. Whoever finds it taken locks the second and is the next to have it: a holder that gives a device back and asks for it
again has to queue up, so nobody starves. While one role is next, the others ask again.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from distrl.config.schema import DevicesConfig
from distrl.devices.android.records import one_name, state_folder
from distrl.devices.base import is_own
from distrl.experience.durable import storage_errors

LONGEST_NAME = 80


class FileLeases:
    """The leases of one role among those of all; `devices.base.DeviceLeases`.

    `one_name` says by which name a device is known that has several.
    """

    def __init__(self, folder: Path, owner: str, *, one_name: Callable[[str], str] = str) -> None:
        self._folder, self._owner, self._one_name = folder, owner, one_name
        self._held: dict[str, int] = {}
        self._next: dict[str, int] = {}
        """Open files by device: one that is closed is free."""

    def take(self, device: str) -> bool:
        """Whether the device is this role's from now on; where it is not, the role is next if nobody else is."""
        if is_own(device, self._owner):
            return True
        if device in self._held:
            return False
        if device not in self._next:
            place = self._lock(device, "next")
            if place is None:
                return False
            self._next[device] = place
        lease = self._lock(device, "lease")
        if lease is None:
            return False
        self._held[device] = lease
        os.close(self._next.pop(device))
        return True

    def give_back(self, device: str) -> None:
        """Let the next role have it."""
        lease = self._held.pop(device, None)
        if lease is not None:
            os.close(lease)

    def stop_waiting(self) -> None:
        """Give up every place as the next one."""
        while self._next:
            os.close(self._next.popitem()[1])

    def _lock(self, device: str, kind: str) -> int | None:
        """An open file that is locked; None where another role has it."""
        with storage_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            # Not inherited by the programs that a device starts: a lock lives as long as any copy of its file does.
            file = os.open(
                self._folder / f"{_file_name(self._one_name(device))}.{kind}",
                os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
                0o666,
            )
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        return file


def phone_leases(devices: DevicesConfig, owner: str) -> FileLeases | None:
    """The leases of phones over ADB, for one role or program; None for devices of other kinds.

    A phone is one phone whatever runs: these leases are those of all runs, evaluations and other programs of a user on this
    machine. Two runs on one phone take turns, episode by episode.
    """
    if devices.kind != "android":
        return None
    folder = state_folder() / "leases" / quote(socket.gethostname(), safe="")  # a home may be on many machines
    return FileLeases(folder, owner, one_name=one_name)


def _file_name(device: str) -> str:
    """One name for each device, whatever is in it, that people can still read."""
    return f"{quote(device, safe='')[:LONGEST_NAME]}-{sha256(device.encode()).hexdigest()[:8]}"

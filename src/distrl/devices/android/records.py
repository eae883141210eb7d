"""Which emulators distrl has started, for all processes of a user: records and locks in the user's Android folder, and their processes.

A lock is an open file: it ends with the process that holds it. A record names a process by its number and its beginning, so that
nothing is ever sent to another process that was given the number since.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from distrl.devices.android.console import LOCAL
from distrl.errors import DeviceError

GUARDIAN = """
import ctypes, fcntl, subprocess, sys, time
tie = (lambda: ctypes.CDLL(None).prctl(1, 15)) if sys.platform == "linux" else None
users, emulator = open(sys.argv[1]), subprocess.Popen(sys.argv[2:], preexec_fn=tie)
while emulator.poll() is None:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        break
    except BlockingIOError:
        time.sleep(0.5)
try:
    emulator.terminate()
    sys.exit(emulator.wait(10))
finally:
    emulator.kill()
"""
"""Starts the emulator and ends it once no process uses it any more, however the last one ended: users share a lock. On Linux
the emulator is sent SIGTERM where the guardian itself is killed (PR_SET_PDEATHSIG)."""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """An emulator that distrl has started, as it is recorded for other processes."""

    port: int
    """Of its console; adb's is the next."""
    pid: int
    began: str
    """When the process began, as the kernel counts, so that a number that was given out again is not taken for it."""
    keep: bool = False
    """Whether only `distrl devices emulators stop` ends it."""

    @property
    def is_alive(self) -> bool:
        """Whether this very process still runs."""
        return bool(self.began) and began_of(self.pid) == self.began


def state_folder() -> Path:
    """Where locks, records and logs of emulators are: one folder for all processes of a user."""
    folder = Path(os.environ.get("ANDROID_USER_HOME") or Path.home() / ".android") / "distrl"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DeviceError(
            f"cannot make {folder}: {error.strerror}", fix="set ANDROID_USER_HOME to a folder of yours"
        ) from None
    return folder


def lock(path: Path, *, shared: bool = False) -> int | None:
    """An open file that is locked, not inherited by what is started; None where another process has it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    if try_lock(file, shared=shared):
        return file
    os.close(file)
    return None


def try_lock(file: int, *, shared: bool = False) -> bool:
    """Whether the open file is locked now."""
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_free(port: int) -> bool:
    """Whether nobody listens on this port."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of a former emulator do not count
        try:
            sock.bind((LOCAL, port))
            sock.listen()
        except OSError:
            return False
    return True


def began_of(pid: int) -> str:
    """When a process began; empty where it is gone. Without /proc, whether it is there."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "" if sys.platform == "linux" else _exists(pid)
    return "" if facts[0] in "ZX" else facts[19]


def _exists(pid: int) -> str:
    try:
        os.kill(pid, 0)
    except OSError:
        return ""
    return str(pid)


def signal_group(record: Running, number: signal.Signals) -> None:
    """To the process and what it has started; it leads a group of its own. Nothing where it is gone."""
    if record.is_alive:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(record.pid, number)


def read_record(path: Path) -> Running | None:
    """The record of an emulator that runs; None where there is none."""
    try:
        record = msgspec.json.decode(path.read_bytes(), type=Running)
    except (OSError, msgspec.DecodeError):
        return None
    return record if record.is_alive else None


def one_name(device: str) -> str:
    """The AVD of an emulator that distrl has started, also for its serial; any other device's own name."""
    port, folder = device.removeprefix("emulator-"), state_folder()
    if port == device or not port.isdecimal():
        return device
    records = ((name, read_record(folder / f"{name}.json")) for name in running_names(folder))
    return next((name for name, record in records if record is not None and record.port == int(port)), device)


def running_names(folder: Path) -> Iterator[str]:
    """The AVDs of which there is a record."""
    return (path.stem for path in sorted(folder.glob("*.json")))

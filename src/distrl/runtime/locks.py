"""Locks that die with their holder: one session per run, one life per role at a time.

The operating system lets go of such a lock when its process ends, however it ends, so there is no stale one to clear
away. The file says who holds it, for people.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import IO

from distrl.errors import StoreError
from distrl.experience.durable import storage_errors

POLL_S = 0.05


class Lock:
    """A held lock; `release` it, or die."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def release(self) -> None:
        """Let the next one in."""
        self._file.truncate(0)
        self._file.close()


def take(path: Path, *, wait_s: float, what: str) -> Lock:
    """The lock at `path`; `StoreError` where someone else still holds it after `wait_s`."""
    with storage_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab", buffering=0)
    until_s = time.monotonic() + wait_s
    while not _try(file):
        if time.monotonic() >= until_s:
            file.close()
            raise _held(path, what)
        time.sleep(POLL_S)
    with storage_errors(path.parent):
        file.truncate(0)
        file.write(str(os.getpid()).encode())
    return Lock(file)


def held(path: Path) -> bool:
    """Whether a living process holds the lock."""
    try:
        with path.open("rb") as file:
            # Shared, so that two that only look do not take each other for the holder.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _try(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _held(path: Path, what: str) -> StoreError:
    holder = path.read_text(encoding="ascii").strip() or "unknown"
    return StoreError(
        f"{what} is in use by process {holder}",
        expected="a run that nobody else is working on",
        fix=f"wait for its end, or stop it with `kill {holder}`",
    )

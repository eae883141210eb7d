"""Spools on a node of a cluster: where its workers keep what the hub does not take, and what earlier ones have left.

Each session of a run has a name that nobody can guess, and a folder of that name among the temporary files of every node,
of this user alone. In it, each worker has a folder that it keeps locked for as long as it lives, by the operating
system: one that is not locked belongs to a worker that is gone from this node, and whoever starts here hands it over.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from distrl.errors import StoreError
from distrl.experience.durable import storage_errors
from distrl.transport.ray.verified import VERIFIED

POLL_S = 0.05


class NodeSpools:
    """The spools of one run on this node."""

    def __init__(self, names: tuple[str, ...], place: Path | None = None) -> None:
        """`names` are those of the run's sessions, the present one last."""
        self._place, self._names = place or Path(tempfile.gettempdir()).resolve(), names
        self._held: dict[Path, int] = {}

    @property
    def folder(self) -> Path:
        """That of the present session."""
        return self._place / self._names[-1]

    def claim(self, worker: str, *, wait_s: float = 10.0) -> Path:
        """A spool for this worker, its own until the process ends.

        The one of its name may be in use: by an incarnation that is stopped, or by a worker that is handing over what is in it and waits for
        a store that does not answer. It then gets another one, and what is in the first is left to others.
        """
        with storage_errors(self._place, flag="TMPDIR"):
            path, until_s = self.folder / worker, time.monotonic() + wait_s
            while True:
                self._make_private()
                with suppress(FileNotFoundError):  # another role has just left and tidied up
                    path.mkdir(mode=0o700, exist_ok=True)
                if (lock := _lock(path)) is not None:
                    self._held[path] = lock
                    return path
                if time.monotonic() >= until_s:
                    path = self.folder / f"{worker}-{uuid4().hex}"
                else:
                    time.sleep(POLL_S)

    def left(self) -> Iterator[Path]:
        """Spools that no living process holds; each is locked while it is looked at."""
        for name in self._names:
            folder = self._place / name
            if not _is_private(folder):
                continue
            for path in sorted(found for found in folder.iterdir() if found.is_dir()):
                lock = None if path in self._held else _lock(path)
                if lock is not None:
                    try:
                        yield path
                    finally:
                        os.close(lock)

    def close(self) -> None:
        """Tidy up what is empty, and let go."""
        for path, lock in self._held.items():
            with suppress(OSError):  # something still waits there
                path.rmdir()
            os.close(lock)
        self._held.clear()
        with suppress(OSError):
            verified = self.folder / VERIFIED
            if list(self.folder.iterdir()) == [verified]:  # every role that lives has a folder there
                verified.unlink()
            self.folder.rmdir()

    def _make_private(self) -> None:
        with suppress(FileExistsError):
            self.folder.mkdir(mode=0o700)
        if not _is_private(self.folder) and self.folder.exists():
            raise StoreError(
                f"{self.folder} belongs to someone else",
                expected="a folder of this user alone",
                fix="choose another folder for temporary files with TMPDIR",
            )


def _lock(path: Path) -> int | None:
    """An open folder that is locked; None where another process has it, or it is gone."""
    try:
        found = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):
        fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.stat(path).st_ino == os.fstat(found).st_ino:  # and not removed meanwhile
            return found
    os.close(found)
    return None


def _is_private(folder: Path) -> bool:
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o077

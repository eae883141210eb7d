"""The checksum of weights in a node's shared memory: worked out by one of the roles there, and not by each.

Ray's objects never change once they are made, so what one process of a node has verified holds for all of them. Whoever comes
first keeps a file locked while it reads; the others wait for it for a moment, and where that takes too long they
work the checksum out themselves.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from distrl.errors import StoreError
from distrl.types import PolicyVersion

VERIFIED = "verified-weights"
"""What the file is called in the folder that all roles of a run share on a node."""
WAIT_S, AGAIN_S = 2.0, 0.005
KEPT = 8
"""Objects that the file remembers."""


class VerifiedWeights:
    """What the roles of one node have verified; `file` lies on a disk of that node, in a folder that somebody else makes and removes."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def check(self, place: str, data: memoryview, version: PolicyVersion) -> None:
        """`StoreError` unless the object at `place`, whose bytes are `data`, is what the version was published with."""
        key = f"{place} {version.sha256}"
        with _locked(self._file) as file:
            known = os.pread(file, 4096, 0).decode(errors="replace").split("\n") if file is not None else []
            if key in known:
                return
            _verify(data, version)
            if file is not None:
                os.pwrite(file, "\n".join([key, *known][:KEPT]).encode(), 0)


def _verify(data: memoryview, version: PolicyVersion) -> None:
    if sha256(data).hexdigest() != version.sha256:
        raise StoreError(
            f"the weights of version {version.version} came with another checksum than they were published with",
            expected="the file as it was written",
            fix="look at the network and the memory of this machine; the run goes on with `distrl train --resume RUN`",
        )


@contextmanager
def _locked(path: Path) -> Iterator[int | None]:
    """The open file, locked; None where it cannot be had, or not in time."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield None
        return
    try:
        yield file if _lock(file) else None
    finally:
        os.close(file)


def _lock(file: int) -> bool:
    until_s = time.monotonic() + WAIT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until_s:
                return False
            time.sleep(AGAIN_S)
        else:
            return True

"""Published policy versions: immutable, checksummed safetensors files and one small pointer to the newest.

Writers replace the pointer only after the weights are durable, so a reader sees a whole version or the one before.
Large weights are on their way for about as long as it takes to read them twice: they are written from the network's own
memory while a thread beside works the checksum out, and read from the file's pages without a copy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from mmap import ACCESS_COPY, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from distrl.errors import StoreError
from distrl.experience.durable import replace, storage_errors
from distrl.types import PolicyVersion

if TYPE_CHECKING:  # whoever only asks which version is the newest needs no torch
    from distrl.policies.base import Policy

_OURS = re.compile(r"v(\d{6,})\.(?:safetensors|json)", re.ASCII)


class WeightsFolder:
    """A folder of published versions, for the one learner that writes and the many that read."""

    def __init__(self, folder: Path, *, keep: int = 4) -> None:
        self._folder, self._keep = folder, keep
        self._pointer = folder / "latest.json"
        self._stamp = (0, 0)
        self._latest: PolicyVersion | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def latest(self) -> PolicyVersion | None:
        """The newest version; reads the pointer only when it has changed."""
        try:
            status = os.stat(self._pointer)
        except FileNotFoundError:
            return None
        stamp = (status.st_mtime_ns, status.st_ino)
        if stamp != self._stamp:
            self._latest, self._stamp = self._read_pointer(), stamp
        return self._latest

    def _read_pointer(self) -> PolicyVersion:
        try:
            return msgspec.json.decode(self._pointer.read_bytes(), type=PolicyVersion)
        except ValueError as error:
            others = self._folder.parent / "checkpoints"
            raise StoreError(
                f"{self._pointer} is damaged: {error}",
                expected="the newest version as it was published",
                fix=f"evaluate a folder in {others}, or remove that file and resume the run",
            ) from error

    def publish(self, policy: Policy[Any], version: PolicyVersion) -> PolicyVersion:
        """Make the policy's weights the newest version; `file`, checksum and size are filled in."""
        from distrl.policies.weights import pack

        return self.publish_packed(pack(policy.weights()), version)

    def publish_packed(self, pieces: Sequence[memoryview], version: PolicyVersion) -> PolicyVersion:
        """Make these weights, a safetensors file in pieces, the newest version."""
        name = f"v{version.version:06d}.safetensors"
        with storage_errors(self._folder), ThreadPoolExecutor(1, thread_name_prefix="checksum") as beside:
            checksum = beside.submit(checksum_of, pieces)
            replace(self._folder / name, *pieces)
            size_bytes = sum(piece.nbytes for piece in pieces)
            done = msgspec.structs.replace(version, file=name, sha256=checksum.result(), size_bytes=size_bytes)
            replace(self._folder / f"v{version.version:06d}.json", msgspec.json.encode(done))
            replace(self._pointer, msgspec.json.encode(done))
        self._forget_old(done.version)
        return done

    def find(self, version: int) -> PolicyVersion | None:
        """A version that is still kept, by its number; None where it is not."""
        try:
            return msgspec.json.decode((self._folder / f"v{version:06d}.json").read_bytes(), type=PolicyVersion)
        except FileNotFoundError:
            return None

    def load(self, policy: Policy[Any], version: PolicyVersion) -> None:
        """Put a version's weights into `policy` after checking them."""
        policy.restore(self.read(version), source=str(self._path(version)))

    def read(self, version: PolicyVersion) -> memoryview:
        """A version's weights as a safetensors file, verified; `StoreError` where they are damaged or gone."""
        path = self._path(version)
        try:
            data = _map(path)
        except (FileNotFoundError, IsADirectoryError) as error:
            raise StoreError(
                f"{path} is gone",
                expected="a published version",
                fix=f"evaluate a folder in {self._folder.parent / 'checkpoints'}, or remove {self._pointer} and resume the run",
            ) from error
        if checksum_of([data]) != version.sha256:
            raise StoreError(
                f"{path} is damaged: its checksum differs from what was published",
                expected="the file as it was written",
                fix=f"evaluate a folder in {self._folder.parent / 'checkpoints'}, or remove {self._pointer} and resume the run",
            )
        return data

    def _path(self, version: PolicyVersion) -> Path:
        return self._folder / Path(version.file).name

    def _forget_old(self, newest: int) -> None:
        """Keep version 0, against which progress is measured, and the last few; files of other names are not ours."""
        for path in self._folder.glob("v*.*"):
            ours = _OURS.fullmatch(path.name)
            if ours and 0 < int(ours[1]) <= newest - self._keep:
                path.unlink(missing_ok=True)


def checksum_of(pieces: Sequence[memoryview]) -> str:
    """The SHA-256 of a file in pieces."""
    digest = sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _map(path: Path) -> memoryview:
    """The content of a file that never changes, without reading it into memory of its own."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return memoryview(b"")
        # Private, so that it counts as memory that may be written to, which is what torch takes; nobody does.
        return memoryview(mmap(file.fileno(), 0, access=ACCESS_COPY))

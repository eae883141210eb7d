"""Screenshots, each kept once under the hash of its bytes; records carry the reference.

`FrameStore` is the form on disk. In memory, `FrameCache` forgets the oldest, for those who keep nothing, and
`FrameBuffer` holds what is not stored yet: a worker's devices wait for no disk, and frames are written with their episode.

    <folder>/frames/<first two digits>/<hash>.jpg        reference: sha256:<64 hex digits>

A reference never changes its meaning, so any process may keep it for as long as it likes. What was put survives the end
of any process. It is not synced: that would take longer than everything else about a step, and a power cut that
damages the last pictures is noticed by their hash. Encoding and decoding is left to the devices and the policies.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Protocol

from distrl.errors import StoreError
from distrl.experience.durable import make_fan, publish, storage_errors

_REFERENCE = re.compile(r"sha256:([0-9a-f]{64})")


class FrameStore:
    """The pictures of a run."""

    def __init__(self, folder: Path) -> None:
        self._frames = folder / "frames"
        with storage_errors(self._frames):
            make_fan(self._frames)

    def put(self, picture: bytes) -> str:
        """The reference to `picture`, which is in the store by then; the same bytes are written once."""
        reference = reference_of(picture)
        with storage_errors(self._frames):
            publish(self._path(_digest(reference)), picture, sync=False)
        return reference

    def get(self, reference: str) -> bytes:
        """The bytes behind `reference`, verified; `StoreError` where it is malformed, unknown or damaged."""
        digest = _digest(reference)
        path = self._path(digest)
        try:
            picture = path.read_bytes()
        except OSError as error:
            raise _unusable(path, error.strerror or str(error)) from error
        if sha256(picture).hexdigest() != digest:
            raise _unusable(path, "its bytes do not fit its name")
        return picture

    def _path(self, digest: str) -> Path:
        return self._frames / digest[:2] / f"{digest}.jpg"


def reference_of(picture: bytes) -> str:
    """The name of a picture, wherever it is kept."""
    return f"sha256:{sha256(picture).hexdigest()}"


def _digest(reference: str) -> str:
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise StoreError(
            f"{reference[:100]!r} is no reference to a frame",
            expected="sha256: and 64 lower-case hex digits",
            fix="take the reference from an observation's `screenshot`",
        )
    return match[1]


def _unusable(path: Path, why: str) -> StoreError:
    return StoreError(
        f"the frame {path} cannot be used: {why}",
        fix="copy it back from a backup of the run folder, or set rollout.keep_screenshots and collect again",
    )


class FrameReader(Protocol):
    """Encoded screenshots by reference."""

    def get(self, reference: str) -> bytes:
        """The screenshot behind a reference, JPEG or PNG; `StoreError` where it is malformed, unknown or damaged."""


class FrameStorage(FrameReader, Protocol):
    """Where screenshots are kept for good, such as a `FrameStore`."""

    def put(self, picture: bytes) -> str:
        """Keep a screenshot; its reference."""


class FrameCache:
    """The newest `capacity` pictures; older ones only from those `behind`, where there are some."""

    def __init__(self, capacity: int, behind: FrameReader | None = None) -> None:
        self._capacity, self._behind = capacity, behind
        self._held: OrderedDict[str, bytes] = OrderedDict()

    @property
    def num_held(self) -> int:
        """Pictures in memory."""
        return len(self._held)

    def put(self, picture: bytes) -> str:
        """The reference to `picture`, which is at hand until `capacity` newer ones have come."""
        reference = reference_of(picture)
        self._held[reference] = picture
        self._held.move_to_end(reference)
        while len(self._held) > self._capacity:
            self._held.popitem(last=False)
        return reference

    def get(self, reference: str) -> bytes:
        """The bytes behind `reference`; `StoreError` where nobody has them any more."""
        if (picture := self._held.get(reference)) is not None:
            return picture
        if self._behind is not None:
            return self._behind.get(reference)
        raise StoreError(
            f"the picture {reference[:80]!r} is no longer in memory",
            expected=f"one of the newest {self._capacity}",
            fix="look at a picture before so many others are taken",
        )


class FrameBuffer:
    """Pictures that are not stored yet. Taken on one thread, stored on another."""

    def __init__(self, store: FrameStorage, *, capacity: int) -> None:
        self._store, self._capacity = store, capacity
        self._held: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    @property
    def num_held(self) -> int:
        """Pictures in memory."""
        return len(self._held)

    def put(self, picture: bytes) -> str:
        """The reference to `picture`. Over `capacity` the oldest is stored at once: memory is bounded, nothing is lost."""
        reference = reference_of(picture)
        with self._lock:
            self._held[reference] = picture
            oldest = next(iter(self._held)) if len(self._held) > self._capacity else None
        if oldest is not None:
            self._store.put(self._held[oldest])
            self.forget([oldest])
        return reference

    def get(self, reference: str) -> bytes:
        """The bytes behind `reference`, from memory where they are not stored yet."""
        picture = self._held.get(reference)
        return self._store.get(reference) if picture is None else picture

    def collect(self, references: Iterable[str]) -> dict[str, bytes]:
        """Those of these pictures that are not stored yet."""
        return {reference: self._held[reference] for reference in references if reference in self._held}

    def forget(self, references: Iterable[str]) -> None:
        """Release pictures that are in the store by now: whoever asks finds them in memory or there, never in neither."""
        with self._lock:
            for reference in references:
                self._held.pop(reference, None)

"""Screenshots, each kept once under the hash of its bytes; records carry the reference.

`FrameStore` is the form on disk. In memory, `FrameCache` forgets the oldest, for those who keep nothing, and
`FrameBuffer` holds what is not stored yet: a worker's devices wait for no disk, and frames are written with their episode.

    <folder>/frames/<first two digits>/<hash>.jpg or .png        reference: sha256:<64 hex digits>

The name ends as the content asks for, and `.bin` where it is neither; readers take whichever file has the hash.

A reference never changes its meaning, so any process may keep it for as long as it likes. What was put survives a
power cut; the pictures of an episode are put together, so that the disk can sync them at once. Encoding and decoding is left
to the devices and the policies.
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
from distrl.experience.durable import is_pipe, make_fan, publish_all, storage_errors

FRAME_BUFFER_BYTES = 2**30
"""Pictures that a worker holds in memory before they are stored: 2,000 to 5,000 full-size screenshots of a phone."""
SUFFIXES = {".jpg": b"\xff\xd8", ".png": b"\x89PNG", ".bin": b""}
"""How the names of pictures end, by how their content begins."""
_REFERENCE = re.compile(r"sha256:([0-9a-f]{64})")


class FrameStore:
    """The pictures of a run."""

    def __init__(self, folder: Path) -> None:
        self._frames = folder / "frames"
        with storage_errors(self._frames):
            make_fan(self._frames)

    def put(self, picture: bytes) -> str:
        """The reference to `picture`, which is durable by then; the same bytes are written once."""
        (reference,) = self.put_all([picture])
        return reference

    def put_all(self, pictures: Iterable[bytes]) -> list[str]:
        """The references to all of them, which are durable by then."""
        found = {reference_of(picture): picture for picture in pictures}
        with storage_errors(self._frames):
            publish_all({self._place(reference, picture): picture for reference, picture in found.items()})
        return list(found)

    def _place(self, reference: str, picture: bytes) -> Path:
        path = self._path(_digest(reference))
        return path if path.exists() else path.with_suffix(suffix_of(picture))

    def get(self, reference: str) -> bytes:
        """The bytes behind `reference`, verified; `StoreError` where it is malformed, unknown or damaged."""
        digest = _digest(reference)
        path = self._path(digest)
        if is_pipe(path):
            raise _unusable(path, "it is a pipe, a socket or a device")
        try:
            picture = path.read_bytes()
        except OSError as error:
            raise _unusable(path, error.strerror or str(error)) from error
        if sha256(picture).hexdigest() != digest:
            raise _unusable(path, "its bytes do not fit its name")
        return picture

    def _path(self, digest: str) -> Path:
        """The file that has this hash in its name, whatever its suffix; one that is not there where there is none."""
        paths = [self._frames / digest[:2] / f"{digest}{suffix}" for suffix in SUFFIXES]
        return next((path for path in paths if path.exists()), paths[0])


def suffix_of(picture: bytes) -> str:
    """How the name of a picture's file ends."""
    return next(suffix for suffix, start in SUFFIXES.items() if picture.startswith(start))


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

    def holds(self, reference: str) -> bool:
        """Whether a picture is in memory; it counts as new from now on."""
        if reference not in self._held:
            return False
        self._held.move_to_end(reference)
        return True

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
    """Pictures that are not stored yet. Taken on one thread, stored on others.

    It is full with `capacity` pictures or `capacity_bytes` of them. `put` still takes one more, and touches no disk:
    whoever takes pictures waits while `is_full`, and has `spill` store the oldest. Nothing is lost.

    Episodes may share pictures, such as that of the home screen. So it counts how often each was put: a spool has them for
    one episode (`release`), the store for all (`forget`).
    """

    def __init__(self, store: FrameStorage, *, capacity: int, capacity_bytes: int = FRAME_BUFFER_BYTES) -> None:
        self._store, self._capacity, self._capacity_bytes = store, capacity, capacity_bytes
        self._held: OrderedDict[str, bytes] = OrderedDict()
        self._num_puts: dict[str, int] = {}
        self._lock = Lock()
        self.held_bytes = 0
        """What the pictures in memory take."""

    @property
    def num_held(self) -> int:
        """Pictures in memory."""
        return len(self._held)

    @property
    def is_full(self) -> bool:
        """Whether the next picture has to wait until others are stored."""
        return len(self._held) >= self._capacity or self.held_bytes >= self._capacity_bytes

    def put(self, picture: bytes) -> str:
        """The reference to `picture`, which is held from now on."""
        reference = reference_of(picture)
        with self._lock:
            if reference not in self._held:
                self._held[reference] = picture
                self.held_bytes += len(picture)
            self._num_puts[reference] = self._num_puts.get(reference, 0) + 1
        return reference

    def spill(self) -> None:
        """Store the oldest pictures until memory is free; works on the disk, so call it beside the event loop."""
        while self.is_full and (oldest := self._oldest()) is not None:
            self._store.put(oldest[1])
            self.forget([oldest[0]])

    def _oldest(self) -> tuple[str, bytes] | None:
        with self._lock:
            return next(iter(self._held.items()), None)

    def get(self, reference: str) -> bytes:
        """The bytes behind `reference`, from memory where they are not stored yet."""
        picture = self._held.get(reference)
        return self._store.get(reference) if picture is None else picture

    def collect(self, references: Iterable[str]) -> dict[str, bytes]:
        """Those of these pictures that are not stored yet."""
        with self._lock:
            return {reference: self._held[reference] for reference in references if reference in self._held}

    def forget(self, references: Iterable[str]) -> None:
        """Release pictures that are in the store by now: whoever asks finds them in memory or there, never in neither."""
        with self._lock:
            for reference in references:
                self._drop(reference)

    def release(self, references: Iterable[str]) -> None:
        """Undo puts of pictures that are kept elsewhere by now; those that were put more often, by others, stay."""
        with self._lock:
            for reference in references:
                num_puts = self._num_puts.get(reference, 0)
                if num_puts > 1:
                    self._num_puts[reference] = num_puts - 1
                else:
                    self._drop(reference)

    def _drop(self, reference: str) -> None:
        self.held_bytes -= len(self._held.pop(reference, b""))
        self._num_puts.pop(reference, None)

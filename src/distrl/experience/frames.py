"""Screenshots, each kept once under the hash of its bytes; records carry the reference.

    <folder>/frames/<first two digits>/<hash>.jpg        reference: sha256:<64 hex digits>

A reference never changes its meaning, so any process may keep it for as long as it likes. What was put survives the end
of any process. It is not synced: that would take longer than everything else about a step, and a power cut that
damages the last pictures is noticed by their hash. Encoding and decoding is left to the devices and the policies.
"""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

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

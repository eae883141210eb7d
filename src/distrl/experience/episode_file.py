"""One episode as bytes: a header that proves that the rest is whole, then msgpack under zlib.

    magic (8) · format (2) · time of creation (8) · size of the payload (4) · blake2b of all the rest (16) · payload

The file says everything that the index knows, so a lost index can be rebuilt from the files.
"""

from __future__ import annotations

import struct
import zlib
from hashlib import blake2b
from pathlib import Path

import msgspec

from distrl.errors import StoreError
from distrl.experience.durable import is_pipe
from distrl.types import Trajectory

MAGIC = b"DISTRLEP"
FORMAT = 2
"""Raised whenever what is written changes its meaning; another number is refused."""

_HEAD = struct.Struct(">8sHdI")
_CHECKSUM_BYTES = 16
_TRAJECTORY = msgspec.msgpack.Decoder(Trajectory)
"""Made here, in one thread: msgspec works a type out at its first use, and ends the process where two threads do so at once."""
# Level 1 takes half the time of the default for a tenth more bytes, measured on simulated phones.
_LEVEL = 1


class EpisodeFile(msgspec.Struct, frozen=True, kw_only=True):
    """What one file holds."""

    trajectory: Trajectory
    created_s: float
    size_bytes: int


def encode(trajectory: Trajectory, *, created_s: float) -> bytes:
    """The content of the file for `trajectory`."""
    payload = zlib.compress(msgspec.msgpack.encode(trajectory), _LEVEL)
    head = _HEAD.pack(MAGIC, FORMAT, created_s, len(payload))
    return head + _checksum(head, payload) + payload


def load(path: Path) -> EpisodeFile:
    """The verified content of `path`; `StoreError` where anything about it is wrong."""
    if is_pipe(path):
        raise _damaged(path, "it is a pipe, a socket or a device")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from error
    return decode(content, path)


def creation_time(path: Path) -> float:
    """When the file says that it was made, unverified and without reading the rest; 0 where it does not say."""
    if is_pipe(path):
        return 0.0
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD.size)
    except OSError:
        return 0.0
    return float(_HEAD.unpack(head)[2]) if len(head) == _HEAD.size and head.startswith(MAGIC) else 0.0


def decode(content: bytes, path: Path) -> EpisodeFile:
    """The same of bytes that are, or are to be, in the file `path`."""
    start = _HEAD.size + _CHECKSUM_BYTES
    if len(content) < start or not content.startswith(MAGIC):
        raise _damaged(path, "it does not begin like an episode")
    head, checksum, payload = content[: _HEAD.size], content[_HEAD.size : start], content[start:]
    _, number, created_s, size = _HEAD.unpack(head)
    if number != FORMAT:
        raise other_format(path, number)
    if size != len(payload) or checksum != _checksum(head, payload):
        raise _damaged(path, "its checksum does not fit its content")
    return EpisodeFile(trajectory=_unpack(payload, path), created_s=created_s, size_bytes=len(content))


def _unpack(payload: bytes, path: Path) -> Trajectory:
    try:
        return _TRAJECTORY.decode(zlib.decompress(payload))
    except (zlib.error, msgspec.DecodeError) as error:
        raise _damaged(path, str(error)) from error


def _checksum(head: bytes, payload: bytes) -> bytes:
    return blake2b(head + payload, digest_size=_CHECKSUM_BYTES).digest()


def other_format(path: Path, number: int) -> StoreError:
    """The refusal of what other code has written."""
    return StoreError(
        f"{path} has format {number}, and this distrl reads format {FORMAT}",
        expected=f"a run of this version: format {FORMAT}",
        fix="use the distrl version that wrote this run (env.json names it), or start a new run",
    )


def _damaged(path: Path, why: str) -> StoreError:
    return StoreError(
        f"the episode file {path} cannot be used: {why}",
        expected="the file as it was written",
        fix="copy it back from a backup of the run folder; without one, delete it and go on: the episode counts as lost",
    )

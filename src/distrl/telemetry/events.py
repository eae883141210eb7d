"""What happened, one JSON object a line: a file per role, and one of metrics for the run.

Each event is also a record of Python's `logging`, under `distrl.events.<file>`, for programs that use distrl as a library: what
the supervisor writes is there in the process that trains. Roles are processes of their own, where nobody listens.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from pathlib import Path

import msgspec

from distrl.types import Value

LEVELS = {
    **dict.fromkeys(("died", "killed", "failed", "device_lost", "unjudged"), logging.WARNING),
    **dict.fromkeys(("started", "notice", "setting", "warm_start", "recovered", "resumed"), logging.INFO),
}
"""Of the records for people; all other events are for debugging."""


LATEST_S = 1e11
"""Seconds since 1970 of the latest date that an event can have: the year 5138."""
CHUNK_BYTES = 1 << 20
"""Read at once where only some lines of a log are wanted: a log of days is not held in memory."""
LARGEST = 2**63
_MANY_DIGITS = re.compile(rb"\d{19}")


class EventLog:
    """Appends to one file; every line is whole, also after a kill."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._clock = clock
        if _is_cut_off(path):
            self._file.write(b"\n")  # or the first line from now on would be lost with the half one before it
        self._records = logging.getLogger(f"distrl.events.{path.stem}")

    def write(self, event: str, **values: Value) -> None:
        """Append one event with the time; NaN and infinite values are left out, since JSON has none."""
        numbers = {name: value for name, value in values.items() if not isinstance(value, float) or isfinite(value)}
        line = {"time_s": round(self._clock(), 3), "event": event, **numbers}
        self._file.write(msgspec.json.encode(line) + b"\n")
        level = LEVELS.get(event, logging.DEBUG)
        if self._records.isEnabledFor(level):
            self._records.log(level, "%s %s", event, " ".join(f"{name}={value}" for name, value in values.items()))

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def read_events(path: Path) -> list[dict[str, Value]]:
    """All whole lines of a log; one that a kill cut off, that was damaged or that is no event is skipped."""
    if not path.is_file():
        return []
    return [event for line in path.read_bytes().splitlines() if (event := _event_in(line)) is not None]


def _event_in(line: bytes) -> dict[str, Value] | None:
    """The event in a line; None where it is none."""
    try:
        event = msgspec.json.decode(line, type=dict[str, Value])
    except ValueError:
        return None
    named = isinstance(event.get("event"), str) and _is_date(event.get("time_s"))
    return event if named and not (_MANY_DIGITS.search(line) and _is_huge(event)) else None


def _is_huge(event: dict[str, Value]) -> bool:
    """Whether it holds a whole number that no float can be made of, as only a damaged line does."""
    return any(isinstance(value, int) and abs(value) > LARGEST for value in event.values())


def newest_events(path: Path, words: Sequence[bytes] = ()) -> Iterator[dict[str, Value]]:
    """The whole lines of a log that hold all these words (in lower case), the newest first.

    Of a long log only so much is read as is asked for, and only what holds the words is decoded.
    """
    wanted = [word for word in words if word]
    for chunk in _chunks_from_the_end(path):
        lines = _lines_with(chunk, chunk.lower(), wanted) if wanted else chunk.splitlines()
        for line in reversed(list(lines)):
            if (event := _event_in(line)) is not None:
                yield event


def _lines_with(content: bytes, searched: bytes, words: Sequence[bytes]) -> Iterator[bytes]:
    """The lines of `content` that hold all these words where `searched`, the same or in lower case, does."""
    rarest = max(words, key=len)
    at = searched.find(rarest)
    while at >= 0:
        start, end = content.rfind(b"\n", 0, at) + 1, content.find(b"\n", at)
        end = len(content) if end < 0 else end
        if all(searched.find(word, start, end) >= 0 for word in words):
            yield content[start:end]
        at = searched.find(rarest, end)


def _chunks(path: Path) -> Iterator[bytes]:
    """A file in parts of whole lines; none where there is no such file."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        rest = b""
        while found := file.read(CHUNK_BYTES):
            whole, _, rest = (rest + found).rpartition(b"\n")
            yield whole
        yield rest


def _chunks_from_the_end(path: Path) -> Iterator[bytes]:
    """The same, the last part first."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        left, rest = file.seek(0, 2), b""
        while left > 0:
            size = min(CHUNK_BYTES, left)
            left -= size
            file.seek(left)
            rest, newline, whole = (file.read(size) + rest).partition(b"\n")
            if newline:
                yield whole
        yield rest


class EventTail:
    """Reads a log as it grows: each event once, in order. A file that became shorter is read from its start."""

    def __init__(self, path: Path) -> None:
        self._path, self._read_bytes = path, 0

    def new(self) -> list[dict[str, Value]]:
        """The whole lines that have come since the last call; those that are no events are skipped."""
        try:
            with self._path.open("rb") as file:
                if file.seek(0, 2) < self._read_bytes:
                    self._read_bytes = 0
                file.seek(self._read_bytes)
                found = file.read()
        except (FileNotFoundError, IsADirectoryError):
            return []
        end = found.rfind(b"\n") + 1
        self._read_bytes += end
        return [event for line in found[:end].splitlines() if (event := _event_in(line)) is not None]


def _is_date(value: Value | None) -> bool:
    """Whether a number can be a date: a damaged line may hold one with hundreds of digits."""
    return isinstance(value, int | float) and 0 <= value < LATEST_S


def events_of(path: Path, name: str, *keys: str) -> list[dict[str, Value]]:
    """The events of one name in a log that hold all these keys; other lines are not decoded."""
    word = f'"{name}"'.encode()
    found = (_event_in(line) for chunk in _chunks(path) for line in _lines_with(chunk, chunk, [word]))
    return [event for event in found if event is not None and event["event"] == name and event.keys() >= set(keys)]


def _is_cut_off(path: Path) -> bool:
    with path.open("rb") as file:
        if not file.seek(0, 2):
            return False
        file.seek(-1, 2)
        return file.read(1) != b"\n"

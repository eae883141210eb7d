"""What happened, one JSON object a line: a file per role, and one of metrics for the run.

Each event is also a record of Python's `logging`, under `distrl.events.<file>`, for programs that use distrl as a library: what
the supervisor writes is there in the process that trains. Roles are processes of their own, where nobody listens.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
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
    return event if named else None


def newest_events(path: Path, said: Callable[[bytes], bool] = lambda _: True) -> Iterator[dict[str, Value]]:
    """The whole lines of a log, the newest first; of those whose bytes do not say what is looked for, none is decoded."""
    if not path.is_file():
        return
    for line in reversed(path.read_bytes().splitlines()):
        if said(line) and (event := _event_in(line)) is not None:
            yield event


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
    """The events of one name in a log that hold all these keys."""
    return [event for event in read_events(path) if event["event"] == name and event.keys() >= set(keys)]


def _is_cut_off(path: Path) -> bool:
    with path.open("rb") as file:
        if not file.seek(0, 2):
            return False
        file.seek(-1, 2)
        return file.read(1) != b"\n"

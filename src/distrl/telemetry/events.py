"""What happened, one JSON object a line: a file per role, and one of metrics for the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import isfinite
from pathlib import Path

import msgspec

from distrl.types import Value


class EventLog:
    """Appends to one file; every line is whole, also after a kill."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._clock = clock

    def write(self, event: str, **values: Value) -> None:
        """Append one event with the time; NaN and infinite values are left out, since JSON has none."""
        numbers = {name: value for name, value in values.items() if not isinstance(value, float) or isfinite(value)}
        line = {"time_s": round(self._clock(), 3), "event": event, **numbers}
        self._file.write(msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def read_events(path: Path) -> list[dict[str, Value]]:
    """All whole lines of a log; a last line that a kill cut off is skipped."""
    if not path.exists():
        return []
    found = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(msgspec.json.decode(line, type=dict[str, Value]))
        except msgspec.DecodeError:
            continue
    return found

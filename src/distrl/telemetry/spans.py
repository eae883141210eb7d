"""What a role did when: batches of decisions, updates, weights that were published and taken. The trace of a run draws them.

A role notes each as it ends, and every few seconds they go into its log as one line. That holds `MOST` at the most: a role
that does more is not slowed down by saying so, and the line says how many are missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import msgspec

from distrl.types import Value

EVENT = "spans"
MOST = 400
"""Of one line."""


class _Log(Protocol):
    def write(self, event: str, **values: Value) -> None: ...


class Span(msgspec.Struct, frozen=True, array_like=True):
    """One stretch of work."""

    name: str
    start_s: float
    """Seconds since the epoch."""
    length_s: float
    size: int = 0
    """How many were decided on or learned from, or the version that was taken or published."""


class Spans:
    """Collects what one role did since it was written down last."""

    def __init__(
        self, *, clock: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock, self._monotonic = clock, monotonic
        self._found: list[Span] = []
        self._missing = 0

    @contextmanager
    def span(self, name: str, size: int = 0) -> Iterator[None]:
        """What is done while this lasts, however it ends."""
        start_s, began_s = self._clock(), self._monotonic()
        try:
            yield
        finally:
            self._note(Span(name, round(start_s, 4), round(self._monotonic() - began_s, 4), size))

    def _note(self, span: Span) -> None:
        if len(self._found) < MOST:
            self._found.append(span)
        else:
            self._missing += 1

    def write(self, log: _Log) -> None:
        """Put them into a log as one line, and begin anew; nothing where there are none."""
        found, missing = self._found, self._missing
        if not found:
            return
        self._found, self._missing = [], 0
        log.write(EVENT, done=msgspec.json.encode(found).decode(), missing=missing)


def spans_in(event: Mapping[str, Value]) -> list[Span]:
    """Those of one line of a log; none where it is another event, or damaged."""
    if event.get("event") != EVENT:
        return []
    try:
        return msgspec.json.decode(str(event.get("done", "[]")), type=list[Span])
    except msgspec.MsgspecError:
        return []

"""What a role is doing, told in its own words. Where heartbeats go is up to the transport.

Only the role's own loop beats, never a thread beside it, so a loop that hangs falls silent and is noticed. While a role
loads its libraries it has no loop yet: `while_loading` then beats for it, once for every interval in which it came further.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, RLock
from typing import Literal

import msgspec

from distrl.threads import in_thread

Phase = Literal["starting", "doing", "waiting", "stopped"]


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """What a role said last."""

    role: str
    pid: int
    """Of its process, on whatever machine that is. Numbers come again: `incarnation` says which start of the role it is."""
    phase: Phase
    what: str
    """What it does, or what it waits for."""
    since_s: float
    """Since when it has been doing that, on the machine's monotonic clock."""
    beat_s: float
    """When it beat, on the same clock: it goes on alike for all processes and whatever the date is set to."""
    time_s: float = 0.0
    """The date of this beat, for people."""
    incarnation: int = 0
    """How often the role has been started in this run, this time included; 0: it did not say."""
    figures: dict[str, float] = {}
    """The role's counters, by metric name without the role."""


class HeartbeatWriter:
    """Beats for one role, at most once per interval."""

    def __init__(
        self,
        write: Callable[[Heartbeat], None],
        role: str,
        *,
        interval_s: float,
        incarnation: int = 0,
        clock: Callable[[], float] = time.monotonic,
        date: Callable[[], float] = time.time,
    ) -> None:
        self._write, self._role, self._interval_s, self._clock, self._date = write, role, interval_s, clock, date
        self._incarnation = incarnation
        self._phase: Phase = "starting"
        self._what, self._since_s, self._beat_s = "starting", clock(), 0.0
        self._lock = RLock()
        self.figures: dict[str, float] = {}
        self.beat(force=True)

    @property
    def is_starting(self) -> bool:
        """Whether the role has not come to its work yet."""
        return self._phase == "starting"

    def starting(self, what: str) -> None:
        """Say what is being loaded; on a busy machine that may take a while between two beats."""
        self._say("starting", what)

    def doing(self, what: str) -> None:
        """Say what is being done now."""
        self._say("doing", what)

    def waiting(self, what: str) -> None:
        """Say what is being waited for."""
        self._say("waiting", what)

    def held_up(self, what: str) -> None:
        """Say what keeps the loop from going on; a role that is starting goes on starting."""
        self._say("starting" if self.is_starting else "waiting", what)

    def stopped(self, what: str) -> None:
        """Say that the role has ended, and why."""
        self._say("stopped", what)
        self.beat(force=True)

    @contextmanager
    def while_loading(self, progress: Callable[[], int] = lambda: len(sys.modules)) -> Iterator[None]:
        """Beat in a block that begins with loading libraries, as long as it does, whenever `progress` has changed since.

        On a busy machine that takes a minute. An import that hangs gets no further, and falls silent as anything else does.
        """
        over = Event()
        in_thread(lambda: self._beat_while_loading(over, progress), name="loading")
        try:
            yield
        finally:
            over.set()

    def _beat_while_loading(self, over: Event, progress: Callable[[], int]) -> None:
        seen = progress()
        while not over.wait(self._interval_s) and self.is_starting:
            now = progress()
            if now != seen:
                self.beat()
            seen = now

    def _say(self, phase: Phase, what: str) -> None:
        with self._lock:
            if (phase, what.partition(":")[0]) != (self._phase, self._what.partition(":")[0]):
                self._since_s = self._clock()
            self._phase, self._what = phase, what
            self.beat()

    def beat(self, *, force: bool = False) -> None:
        """Write the heartbeat if it is time."""
        with self._lock:
            self._beat(force)

    def _beat(self, force: bool) -> None:
        now = self._clock()
        if not force and now - self._beat_s < self._interval_s:
            return
        self._beat_s = now
        self._write(
            Heartbeat(
                role=self._role,
                pid=os.getpid(),
                phase=self._phase,
                what=self._what,
                since_s=self._since_s,
                beat_s=now,
                time_s=self._date(),
                incarnation=self._incarnation,
                figures=self.figures,
            )
        )

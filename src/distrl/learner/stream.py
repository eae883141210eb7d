"""Demonstrations as they are drawn: processes beside the learner play and picture them, the learner takes batches.

Nothing is held but a buffer that mixes the episodes. A process that dies ends the warm start with its name; ending the
stream ends them all, and they end by themselves once nobody reads.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import time
from collections.abc import Callable
from random import Random
from threading import Thread
from types import TracebackType
from typing import Self

import msgspec

from distrl.config.schema import Config
from distrl.errors import RoleCrashed
from distrl.learner.demonstrator import Episode, Shown, read
from distrl.learner.drawers import Drawers

MIXED = 4096
"""Steps in the buffer that batches are drawn from, at most."""
QUEUED = 256
"""Episodes between the processes and the learner; when it is full, the processes wait."""
PATIENCE_S = 120.0
"""Longest wait for a step: on a busy machine, a process needs a while to load and to draw its tasks."""
POLL_S = 0.2
COMMAND = (sys.executable, "-m", "distrl.learner.demonstrator")


class _Ended(msgspec.Struct, frozen=True):
    """The last word of a reader."""

    number: int


class DemonstrationStream:
    """Use as a context manager: the processes live as long as the block."""

    def __init__(
        self,
        config: Config,
        *,
        random: Random,
        clock: Callable[[], float] = time.monotonic,
        command: tuple[str, ...] = COMMAND,
    ) -> None:
        self._random, self._clock = random, clock
        self._drawers = Drawers(config, command, "demonstrations")
        self._mixed = min(MIXED, config.warm_start.samples // 4)
        self._buffer: list[Shown] = []
        self._queue: queue.Queue[Episode | _Ended] = queue.Queue(QUEUED)
        self._closed = False

    def __enter__(self) -> Self:
        self._drawers.start()
        for number, process in enumerate(self._drawers.processes):
            Thread(target=self._listen, args=(number, process), name=f"demonstrations {number}", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closed = True
        self._drawers.end()

    def take(self, count: int, waiting: Callable[[], None]) -> list[Shown]:
        """`count` steps from all over the last few thousand; `waiting` is called now and then while there are too few."""
        while len(self._buffer) < self._mixed + count:
            self._buffer += self._next(waiting)
        return [self._draw() for _ in range(count)]

    def _draw(self) -> Shown:
        """One of the buffer at random; the last one takes its place."""
        index = self._random.randrange(len(self._buffer))
        self._buffer[index], self._buffer[-1] = self._buffer[-1], self._buffer[index]
        return self._buffer.pop()

    def _next(self, waiting: Callable[[], None]) -> Episode:
        until_s = self._clock() + PATIENCE_S
        while self._clock() < until_s:
            try:
                found = self._queue.get(timeout=POLL_S)
            except queue.Empty:
                waiting()
                continue
            if isinstance(found, _Ended):
                raise self._drawers.died(found.number)
            return found
        raise RoleCrashed(
            f"no demonstration came for {PATIENCE_S:g} s",
            expected=f"steps from {self._drawers.num} processes",
            fix="fewer --warm_start.processes, or --warm_start.samples 0 to clone without them",
        )

    def _listen(self, number: int, process: subprocess.Popen[bytes]) -> None:
        """Hand on what a process draws; blocks while the queue is full, and so does the process then."""
        assert process.stdout is not None
        for episode in read(process.stdout):  # type: ignore[arg-type]
            while not self._closed:
                try:
                    self._queue.put(episode, timeout=POLL_S)
                    break
                except queue.Full:
                    continue
        if not self._closed:
            self._queue.put(_Ended(number))

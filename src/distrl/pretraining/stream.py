"""Demonstrations as they are drawn: processes beside the learner play and picture them, the learner takes batches.

Nothing is held but a buffer that mixes the episodes. A process that dies ends the warm start with its name; ending the
stream ends them all, and they end by themselves once nobody reads.
"""

from __future__ import annotations

import os
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
from distrl.pretraining.demonstrations import Episode, Order, Shown, read

MIXED = 4096
"""Steps in the buffer that batches are drawn from, at most."""
QUEUED = 256
"""Episodes between the processes and the learner; when it is full, the processes wait."""
PATIENCE_S = 120.0
"""Longest wait for a step: on a busy machine, a process needs a while to load and to draw its tasks."""
POLL_S = 0.2
COMMAND = (sys.executable, "-m", "distrl.pretraining.demonstrations")


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


# --- Processes beside the learner that draw for it, each with its order, until they are ended ---


class Drawers:
    """As many of them as the warm start asks for; `what` is what people call that which they draw."""

    def __init__(self, config: Config, command: tuple[str, ...], what: str) -> None:
        self._config, self._command, self._what = config, command, what
        wanted = config.warm_start.processes or max(1, (os.cpu_count() or 1) - 2)
        self.num = min(wanted, config.warm_start.demonstrations)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start them all and give each its order."""
        for number in range(self.num):
            process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.processes.append(process)
            assert process.stdin is not None
            process.stdin.write(msgspec.msgpack.encode(Order(config=self._config, number=number, num=self.num)))
            process.stdin.close()

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def died(self, number: int) -> RoleCrashed:
        """What to raise where this one has ended by itself."""
        code = self.processes[number].wait()
        return RoleCrashed(
            f"process {number} of the {self.num} that draw {self._what} ended with {code}",
            expected="one that draws until it is ended",
            fix="read what it wrote to the learner's output in logs/learner.out",
        )

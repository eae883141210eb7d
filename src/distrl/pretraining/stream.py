"""A stream of demonstrations: data workers play and render them, the learner takes batches.

Nothing is held but a shuffle buffer. A data worker that dies ends the warm start with an error that names it; leaving
the stream stops them all, and they end by themselves once nobody reads.
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
from distrl.pretraining.demonstrations import DemonstratedEpisode, DemonstratedStep, WorkerJob, read_episodes

SHUFFLE_BUFFER = 4096
"""Steps that batches are drawn from, at most."""
QUEUED = 256
"""Episodes between the data workers and the learner; when it is full, the workers wait."""
TIMEOUT_S = 120.0
"""Longest wait for a step: on a busy machine, a process needs a while to load and to draw its tasks."""
LEAVE_S = 5.0
"""How long a thread may take to notice that the process which it reads from is gone."""
POLL_S = 0.2
COMMAND = (sys.executable, "-m", "distrl.pretraining.demonstrations")


class _Ended(msgspec.Struct, frozen=True):
    """A data worker's output has ended."""

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
        self._workers = DataWorkers(config, command, "demonstrations")
        self._shuffle = min(SHUFFLE_BUFFER, config.warm_start.samples // 4)
        self._buffer: list[DemonstratedStep] = []
        self._queue: queue.Queue[DemonstratedEpisode | _Ended] = queue.Queue(QUEUED)
        self._closed = False

    def __enter__(self) -> Self:
        self._workers.start()
        self._workers.listen(self._listen)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closed = True
        self._workers.stop()

    def take(self, count: int, on_wait: Callable[[], None]) -> list[DemonstratedStep]:
        """`count` steps from all over the last few thousand; `on_wait` is called now and then while there are too few."""
        while len(self._buffer) < self._shuffle + count:
            self._buffer += self._next(on_wait)
        return [self._draw() for _ in range(count)]

    def _draw(self) -> DemonstratedStep:
        """One of the buffer at random; the last one takes its place."""
        index = self._random.randrange(len(self._buffer))
        self._buffer[index], self._buffer[-1] = self._buffer[-1], self._buffer[index]
        return self._buffer.pop()

    def _next(self, on_wait: Callable[[], None]) -> DemonstratedEpisode:
        until_s = self._clock() + TIMEOUT_S
        while self._clock() < until_s:
            try:
                found = self._queue.get(timeout=POLL_S)
            except queue.Empty:
                on_wait()
                continue
            if isinstance(found, _Ended):
                raise self._workers.crash(found.number)
            return found
        raise RoleCrashed(
            f"no demonstration came for {TIMEOUT_S:g} s",
            expected=f"steps from {self._workers.num} data workers",
            fix="fewer --warm_start.processes, or --warm_start.samples 0 to clone without them",
        )

    def _listen(self, number: int, process: subprocess.Popen[bytes]) -> None:
        """Queue what a worker draws; blocks while the queue is full, and so does the worker then."""
        assert process.stdout is not None
        for episode in read_episodes(process.stdout):  # type: ignore[arg-type]
            while not self._closed:
                try:
                    self._queue.put(episode, timeout=POLL_S)
                    break
                except queue.Full:
                    continue
        if not self._closed:
            self._queue.put(_Ended(number))


class DataWorkers:
    """The processes that draw a stream, `warm_start.processes` of them; `what` names what they draw."""

    def __init__(self, config: Config, command: tuple[str, ...], what: str) -> None:
        self._config, self._command, self._what = config, command, what
        wanted = config.warm_start.processes or max(1, (os.cpu_count() or 1) - 2)
        self.num = min(wanted, config.warm_start.demonstrations)
        self.processes: list[subprocess.Popen[bytes]] = []
        self._threads: list[Thread] = []

    def start(self) -> None:
        """Start them all and give each its job."""
        for number in range(self.num):
            process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.processes.append(process)
            assert process.stdin is not None
            process.stdin.write(msgspec.msgpack.encode(WorkerJob(config=self._config, number=number, num=self.num)))
            process.stdin.close()

    def listen(self, listen: Callable[[int, subprocess.Popen[bytes]], None]) -> None:
        """Have a thread for each read what it draws, until nothing more comes."""
        for each in enumerate(self.processes):
            self._threads.append(Thread(target=listen, args=each, name=f"{self._what} {each[0]}", daemon=True))
            self._threads[-1].start()

    def stop(self) -> None:
        """Kill them all, and let the threads end: one that holds a tensor while Python ends would abort the process."""
        for process in self.processes:
            process.kill()
            process.wait()
        for thread in self._threads:
            thread.join(LEAVE_S)

    def crash(self, number: int) -> RoleCrashed:
        """The error for a worker that has ended by itself."""
        code = self.processes[number].wait()
        return RoleCrashed(
            f"data worker {number} of the {self.num} that draw {self._what} ended with {code}",
            expected="one that draws until it is stopped",
            fix="read what it wrote to the learner's output in logs/learner.out",
        )

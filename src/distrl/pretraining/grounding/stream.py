"""Sheets as they are drawn: processes beside the learner draw blocks of them, the learner takes what has come.

Blocks are read into memory that the GPU can fetch from, and nobody looks into them on the way. A process that dies ends
the warm start with its name; ending the stream ends them all, and they end by themselves once nobody reads.
"""

from __future__ import annotations

import fcntl
import os
import queue
import subprocess
import sys
import time
from collections.abc import Callable
from threading import Thread
from types import TracebackType
from typing import Self

import numpy as np
import torch
from torch import Tensor

from distrl.config.schema import Config
from distrl.errors import RoleCrashed
from distrl.pretraining.grounding.data_worker import BLOCK
from distrl.pretraining.grounding.samples import block_bytes, fields
from distrl.pretraining.stream import Drawers

AHEAD = 3
"""Blocks in memory for each process; when all are full, the processes wait."""
PIPE_BYTES = 1 << 20
"""Of the pipe from each process, where the system allows it."""
PATIENCE_S = 120.0
"""Longest wait for a block: on a busy machine, a process needs a while to load and to draw its tasks."""
POLL_S = 0.05
COMMAND = (sys.executable, "-m", "distrl.pretraining.grounding.data_worker")


class SheetStream:
    """Use as a context manager: the processes live as long as the block."""

    def __init__(
        self,
        config: Config,
        *,
        pinned: bool,
        clock: Callable[[], float] = time.monotonic,
        command: tuple[str, ...] = COMMAND,
    ) -> None:
        self._config, self._clock, self._pinned = config, clock, pinned
        self._drawers = Drawers(config, command, "screens")
        self._size = block_bytes(config.policy.pixel, BLOCK)
        self._full: queue.Queue[Tensor | int] = queue.Queue()
        self._free: queue.Queue[Tensor] = queue.Queue()
        self._closed = False

    def __enter__(self) -> Self:
        self._drawers.start()
        # While the processes load: memory that the GPU can fetch from takes a moment to be had.
        for _ in range(AHEAD * self._drawers.num):
            self._free.put(torch.empty(self._size, dtype=torch.uint8, pin_memory=self._pinned))
        for number, process in enumerate(self._drawers.processes):
            Thread(target=self._listen, args=(number, process), name=f"sheets {number}", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closed = True
        self._drawers.end()

    def take(self, give: Callable[[dict[str, Tensor]], None], *, most: int) -> int:
        """Hand on at most so many blocks of those that have come, without waiting; how many there were."""
        for done in range(most):
            try:
                block = self._full.get_nowait()
            except queue.Empty:
                return done
            if isinstance(block, int):
                raise self._drawers.died(block)
            give(parts_of(block, self._config))
            self._free.put(block)
        return most

    def fill(self, give: Callable[[dict[str, Tensor]], None], *, blocks: int, waiting: Callable[[], None]) -> None:
        """Hand on so many blocks, however long they take; `waiting` is called now and then meanwhile."""
        until_s = self._clock() + PATIENCE_S
        while blocks > 0:
            found = self.take(give, most=blocks)
            blocks -= found
            until_s = self._clock() + PATIENCE_S if found else until_s
            if not found:
                waiting()
                time.sleep(POLL_S)
            if self._clock() > until_s:
                raise RoleCrashed(
                    f"no screen was drawn for {PATIENCE_S:g} s",
                    expected=f"blocks of {BLOCK} from {self._drawers.num} processes",
                    fix="fewer --warm_start.processes, or --warm_start.samples 0 to clone without them",
                )

    def _listen(self, number: int, process: subprocess.Popen[bytes]) -> None:
        """Fill one block of memory after the other; blocks while none is free, and so does the process then."""
        assert process.stdout is not None
        _widen(process.stdout.fileno())
        while not self._closed:
            try:
                block = self._free.get(timeout=POLL_S)
            except queue.Empty:
                continue
            if not _read_whole(process.stdout.fileno(), block.numpy().data):
                break
            self._full.put(block)
        if not self._closed:
            self._full.put(number)


def parts_of(block: Tensor, config: Config) -> dict[str, Tensor]:
    """The fields of a block as tensors in its own memory."""
    found, start = dict[str, Tensor](), 0
    for name, (dtype, shape) in fields(config.policy.pixel).items():
        size = BLOCK * dtype.itemsize * int(np.prod(shape))
        kind = torch.uint8 if dtype.itemsize == 1 else torch.int16
        found[name] = block[start : start + size].view(kind).view(BLOCK, *shape)
        start += size
    return found


def _read_whole(file: int, into: memoryview) -> bool:
    """Fill `into`; False where the end comes first."""
    while into:
        got = os.readv(file, [into])
        if not got:
            return False
        into = into[got:]
    return True


def _widen(file: int) -> None:
    try:
        fcntl.fcntl(file, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    except (OSError, AttributeError):  # not everyone may, and not every system can
        return

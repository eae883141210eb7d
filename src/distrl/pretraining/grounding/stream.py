"""A stream of grounding samples: data workers draw blocks of them, the learner takes what has come.

Blocks are read into pinned memory and not parsed on the way. A data worker that dies ends the warm start with an error
that names it; leaving the stream stops them all, and they end by themselves once nobody reads.
"""

from __future__ import annotations

import fcntl
import os
import queue
import subprocess
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np
import torch
from torch import Tensor

from distrl.config.schema import Config
from distrl.errors import RoleCrashed
from distrl.pretraining.grounding.data_worker import BLOCK
from distrl.pretraining.grounding.samples import Fields, block_bytes
from distrl.pretraining.stream import DataWorkers

AHEAD = 3
"""Blocks in memory for each data worker; when all are full, the workers wait."""
PIPE_BYTES = 1 << 20
"""Of the pipe from each process, where the system allows it."""
TIMEOUT_S = 120.0
"""Longest wait for a block: on a busy machine, a process needs a while to load and to draw its tasks."""
POLL_S = 0.05
COMMAND = (sys.executable, "-m", "distrl.pretraining.grounding.data_worker")


class SampleStream:
    """Use as a context manager: the processes live as long as the block."""

    def __init__(
        self,
        config: Config,
        fields: Fields,
        *,
        pinned: bool,
        clock: Callable[[], float] = time.monotonic,
        command: tuple[str, ...] = COMMAND,
    ) -> None:
        self._fields, self._clock, self._pinned = fields, clock, pinned
        self._workers = DataWorkers(config, command, "screens")
        self._size = block_bytes(self._fields, BLOCK)
        self._full: queue.Queue[Tensor | int] = queue.Queue()
        self._free: queue.Queue[Tensor] = queue.Queue()
        self._closed = False

    def __enter__(self) -> Self:
        self._workers.start()
        # While the workers load: pinned memory takes a moment to allocate.
        for _ in range(AHEAD * self._workers.num):
            self._free.put(torch.empty(self._size, dtype=torch.uint8, pin_memory=self._pinned))
        self._workers.listen(self._listen)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closed = True
        self._workers.stop()

    def take(self, give: Callable[[dict[str, Tensor]], None], *, most: int) -> int:
        """Pass on at most so many blocks of those that have come, without waiting; how many there were."""
        for done in range(most):
            try:
                block = self._full.get_nowait()
            except queue.Empty:
                return done
            if isinstance(block, int):
                raise self._workers.crash(block)
            give(fields_of(block, self._fields))
            self._free.put(block)
        return most

    def fill(self, give: Callable[[dict[str, Tensor]], None], *, blocks: int, on_wait: Callable[[], None]) -> None:
        """Pass on so many blocks, however long they take; `on_wait` is called now and then meanwhile."""
        until_s = self._clock() + TIMEOUT_S
        while blocks > 0:
            found = self.take(give, most=blocks)
            blocks -= found
            until_s = self._clock() + TIMEOUT_S if found else until_s
            if not found:
                on_wait()
                time.sleep(POLL_S)
            if self._clock() > until_s:
                raise RoleCrashed(
                    f"no screen came for {TIMEOUT_S:g} s",
                    expected=f"blocks of {BLOCK} from {self._workers.num} data workers",
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


def fields_of(block: Tensor, fields: Fields) -> dict[str, Tensor]:
    """The fields of a block as tensors in its own memory."""
    found, start = dict[str, Tensor](), 0
    for name, (dtype, shape) in fields.items():
        size = BLOCK * dtype.itemsize * int(np.prod(shape))
        found[name] = block[start : start + size].view(torch_type(dtype)).view(BLOCK, *shape)
        start += size
    return found


def torch_type(dtype: np.dtype[np.generic]) -> torch.dtype:
    """The same numbers in torch."""
    return {"uint8": torch.uint8, "int16": torch.int16, "int32": torch.int32}[str(dtype)]


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

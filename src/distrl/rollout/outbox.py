"""Finished trajectories on their way to the store, which takes them while the lanes that played them go on.

They are stored one at a time, in the order in which they were handed over, by a thread beside the event loop. At most
`capacity` wait while lanes play: whoever hands over one more waits for room, so a slow disk slows the worker down
instead of filling its memory. Nothing that was handed over is dropped: only a store that fails, or a kill, can do that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from distrl.errors import StoreError
from distrl.types import Trajectory

STORE_DEADLINE_S = 60.0

Acknowledged = Callable[[Trajectory, float], None]
"""Hears of a trajectory that is durable now, and how long it took since it was handed over."""


class Sink(Protocol):
    """Where finished trajectories go."""

    def add(self, trajectory: Trajectory) -> object:
        """Keep a trajectory; returning means that it is durable."""


class Outbox:
    """Hands trajectories to a sink in the background. Belongs to one event loop."""

    def __init__(self, sink: Sink, acknowledged: Acknowledged, *, capacity: int) -> None:
        self._sink, self._acknowledged, self._capacity = sink, acknowledged, capacity
        self._queue: asyncio.Queue[tuple[Trajectory, float] | None] = asyncio.Queue()
        self._room = asyncio.Event()
        self._room.set()
        # One thread: additions wait for the disk, and the disk takes them one at a time anyway.
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self.num_waiting = 0
        """Trajectories that were handed over and are not acknowledged yet."""

    @property
    def full(self) -> bool:
        """Whether the next one to hand a trajectory over has to wait for room."""
        return self.num_waiting > self._capacity

    async def put(self, trajectory: Trajectory) -> None:
        """Hand a trajectory over, then wait while too many do; the wait ends with the store's own deadline at the latest."""
        self._queue.put_nowait((trajectory, time.monotonic()))
        self.num_waiting += 1
        if self.full:
            self._room.clear()
        await self._room.wait()

    def finish(self) -> None:
        """Let `run` end once everything that was handed over is stored."""
        self._queue.put_nowait(None)

    async def run(self) -> None:
        """Store what comes, until `finish`; a store that fails or hangs ends this with its error."""
        try:
            while (entry := await self._queue.get()) is not None:
                trajectory, since_s = entry
                await self._store(trajectory)
                self._acknowledged(trajectory, time.monotonic() - since_s)
                self.num_waiting -= 1
                if not self.full:
                    self._room.set()
        finally:
            # Not waited for: a thread that the disk holds up would hold up the end as well.
            self._writer.shutdown(wait=False, cancel_futures=True)

    async def _store(self, trajectory: Trajectory) -> None:
        adding = asyncio.get_running_loop().run_in_executor(self._writer, self._sink.add, trajectory)
        try:
            await asyncio.wait_for(adding, STORE_DEADLINE_S)
        except TimeoutError:
            raise StoreError(
                f"the store took over {STORE_DEADLINE_S:g} s to keep a trajectory",
                fix="look at the disk of the run folder",
            ) from None

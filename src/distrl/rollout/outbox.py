"""Finished trajectories on their way to the store, which takes them while the lanes that played them go on.

They are stored one at a time, in the order in which they were handed over, by a thread beside the event loop. At most
`capacity` wait while lanes play: whoever hands over one more waits for room, so a slow disk slows the worker down
instead of filling its memory. Nothing that was handed over is dropped: only a store that fails or takes too long, or a
kill, can do that. Neither this nor the end of the process waits for a thread that the disk does not let go.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Protocol

from distrl.errors import StoreError
from distrl.types import Trajectory

STORE_DEADLINE_S = 60.0
"""How long the store may take to keep one trajectory."""
END_DEADLINE_S = 100.0
"""How long it may take to keep all that is left when the worker ends; the supervisor's own patience is longer."""

Acknowledged = Callable[[Trajectory, float], None]
"""Hears of a trajectory that is durable now, and how long it took since it was handed over."""


class Sink(Protocol):
    """Where finished trajectories go."""

    def add(self, trajectory: Trajectory) -> object:
        """Keep a trajectory; returning means that it is durable."""


class Outbox:
    """Hands trajectories to a sink in the background. Belongs to one event loop."""

    def __init__(
        self,
        sink: Sink,
        acknowledged: Acknowledged,
        *,
        capacity: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink, self._acknowledged, self._capacity, self._clock = sink, acknowledged, capacity, clock
        self._queue: asyncio.Queue[tuple[Trajectory, float] | None] = asyncio.Queue()
        self._room = asyncio.Event()
        self._room.set()
        self._end_s = math.inf
        self.num_waiting = 0
        """Trajectories that were handed over and are not acknowledged yet."""

    @property
    def full(self) -> bool:
        """Whether the next one to hand a trajectory over has to wait for room."""
        return self.num_waiting > self._capacity

    async def put(self, trajectory: Trajectory) -> None:
        """Hand a trajectory over, then wait while too many do; the wait ends with the store's own deadline at the latest."""
        self._queue.put_nowait((trajectory, self._clock()))
        self.num_waiting += 1
        if self.full:
            self._room.clear()
        await self._room.wait()

    def finish(self) -> None:
        """Let `run` end once everything that was handed over is stored, within `END_DEADLINE_S`."""
        self._end_s = self._clock() + END_DEADLINE_S
        self._queue.put_nowait(None)

    async def run(self) -> None:
        """Store what comes, until `finish`; a store that fails or hangs ends this with its error."""
        while (entry := await self._queue.get()) is not None:
            trajectory, since_s = entry
            await self._store(trajectory)
            self._acknowledged(trajectory, self._clock() - since_s)
            self.num_waiting -= 1
            if not self.full:
                self._room.set()

    async def _store(self, trajectory: Trajectory) -> None:
        left_s = self._end_s - self._clock()
        try:
            await asyncio.wait_for(_beside(lambda: self._sink.add(trajectory)), min(STORE_DEADLINE_S, left_s))
        except TimeoutError:
            late = f"the store took over {STORE_DEADLINE_S:g} s to keep a trajectory"
            if left_s < STORE_DEADLINE_S:
                late = f"{self.num_waiting} trajectories are not stored {END_DEADLINE_S:g} s after the worker's end"
            raise StoreError(late, fix="look at the disk of the run folder") from None


def _beside(work: Callable[[], object]) -> asyncio.Future[None]:
    """What comes of `work`, done in a thread that nothing waits for, not even the end of the process.

    An executor's threads are joined there, and one that the disk holds up would hold up the end as well.
    """
    done: Future[None] = Future()
    done.set_running_or_notify_cancel()

    def do() -> None:
        try:
            work()
        except BaseException as error:  # whatever it is, it belongs to whoever waits
            done.set_exception(error)
        else:
            done.set_result(None)

    Thread(target=do, name="store", daemon=True).start()
    return asyncio.wrap_future(done)

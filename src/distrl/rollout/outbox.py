"""Finished trajectories on their way to the store, which takes them while the devices that played them go on.

They are stored one at a time, in the order in which they were handed over, by a thread beside the event loop. At most
`capacity` wait while episodes run: whoever hands over one more waits, so a slow disk slows the worker down instead of
filling its memory. A store that does not answer in time is left to itself: what comes meanwhile goes to a bounded spool
on the worker's own disk, and is handed over once the store answers again, by this process or by its next incarnation.
A store that refuses (a full disk, say) ends this with its error: that is for the run's owner to mend.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from threading import Thread

import msgspec

from distrl.errors import StoreError
from distrl.experience.durable import replace, storage_errors
from distrl.experience.episode_file import encode, load
from distrl.transport.base import EpisodeSink
from distrl.types import Trajectory

STORE_DEADLINE_S = 60.0
"""How long the store may take to keep one trajectory before it counts as not answering."""
END_DEADLINE_S = 100.0
"""How long it may take to keep all that is left when the worker ends; the supervisor's own patience is longer."""
POLL_S = 0.1

Frames = Mapping[str, bytes]
"""The pictures of a trajectory by reference, as far as they are not stored yet."""
Acknowledged = Callable[[Trajectory, float], None]
"""Hears of a trajectory that is durable in the store now, and how long that took since it was handed over."""


class Spool:
    """Trajectories with their pictures on the worker's own disk, oldest first."""

    def __init__(self, folder: Path, *, capacity: int) -> None:
        self._folder, self._capacity = folder, capacity
        self._next = 0
        if folder.exists():
            self._next = max((int(path.stem) + 1 for path in folder.glob("*.ep")), default=0)

    def __len__(self) -> int:
        return sum(1 for _ in self._paths())

    @property
    def is_full(self) -> bool:
        """Whether there is no place for one more."""
        return len(self) >= self._capacity

    def put(self, trajectory: Trajectory, frames: Frames) -> None:
        """Keep a trajectory durably, its pictures first."""
        path = self._folder / f"{self._next:010d}.ep"
        with storage_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            replace(path.with_suffix(".frames"), msgspec.msgpack.encode(dict(frames)))
            replace(path, encode(trajectory, created_s=time.time()))
        self._next += 1

    def items(self) -> Iterator[tuple[Path, Trajectory, Frames]]:
        """Everything that waits, oldest first; what cannot be read is moved aside, so that it stops nobody."""
        for path in self._paths():
            try:
                trajectory = load(path).trajectory
                frames = msgspec.msgpack.decode(path.with_suffix(".frames").read_bytes(), type=dict[str, bytes])
            except (StoreError, OSError, msgspec.DecodeError):
                path.rename(path.with_suffix(".damaged"))
                continue
            yield path, trajectory, frames

    def remove(self, path: Path) -> None:
        """Forget what the store has taken."""
        path.unlink(missing_ok=True)
        path.with_suffix(".frames").unlink(missing_ok=True)

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob("*.ep")) if self._folder.exists() else []


class Outbox:
    """Hands trajectories to a sink in the background. Belongs to one event loop."""

    def __init__(
        self,
        sink: EpisodeSink,
        acknowledged: Acknowledged,
        *,
        capacity: int,
        spool: Spool,
        deadline_s: float = STORE_DEADLINE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink, self._acknowledged, self._capacity, self._spool = sink, acknowledged, capacity, spool
        self._deadline_s, self._clock = deadline_s, clock
        self._queue: asyncio.Queue[tuple[Trajectory, Frames, float] | None] = asyncio.Queue()
        self._has_place = asyncio.Event()
        self._has_place.set()
        self._hanging: asyncio.Future[None] | None = None
        self._end_s = math.inf
        self.num_waiting = 0
        """Trajectories that were handed over and are neither acknowledged nor spooled yet."""
        self.num_spooled = len(spool)
        """Trajectories on the worker's own disk."""

    @property
    def is_full(self) -> bool:
        """Whether the next one to hand a trajectory over has to wait."""
        return self.num_waiting > self._capacity

    @property
    def hangs(self) -> bool:
        """Whether the store does not answer at present."""
        return self._hanging is not None and not self._hanging.done()

    async def put(self, trajectory: Trajectory, frames: Frames | None = None) -> None:
        """Hand a trajectory over, then wait while too many do."""
        self._queue.put_nowait((trajectory, frames or {}, self._clock()))
        self.num_waiting += 1
        if self.is_full:
            self._has_place.clear()
        await self._has_place.wait()

    def finish(self) -> None:
        """Let `run` end once everything that was handed over is stored or spooled, within `END_DEADLINE_S`."""
        self._end_s = self._clock() + END_DEADLINE_S
        self._queue.put_nowait(None)

    async def run(self) -> None:
        """Store what comes, until `finish`; a store that refuses ends this with its error."""
        await self._hand_over_spool()
        while (entry := await self._next()) is not None:
            await self._keep(*entry)
            self.num_waiting -= 1
            if not self.is_full:
                self._has_place.set()
        await self._hand_over_spool()

    async def _next(self) -> tuple[Trajectory, Frames, float] | None:
        """The next trajectory; while something is spooled, the store is tried again meanwhile."""
        while self.num_spooled:
            try:
                return await asyncio.wait_for(self._queue.get(), POLL_S)
            except TimeoutError:
                await self._hand_over_spool()
        return await self._queue.get()

    async def _keep(self, trajectory: Trajectory, frames: Frames, since_s: float) -> None:
        await self._hand_over_spool()
        if not self.hangs and await self._store(trajectory, frames):
            self._acknowledged(trajectory, self._clock() - since_s)
            return
        while self._spool.is_full and self.hangs and self._clock() < self._end_s:
            await asyncio.sleep(POLL_S)
        if self._spool.is_full and self.hangs:
            raise StoreError(
                f"the store does not answer, and the spool holds {len(self._spool)} episodes already",
                expected="a store that answers before the worker ends",
                fix="look at the disk of the run folder; rollout.spool_episodes makes the spool larger",
            )
        self._spool.put(trajectory, frames)
        self.num_spooled = len(self._spool)

    async def _hand_over_spool(self) -> None:
        """Give the store what waits on the worker's own disk, as long as it answers."""
        if self._hanging is not None and self._hanging.done():
            hung, self._hanging = self._hanging, None
            hung.result()  # it took its time: raises where it refused in the end
        if not self.num_spooled or self.hangs:
            return
        for path, trajectory, frames in self._spool.items():
            started_s = self._clock()
            if not await self._store(trajectory, frames):
                break
            self._spool.remove(path)
            self._acknowledged(trajectory, self._clock() - started_s)
        self.num_spooled = len(self._spool)

    async def _store(self, trajectory: Trajectory, frames: Frames) -> bool:
        """Whether the store has it now; False where it does not answer in time. It may still take it later."""
        call = _beside(lambda: self._sink.add(trajectory, frames))
        limit_s = min(self._deadline_s, max(0.0, self._end_s - self._clock()))
        done, _ = await asyncio.wait({call}, timeout=limit_s)
        if done:
            call.result()
            return True
        self._hanging = call
        return False


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

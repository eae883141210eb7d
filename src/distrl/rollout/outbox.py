"""Finished trajectories on their way to the store, which takes them while the devices that played them go on.

They are stored one at a time, in the order in which they were handed over, by a thread beside the event loop. At most
`capacity` wait while episodes run: whoever hands over one more waits, so a slow disk slows the worker down instead of
filling its memory. A store that does not answer in time is left to itself: what comes meanwhile goes to a spool on the
worker's own disk, which is bounded in episodes and in bytes, and is handed over once the store answers again, by this
process or by its next incarnation. While the spool is full, whoever hands over waits. A store that refuses (a full disk,
say) ends this with its error, and so does a spool that refuses or does not answer: that is for the run's owner to mend.

All work on disks is done in threads. Pictures are collected when their trajectory is stored and not before: until then
they are counted where they are held.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from distrl.errors import StoreError
from distrl.experience.durable import replace, storage_errors
from distrl.experience.episode_file import encode, load
from distrl.threads import beside
from distrl.transport.base import EpisodeSink
from distrl.types import Trajectory

T = TypeVar("T")

STORE_DEADLINE_S = 60.0
"""How long the store may take to keep one trajectory before it counts as not answering."""
SPOOL_DEADLINE_S = 60.0
"""How long the worker's own disk may take to keep one trajectory."""
END_DEADLINE_S = 100.0
"""How long it may take to keep all that is left when the worker ends; the supervisor's own patience is longer."""
POLL_S = 0.1

SPOOL_BYTES = 2 * 2**30
"""What the spool of one worker may hold, pictures included: once it has reached that, it takes nothing more."""

Frames = Mapping[str, bytes]
"""The pictures of a trajectory by reference, as far as they are not stored yet."""
CollectFrames = Callable[[], Frames]
"""Gives them at the moment of storing."""
Damaged = Callable[[Path, str], None]
"""Hears of a file that was moved aside, under its new name, and why; called in whatever thread reads the spool."""
Acknowledged = Callable[[Trajectory, float], None]
"""Hears of a trajectory that is durable in the store now, and how long that took since it was handed over."""
Spooled = Callable[[Trajectory], None]
"""Hears of a trajectory that is durable on the worker's own disk now, with its pictures."""


class Spool:
    """Trajectories with their pictures on the worker's own disk, oldest first.

    `put`, `items` and `remove` work on the disk; what is there is looked up once, at the start: a spool has one owner.
    """

    def __init__(
        self,
        folder: Path,
        *,
        capacity: int,
        capacity_bytes: int = SPOOL_BYTES,
        damaged: Damaged = lambda path, why: None,
    ) -> None:
        self.folder, self._capacity, self._capacity_bytes = folder, capacity, capacity_bytes
        self._damaged = damaged
        found = sorted(path for path in folder.glob("*") if path.name.split(".")[0].isdigit())
        self._next = max((int(path.name.split(".")[0]) + 1 for path in found), default=0)
        self._sizes = {path: _size_bytes(path) for path in found if path.suffix == ".ep"}

    def __len__(self) -> int:
        return len(self._sizes)

    @property
    def size_bytes(self) -> int:
        """What is held, pictures included."""
        return sum(list(self._sizes.values()))

    @property
    def is_full(self) -> bool:
        """Whether there is no place for one more."""
        return len(self) >= self._capacity or self.size_bytes >= self._capacity_bytes

    def put(self, trajectory: Trajectory, frames: Frames) -> None:
        """Keep a trajectory durably, its pictures first."""
        path = self.folder / f"{self._next:010d}.ep"
        with storage_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            replace(path.with_suffix(".frames"), msgspec.msgpack.encode(dict(frames)))
            replace(path, encode(trajectory, created_s=time.time()))
            self._sizes[path] = _size_bytes(path)
        self._next += 1

    def items(self) -> Iterator[tuple[Path, Trajectory, Frames]]:
        """Everything that waits, oldest first; what cannot be read is moved aside and told, so that it stops nobody."""
        for path in list(self._sizes):
            try:
                trajectory = load(path).trajectory
                frames = msgspec.msgpack.decode(path.with_suffix(".frames").read_bytes(), type=dict[str, bytes])
            except (StoreError, OSError, msgspec.DecodeError) as error:
                self._move_aside(path, str(error).splitlines()[0])
            else:
                yield path, trajectory, frames

    def remove(self, path: Path) -> None:
        """Forget what the store has taken."""
        path.unlink(missing_ok=True)
        path.with_suffix(".frames").unlink(missing_ok=True)
        self._sizes.pop(path, None)

    def _move_aside(self, path: Path, why: str) -> None:
        for file, suffix in ((path, ".damaged"), (path.with_suffix(".frames"), ".frames.damaged")):
            with suppress(FileNotFoundError):  # somebody may have tidied up
                file.rename(path.with_suffix(suffix))
        self._sizes.pop(path, None)
        self._damaged(path.with_suffix(".damaged"), why)


def _size_bytes(path: Path) -> int:
    """An episode with its pictures; 0 where it is gone."""
    files = (path, path.with_suffix(".frames"))
    return sum(file.stat().st_size for file in files if file.exists())


_Entry = tuple[Trajectory, CollectFrames, float]


class Outbox:
    """Hands trajectories to a sink in the background. Belongs to one event loop."""

    def __init__(
        self,
        sink: EpisodeSink,
        acknowledged: Acknowledged,
        *,
        capacity: int,
        spool: Spool,
        spooled: Spooled = lambda trajectory: None,
        deadline_s: float = STORE_DEADLINE_S,
        spool_deadline_s: float = SPOOL_DEADLINE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink, self._acknowledged, self._capacity = sink, acknowledged, capacity
        self._spool, self._spooled = spool, spooled
        self._deadline_s, self._spool_deadline_s, self._clock = deadline_s, spool_deadline_s, clock
        self._queue: asyncio.Queue[_Entry | None] = asyncio.Queue()
        self._has_place = asyncio.Event()
        self._has_place.set()
        self._hanging: asyncio.Future[object] | None = None
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

    async def put(self, trajectory: Trajectory, frames: CollectFrames = dict) -> None:
        """Hand a trajectory over, then wait while too many do; its pictures are asked for when it is stored."""
        self._queue.put_nowait((trajectory, frames, self._clock()))
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

    async def _next(self) -> _Entry | None:
        """The next trajectory; while something is spooled, the store is tried again meanwhile."""
        while self.num_spooled:
            try:
                return await asyncio.wait_for(self._queue.get(), POLL_S)
            except TimeoutError:
                await self._hand_over_spool()
        return await self._queue.get()

    async def _keep(self, trajectory: Trajectory, collect: CollectFrames, since_s: float) -> None:
        await self._hand_over_spool()
        frames = collect()
        if not self.hangs and await self._store(trajectory, frames):
            self._acknowledged(trajectory, self._clock() - since_s)
            return
        while self._spool.is_full and self.hangs and self._clock() < self._end_s:
            await asyncio.sleep(POLL_S)
        if self._spool.is_full and self.hangs:
            raise StoreError(
                f"the store does not answer, and the spool holds {len(self._spool)} episodes already "
                f"({self._spool.size_bytes / 1e6:.0f} MB)",
                expected="a store that answers before the worker ends",
                fix="look at the disk of the run folder; rollout.spool_episodes makes the spool larger, up to "
                f"{SPOOL_BYTES / 1e6:.0f} MB",
            )
        await self._on_own_disk(lambda: self._spool.put(trajectory, frames))
        self.num_spooled = len(self._spool)
        self._spooled(trajectory)

    async def _hand_over_spool(self) -> None:
        """Give the store what waits on the worker's own disk, as long as it answers."""
        if self._hanging is not None and self._hanging.done():
            hung, self._hanging = self._hanging, None
            hung.result()  # it took its time: raises where it refused in the end
        if not self.num_spooled or self.hangs:
            return
        entries = self._spool.items()
        while (entry := await self._on_own_disk(lambda: next(entries, None))) is not None:
            path, trajectory, frames = entry
            started_s = self._clock()
            if not await self._store(trajectory, frames):
                break
            await self._on_own_disk(partial(self._spool.remove, path))
            self.num_spooled = len(self._spool)
            self._acknowledged(trajectory, self._clock() - started_s)
        self.num_spooled = len(self._spool)

    async def _on_own_disk(self, work: Callable[[], T]) -> T:
        """What comes of `work` with the spool; a disk that does not answer is an error: there is nowhere else to go."""
        call = beside(work, name="spool")
        done, _ = await asyncio.wait({call}, timeout=self._spool_deadline_s)
        if done:
            return call.result()
        raise StoreError(
            f"the spool in {self._spool.folder} did not answer within {self._spool_deadline_s:g} s",
            expected="a folder for temporary files on a disk that answers",
            fix="look at that disk, or choose another folder with TMPDIR",
        )

    async def _store(self, trajectory: Trajectory, frames: Frames) -> bool:
        """Whether the store has it now; False where it does not answer in time. It may still take it later."""
        call = beside(lambda: self._sink.add(trajectory, frames), name="store")
        limit_s = min(self._deadline_s, max(0.0, self._end_s - self._clock()))
        done, _ = await asyncio.wait({call}, timeout=limit_s)
        if done:
            call.result()
            return True
        self._hanging = call
        return False

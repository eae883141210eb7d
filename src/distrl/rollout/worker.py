"""A worker: one process that drives many devices at once and never waits for the learner.

It leases devices from its pool, plays tasks, and hands each finished trajectory to the store, which acknowledges it
once it is durable. When it is told to stop, it starts nothing new, gives running episodes a moment, cuts the rest off
and stores them too. To compare with, it can also drive its devices in lock-step, batch after batch.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec
from msgspec.structs import replace

from distrl.devices.base import Device
from distrl.devices.pool import DevicePool, Health
from distrl.errors import DeviceError, StoreError
from distrl.rollout.batching import Batcher, all_or_first_error
from distrl.rollout.episode import EpisodeLimits, EpisodeTools, Played, run_episode
from distrl.rollout.lockstep import LockStep
from distrl.rollout.rounds import NoRounds, Rounds
from distrl.rollout.scheduler import Admission, Standing, TaskFeed
from distrl.telemetry.events import EventLog
from distrl.types import Ending, Trajectory

STORE_DEADLINE_S = 60.0
LEASE_DEADLINE_S = 1.0
"""Short, so that a worker that is told to stop does not wait for a device that is long in coming back."""
HELD_BACK_POLL_S = 0.02
"""How long a worker that may start nothing waits before it asks again, once for all its devices."""
HURRY_S = 2.0
"""After running episodes are cut, how long a device that is in the middle of something may still take."""


class Sink(Protocol):
    """Where finished trajectories go."""

    def add(self, trajectory: Trajectory) -> object:
        """Keep a trajectory; returning means that it is durable."""


class WorkerParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is made of."""

    name: str
    pool: DevicePool
    batcher: Batcher
    feed: TaskFeed
    admission: Admission
    tools: EpisodeTools
    limits: EpisodeLimits
    sink: Sink
    first_priority: Callable[[Trajectory], float]
    latest_version: Callable[[], int]
    log: EventLog
    rounds: Rounds = NoRounds()
    lockstep: LockStep | None = None
    """None: each device goes at its own pace."""
    drain_s: float = 3.0
    """How long running episodes may go on after the worker was told to stop."""


class Tally(msgspec.Struct, kw_only=True):
    """What a worker has done so far."""

    episodes: int = 0
    successes: int = 0
    steps: int = 0
    invalid: int = 0
    losses: int = 0
    cut: int = 0
    acknowledge_s: float = 0.0
    recent: deque[bool] = msgspec.field(default_factory=lambda: deque(maxlen=200))


class Worker:
    """Plays tasks on all devices of its pool until stopped."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        decide = parts.lockstep.decide if parts.lockstep else parts.batcher.decide
        self._tools = replace(parts.tools, decide=decide, cut=lambda: self._cutting)
        self._stopping = asyncio.Event()
        self._cutting: bool = False
        # One thread: additions wait for the disk, and the disk takes them one at a time anyway.
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._ask_again_s = 0.0
        self.tally = Tally()
        self.num_playing = 0
        self.num_storing = 0
        self.waiting = ""
        """Why no new episode starts; empty: they do."""

    def stop(self) -> None:
        """Start nothing new and come to an end."""
        self._stopping.set()
        if self._parts.lockstep:
            self._parts.lockstep.open()

    async def run(self) -> None:
        """Play until stopped; an error in one episode that is no device's fault ends the worker."""
        deciding = asyncio.create_task(self._parts.batcher.run(), name="decisions")
        lanes = self._start_lanes()
        ending = asyncio.create_task(self._end(), name="ending")
        try:
            await all_or_first_error(lanes, deciding)
        finally:
            for task in (*lanes, ending, deciding):
                task.cancel()
            await asyncio.gather(*lanes, ending, deciding, return_exceptions=True)
            self._writer.shutdown()
            await self._parts.pool.close()

    async def _end(self) -> None:
        await self._stopping.wait()
        await asyncio.sleep(self._parts.drain_s)
        self._cutting = True
        await asyncio.sleep(min(HURRY_S, self._parts.drain_s))
        for deadline in self._tools.waits:
            if not deadline.expired():
                deadline.reschedule(asyncio.get_running_loop().time())

    def _start_lanes(self) -> list[asyncio.Task[None]]:
        if self._parts.lockstep:
            return [asyncio.create_task(self._march(self._parts.lockstep), name="batches in lock-step")]
        return [asyncio.create_task(self._lane(), name=f"lane {n}") for n in range(len(self._parts.pool))]

    async def _lane(self) -> None:
        """One episode after another on whatever device is free."""
        while not self._stopping.is_set():
            if await self._admit(1):
                await self._attempt(self._parts.batcher.version)

    async def _march(self, gate: LockStep) -> None:
        """One batch of episodes after another, each on all devices that are well and over when its last one is."""
        while not self._stopping.is_set():
            if size := await self._admit(max(1, self.health()["healthy"])):
                await self._play_batch(size, gate)

    async def _play_batch(self, size: int, gate: LockStep) -> None:
        version = self._parts.batcher.version
        gate.enter(size)
        batch = [asyncio.create_task(self._attempt(version, gate), name=f"place {n}") for n in range(size)]
        try:
            await asyncio.gather(*batch)
        finally:
            for place in batch:
                place.cancel()
            await asyncio.gather(*batch, return_exceptions=True)

    async def _admit(self, count: int) -> int:
        """How many of `count` episodes may start now; whoever is refused waits a moment, and one lane asks for all."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._ask_again_s:
            await asyncio.sleep(self._ask_again_s - now_s)
            return 0
        batcher, rounds = self._parts.batcher, self._parts.rounds
        batcher.swap()
        standing = Standing(held=batcher.version, latest=self._parts.latest_version())
        self.waiting = self._parts.admission.refusal(standing)
        granted = 0 if self.waiting else rounds.claim(batcher.version, count)
        if not granted:
            self.waiting = self.waiting or f"version {batcher.version + 1}: {rounds.refusal}"
            self._ask_again_s = now_s + HELD_BACK_POLL_S
        return granted

    async def _attempt(self, version: int, gate: LockStep | None = None) -> None:
        """Play one episode that was claimed, and keep what comes of it."""
        try:
            played = await self._play_leased()
        finally:
            if gate:
                gate.leave()
        delivered = played is not None and await self._keep(*played)
        self._parts.rounds.settle(version, delivered=delivered)

    async def _play_leased(self) -> tuple[str, Played] | None:
        """One episode on a device that is free, and the device's name; None where none came free in time."""
        try:
            device = await self._parts.pool.lease(LEASE_DEADLINE_S)
        except DeviceError as error:
            self.waiting = f"a device: {error.seen}"
            return None
        return device.name, await self._play(device)

    async def _play(self, device: Device) -> Played:
        id = uuid.uuid4().hex
        lost = "the episode broke off"
        self.num_playing += 1
        try:
            played = await run_episode(id, device, self._parts.feed.next(), self._tools, self._parts.limits)
            lost = played.lost
            return played
        finally:
            self.num_playing -= 1
            self._parts.pool.release(device, lost=lost)

    async def _keep(self, device: str, played: Played) -> bool:
        """Hand the trajectory to the store; whether there was one."""
        if played.lost:
            self.tally.losses += 1
            self._parts.log.write("device_lost", device=device, why=played.lost.splitlines()[0])
        if played.trajectory is None:
            return False
        trajectory = replace(
            played.trajectory, worker=self._parts.name, priority=self._parts.first_priority(played.trajectory)
        )
        await self._store(trajectory)
        self._parts.log.write("acknowledged", id=trajectory.id, success=trajectory.verdict.success)
        self._count(trajectory)
        return True

    async def _store(self, trajectory: Trajectory) -> None:
        """Wait until the store has the trajectory durably; a store that hangs is named, not waited for in silence."""
        before_s = time.monotonic()
        self.num_storing += 1
        adding = asyncio.get_running_loop().run_in_executor(self._writer, self._parts.sink.add, trajectory)
        try:
            await asyncio.wait_for(adding, STORE_DEADLINE_S)
        except TimeoutError:
            raise StoreError(
                f"the store took over {STORE_DEADLINE_S:g} s to keep a trajectory",
                fix="look at the disk of the run folder",
            ) from None
        finally:
            self.num_storing -= 1
        self.tally.acknowledge_s += time.monotonic() - before_s

    def _count(self, trajectory: Trajectory) -> None:
        tally = self.tally
        tally.episodes += 1
        tally.successes += trajectory.verdict.success
        if not self._stopping.is_set():  # what drains at the end is mostly long and failing: it would tell nothing
            tally.recent.append(trajectory.verdict.success)
        tally.steps += len(trajectory.steps)
        tally.invalid += sum(not step.valid for step in trajectory.steps)
        tally.cut += trajectory.ending in (Ending.TIME_LIMIT, Ending.DEVICE_LOST)

    def health(self) -> dict[str, int]:
        """How many devices are in which state."""
        counts = {str(health): 0 for health in Health}
        for status in self._parts.pool.status():
            counts[str(status.health)] += 1
        return counts

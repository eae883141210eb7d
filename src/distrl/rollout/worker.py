"""A worker: one process that drives many devices at once and never waits for the learner.

It leases devices from its pool, plays tasks, and hands each finished trajectory to its outbox, which has it stored
while the lane plays on; the store acknowledges it once it is durable. When the worker is told to stop, it starts
nothing new, gives running episodes a moment, cuts the rest off, and ends once all of them are stored. To compare with, it
can also drive its devices in lock-step, batch after batch.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable
from statistics import median

import msgspec
from msgspec.structs import replace

from distrl.devices.base import Device
from distrl.devices.pool import DevicePool, Health
from distrl.errors import DeviceError
from distrl.rollout.batching import Batcher, all_or_first_error
from distrl.rollout.episode import EpisodeLimits, EpisodeTools, Played, run_episode
from distrl.rollout.lockstep import LockStep
from distrl.rollout.outbox import Outbox, Sink
from distrl.rollout.rounds import Claim, NoRounds, Rounds
from distrl.rollout.scheduler import Admission, Standing, TaskFeed, VersionPace
from distrl.telemetry.events import EventLog
from distrl.types import Ending, Trajectory

LEASE_DEADLINE_S = 1.0
"""Short, so that a worker that is told to stop does not wait for a device that is long in coming back."""
HELD_BACK_POLL_S = 0.02
"""How long a worker that may start nothing waits before it asks again, once for all its devices."""
USUAL_EPISODES = 64
"""Episodes whose median duration counts as usual."""
HURRY_S = 2.0
"""After running episodes are cut, how long a device that is in the middle of something may still take."""


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
    backlog: int = 64
    """Trajectories that may wait to be stored before lanes wait for them."""
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
        self._outbox = Outbox(parts.sink, self._acknowledge, capacity=parts.backlog)
        self._claimed: dict[str, Claim] = {}
        """What each trajectory in the outbox was played for: its claim is settled when it is stored."""
        self._ask_again_s = 0.0
        self.tally = Tally()
        self._num_underway = 0
        self._held_back = ""
        self._pace = VersionPace()
        self._walls_s: deque[float] = deque(maxlen=USUAL_EPISODES)
        self.num_playing = 0

    @property
    def waiting(self) -> str:
        """Why no new episode starts; empty: they do."""
        if self._outbox.full:
            return f"the store: {self.num_storing} trajectories wait to be kept"
        return self._held_back

    @property
    def num_storing(self) -> int:
        """Trajectories that are finished and not yet acknowledged by the store."""
        return self._outbox.num_waiting

    def stop(self) -> None:
        """Start nothing new and come to an end."""
        self._stopping.set()
        if self._parts.lockstep:
            self._parts.lockstep.open()

    async def run(self) -> None:
        """Play until stopped; an error in one episode that is no device's fault ends the worker."""
        deciding = asyncio.create_task(self._parts.batcher.run(), name="decisions")
        storing = asyncio.create_task(self._outbox.run(), name="storing")
        lanes = self._start_lanes()
        ending = asyncio.create_task(self._end(), name="ending")
        try:
            await all_or_first_error(lanes, deciding, storing)
        finally:
            for task in (*lanes, ending, deciding):
                task.cancel()
            await asyncio.gather(*lanes, ending, deciding, return_exceptions=True)
            await self._store_the_rest(storing)

    async def _store_the_rest(self, storing: asyncio.Task[None]) -> None:
        """Also where something else has failed: what was finished is stored, unless it is the store that failed."""
        self._outbox.finish()
        try:
            await storing
        finally:
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
            for claim in await self._admit(1):
                await self._attempt(claim)

    async def _march(self, gate: LockStep) -> None:
        """One batch of episodes after another, each on all devices that are well and over when its last one is."""
        while not self._stopping.is_set():
            if claims := await self._admit(max(1, self.health()["healthy"])):
                await self._play_batch(claims, gate)

    async def _play_batch(self, claims: list[Claim], gate: LockStep) -> None:
        gate.enter(len(claims))
        batch = [asyncio.create_task(self._attempt(claim, gate), name=f"place {n}") for n, claim in enumerate(claims)]
        try:
            await asyncio.gather(*batch)
        finally:
            for place in batch:
                place.cancel()
            await asyncio.gather(*batch, return_exceptions=True)

    async def _admit(self, count: int) -> list[Claim]:
        """Those of `count` episodes that may start now; whoever is refused waits a moment, and one lane asks for all."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._ask_again_s:
            await asyncio.sleep(self._ask_again_s - now_s)
            return []
        version, rounds = self._swap(), self._parts.rounds
        self._held_back = self._parts.admission.refusal(self._stand(version))
        granted = [] if self._held_back else rounds.claim(version, count)
        if not granted:
            self._held_back = self._held_back or f"version {version + 1}: {rounds.refusal}"
            self._ask_again_s = now_s + HELD_BACK_POLL_S
        return granted

    def _swap(self) -> int:
        """Take the newest weights; the version in use."""
        self._parts.batcher.swap()
        return self._parts.batcher.version

    def _stand(self, version: int) -> Standing:
        latest, now_s = self._parts.latest_version(), self._tools.clock()
        self._pace.note(latest, now_s)
        return Standing(
            held=version,
            latest=latest,
            running=self._num_underway,
            versions_per_s=self._pace.per_s(now_s),
            usual_s=median(self._walls_s) if self._walls_s else 0.0,
        )

    async def _attempt(self, claim: Claim, gate: LockStep | None = None) -> None:
        """Play one episode that was claimed, and keep what comes of it."""
        self._num_underway += 1
        try:
            played = await self._play_leased()
        finally:
            self._num_underway -= 1
            if gate:
                gate.leave()
        if played is None or not await self._keep(*played, claim):
            self._parts.rounds.settle(claim, delivered=False)  # someone else may start in its place

    async def _play_leased(self) -> tuple[str, Played] | None:
        """One episode on a device that is free, and the device's name; None where none came free in time."""
        try:
            device = await self._parts.pool.lease(LEASE_DEADLINE_S)
        except DeviceError as error:
            self._held_back = f"a device: {error.seen}"
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

    async def _keep(self, device: str, played: Played, claim: Claim) -> bool:
        """Hand the trajectory to the outbox; whether there was one."""
        if played.lost:
            self.tally.losses += 1
            self._parts.log.write("device_lost", device=device, why=played.lost.splitlines()[0])
        if played.trajectory is None:
            return False
        trajectory = replace(
            played.trajectory, worker=self._parts.name, priority=self._parts.first_priority(played.trajectory)
        )
        self._walls_s.append(trajectory.wall_s)
        self._parts.log.write("finished", id=trajectory.id)
        self._claimed[trajectory.id] = claim
        await self._outbox.put(trajectory)
        return True

    def _acknowledge(self, trajectory: Trajectory, waited_s: float) -> None:
        self._parts.log.write("acknowledged", id=trajectory.id, success=trajectory.verdict.success)
        # Not before: between the outbox and the store, a round would count it nowhere and give it out again.
        self._parts.rounds.settle(self._claimed.pop(trajectory.id), delivered=True)
        self.tally.acknowledge_s += waited_s
        self._count(trajectory)

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

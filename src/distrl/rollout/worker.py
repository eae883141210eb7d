"""A worker: one process that drives many devices at once and never waits for the learner.

It leases devices from its pool and plays tasks. Once the lease is returned, the episode is judged, relabelled in
hindsight where it failed, and handed to the outbox, all beside the next episode on that device; the store acknowledges
it once it is durable. When the worker is told to stop, it starts nothing new, gives running episodes a moment, truncates
the rest, and ends once all of them are stored. As a baseline it can also drive its devices in lock-step, batch after batch.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from statistics import median

import msgspec
from msgspec.structs import replace

from distrl.devices.base import Device
from distrl.devices.calls import abandon
from distrl.devices.following import Following
from distrl.devices.health import Health
from distrl.devices.pool import DevicePool
from distrl.errors import DeviceError, LossCause
from distrl.experience.frames import FrameBuffer
from distrl.rollout.batching import Decider, all_or_first_error
from distrl.rollout.deadlines import LEASE_DEADLINE_S, verdicts_s
from distrl.rollout.episode import (
    BusyMeter,
    EpisodeLimits,
    EpisodeTools,
    Played,
    attempt_of,
    run_episode,
    with_verdict,
)
from distrl.rollout.hindsight import HindsightFailed, HindsightStage, Relabeller
from distrl.rollout.outbox import STORE_DEADLINE_S, Outbox, Spool
from distrl.rollout.rounds import Claim, LockStep, NoRounds, Rounds
from distrl.rollout.scheduler import Admission, AdmissionRequest, TaskFeed, VersionRate
from distrl.rollout.watched import DevicesShown
from distrl.tasks.judges import Judge, judge_attempt
from distrl.threads import beside
from distrl.transport.base import EpisodeSink, EventSink
from distrl.types import Ending, Observation, Trajectory, Verdict

HELD_BACK_POLL_S = 0.02
"""How long a worker that may start nothing waits before it asks again, once for all its devices."""
USUAL_EPISODES = 64
"""Episodes whose median duration counts as usual."""
JUDGE_MARGIN_S = 5.0
"""What a judge that is past its deadline may take to close what it has open."""
SPILL_POLL_S = 0.1
"""How often an episode that waits for memory for its next picture looks whether the worker wants it to end."""
CANCEL_DEADLINE_S = 10.0
"""How long a worker that ends waits for its own tasks, once it has cancelled them."""
HURRY_S = 2.0
"""After running episodes are cut, how long a device that is in the middle of something may still take."""


class WorkerParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is made of."""

    name: str
    pool: DevicePool
    batcher: Decider
    feed: TaskFeed
    admission: Admission
    tools: EpisodeTools
    limits: EpisodeLimits
    judge: Judge
    judge_deadline_s: float = 60.0
    """For the verdict on an episode, and once more for its hindsight."""
    judge_at_once: int = 16
    """Episodes that are judged or relabelled at the same time; while more wait, so do new episodes."""
    sink: EpisodeSink
    spool: Spool
    store_deadline_s: float = STORE_DEADLINE_S
    """A sink that takes longer over one trajectory counts as not answering."""
    first_priority: Callable[[Trajectory], float]
    latest_version: Callable[[], int]
    log: EventSink
    frames: FrameBuffer | None = None
    """Pictures of running episodes; None: none are taken."""
    relabeller: Relabeller | None = None
    """None: a failure stays a failure."""
    rounds: Rounds = NoRounds()
    lockstep: LockStep | None = None
    """None: each device goes at its own pace."""
    following: Following | None = None
    """Looks for devices that come; None: those that were there at the start are all."""
    backlog: int = 64
    """Trajectories that may wait to be stored before new episodes wait for them."""
    cancel_deadline_s: float = CANCEL_DEADLINE_S
    """A part of the worker that goes on for longer after it was cancelled is named in the log and not waited for."""
    drain_s: float = 3.0
    """How long running episodes may go on after the worker was told to stop."""


class WorkerCounts(msgspec.Struct, kw_only=True):
    """What a worker has done so far."""

    episodes: int = 0
    successes: int = 0
    steps: int = 0
    invalid: int = 0
    losses: int = 0
    truncated: int = 0
    unjudged: int = 0
    """Episodes that ended well and whose judge failed: stored, and nothing is learnt from them."""
    unjudged_in_a_row: int = 0
    """Of these, since the last claim that has a verdict. Without a claim a verdict may cost no judge a look."""
    unrelabelled: int = 0
    """Episodes for which the suite's hindsight failed: stored as they are, and nothing is stored beside them."""
    acknowledge_s: float = 0.0
    recent: deque[bool] = msgspec.field(default_factory=lambda: deque(maxlen=200))


class Worker:
    """Plays tasks on all devices of its pool until stopped."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        decide = parts.lockstep.decide if parts.lockstep else parts.batcher.decide
        self.meter = BusyMeter(parts.tools.clock, num_devices=parts.pool.num_in_use)
        """How long the worker's devices have been at work."""
        self._tools = replace(
            parts.tools,
            decide=decide,
            stopping=lambda: self._truncating,
            meter=self.meter,
            wait_for_frame_memory=None if parts.frames is None else partial(self._wait_for_memory, parts.frames),
        )
        self._spilling: asyncio.Future[None] | None = None
        self._stopping = asyncio.Event()
        self._truncating: bool = False
        self._outbox = Outbox(
            parts.sink,
            self._acknowledge,
            spooled=self._release_pictures,
            capacity=parts.backlog,
            spool=parts.spool,
            deadline_s=parts.store_deadline_s,
        )
        self._judging: set[asyncio.Task[None]] = set()
        self._judges = asyncio.Semaphore(parts.judge_at_once)
        self._has_judge = asyncio.Event()
        self._has_judge.set()
        self._hindsight = _make_stage(parts)
        self._num_relabelling = 0
        self._claimed: dict[str, Claim] = {}
        """What each trajectory in the outbox was played for: its claim is settled when it is stored."""
        self._ask_again_s = 0.0
        self.counts = WorkerCounts()
        self._num_underway = 0
        self._held_back = ""
        self._version_rate = VersionRate()
        self._walls_s: deque[float] = deque(maxlen=USUAL_EPISODES)
        self.num_playing = self.most_at_once = 0
        """Episodes that are under way, and may be; the second is 0 without a limit other than the devices."""
        self.shown = DevicesShown(parts.name, parts.pool, parts.frames, clock=parts.tools.clock)
        """What its devices show, for people."""

    @property
    def waiting(self) -> str:
        """Why no new episode starts; empty: they do."""
        if self._outbox.hangs:
            return f"the store, which does not answer: {self._outbox.num_spooled} episodes are in the spool"
        if self._outbox.is_full:
            return f"the store: {self.num_storing} trajectories wait to be kept"
        if self._spilling is not None:
            held = 0 if self._parts.frames is None else self._parts.frames.held_bytes
            return f"the store: {held / 1e6:.0f} MB of pictures in memory wait to be kept"
        if self._judges.locked():
            return self._judge_said
        return self._held_back or (f"a device: {self._parts.pool.describe()}" if self._parts.pool.num_waiting else "")

    @property
    def num_storing(self) -> int:
        """Trajectories that are finished and not yet acknowledged by the store."""
        return self._outbox.num_waiting

    @property
    def num_spooled(self) -> int:
        """Trajectories on the worker's own disk, because the store does not answer."""
        return self._outbox.num_spooled

    @property
    def num_judging(self) -> int:
        """Episodes that wait for their verdict, or for hindsight."""
        return len(self._judging)

    @property
    def _judge_said(self) -> str:
        num_relabelling = self._num_relabelling
        hindsight = f" and {num_relabelling} for hindsight" if num_relabelling else ""
        return f"the judge: {len(self._judging) - num_relabelling} episodes wait for their verdict{hindsight}"

    def stop(self) -> None:
        """Start nothing new and come to an end."""
        self._stopping.set()
        if self._parts.lockstep:
            self._parts.lockstep.open()

    async def run(self) -> None:
        """Play until stopped; an error in one episode that is no device's fault ends the worker."""
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        deciding = asyncio.create_task(self._parts.batcher.run(), name="decisions")
        storing = asyncio.create_task(self._outbox.run(), name="storing")
        lanes = self._start_lanes()
        ending = asyncio.create_task(self._end(), name="ending")
        try:
            await all_or_first_error(lanes, deciding, storing, self._failed)
        finally:
            for task in (*lanes, ending, deciding):
                task.cancel()
            await self._see_end_of([*lanes, ending, deciding])
            await self._store_the_rest(storing)

    async def _store_the_rest(self, storing: asyncio.Task[None]) -> None:
        """Also where something else has failed: what was finished is stored, unless it is the store that failed."""
        # A store that has failed takes nothing any more, and those who wait to hand something over would wait for ever.
        judging = asyncio.create_task(_all_over(self._judging), name="last verdicts")
        limit_s = self._last_verdicts_s() + JUDGE_MARGIN_S
        await asyncio.wait({judging, storing}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        self._outbox.finish()
        try:
            await storing
            if self._failed.done():
                self._failed.result()
        finally:
            for task in (judging, *self._judging):
                task.cancel()
            await self._see_end_of([judging, *self._judging])
            for why in await self._parts.pool.close():
                self._parts.log.write("device_not_closed", why=why.splitlines()[0])

    def _last_verdicts_s(self) -> float:
        """How long those that are pending may take: more of them than are judged at once, where something has failed."""
        parts, hindsight = self._parts, self._hindsight is not None
        return verdicts_s(
            len(self._judging), at_once=parts.judge_at_once, deadline_s=parts.judge_deadline_s, hindsight=hindsight
        )

    async def _see_end_of(self, cancelled: Iterable[asyncio.Task[None]]) -> None:
        """Wait for tasks that were cancelled, within a deadline; what they raise has been told elsewhere."""
        ended, hanging = await asyncio.wait(list(cancelled), timeout=self._parts.cancel_deadline_s)
        for task in ended:
            if not task.cancelled():
                task.exception()  # looked at, or asyncio reports it once more
        for task in hanging:
            self._parts.log.write("not_ended", task=task.get_name())
            abandon(task)

    async def _end(self) -> None:
        await self._stopping.wait()
        await asyncio.sleep(self._parts.drain_s)
        self._truncating = True
        await asyncio.sleep(min(HURRY_S, self._parts.drain_s))
        for deadline in self._tools.deadlines:
            if not deadline.expired():
                deadline.reschedule(asyncio.get_running_loop().time())

    def _start_lanes(self) -> list[asyncio.Task[None]]:
        if self._parts.lockstep:
            return [asyncio.create_task(self._play_in_lockstep(self._parts.lockstep), name="batches in lock-step")]
        lanes = [asyncio.create_task(self._lane(), name=f"lane {n}") for n in range(self._parts.pool.num_in_use)]
        if (following := self._parts.following) is not None:
            more = following.keep(self._parts.pool, self._lane, self._stopping, self.meter.set_devices)
            lanes.append(asyncio.create_task(more, name="devices that come"))
        return lanes

    async def _lane(self) -> None:
        """One episode after another on whatever device is free."""
        while not self._stopping.is_set():
            for claim in await self._admit(1):
                await self._attempt(claim)

    async def _play_in_lockstep(self, gate: LockStep) -> None:
        """One batch of episodes after another, each on all devices that are well and over when its last one is."""
        while not self._stopping.is_set():
            if claims := await self._admit(max(1, min(self.health()["healthy"], self._parts.pool.num_in_use))):
                await self._play_batch(claims, gate)

    async def _play_batch(self, claims: list[Claim], gate: LockStep) -> None:
        gate.enter(len(claims))
        batch = [asyncio.create_task(self._attempt(claim, gate), name=f"place {n}") for n, claim in enumerate(claims)]
        try:
            await asyncio.gather(*batch)
        finally:
            for place in batch:
                place.cancel()
            await self._see_end_of(batch)

    async def _admit(self, count: int) -> list[Claim]:
        """Those of `count` episodes that may start now; whoever is refused waits a moment, and one lane asks for all."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._ask_again_s:
            await asyncio.sleep(self._ask_again_s - now_s)
            return []
        version, rounds = self._swap(), self._parts.rounds
        full = 0 < self.most_at_once <= self._num_underway
        balanced = f"fewer episodes: {self.most_at_once} at once (balance)" if full else ""
        self._held_back = balanced or self._parts.admission.refusal(self._request(version))
        granted = [] if self._held_back else rounds.claim(version, count)
        if not granted:
            self._held_back = self._held_back or f"version {version + 1}: {rounds.refusal}"
            self._ask_again_s = now_s + HELD_BACK_POLL_S
        return granted

    def _swap(self) -> int:
        """Take the newest weights; the version in use."""
        self._parts.batcher.swap()
        return self._parts.batcher.version

    async def _wait_for_memory(self, frames: FrameBuffer) -> None:
        """Wait while memory holds too many pictures, and have the store take the oldest; no longer than episodes go on."""
        while frames.is_full and not self._truncating:
            self._spilling = spilling = self._spilling or beside(frames.spill, name="frames")
            done, _ = await asyncio.wait({spilling}, timeout=SPILL_POLL_S)
            if done:
                self._spilling = None if self._spilling is spilling else self._spilling
                spilling.result()

    def _request(self, version: int) -> AdmissionRequest:
        latest, now_s = self._parts.latest_version(), self._tools.clock()
        self._version_rate.note(latest, now_s)
        return AdmissionRequest(
            held=version,
            latest=latest,
            running=self._num_underway,
            versions_per_s=self._version_rate.per_s(now_s),
            usual_s=median(self._walls_s) if self._walls_s else 0.0,
        )

    async def _attempt(self, claim: Claim, gate: LockStep | None = None) -> None:
        """Play one episode that was claimed, and let what comes of it be judged and kept."""
        self._num_underway += 1
        try:
            played = await self._play_leased()
        finally:
            self._num_underway -= 1
            if gate:
                gate.leave()
        if played is None or not await self._hand_over(*played, claim):
            self._parts.rounds.settle(claim, delivered=False)  # someone else may start in its place

    async def _play_leased(self) -> tuple[str, Played] | None:
        """One episode on a device that is free, and the device's name; None where none came free in time."""
        try:
            device = await self._parts.pool.lease(LEASE_DEADLINE_S)
        except DeviceError:
            return None
        return device.name, await self._play(device)

    async def _play(self, device: Device) -> Played:
        id = uuid.uuid4().hex
        lost, cause = "the episode broke off", LossCause.CRASH
        self.num_playing += 1
        try:
            task = self._parts.feed.next()
            tools = replace(self._tools, decide=self.shown.begin(device.name, task, self._tools.decide))
            played = await run_episode(id, device, task, tools, self._parts.limits)
            lost, cause = played.lost, played.cause
            return played
        finally:
            self.num_playing -= 1
            self.shown.end(device.name)
            self._parts.pool.release(device, lost=lost, cause=cause)

    async def _hand_over(self, device: str, played: Played, claim: Claim) -> bool:
        """Have the trajectory judged beside the next episode, and wait while too many are; whether there was one."""
        if played.lost:
            self.counts.losses += 1
            why = played.lost.splitlines()[0]
            self._parts.log.write("device_lost", device=device, why=why, cause=str(played.cause))
        if played.trajectory is None:
            return False
        self._walls_s.append(played.trajectory.wall_s)
        self._parts.log.write("finished", id=played.trajectory.id, device=device)
        # Before any wait: whoever waits here may be cancelled, and the episode is kept all the same.
        judging = asyncio.create_task(self._judge_in_turn(played.trajectory, claim), name="verdict")
        self._judging.add(judging)
        judging.add_done_callback(self._judged)
        if len(self._judging) > self._parts.judge_at_once:
            self._has_judge.clear()
        await self._has_judge.wait()
        return True

    def _judged(self, judging: asyncio.Task[None]) -> None:
        self._judging.discard(judging)
        if len(self._judging) <= self._parts.judge_at_once:
            self._has_judge.set()
        error = None if judging.cancelled() else judging.exception()
        if error is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def _judge_in_turn(self, trajectory: Trajectory, claim: Claim) -> None:
        async with self._judges:
            await self._judge_and_keep(trajectory, claim)

    async def _judge_and_keep(self, trajectory: Trajectory, claim: Claim) -> None:
        parts = self._parts
        picture = parts.frames.get if parts.frames is not None else None
        if was_cut := self._was_cut(trajectory):
            verdict = Verdict(outcome="unknown", reason="the end of the worker cut it off")
        else:
            attempt = attempt_of(trajectory, picture=picture)
            verdict = await judge_attempt(parts.judge, attempt, deadline_s=parts.judge_deadline_s)
        if not verdict.known and not trajectory.ending.is_error and not was_cut:
            self.counts.unjudged += 1
            self.counts.unjudged_in_a_row += 1
            parts.log.write("unjudged", id=trajectory.id, why=verdict.reason)
        elif verdict.known and trajectory.end.claim is not None:
            self.counts.unjudged_in_a_row = 0
        judged = replace(with_verdict(trajectory, verdict), worker=parts.name)
        judged = replace(judged, priority=parts.first_priority(judged))
        # Before the episode itself: once that is stored, its round may be over and its learner may go on.
        relabelled = await self._relabel(judged)
        if relabelled is not None:
            await self._outbox.put(relabelled, partial(self._pictures_of, relabelled))
        self._claimed[judged.id] = claim
        await self._outbox.put(judged, partial(self._pictures_of, judged))

    def _was_cut(self, trajectory: Trajectory) -> bool:
        """Whether the end of the worker cut a call to its device, so that nobody knows how the device was left."""
        return self._truncating and trajectory.ending is Ending.TIME_LIMIT and trajectory.end.device is None

    async def _relabel(self, judged: Trajectory) -> Trajectory | None:
        """What hindsight makes of an episode; a suite that fails at that is counted, and costs nothing else."""
        if self._hindsight is None:
            return None
        self._num_relabelling += 1
        try:
            return await self._hindsight.relabel(judged)
        except HindsightFailed as failed:
            self.counts.unrelabelled += 1
            self._parts.log.write("unrelabelled", id=judged.id, why=str(failed))
            return None
        finally:
            self._num_relabelling -= 1

    def _pictures_of(self, trajectory: Trajectory) -> dict[str, bytes]:
        """The pictures of a trajectory that are not stored yet."""
        return {} if self._parts.frames is None else self._parts.frames.collect(references_of(trajectory))

    def _release_pictures(self, spooled: Trajectory) -> None:
        """Its pictures are on the worker's own disk: memory is for episodes that are under way."""
        if self._parts.frames is not None and spooled.source == "played":  # what was relabelled has taken none
            self._parts.frames.release(observation.screenshot for observation in observations_of(spooled))

    def _acknowledge(self, trajectory: Trajectory, waited_s: float) -> None:
        if self._parts.frames is not None:
            self._parts.frames.forget(references_of(trajectory))
        if trajectory.source != "played":
            return
        self._parts.log.write("acknowledged", id=trajectory.id, success=trajectory.verdict.success)
        # Not before: between the outbox and the store, a round would count it nowhere and give it out again.
        claim = self._claimed.pop(trajectory.id, None)
        if claim is not None:  # none for what an earlier incarnation left in the spool
            self._parts.rounds.settle(claim, delivered=True)
        self.counts.acknowledge_s += waited_s
        self._count(trajectory)

    def _count(self, trajectory: Trajectory) -> None:
        counts = self.counts
        counts.episodes += 1
        counts.successes += trajectory.verdict.success
        if not self._stopping.is_set():  # what drains at the end is mostly long and failing: it would tell nothing
            counts.recent.append(trajectory.verdict.success)
        counts.steps += len(trajectory.steps)
        counts.invalid += sum(not step.valid for step in trajectory.steps)
        counts.truncated += trajectory.ending.is_truncated

    def health(self) -> dict[str, int]:
        """How many devices are in which state."""
        counts = {str(health): 0 for health in Health}
        for status in self._parts.pool.status():
            counts[str(status.health)] += 1
        return counts


def _make_stage(parts: WorkerParts) -> HindsightStage | None:
    if parts.relabeller is None:
        return None
    ask_policy, at_once = parts.batcher.between_batches, parts.judge_at_once
    return HindsightStage(parts.relabeller, ask_policy, deadline_s=parts.judge_deadline_s, at_once=at_once)


def references_of(trajectory: Trajectory) -> list[str]:
    """The references to the pictures of a trajectory, each once."""
    seen = observations_of(trajectory)
    return list(dict.fromkeys(observation.screenshot for observation in seen if observation.screenshot))


def observations_of(trajectory: Trajectory) -> list[Observation]:
    """All that was seen in an episode, in order."""
    return [step.observation for step in trajectory.steps] + ([trajectory.last] if trajectory.last else [])


async def _all_over(tasks: Iterable[asyncio.Task[None]]) -> None:
    if pending := list(tasks):
        await asyncio.wait(pending)

"""Decisions that are made elsewhere: a worker without a policy sends what its devices see to actors that have one.

Each try goes to the actor with the least to do and has a deadline. What is not answered in time, or by an actor that has
gone, is asked of another one; the episode waits and goes on. A try that comes late is of no account. Actors keep nothing
of a worker but pictures, which each of them is sent once and asks for again where it has forgotten them.

A decision is made by the version that the worker has seen published, or a newer one; log-probability, value and version are
recorded where it is made. The evaluator asks for one version and no other: an actor that no longer has it says so. What travels is
msgpack of the records here.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import TypeVar

import msgspec

from distrl.experience.frames import FrameReader
from distrl.rollout.batching import Request
from distrl.telemetry.spans import Spans
from distrl.threads import beside
from distrl.transport.base import ActorLost, EventSink, Inference, VersionGone, Weights
from distrl.types import Action, Decision, Observation, PolicyVersion

T = TypeVar("T")

AVOIDED_S = 2.0
"""How long an actor that has not answered is asked only where there is no other."""
TOLD_FRESH_S = 1.0
"""How long what an actor has told of its queue counts."""
LOOK_AGAIN_S = 0.1
"""How often whoever finds no actor at all looks for one."""
LATE_S = 2.0
"""A decision that takes longer is told as what the worker waits for."""
MOST_SENT = 1024
"""Pictures of which a worker remembers that an actor has them."""


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """One version that decides, as in an evaluation."""

    version: PolicyVersion
    temperature: float
    """0: the likeliest choice."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker asks of an actor."""

    observations: tuple[Observation, ...]
    actions: tuple[Action, ...] = ()
    """Where there are any: which choices stand for them. Else, what to do is asked."""
    version: int = -1
    """The oldest version that may decide."""
    pinned: Pinned | None = None
    """The only version that may decide; None: any that is new enough."""
    patience_s: float
    """After which nobody waits for the answer."""
    needs: tuple[str, ...] = ()
    """References of all pictures that the policy may read."""
    pictures: tuple[bytes, ...] = ()
    """Of these, those that the actor has not been sent."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What an actor answers."""

    decisions: tuple[tuple[Decision, int], ...] = ()
    """With the versions that made them."""
    choices: tuple[tuple[int, ...] | None, ...] = ()
    missing: tuple[str, ...] = ()
    """Pictures that have to be sent before it can answer."""
    queued: int = 0
    """Decisions that others wait for there."""
    gone: str = ""
    """Why the version that was asked for cannot be had; empty: it can."""


class RemoteSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker asks."""

    batch_size: int
    deadline_s: float
    pictures: int
    """How many pictures the policy reads of an observation: the present one, and earlier ones; 0: none."""
    seed: int
    pinned: Pinned | None = None
    """Which version decides, whatever is published; None: the newest."""


class RemoteDecider:
    """A worker's `rollout.batching.Decider` that asks actors. Belongs to one event loop."""

    def __init__(
        self,
        inference: Inference,
        weights: Weights,
        settings: RemoteSettings,
        *,
        frames: FrameReader | None,
        log: EventSink,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inference, self._weights, self._settings = inference, weights, settings
        self._frames, self._log, self._clock = frames, log, clock
        self._router = Router(Random(settings.seed), clock)
        self._queue: list[Request] = []
        self._arrived = asyncio.Event()
        self._asking: set[asyncio.Task[None]] = set()
        self._sent: dict[str, OrderedDict[str, None]] = {}
        """By actor, the pictures that it was sent, the newest last."""
        self._without: dict[str, str] = {}
        """Actors that do not have the pinned version, and why."""
        self._since: dict[int, float] = {}
        """Since when each ask has been waiting."""
        self._num_asked = 0
        self._failed: asyncio.Future[None] | None = None
        self.version = settings.pinned.version.version if settings.pinned else -1
        self.num_decisions = self.num_batches = self.num_halved = 0
        self.num_repeated = 0
        """Tries that were not answered."""
        self.busy_s = self.batch_wait_s = 0.0
        """The policy computes elsewhere, and decisions wait for others there."""
        self.spans = Spans()

    @property
    def skipped_counters(self) -> dict[str, float]:
        """How often an actor had to be asked again; what the policy itself counts, the actors tell."""
        return {"decisions_repeated": float(self.num_repeated)}

    @property
    def waiting(self) -> str:
        """What decisions have been waiting for, for too long; empty: for nothing."""
        oldest_s = self._clock() - min(self._since.values(), default=self._clock())
        if oldest_s < LATE_S:
            return ""
        known = ", ".join(self._inference.actors()) or "none is known"
        return f"an inference actor: {len(self._since)} batches, the oldest for {oldest_s:.0f} s ({known})"

    def swap(self) -> None:
        """Have all later decisions made by the newest version, or newer ones; a pinned one stays."""
        newest = self._weights.latest()
        if newest is not None and self._settings.pinned is None:
            self.version = max(self.version, newest.version)

    async def decide(self, observation: Observation) -> tuple[Decision, int]:
        """A decision and the version that made it."""
        answer: asyncio.Future[tuple[Decision, int]] = asyncio.get_running_loop().create_future()
        self._queue.append((observation, answer))
        self._arrived.set()
        return await answer

    def imitate(self, observation: Observation, action: Action) -> tuple[int, ...] | None:
        """The choice that stands for `action`; asked from a thread beside the loop, in `between_batches`."""
        asked = self._ask((observation,), actions=(action,))
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result().choices[0]

    async def between_batches(self, work: Callable[[], T]) -> T:
        """What comes of `work`, which asks the policy through `imitate`."""
        return await beside(work, name="ask-policy")

    async def run(self) -> None:
        """Send requests as they come until cancelled; what is no loss of an actor is raised."""
        self._loop = asyncio.get_running_loop()
        self._failed = self._loop.create_future()
        try:
            while True:
                await self._next_request(self._failed)
                await asyncio.sleep(0)  # what other devices ask in the same moment goes along
                size = self._settings.batch_size
                batch, self._queue = self._queue[:size], self._queue[size:]
                if not self._queue:
                    self._arrived.clear()
                self._begin(self._answer([one for one in batch if not one[1].done()]))
        finally:
            for task in self._asking:
                task.cancel()

    async def _next_request(self, failed: asyncio.Future[None]) -> None:
        arriving = asyncio.create_task(self._wait_for_request())
        try:
            await asyncio.wait({arriving, failed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            arriving.cancel()
        if failed.done():
            failed.result()

    async def _wait_for_request(self) -> None:
        await self._arrived.wait()

    def _begin(self, answering: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(answering, name="ask")
        self._asking.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._asking.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def _answer(self, batch: list[Request]) -> None:
        if not batch:
            return
        with self.spans.span("asks an actor", len(batch)):
            answer = await self._ask(tuple(observation for observation, _ in batch), version=self.version)
        self.num_decisions += len(batch)
        self.num_batches += 1
        for (decision, version), (_, waiting) in zip(answer.decisions, batch, strict=True):
            self.version = max(self.version, version)
            if not waiting.done():  # nobody waits for it any more
                waiting.set_result((decision, version))

    async def _ask(
        self, observations: tuple[Observation, ...], *, actions: tuple[Action, ...] = (), version: int = -1
    ) -> Answer:
        ask = Ask(
            observations=observations,
            actions=actions,
            version=version,
            pinned=self._settings.pinned,
            patience_s=self._settings.deadline_s,
            needs=pictures_of(observations, self._settings.pictures),
        )
        number, self._num_asked = self._num_asked, self._num_asked + 1
        self._since[number] = self._clock()
        try:
            while True:
                actor = self._router.choose(self._able())
                answer = None if actor is None else await self._try(actor, ask)
                if answer is not None:
                    return answer
                if actor is None:
                    await asyncio.sleep(LOOK_AGAIN_S)
        finally:
            del self._since[number]

    def _able(self) -> tuple[str, ...]:
        """Actors that may be asked; `VersionGone` where there are some, and none of them has the version."""
        known = self._inference.actors()
        able = tuple(actor for actor in known if actor not in self._without)
        if known and not able:
            raise VersionGone("; ".join(f"{actor}: {why}" for actor, why in self._without.items()))
        return able

    async def _try(self, actor: str, ask: Ask) -> Answer | None:
        """One actor's answer; None where it does not come in time, or the actor is gone."""
        count = len(ask.observations)
        self._router.asked(actor, count)
        answer: Answer | None = None
        try:
            async with asyncio.timeout(self._settings.deadline_s) as deadline:
                answer = await self._exchange(actor, ask)
        except ActorLost as lost:
            self._repeat(actor, str(lost))
        except TimeoutError:
            if not deadline.expired():
                raise
            self._repeat(actor, f"no answer within {self._settings.deadline_s:g} s")
        finally:
            self._router.over(actor, count, queued=answer.queued if answer else None)
        if answer is not None and answer.gone:
            self._without[actor] = answer.gone
            return None
        return answer

    def _repeat(self, actor: str, why: str) -> None:
        self.num_repeated += 1
        self._router.avoid(actor)
        self._sent.pop(actor, None)
        self._log.write("decision_repeated", actor=actor, why=why[:300])

    async def _exchange(self, actor: str, ask: Ask) -> Answer:
        """Ask once, and once more with every picture that the actor misses."""
        sent = self._sent.setdefault(actor, OrderedDict())
        fresh = [reference for reference in ask.needs if reference not in sent]
        while True:
            pictures = tuple([await self._picture(reference) for reference in fresh])
            whole = msgspec.structs.replace(ask, pictures=pictures)
            answer = msgspec.msgpack.decode(
                await self._inference.ask(actor, msgspec.msgpack.encode(whole)), type=Answer
            )
            for reference in ask.needs:
                sent[reference] = None
                sent.move_to_end(reference)
            while len(sent) > MOST_SENT:
                sent.popitem(last=False)
            if not answer.missing:
                return answer
            fresh = list(answer.missing)

    async def _picture(self, reference: str) -> bytes:
        assert self._frames is not None, "a policy that reads pictures comes with a source of them"
        return await beside(partial(self._frames.get, reference), name="picture")


class Router:
    """Which actor to ask: the one with the least to do, as far as this worker knows."""

    def __init__(self, random: Random, clock: Callable[[], float]) -> None:
        self._random, self._clock = random, clock
        self._own: dict[str, int] = {}
        """Decisions of this worker that each actor owes."""
        self._told: dict[str, tuple[int, float]] = {}
        """What each has told of the decisions that others wait for, and when."""
        self._avoided: dict[str, float] = {}

    def choose(self, actors: tuple[str, ...]) -> str | None:
        """One of these; None where there are none."""
        if not actors:
            return None
        return min(actors, key=lambda actor: (self._is_avoided(actor), self.load(actor), self._random.random()))

    def load(self, actor: str) -> int:
        """Decisions that an actor has to make before the next one."""
        told, at_s = self._told.get(actor, (0, float("-inf")))
        return self._own.get(actor, 0) + (told if self._clock() - at_s < TOLD_FRESH_S else 0)

    def _is_avoided(self, actor: str) -> bool:
        return self._clock() < self._avoided.get(actor, float("-inf"))

    def asked(self, actor: str, count: int) -> None:
        """So many decisions are asked of an actor."""
        self._own[actor] = self._own.get(actor, 0) + count

    def over(self, actor: str, count: int, *, queued: int | None) -> None:
        """It owes them no longer; `queued` is what it has told, if it has answered."""
        self._own[actor] -= count
        if queued is not None:
            self._told[actor] = queued, self._clock()

    def avoid(self, actor: str) -> None:
        """An actor has not answered."""
        self._avoided[actor] = self._clock() + AVOIDED_S


def pictures_of(observations: tuple[Observation, ...], count: int) -> tuple[str, ...]:
    """References of the pictures that a policy reads which looks at so many of each observation, each once."""
    if not count:
        return ()
    seen = [
        reference
        for one in observations
        for reference in (*(past.screenshot for past in one.recent[-(count - 1) :] if count > 1), one.screenshot)
        if reference
    ]
    return tuple(dict.fromkeys(seen))

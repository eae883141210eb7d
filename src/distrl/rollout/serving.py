"""The other end of `rollout.remote`: a policy that decides for workers elsewhere, in batches across all of them.

Whoever asks waits until the version is in use that it has seen published. A request that nobody waits for any more is not
answered, so the queue holds at most what the devices of all workers ask for.

Workers are answered by the newest version, and an evaluation by the one that it has pinned: with the same policy in memory, which takes on
the pinned weights for one batch at a time. The last pinned version is kept in main memory until another one is asked for, so it may
be removed from the run folder meanwhile.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec

from distrl.errors import StoreError
from distrl.experience.frames import FrameCache
from distrl.policies.base import Policy
from distrl.rollout.batching import Batcher
from distrl.rollout.remote import Answer, Ask, Pinned
from distrl.transport.base import VersionGone, Weights
from distrl.types import Decision, Observation, PolicyVersion

SWAP_S = 0.01
"""How often a request for a version that is not here yet looks for it."""


class DecisionServer:
    """Answers what workers ask, on the event loop of its batcher."""

    def __init__(self, policy: Policy[Any], batcher: Batcher, frames: FrameCache, weights: Weights) -> None:
        self._policy, self._batcher, self._frames = policy, batcher, frames
        self.pinned = PinnedDecisions(policy, batcher, weights)
        self.num_queued = 0
        """Decisions that somebody waits for."""
        self.num_dropped = 0
        """Requests that nobody waited for any more."""

    async def answer(self, request: bytes) -> bytes:
        """The `Answer` to an `Ask`, both encoded; `ValueError` where it is none."""
        ask = msgspec.msgpack.decode(request, type=Ask)
        for picture in ask.pictures:
            self._frames.put(picture)
        missing = tuple(reference for reference in ask.needs if not self._frames.holds(reference))
        if missing:
            return msgspec.msgpack.encode(Answer(missing=missing))
        self.num_queued += len(ask.observations)
        try:
            async with asyncio.timeout(ask.patience_s):
                found = await self._answer(ask)
        except TimeoutError:
            self.num_dropped += 1
            raise
        finally:
            self.num_queued -= len(ask.observations)
        return msgspec.msgpack.encode(msgspec.structs.replace(found, queued=self.num_queued))

    async def _answer(self, ask: Ask) -> Answer:
        if ask.actions:
            return await self._imitate(ask)
        await self._reach(ask.version)
        if ask.pinned is not None:
            return await self.pinned.decide(ask.observations, ask.pinned)
        made: list[tuple[Decision, int]] = await asyncio.gather(*map(self._batcher.decide, ask.observations))
        return Answer(decisions=tuple(made))

    async def _reach(self, version: int) -> None:
        """Wait until this version, or a newer one, is in use."""
        while self._batcher.version < version:
            self._batcher.swap()
            if self._batcher.version < version:
                await asyncio.sleep(SWAP_S)

    async def _imitate(self, ask: Ask) -> Answer:
        choices = await self._batcher.between_batches(partial(self._choices, ask))
        return Answer(choices=choices)

    def _choices(self, ask: Ask) -> tuple[tuple[int, ...] | None, ...]:
        return tuple(map(self._policy.imitate, ask.observations, ask.actions))


class PinnedDecisions:
    """Decisions by one version, whatever is published meanwhile."""

    def __init__(self, policy: Policy[Any], batcher: Batcher, weights: Weights) -> None:
        self._policy, self._batcher, self._weights = policy, batcher, weights
        self._held: tuple[str, bytes] = ("", b"")
        """Checksum and weights of the version that was asked for last."""
        self.num_decisions = 0

    async def decide(self, observations: tuple[Observation, ...], pinned: Pinned) -> Answer:
        """What the version decides; where it cannot be had, why."""
        load = partial(self._load, pinned.version)
        try:
            made = await self._batcher.decide_with(load, observations, temperature=pinned.temperature)
        except VersionGone as error:
            return Answer(gone=error.seen)
        self.num_decisions += len(made)
        return Answer(decisions=tuple((decision, pinned.version.version) for decision in made))

    def _load(self, version: PolicyVersion) -> None:
        checksum, data = self._held
        if checksum == version.sha256:
            self._policy.restore(data, source=f"version {version.version}")
            return
        try:
            self._weights.load(self._policy, version)
        except StoreError as error:
            raise VersionGone(error.seen) from error
        self._held = version.sha256, self._policy.dump()

"""The other end of `rollout.remote`: a policy that decides for workers elsewhere, in batches across all of them.

Whoever asks waits until the version is in use that it has seen published. A request that nobody waits for any more is not
answered, so the queue holds at most what the devices of all workers ask for.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec

from distrl.experience.frames import FrameCache
from distrl.policies.base import Policy
from distrl.rollout.batching import Batcher
from distrl.rollout.remote import Answer, Ask
from distrl.types import Decision

SWAP_S = 0.01
"""How often a request for a version that is not here yet looks for it."""


class DecisionServer:
    """Answers what workers ask, on the event loop of its batcher."""

    def __init__(self, policy: Policy[Any], batcher: Batcher, frames: FrameCache) -> None:
        self._policy, self._batcher, self._frames = policy, batcher, frames
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
                found = await (self._imitate(ask) if ask.actions else self._decide(ask))
        except TimeoutError:
            self.num_dropped += 1
            raise
        finally:
            self.num_queued -= len(ask.observations)
        return msgspec.msgpack.encode(msgspec.structs.replace(found, queued=self.num_queued))

    async def _decide(self, ask: Ask) -> Answer:
        while self._batcher.version < ask.version:
            self._batcher.swap()
            if self._batcher.version < ask.version:
                await asyncio.sleep(SWAP_S)
        made: list[tuple[Decision, int]] = await asyncio.gather(*map(self._batcher.decide, ask.observations))
        return Answer(decisions=tuple(made))

    async def _imitate(self, ask: Ask) -> Answer:
        choices = await self._batcher.between_batches(partial(self._choices, ask))
        return Answer(choices=choices)

    def _choices(self, ask: Ask) -> tuple[tuple[int, ...] | None, ...]:
        return tuple(map(self._policy.imitate, ask.observations, ask.actions))

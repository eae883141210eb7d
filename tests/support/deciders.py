"""Actors that decide, in the process of the test: real servers and real batchers, joined to workers without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from distrl.experience.frames import FrameCache
from distrl.policies.base import Policy
from distrl.rollout.batching import Batcher, Batching
from distrl.rollout.remote import Answer, Ask, RemoteDecider, RemoteSettings
from distrl.rollout.serving import DecisionServer
from distrl.transport.base import ActorLost, Weights
from distrl.types import Value
from support.rollouts import HANGS_S

BATCHING = Batching(batch_size=8, batch_wait_s=0.0, temperature=1.0, seed=3)
SETTINGS = RemoteSettings(batch_size=8, deadline_s=HANGS_S, pictures=0, seed=5)


class Requests:
    """`transport.base.DecisionRequests`: calls from other event loops go to the one that serves."""

    def __init__(self, tell: Callable[[Callable[[bytes], Awaitable[bytes]]], None]) -> None:
        self._tell = tell

    def serve(self, answer: Callable[[bytes], Awaitable[bytes]]) -> None:
        loop = asyncio.get_running_loop()

        async def called(request: bytes) -> bytes:
            return await answer(request)

        async def there(request: bytes) -> bytes:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(called(request), loop))

        self._tell(there)


class Actors:
    """`transport.base.Inference` of actors in this process; those that are `gone` are lost, those that are `deaf` never answer."""

    def __init__(self) -> None:
        self._answers: dict[str, Callable[[bytes], Awaitable[bytes]]] = {}
        self._deciding: list[asyncio.Task[None]] = []
        self.servers: dict[str, DecisionServer] = {}
        self.batchers: dict[str, Batcher] = {}
        self.gone: set[str] = set()
        self.deaf: set[str] = set()
        self.asked: list[tuple[str, Ask]] = []
        self.answered: list[tuple[str, Answer]] = []

    def add(self, name: str, policy: Policy[Any], weights: Weights | None, *, pictures: int = 64) -> None:
        """One more actor; call it inside the event loop."""
        frames = FrameCache(pictures)
        batcher = Batcher(policy, weights, BATCHING)
        self.add_server(name, DecisionServer(policy, batcher, frames, weights), batcher)

    def add_server(self, name: str, server: DecisionServer, batcher: Batcher) -> None:
        """One more, made elsewhere."""
        self.batchers[name], self.servers[name], self._answers[name] = batcher, server, server.answer
        self._deciding.append(asyncio.create_task(batcher.run()))

    def taken_by(self, name: str) -> Requests:
        """What an actor that runs in a thread of its own serves."""
        return Requests(lambda answer: self._answers.update({name: answer}))

    def actors(self) -> tuple[str, ...]:
        return tuple(name for name in self._answers if name not in self.gone)

    async def ask(self, actor: str, request: bytes) -> bytes:
        self.asked.append((actor, msgspec.msgpack.decode(request, type=Ask)))
        if actor in self.gone:
            raise ActorLost(f"{actor} is gone")
        if actor in self.deaf:
            await asyncio.sleep(3600)
        found = await self._answers[actor](request)
        if actor in self.gone:  # killed while it decided
            raise ActorLost(f"{actor} is gone")
        self.answered.append((actor, msgspec.msgpack.decode(found, type=Answer)))
        return found

    def close(self) -> None:
        for task in self._deciding:
            task.cancel()


class Log:
    """`EventSink` that remembers."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Value]]] = []

    def write(self, event: str, **values: Value) -> None:
        self.events.append((event, values))


def a_decider(
    actors: Actors, weights: Weights, *, frames: Any = None, log: Log | None = None, **changes: Any
) -> RemoteDecider:
    """A worker's side."""
    settings = msgspec.structs.replace(SETTINGS, **changes)
    return RemoteDecider(actors, weights, settings, frames=frames, log=log or Log())

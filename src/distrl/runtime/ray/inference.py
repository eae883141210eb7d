"""Decisions over Ray: how a worker finds the actors that decide and calls them, and how an actor takes the calls.

An actor's name on the cluster holds the session, the role and its incarnation; which incarnation answers at present, its
heartbeat says. A call carries bytes alone, straight from the worker's node to the actor's; the hub has no part in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from threading import Event
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from distrl.threads import in_thread, raise_failure
from distrl.transport.base import ActorLost, Heartbeats

LOOK_S = 0.5
"""How often a worker looks for actors that it does not know, or that have not answered it. For others it does not look: each look is a call
to the hub, of each worker for each actor."""
LOADING_S = 30.0
"""How long a call waits for an actor that has not come to answer yet."""
CALLS_AT_ONCE = 128
"""Of one actor: each holds a thread until it is answered."""


def actor_name(session: str, role: str, incarnation: int) -> str:
    """What an incarnation of a role is called on the cluster."""
    return f"{session}-{role}-{incarnation}"


class RayInference:
    """`transport.base.Inference` of one worker."""

    def __init__(self, session: str, roles: tuple[str, ...], heartbeats: Heartbeats) -> None:
        self._session, self._roles, self._heartbeats = session, roles, heartbeats
        self._found: dict[str, tuple[int, Any]] = {}
        """By role, the incarnation that answers and its handle."""
        self._lost: dict[str, int] = {}
        """By role, the incarnation that is known to be gone."""
        self._doubted: set[str] = set()
        """Roles that have not answered a call."""
        self._closed = Event()
        self._looking = in_thread(self._look, name="find-actors")

    def actors(self) -> tuple[str, ...]:
        """Those that say that they answer."""
        raise_failure(self._looking)
        return tuple(self._found)

    async def ask(self, actor: str, request: bytes) -> bytes:
        """What an actor answers; `ActorLost` where it is gone."""
        incarnation, handle = self._found.get(actor, (0, None))
        if handle is None:
            raise ActorLost(f"{actor} is not there")
        try:
            answer: bytes = await handle.decide.remote(request)
        except asyncio.CancelledError:  # nobody waits any longer
            self._doubted.add(actor)
            raise
        except RayActorError as error:
            self._lose(actor, incarnation)
            raise ActorLost(f"{actor} is gone: {type(error).__name__}") from error
        except RayTaskError as error:
            if isinstance(error.cause, TimeoutError):  # nobody was to wait for so long
                raise ActorLost(f"{actor} did not come to it in time") from error
            raise
        return answer

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def _lose(self, role: str, incarnation: int) -> None:
        self._lost[role] = max(incarnation, self._lost.get(role, 0))
        if self._found.get(role, (0, None))[0] == incarnation:
            self._found = {name: found for name, found in self._found.items() if name != role}

    def _look(self) -> None:
        while not self._closed.wait(LOOK_S):
            for role in self._roles:
                if role in self._doubted or role not in self._found:
                    self._doubted.discard(role)
                    self._look_for(role)

    def _look_for(self, role: str) -> None:
        beat = self._heartbeats.last(role)
        known = self._found.get(role, (0, None))[0]
        if beat is None or beat.phase not in ("doing", "waiting") or beat.incarnation <= self._lost.get(role, 0):
            return
        if beat.incarnation > known:
            try:
                handle: Any = ray.get_actor(actor_name(self._session, role, beat.incarnation))
            except ValueError:  # a heartbeat of an incarnation that is gone
                return
            self._found = {**self._found, role: (beat.incarnation, handle)}


class TakenRequests:
    """`transport.base.DecisionRequests` of one actor: calls come on threads, and are answered on its event loop."""

    def __init__(self) -> None:
        self._answer: Callable[[bytes], Awaitable[bytes]] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._served = Event()

    def serve(self, answer: Callable[[bytes], Awaitable[bytes]]) -> None:
        """Have requests answered on the event loop that runs now."""
        self._answer, self._loop = answer, asyncio.get_running_loop()
        self._served.set()

    def take(self, request: bytes) -> bytes:
        """The answer to one request."""
        if not self._served.wait(LOADING_S) or self._answer is None or self._loop is None:
            raise TimeoutError("it does not answer yet")
        if self._loop.is_closed():
            raise TimeoutError("it has ended")
        called = asyncio.run_coroutine_threadsafe(self._called(self._answer, request), self._loop)
        try:
            return called.result()
        except CancelledError:
            raise TimeoutError("it has ended") from None

    @staticmethod
    async def _called(answer: Callable[[bytes], Awaitable[bytes]], request: bytes) -> bytes:
        return await answer(request)

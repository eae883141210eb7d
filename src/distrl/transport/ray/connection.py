"""A role's connection to the hub: calls that are repeated until they are answered.

A hub that is killed, that is cut off or that is being started again does not answer for a while. A call then waits, as it
would for a disk that hangs; whoever may not wait for that long has it done beside its own loop, with a deadline of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import numpy as np
import ray
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError, ObjectLostError, RayActorError

from distrl.transport.ray.service import boot_id
from distrl.transport.ray.wire import Answer, Broadcast, Caller, opened
from distrl.types import PolicyVersion

T = TypeVar("T")

AGAIN_S = 0.2
"""Between two tries to reach a hub that is not there."""
LOOK_UP_S = 1.0
"""How often whoever waits for an answer looks whether it should."""
FETCH_S = 60.0
"""How long weights may take from one node to another."""


class HubConnection:
    """Calls the hub in the name of one incarnation of a role. Safe to share between threads."""

    def __init__(self, hub: ActorHandle[Any], caller: Caller, *, closed: Callable[[], bool] = lambda: False) -> None:
        self._hub, self._closed = hub, closed
        self.caller = caller
        self._name = msgspec.msgpack.encode(caller)

    def ask(self, name: str, *arguments: object, type: type[T]) -> T:
        """What the hub answers; raises the failure where it is one."""
        return msgspec.msgpack.decode(self.ask_raw(name, arguments), type=type)

    def tell(self, name: str, *arguments: object) -> None:
        """Have the hub do something; returns once that is done."""
        self.ask_raw(name, arguments)

    def ask_raw(self, name: str, arguments: object) -> bytes:
        """The same, in bytes."""
        request = msgspec.msgpack.encode(arguments)
        answer: Answer = self._repeat(lambda: self._hub.call.remote(self._name, name, request))
        return opened(answer)

    def watch(self, known: Broadcast | None) -> Broadcast:
        """The hub's broadcast, once there is another than is known or after a moment."""
        data = msgspec.msgpack.encode(known)
        answer: Answer = self._repeat(lambda: self._hub.watch.remote(self._name, data))
        return msgspec.msgpack.decode(opened(answer), type=Broadcast)

    def weights(self, version: PolicyVersion) -> memoryview:
        """The weights of a version, in this node's shared memory."""
        wanted = msgspec.msgpack.encode(version)
        while True:
            place: tuple[str, bytes, list[Any]] = self._repeat(lambda: self._hub.weights.remote(self._name, wanted))
            kind, data, places = place
            opened((kind, data))
            try:
                found: np.ndarray = ray.get(places[0], timeout=FETCH_S)
            except (ObjectLostError, GetTimeoutError):  # the hub was killed in between: its successor has another place
                if self._closed():
                    raise
                time.sleep(AGAIN_S)
            else:
                return memoryview(found.data)

    def clock_ahead_s(self) -> float:
        """By how much the monotonic clock of the hub's machine is ahead of this one's; 0 where it is the same machine."""
        asked_s = time.monotonic()
        boot, theirs_s = self.ask("clock", type=tuple[str, float])
        return 0.0 if boot and boot == boot_id() else theirs_s - (asked_s + time.monotonic()) / 2

    def _repeat(self, call: Callable[[], Any]) -> Any:
        while True:
            try:
                return self._wait(call())
            except RayActorError:
                # Also where Ray says that the hub is dead for good: its run is over then, and this process ends with it.
                if self._closed():
                    raise
                time.sleep(AGAIN_S)

    def _wait(self, answer: Any) -> Any:
        """What a call comes to. It is made once: a hub that hangs on its disk is not helped by more of them."""
        while True:
            try:
                return ray.get(answer, timeout=LOOK_UP_S)
            except GetTimeoutError:
                if self._closed():
                    raise

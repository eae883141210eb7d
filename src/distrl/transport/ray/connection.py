"""A role's connection to the hub: calls that are repeated until they are answered.

A hub that is killed, that is cut off or that is being started again does not answer for a while. A call then waits, as it
would for a disk that hangs; whoever may not wait for that long has it done beside its own loop, with a deadline of its own.

Each try has a deadline, after which the call is made again under the same id: the hub carries out each id once, and a hub
that was killed meanwhile carries out again what may be repeated. Nothing is left to Ray's own repeats, which have no deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar
from uuid import uuid4

import msgspec
import numpy as np
import ray
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError, ObjectLostError, RayActorError

from distrl.errors import StoreError
from distrl.transport.ray.service import boot_id
from distrl.transport.ray.wire import AGAIN, Answer, Broadcast, Caller, opened
from distrl.types import PolicyVersion

T = TypeVar("T")

AGAIN_S = 0.2
"""Between two tries to reach a hub that is not there."""
LOOK_UP_S = 1.0
"""How often whoever waits for an answer looks whether it should, and says so."""
TRY_S, LONGEST_TRY_S = 5.0, 40.0
"""How long the first try of a call may take, and how long any; each has twice as long as the one before."""
LARGE_BYTES = 2**20
"""A call with more than that, such as a checkpoint, goes through the object store."""
FETCH_S = 5.0
"""How long weights may be on their way from one node to another before the hub is asked again where they are."""


class HubConnection:
    """Calls the hub in the name of one incarnation of a role. Safe to share between threads."""

    def __init__(self, hub: ActorHandle[Any], caller: Caller, *, closed: Callable[[], bool] = lambda: False) -> None:
        self._hub, self._closed = hub, closed
        self.caller = caller
        self._name = msgspec.msgpack.encode(caller)
        self._own, self._numbers = uuid4().hex, count()
        self.held_up: Callable[[str], None] = lambda what: None
        """Hears once a second of a call that is not answered yet, in the thread that waits for it."""

    def ask(self, name: str, *arguments: object, type: type[T]) -> T:
        """What the hub answers; raises the failure where it is one."""
        return msgspec.msgpack.decode(self.ask_raw(name, arguments), type=type)

    def tell(self, name: str, *arguments: object) -> None:
        """Have the hub do something; returns once that is done."""
        self.ask_raw(name, arguments)

    def ask_raw(self, name: str, arguments: object) -> bytes:
        """The same, in bytes."""
        request, id = _encode(name, arguments), f"{self._own}-{next(self._numbers)}"
        # What is large is on its way once, however often the call is repeated.
        sent = ray.put(request) if len(request) > LARGE_BYTES else request
        answer: Answer = self._repeat(name, lambda: self._hub.call.remote(self._name, id, name, sent))
        return opened(answer)

    def watch(self, known: Broadcast | None) -> Broadcast:
        """The hub's broadcast, once there is another than is known or after a moment."""
        data = msgspec.msgpack.encode(known)
        answer: Answer = self._repeat("news", lambda: self._hub.watch.remote(self._name, data))
        return msgspec.msgpack.decode(opened(answer), type=Broadcast)

    def weights(self, version: PolicyVersion) -> tuple[str, memoryview]:
        """The weights of a version in this node's shared memory, and which object of it they are."""
        wanted = msgspec.msgpack.encode(version)
        place: Any = None
        while True:
            found = self._place(wanted)
            place = place if found == place else found  # the same one is kept: letting go of it would begin anew
            try:
                weights: np.ndarray = ray.get(place, timeout=FETCH_S)
            except (ObjectLostError, GetTimeoutError):  # the hub was killed in between: its successor has another place
                if self._closed():
                    raise
                self.held_up("weights")
                time.sleep(AGAIN_S)
            else:
                return place.hex(), memoryview(weights.data)

    def _place(self, version: bytes) -> Any:
        answer: tuple[str, bytes, list[Any]] = self._repeat(
            "weights", lambda: self._hub.weights.remote(self._name, version)
        )
        kind, data, places = answer
        opened((kind, data))
        return places[0]

    def clock_ahead_s(self) -> float:
        """By how much the monotonic clock of the hub's machine is ahead of this one's; 0 where it is the same machine."""
        asked_s = time.monotonic()
        boot, theirs_s = self.ask("clock", type=tuple[str, float])
        return 0.0 if boot and boot == boot_id() else theirs_s - (asked_s + time.monotonic()) / 2

    def _repeat(self, what: str, call: Callable[[], Any]) -> Any:
        limit_s = TRY_S
        while True:
            try:
                found = self._wait(what, call(), limit_s)
                if found != AGAIN:
                    return found
            except RayActorError:
                # Also where Ray says that the hub is dead for good: its run is over then, and this process ends with it.
                if self._closed():
                    raise
                time.sleep(AGAIN_S)
            except GetTimeoutError:
                if self._closed():
                    raise
                limit_s = min(2 * limit_s, LONGEST_TRY_S)
            self.held_up(what)

    def _wait(self, what: str, answer: Any, limit_s: float) -> Any:
        """What a try comes to; `GetTimeoutError` after `limit_s`, or once nobody waits for it any more."""
        until_s = time.monotonic() + limit_s
        while True:
            try:
                return ray.get(answer, timeout=min(LOOK_UP_S, limit_s))
            except GetTimeoutError:
                if self._closed() or time.monotonic() >= until_s:
                    raise
            self.held_up(what)


def _encode(name: str, arguments: object) -> bytes:
    try:
        return msgspec.msgpack.encode(arguments)
    except msgspec.EncodeError as error:
        raise StoreError(
            f"{name} is too much for one call to the hub: {error}",
            expected="weights and checkpoints of less than 4 GiB, where the learner is not beside the run folder",
            fix="begin the run on the machine with the learner's GPU, or train adapters alone (policy.vlm.lora_rank)",
        ) from error

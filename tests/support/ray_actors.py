"""Actors in the place of roles, in a module that Ray's processes can import."""

from __future__ import annotations

import time

import msgspec
from ray.exceptions import ActorUnavailableError

from distrl.runtime.ray.role_actor import End, Place

HANGS_S = 60.0


class DecidingActor:
    """Answers what it is asked, or hangs."""

    def decide(self, request: bytes) -> bytes:
        if request == b"hang":
            time.sleep(HANGS_S)
        return request


class UnsteadyActor:
    """A role whose first answer about its place is lost on the way."""

    def __init__(self) -> None:
        self.num_asked = 0

    def place(self) -> bytes:
        self.num_asked += 1
        if self.num_asked == 1:
            raise ActorUnavailableError("the connection was lost", None)
        return msgspec.msgpack.encode(Place(node="n", host="lab", pid=1, code="c"))

    def run(self, order: bytes) -> bytes:
        return msgspec.msgpack.encode(End(code=3, reason=order.decode()))

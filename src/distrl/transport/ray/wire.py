"""What travels between a role and the hub: msgpack of typed records, and nothing else.

Ray could carry any Python object, by pickling it. Here it only ever gets strings, numbers and bytes: what the bytes
mean is decoded with its type on arrival, so what a device showed or a model said reaches no other machine as code.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

import msgspec

from distrl.errors import DistrlError, StoreBusy, StoreError
from distrl.telemetry.heartbeat import Heartbeat
from distrl.types import PolicyVersion, Value

Answer = tuple[str, bytes]
"""The kind of failure, empty where there is none, and what was asked for or the `Failure`, encoded."""

AGAIN: Answer = ("again", b"")
"""The answer to a try after which the same call was made again. No role waits for one; a role that gets it all the same asks again."""
FAILURES: dict[str, type[DistrlError]] = {"store": StoreError, "busy": StoreBusy}
BAD_REQUEST = "bad"
"""A call that does not decode: it was made by other code."""
SUPERSEDED = "superseded"
"""A call of an incarnation whose successor has begun: it was cut off, and is back."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A `DistrlError` in parts."""

    seen: str
    expected: str = ""
    fix: str = ""


class Superseded(StoreError):
    """This incarnation of a role has a successor: what it does no longer counts."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls the hub."""

    role: str
    incarnation: int


class LoggedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a log on its way."""

    log: str
    """The role whose log it is; empty: the run's metrics."""
    event: str
    values: dict[str, Value]
    age_s: float
    """How long ago it was when it was sent: clocks of two machines differ."""


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """What a role has said since the last one."""

    sender: str
    """Told apart from all others."""
    number: int
    """Counts up, so that an upload which is sent twice counts once."""
    heartbeat: Heartbeat | None
    events: tuple[LoggedEvent, ...]


class Broadcast(msgspec.Struct, frozen=True, kw_only=True):
    """What all roles have to know at any time."""

    latest: PolicyVersion | None
    collected_s: float


class Encoded:
    """Arguments and results of the methods of one class, by the types in their signatures."""

    def __init__(self, service: type, *, but: str) -> None:
        """All public methods of `service`, `but` for one."""
        self._arguments: dict[str, msgspec.msgpack.Decoder[Any]] = {}
        for name, method in inspect.getmembers(service, inspect.isfunction):
            if not name.startswith("_") and name != but:
                hints = typing.get_type_hints(method)
                hints.pop("return", None)
                arguments: Any = types.GenericAlias(tuple, tuple(hints.values()))
                self._arguments[name] = msgspec.msgpack.Decoder(arguments)

    def call(self, target: object, name: str, request: bytes) -> bytes:
        """What the method of this name answers; `ValueError` where there is none, or the request does not fit it."""
        decoder = self._arguments.get(name)
        if decoder is None:
            raise ValueError(f"there is no {name[:100]!r}")
        method: Callable[..., Any] = getattr(target, name)
        return msgspec.msgpack.encode(method(*decoder.decode(request)))


def failed(error: Exception) -> Answer:
    """An error as an answer; one that is a bug is raised."""
    if isinstance(error, Superseded):
        kind = SUPERSEDED
    elif isinstance(error, StoreBusy):
        kind = "busy"
    elif isinstance(error, StoreError):
        kind = "store"
    elif isinstance(error, ValueError):  # of `Encoded`: msgspec's own errors are ValueErrors
        return BAD_REQUEST, msgspec.msgpack.encode(Failure(seen=str(error)))
    else:
        raise error
    return kind, msgspec.msgpack.encode(Failure(seen=error.seen, expected=error.expected, fix=error.fix))


def opened(answer: Answer) -> bytes:
    """What was asked for; raises the failure where it is one."""
    kind, data = answer
    if not kind:
        return data
    failure = msgspec.msgpack.decode(data, type=Failure)
    if kind == BAD_REQUEST:
        raise StoreError(
            f"the hub does not understand this role: {failure.seen}",
            expected="the same code of distrl on all machines of a run",
            fix="install the same version everywhere, then `distrl train --resume RUN`",
        )
    error = Superseded if kind == SUPERSEDED else FAILURES[kind]
    raise error(failure.seen, expected=failure.expected, fix=failure.fix)

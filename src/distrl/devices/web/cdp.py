"""The Chrome DevTools Protocol over a pair of pipes: calls with deadlines, and events.

A pipe belongs to two processes: no port is open, and a browser that loses its pipe ends. Messages are JSON with a zero
byte behind each. One reader hands answers to those who wait, and events to whoever listens to their session.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from distrl.errors import DeviceError, DeviceLost, LossCause

CALL_S = 10.0
READ_BYTES = 1 << 20
T = TypeVar("T")

Params = dict[str, Any]
"""Of a call or an event: JSON, as the protocol defines it."""
Listen = Callable[[str, Params], None]
"""Hears an event of a session: its method and parameters."""


class Refused(DeviceError):
    """The browser answered with an error."""


class _Error(msgspec.Struct, frozen=True, kw_only=True):
    message: str = ""
    data: str = ""


class _Message(msgspec.Struct, frozen=True, kw_only=True, rename={"session": "sessionId"}):
    id: int = 0
    session: str = ""
    method: str = ""
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw = msgspec.Raw(b"{}")
    error: _Error | None = None


_decode = msgspec.json.Decoder(_Message).decode


class Connection:
    """One browser's end of the protocol. Belongs to one event loop."""

    def __init__(self, command_fd: int, reply_fd: int, *, name: str) -> None:
        self._command_fd, self._reply_fd, self.name = command_fd, reply_fd, name
        self._waiting: dict[int, tuple[str, asyncio.Future[msgspec.Raw]]] = {}
        self._listeners: dict[str, Listen] = {}
        self._next, self._outgoing, self._incoming = 1, bytearray(), bytearray()
        self._loop = asyncio.get_running_loop()
        self.closed = ""
        """Why it is closed; empty: it is open."""
        for fd in (command_fd, reply_fd):
            os.set_blocking(fd, False)
        self._loop.add_reader(reply_fd, self._read)

    async def call(
        self, method: str, params: Params | None = None, *, session: str = "", deadline_s: float = CALL_S
    ) -> Params:
        """The result of a call; `Refused` where it is answered with an error, `DeviceLost` where it is not answered."""
        return await self.call_as(Params, method, params, session=session, deadline_s=deadline_s)

    async def call_as(
        self,
        kind: type[T],
        method: str,
        params: Params | None = None,
        *,
        session: str = "",
        deadline_s: float = CALL_S,
    ) -> T:
        """The same, decoded as `kind`."""
        answer = self.begin(method, params, session=session)
        try:
            async with asyncio.timeout(deadline_s) as deadline:
                raw = await answer
        except TimeoutError:
            if not deadline.expired():
                raise
            raise DeviceLost(
                f"{self.name} did not answer {method} within {deadline_s:g} s", cause=LossCause.LATE
            ) from None
        try:
            return msgspec.json.decode(raw, type=kind)
        except msgspec.DecodeError as error:
            raise DeviceLost(f"{self.name} answered {method} with something else: {error}") from None

    def begin(self, method: str, params: Params | None = None, *, session: str = "") -> asyncio.Future[msgspec.Raw]:
        """Send a call and give its answer to come; calls of a session are carried out in their order."""
        answer: asyncio.Future[msgspec.Raw] = self._loop.create_future()
        answer.add_done_callback(_looked_at)
        if self.closed:
            answer.set_exception(DeviceLost(f"{self.name} is gone: {self.closed}", cause=LossCause.SERVER))
            return answer
        number, self._next = self._next, self._next + 1
        self._waiting[number] = (session, answer)
        answer.add_done_callback(lambda _: self._waiting.pop(number, None))
        message = {"id": number, "method": method, "params": params or {}}
        self._send(msgspec.json.encode(message | {"sessionId": session} if session else message))
        return answer

    def listen(self, session: str, listener: Listen | None) -> None:
        """Hand the events of a session to `listener`, those of the browser itself for the session ""; None: to nobody."""
        if listener is None:
            self._listeners.pop(session, None)
        else:
            self._listeners[session] = listener

    def drop(self, session: str, lost: DeviceLost) -> None:
        """Every call of a session that waits fails so: nobody is there to answer it."""
        for its, answer in list(self._waiting.values()):
            if its == session and not answer.done():
                answer.set_exception(lost)

    def close(self, why: str) -> None:
        """Close both pipes; every call that waits fails with the reason."""
        if self.closed:
            return
        self.closed = why
        self._loop.remove_reader(self._reply_fd)
        self._loop.remove_writer(self._command_fd)
        for fd in (self._command_fd, self._reply_fd):
            with suppress(OSError):
                os.close(fd)
        for _, answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_exception(DeviceLost(f"{self.name} is gone: {why}", cause=LossCause.SERVER))
        for listener in list(self._listeners.values()):
            listener("closed", {"why": why})

    def _send(self, message: bytes) -> None:
        self._outgoing += message
        self._outgoing += b"\0"
        self._write()

    def _write(self) -> None:
        """As much as the pipe takes; the rest once it takes more."""
        try:
            while self._outgoing:
                del self._outgoing[: os.write(self._command_fd, self._outgoing)]
        except BlockingIOError:
            self._loop.add_writer(self._command_fd, self._write)
            return
        except OSError as error:
            self.close(f"its pipe broke ({error.strerror})")
            return
        self._loop.remove_writer(self._command_fd)

    def _read(self) -> None:
        try:
            data = os.read(self._reply_fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self.close(f"its pipe broke ({error.strerror})")
            return
        if not data:
            self.close("it ended")
            return
        self._incoming += data
        if 0 not in data:
            return
        *whole, rest = self._incoming.split(b"\0")
        self._incoming = bytearray(rest)
        for message in whole:
            self._take(message)

    def _take(self, data: bytearray) -> None:
        try:
            message = _decode(data)
        except msgspec.DecodeError as error:
            self.close(f"it sent what is no message: {error}")
            return
        if message.method:
            if (listener := self._listeners.get(message.session)) is not None:
                listener(message.method, msgspec.json.decode(message.params, type=Params))
            return
        _, answer = self._waiting.get(message.id, ("", None))
        if answer is None or answer.done():
            return
        if message.error is None:
            answer.set_result(message.result)
        else:
            answer.set_exception(Refused(f"{message.error.message} {message.error.data}".strip()[:300]))


def _looked_at(answer: asyncio.Future[msgspec.Raw]) -> None:
    """asyncio reports errors that nobody has looked at, and some calls are made without waiting for them."""
    if not answer.cancelled():
        answer.exception()

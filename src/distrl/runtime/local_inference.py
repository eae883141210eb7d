"""Decisions between processes of one machine: an inference role listens on a Unix socket, which workers and the evaluator call.

The socket lies in the session's spool folder, which this user alone may enter. A call is a connection of its own: the
request, the answer, each behind its length. So whoever is killed, on either side, is noticed by the other at once: the
connection ends. What travels is bytes, which `rollout.remote` and `rollout.serving` decode by their types.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from struct import Struct

from distrl.errors import ConfigError, DistrlError
from distrl.experience.durable import storage_errors
from distrl.transport.base import ActorLost

AVOIDED_S = 0.25
"""How long an actor that did not answer a call is taken to be away; it may be starting again."""
LONGEST_PATH = 100
"""Of a socket, in bytes: the kernel takes 107."""
LARGEST = 1 << 30
"""Bytes of a request or an answer."""
CALLERS = 1024
"""That may wait to be let in: asyncio takes a call that finds no place in the queue for one that was lost."""
log = logging.getLogger(__name__)
_LENGTH = Struct(">Q")
_ANSWERED, _FAILED, _BROKEN = b"\0", b"\1", b"\2"
"""It has an answer, it says why it has none, or what it does has a bug."""


def socket_of(folder: Path, role: str) -> Path:
    """Where this role listens."""
    return folder / f"{role}.sock"


def remove_sockets(folder: Path) -> None:
    """Tidy up behind the roles of a session, however they ended."""
    for path in folder.glob("*.sock"):
        path.unlink(missing_ok=True)


class SocketInference:
    """`transport.base.Inference` of one role."""

    def __init__(self, folder: Path, roles: tuple[str, ...], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._roles, self._clock = folder, roles, clock
        self._away_until_s: dict[str, float] = {}

    def actors(self) -> tuple[str, ...]:
        """Those that listen."""
        now_s = self._clock()
        return tuple(
            role
            for role in self._roles
            if self._away_until_s.get(role, now_s) <= now_s and socket_of(self._folder, role).exists()
        )

    async def ask(self, actor: str, request: bytes) -> bytes:
        """What an actor answers; `ActorLost` where it is gone, and `RuntimeError` where it came upon a bug."""
        try:
            status, answer = await self._call(actor, request)
        except (OSError, asyncio.IncompleteReadError) as error:
            self._away_until_s[actor] = self._clock() + AVOIDED_S
            raise ActorLost(f"{actor} is gone: {type(error).__name__}") from error
        if status != _ANSWERED:
            kind = DistrlError if status == _FAILED else RuntimeError
            raise kind(f"{actor} could not answer: {answer.decode(errors='replace')}")
        return answer

    async def _call(self, actor: str, request: bytes) -> tuple[bytes, bytes]:
        reader, writer = await asyncio.open_unix_connection(str(socket_of(self._folder, actor)))
        try:
            writer.write(_LENGTH.pack(len(request)) + request)
            await writer.drain()
            return await reader.readexactly(1), await _read(reader)
        finally:
            writer.close()


class SocketRequests:
    """`transport.base.DecisionRequests` of one inference role."""

    def __init__(self, path: Path) -> None:
        if len(os.fsencode(path)) > LONGEST_PATH:
            raise ConfigError(
                f"{path} is too long for the name of a socket",
                expected=f"{LONGEST_PATH} bytes or fewer",
                fix="a shorter TMPDIR in the environment",
            )
        self._path = path
        self._answer: Callable[[bytes], Awaitable[bytes]] | None = None
        self._listening: asyncio.Task[None] | None = None

    def serve(self, answer: Callable[[bytes], Awaitable[bytes]]) -> None:
        """Have requests answered on the event loop that runs now."""
        self._answer = answer
        with storage_errors(self._path.parent, flag="TMPDIR"):
            self._path.unlink(missing_ok=True)  # of an incarnation that was killed
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(str(self._path))
            listening.listen(CALLERS)
        self._listening = asyncio.create_task(self._listen(listening), name="requests")

    async def _listen(self, listening: socket.socket) -> None:
        server = await asyncio.start_unix_server(self._take, sock=listening, backlog=CALLERS)
        async with server:
            await server.serve_forever()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one call; one that is no request, or that nobody waited for long enough, is hung up on."""
        assert self._answer is not None, "serve() comes first"
        try:
            request = await _read(reader)
            answering = asyncio.ensure_future(self._answer(request))
            await asyncio.wait({answering})
            error = answering.exception()
            if isinstance(error, TimeoutError):  # nobody waits for it any longer
                raise error
            status, answer = (_ANSWERED, answering.result()) if error is None else _failure(error)
            writer.write(status + _LENGTH.pack(len(answer)) + answer)
            await writer.drain()
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            pass  # whoever asked sees the end of the connection, and asks again
        finally:
            writer.close()


def _failure(error: BaseException) -> tuple[bytes, bytes]:
    if isinstance(error, DistrlError):
        return _FAILED, str(error).encode()
    log.error("a request could not be answered", exc_info=error)  # with its traceback, for this process's console
    return _BROKEN, f"{type(error).__name__}: {error}".encode()


async def _read(reader: asyncio.StreamReader) -> bytes:
    """What comes behind its length; `ValueError` where that is out of bounds."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > LARGEST:
        raise ValueError(f"{length} bytes are more than a request or an answer has")
    return await reader.readexactly(length)

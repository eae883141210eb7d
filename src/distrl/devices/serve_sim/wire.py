"""The device's side of the ADB transport protocol over TCP: CNXN, OPEN, OKAY, WRTE, CLSE, and AUTH that is never granted.

Each stream carries one service, such as `shell,v2,raw:input tap 1 2`. One WRTE is under way per stream: the next waits
for its OKAY, as the protocol demands. A stream that is closed, or that nobody knows, is answered with a close. What a
service says is left to whoever serves it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable

import msgspec

VERSION, MAX_DATA = 0x01000001, 1024 * 1024
"""A version from 0x01000001 on leaves checksums out."""
CNXN, AUTH, OPEN, OKAY, WRTE, CLSE = (
    int.from_bytes(name, "little") for name in (b"CNXN", b"AUTH", b"OPEN", b"OKAY", b"WRTE", b"CLSE")
)
AUTH_TOKEN, AUTH_SIGNATURE, TOKEN_BYTES = 1, 2, 20
HEADER = struct.Struct("<6I")
SMALL = 64 * 1024
"""Smaller messages go out in one piece: the server wakes up once instead of twice."""


class StreamClosed(ConnectionError):
    """The other side closed the stream, or the whole connection is gone."""


class Stream:
    """One service that a client has opened."""

    def __init__(self, transport: Transport, local: int, remote: int) -> None:
        self._transport, self.local, self.remote = transport, local, remote
        self._acknowledged = asyncio.Event()
        self._received: asyncio.Queue[bytes] = asyncio.Queue()
        self.closed = asyncio.Event()

    async def write(self, data: bytes | memoryview) -> None:
        """Send everything, in pieces that the client takes; `StreamClosed` where it does not want them any more."""
        view = memoryview(data)
        for begin in range(0, len(view), self._transport.max_data):
            if self.closed.is_set():
                raise StreamClosed
            self._acknowledged.clear()
            await self._transport.send(WRTE, self.local, self.remote, view[begin : begin + self._transport.max_data])
            await self._either(self._acknowledged)

    async def read(self) -> bytes:
        """The next piece that the client sent; `StreamClosed` after the last."""
        if self._received.empty() and self.closed.is_set():
            raise StreamClosed
        data = await self._received.get()
        if not data:
            raise StreamClosed
        return data

    async def _either(self, event: asyncio.Event) -> None:
        await event.wait()
        if self.closed.is_set():
            raise StreamClosed

    def acknowledge(self) -> None:
        self._acknowledged.set()

    def feed(self, data: bytes) -> None:
        self._received.put_nowait(data)

    def end(self) -> None:
        """The other side is gone: whoever waits here must notice."""
        self.closed.set()
        self._acknowledged.set()
        self._received.put_nowait(b"")


Serve = Callable[[str, Stream], Awaitable[None]]
"""Carries out a service on its stream; returning closes it."""


class Banner(msgspec.Struct, frozen=True, kw_only=True):
    """What a device says of itself."""

    name: str
    model: str
    authorised: bool = True
    """False: the phone asks its owner, who never answers."""
    features: tuple[str, ...] = ("shell_v2", "cmd", "stat_v2", "fixed_push_mkdir")

    def encode(self) -> bytes:
        """As in CNXN."""
        facts = {"ro.product.name": self.name, "ro.product.model": self.model, "ro.product.device": self.name}
        shown = "".join(f"{name}={value};" for name, value in facts.items())
        return f"device::{shown}features={','.join(self.features)}".encode()


class Transport:
    """One connection of an adb server to one device."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, banner: Banner, serve: Serve
    ) -> None:
        self._reader, self._writer, self._banner, self._serve = reader, writer, banner, serve
        self._streams: dict[int, Stream] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_id = 0
        self.max_data = MAX_DATA
        sock: socket.socket = writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def run(self) -> None:
        """Serve the connection until either side ends it."""
        try:
            while True:
                command, arg0, arg1, size, _, _ = HEADER.unpack(await self._reader.readexactly(HEADER.size))
                data = await self._reader.readexactly(size) if size else b""
                await self._handle(command, arg0, arg1, data)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the server went away, which is its right
        finally:
            self.drop()

    def drop(self) -> None:
        """Cut the connection, as a pulled cable does."""
        for stream in list(self._streams.values()):
            stream.end()
        for task in self._tasks:
            task.cancel()
        if not self._writer.is_closing():
            self._writer.transport.abort()

    async def send(self, command: int, arg0: int, arg1: int, data: bytes | memoryview = b"") -> None:
        """Send one message."""
        header = HEADER.pack(command, arg0, arg1, len(data), 0, command ^ 0xFFFFFFFF)
        if len(data) < SMALL:
            self._writer.write(header + data)
        else:
            self._writer.write(header)
            self._writer.write(data)
        await self._writer.drain()

    async def _handle(self, command: int, arg0: int, arg1: int, data: bytes) -> None:
        if command == AUTH or (command == CNXN and not self._banner.authorised):
            if command == CNXN or arg0 == AUTH_SIGNATURE:  # after the public key, the owner is asked
                await self.send(AUTH, AUTH_TOKEN, 0, bytes(TOKEN_BYTES))
        elif command == CNXN:
            self.max_data = min(MAX_DATA, arg1)
            await self.send(CNXN, VERSION, MAX_DATA, self._banner.encode())
        elif command == OPEN:
            await self._open(arg0, data.rstrip(b"\0").decode(errors="surrogateescape"))
        elif (stream := self._streams.get(arg1)) is None:
            if command == WRTE:
                await self.send(CLSE, 0, arg0)
        elif command == OKAY:
            stream.acknowledge()
        elif command == WRTE:
            stream.feed(data)
            await self.send(OKAY, stream.local, stream.remote)
        elif command == CLSE:
            self._streams.pop(stream.local, None)
            stream.end()
            await self.send(CLSE, stream.local, stream.remote)

    async def _open(self, remote: int, service: str) -> None:
        self._last_id += 1
        stream = self._streams[self._last_id] = Stream(self, self._last_id, remote)
        await self.send(OKAY, stream.local, remote)
        task = asyncio.create_task(self._run(service, stream), name=f"service {service[:40]}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, service: str, stream: Stream) -> None:
        try:
            await self._serve(service, stream)
            if self._streams.pop(stream.local, None) is not None:
                await self.send(CLSE, stream.local, stream.remote)
        except ConnectionError:
            pass  # the client has lost interest, or the connection was cut

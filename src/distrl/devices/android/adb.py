"""A client of the adb server: its socket protocol, spoken directly, so that no action costs a process.

Owned here: requests and their framing, shell v2, exec, sync, and what the server's refusals mean. Every call has a
deadline and says in its error which call missed it. The server itself is Google's `adb`; where none runs on this
machine it is started once by `adb start-server`. What a device does with a command is left to others.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import struct
from collections.abc import AsyncIterator, Awaitable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from typing import TypeVar

import msgspec

from distrl.devices.android.adb_program import INSTALL, server_listens, start_server
from distrl.errors import ConfigError, DeviceError, DeviceLost, LossCause

T = TypeVar("T")
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
DEFAULT_PORT = 5037
OLDEST_SERVER = 36
"""Of the adb server, the last part of 1.0.36, of 2016: shell v2 is older than that."""
CALL_S = 10.0
RECONNECT_TRIES = 3
SYNC_CHUNK = 64 * 1024
FIRST_BUFFER = 64 * 1024
VERSION, DEVICES = "host:version", "host:devices-l"
OF_SERVER = (VERSION, DEVICES)
"""Requests in which no device takes part."""
RESTART_SERVER = "adb kill-server; adb start-server"
POOL_RECONNECTS = "in a run the pool brings it back; by hand: adb reconnect, or adb kill-server where no device answers"
OUT, ERR, EXIT = 1, 2, 3
"""Packets of shell v2."""
STATES = "device|offline|unauthorized|authorizing|connecting|no permissions|recovery|rescue|sideload|bootloader|host|detached"
LINE = re.compile(rf"(\S.*?)\s+({STATES})(| \S+:.*| \(.*|; .*)\s*$")
UNKNOWN = re.compile(r"(\S+)\s+(\S+)(.*)")
"""A serial, its state, and what more is said of it; the same with a state that is none of these."""


class AdbConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Which adb server to talk to."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: ANDROID_ADB_SERVER_PORT where that is set, else 5037."""
    program: str = "adb"
    """The program that starts the server where none runs."""

    @property
    def address(self) -> tuple[str, int]:
        """Where the server listens."""
        return self.host, self.port or _usual_port(os.environ.get("ANDROID_ADB_SERVER_PORT", ""))


def _usual_port(said: str) -> int:
    if said and not (said.isascii() and said.isdigit() and 0 < int(said) < 65536):
        raise ConfigError(
            f"ANDROID_ADB_SERVER_PORT is {said[:40]!r}", expected="a port", fix="unset it, or set devices.android.port"
        )
    return int(said or DEFAULT_PORT)


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A device as the server lists it."""

    serial: str
    state: str
    """device, offline, unauthorized, recovery and the like."""
    model: str = ""


class ShellResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a command on the device came to."""

    stdout: bytes
    stderr: bytes
    exit_code: int

    @property
    def text(self) -> str:
        """Its output as text, without the line end."""
        return self.stdout.decode(errors="replace").rstrip("\r\n")


class Adb:
    """One adb server. Belongs to one event loop; devices that share it share nothing but its address."""

    def __init__(self, config: AdbConfig | None = None) -> None:
        self.config = config or AdbConfig()
        self._starting = asyncio.Lock()
        self._started = self._is_down = self._is_known = False

    # the server

    async def version(self) -> int:
        """The server's protocol version; `DeviceError` for one that is too old."""
        what = "the version of the adb server"
        said = await self._ask(VERSION, what)
        try:
            found = int(said, 16)
        except ValueError:
            raise self._broke_off(what) from None
        if found < OLDEST_SERVER:
            raise DeviceError(
                f"the adb server speaks version {found}",
                expected=f"{OLDEST_SERVER} or newer",
                fix=f"adb kill-server, then {INSTALL}",
                cause=LossCause.SERVER,
            )
        return found

    async def devices(self) -> list[Listed]:
        """Every device that the server knows, whatever its state; `DeviceError` where the server is too old."""
        if not self._is_known:
            await self.version()
            self._is_known = True
        return parse_devices((await self._ask(DEVICES, "the list of devices")).decode(errors="replace"))

    async def connect(self, serial: str, *, deadline_s: float = CALL_S) -> str:
        """Connect to `host:port`; what the server says. "already connected" does not mean that the device answers."""
        return (await self._ask(f"host:connect:{serial}", f"connecting to {serial}", deadline_s)).decode(
            errors="replace"
        )

    async def disconnect(self, serial: str) -> None:
        """Forget `host:port`; one that is not connected is fine."""
        try:
            await self._ask(f"host:disconnect:{serial}", f"disconnecting {serial}")
        except DeviceLost as error:
            if "no such device" not in error.seen:
                raise

    async def reconnect(self, serial: str, *, deadline_s: float = CALL_S) -> None:
        """Make the server open its connection to the device anew, which ends "device offline" after a restart."""
        if ":" not in serial:
            await self._ask(f"host-serial:{serial}:reconnect", f"reconnecting {serial}", deadline_s)
            return
        for _ in range(RECONNECT_TRIES):
            await self.disconnect(serial)
            said = await self.connect(serial, deadline_s=deadline_s)
            if not said.startswith("already"):  # the server was trying by itself, and what it has may be offline
                break
        if "connected to" not in said:
            fix = "is the device up, and its port right?"
            raise DeviceLost(f"adb cannot connect to {serial}: {said}", fix=fix, cause=LossCause.GONE)

    async def state(self, serial: str) -> str:
        """device, offline, unauthorized, or empty where the server does not know it."""
        return next((found.state for found in await self.devices() if found.serial == serial), "")

    # one device

    async def shell(self, serial: str, command: str, *, deadline_s: float = CALL_S) -> ShellResult:
        """Run a command; `ShellResult` whatever its exit code. Text that others wrote must be quoted by `quoting`."""
        what = f"`{command[:60]}` on {serial}"
        return await self._within(self._shell(serial, command), deadline_s, what)

    async def check(self, serial: str, command: str, *, deadline_s: float = CALL_S) -> str:
        """The output of a command that has to succeed."""
        done = await self.shell(serial, command, deadline_s=deadline_s)
        if done.exit_code:
            said = (done.stderr or done.stdout).decode(errors="replace").strip()[:300]
            raise DeviceError(f"`{command[:80]}` on {serial} ended with {done.exit_code}: {said}")
        return done.text

    async def exec_out(
        self, serial: str, command: str, *, deadline_s: float = CALL_S, size_hint: int = FIRST_BUFFER
    ) -> bytearray:
        """The raw output of a command. A device that is lost meanwhile cuts it off: the reader checks its length."""

        async def read() -> bytearray:
            async with self._transport(serial, f"exec:{command}") as stream:
                return await stream.read_all(size_hint)

        return await self._within(read(), deadline_s, f"`{command[:60]}` on {serial}")

    async def push(self, serial: str, data: bytes, path: str, *, mode: int = 0o644, deadline_s: float = CALL_S) -> None:
        """Write a file on the device."""

        async def send() -> None:
            async with self._transport(serial, "sync:") as stream:
                await stream.send(_sync("SEND", f"{path},{mode | 0o100000}".encode()))
                for begin in range(0, len(data), SYNC_CHUNK):
                    await stream.send(_sync("DATA", data[begin : begin + SYNC_CHUNK]))
                await stream.send(struct.pack("<4sI", b"DONE", 0))
                await _read_sync(stream, serial, path, b"OKAY")

        await self._within(send(), deadline_s, f"writing {path} on {serial}")

    async def pull(self, serial: str, path: str, *, deadline_s: float = CALL_S) -> bytes:
        """The content of a file on the device; `DeviceError` where there is none."""

        async def receive() -> bytes:
            parts: list[bytes] = []
            async with self._transport(serial, "sync:") as stream:
                await stream.send(_sync("RECV", path.encode()))
                while (part := await _read_sync(stream, serial, path, b"DATA")) is not None:
                    parts.append(part)
            return b"".join(parts)

        return await self._within(receive(), deadline_s, f"reading {path} of {serial}")

    async def reboot(self, serial: str) -> None:
        """Reboot the device; it is offline until it comes back."""
        try:
            await self.exec_service(serial, "reboot:")
        except DeviceLost as error:
            if "closed" not in error.seen:  # the device is gone before it could say yes
                raise

    async def exec_service(self, serial: str, service: str, *, deadline_s: float = CALL_S) -> bytearray:
        """All that a service of the device says."""

        async def read() -> bytearray:
            async with self._transport(serial, service) as stream:
                return await stream.read_all(FIRST_BUFFER)

        return await self._within(read(), deadline_s, f"{service} of {serial}")

    # how it is done

    async def _shell(self, serial: str, command: str) -> ShellResult:
        async with self._transport(serial, f"shell,v2,raw:{command}") as stream:
            parts: dict[int, list[bytes]] = {OUT: [], ERR: []}
            while head := await stream.read_some(5):
                if len(head) < 5:
                    break
                kind, size = struct.unpack("<BI", head)
                data = await stream.read_exactly(size)
                if kind == EXIT:
                    return ShellResult(
                        stdout=b"".join(parts[OUT]), stderr=b"".join(parts[ERR]), exit_code=data[0] if data else 255
                    )
                parts.setdefault(kind, []).append(data)
        raise _lost(serial, f"the connection closed in the middle of `{command[:60]}`")

    @asynccontextmanager
    async def _transport(self, serial: str, service: str) -> AsyncIterator[_Stream]:
        """A stream to a service of one device."""
        stream = await self._connect()
        try:
            try:
                await stream.request(f"host:transport:{serial}")
                await stream.request(service)
            except _Refused as error:
                raise refusal(serial, str(error)) from None
            except _NoServer as error:
                raise self._broke_off(f"a way to {serial}") from error
            yield stream
        except (ConnectionError, EOFError) as error:
            raise _lost(serial, f"the connection closed: {error or type(error).__name__}") from error
        finally:
            stream.close()

    async def _ask(self, request: str, what: str, deadline_s: float = CALL_S) -> bytes:
        """The answer of the server itself."""

        async def ask() -> bytes:
            stream = await self._connect()
            try:
                await stream.request(request)
                head = await stream.read_some(4)  # some answers end after OKAY
                return await stream.read_exactly(int(head, 16)) if len(head) == 4 else bytes(head)
            except _Refused as error:
                cause = LossCause.GONE if "not found" in str(error) else LossCause.SERVER
                raise DeviceLost(f"the adb server refused {what}: {error}", fix="adb devices -l", cause=cause) from None
            except (ConnectionError, EOFError, ValueError) as error:
                raise self._broke_off(what) from error
            finally:
                stream.close()

        return await self._within(ask(), deadline_s, what, of_server=request in OF_SERVER)

    def _broke_off(self, what: str) -> DeviceLost:
        host, port = self.config.address
        return DeviceLost(
            f"{host}:{port} does not give {what}, as an adb server would",
            expected="an adb server",
            fix=self._other_server,
            cause=LossCause.SERVER,
        )

    @property
    def _other_server(self) -> str:
        """The fix where what listens there behaves as no adb server does."""
        host, port = self.config.address
        return f"{RESTART_SERVER}; or is devices.android.port right? {host}:{port} was asked"

    async def _within(self, work: Awaitable[T], deadline_s: float, what: str, *, of_server: bool = False) -> T:
        try:
            async with asyncio.timeout(deadline_s) as deadline:
                return await work
        except TimeoutError:
            if not deadline.expired():
                raise
            raise DeviceLost(
                f"{what} took over {deadline_s:g} s",
                fix=self._other_server if of_server else POOL_RECONNECTS,
                cause=LossCause.SERVER if of_server or self._is_down else LossCause.LATE,
            ) from None

    async def _connect(self) -> _Stream:
        try:
            stream = await _Stream.open(*self.config.address)
        except OSError as error:
            self._is_down, self._is_known = True, False  # what is started now may be another one
            await self._start_server(error)
            try:
                stream = await _Stream.open(*self.config.address)
            except OSError as again:
                raise self._no_server(again) from None
        self._is_down = False
        return stream

    async def _start_server(self, refused: OSError) -> None:
        """Start the server where none runs, once: one that dies again and again is for a person to look at."""
        host, port = self.config.address
        async with self._starting:
            if await server_listens(host, port):
                return
            if self._started or host not in LOCAL_HOSTS:
                raise self._no_server(refused)
            self._started = True
            await start_server(self.config.program, self.config.address)

    def _no_server(self, refused: OSError) -> DeviceError:
        host, port = self.config.address
        return DeviceError(
            f"no adb server answers on {host}:{port}: {refused.strerror or refused}",
            expected="a running adb server",
            fix=f"adb -P {port} start-server" + ("" if host in LOCAL_HOSTS else f" on {host}"),
            cause=LossCause.SERVER,
        )


def devices_now(config: AdbConfig) -> list[Listed]:
    """The list of devices, for those who have no event loop yet."""
    # In a thread of its own: a loop may run in this one.
    with ThreadPoolExecutor(1, thread_name_prefix="list of devices") as thread:
        return thread.submit(lambda: asyncio.run(Adb(config).devices())).result()


def parse_devices(text: str) -> list[Listed]:
    """The lines of `adb devices` or `adb devices -l`; a serial may hold spaces, as that of a second phone over Wi-Fi does."""
    found = []
    for line in text.split("\n"):
        if known := LINE.match(line) or UNKNOWN.match(line):
            serial, state, facts = known.groups()
            model = re.search(r"\bmodel:(\S+)", facts)
            found.append(Listed(serial=serial, state=state, model=model[1] if model else ""))
    return found


def refusal(serial: str, said: str) -> DeviceLost:
    """What the server's refusal of a device means, with the fix."""
    if "unauthorized" in said or "authorizing" in said:
        fix = "unlock the phone, accept the question about USB debugging, then: adb reconnect"
        seen = f"{serial} has not authorised this machine"
        return DeviceLost(seen, expected="an authorised phone", fix=fix, cause=LossCause.PERSON)
    if "permissions" in said:
        fix = "udev rules and the group plugdev: docs/android.md, your own phones; then plug it in again"
        seen = f"this user may not open {serial} on USB"
        return DeviceLost(seen, expected="a phone that adb may open", fix=fix, cause=LossCause.PERSON)
    if "offline" in said:
        return DeviceLost(f"{serial} is offline", fix=POOL_RECONNECTS, cause=LossCause.OFFLINE)
    if "not found" in said or "no devices" in said:
        where = f"adb connect {serial}" if ":" in serial else "plug it in, and turn USB debugging on"
        seen, expected = f"adb knows no device {serial!r}", "a serial of `adb devices`"
        return DeviceLost(seen, expected=expected, fix=where, cause=LossCause.GONE)
    return DeviceLost(f"{serial}: adb says {said!r}", fix="adb devices -l", cause=LossCause.OFFLINE)


def _lost(serial: str, what: str) -> DeviceLost:
    return DeviceLost(f"{serial} is lost: {what}", fix=POOL_RECONNECTS, cause=LossCause.OFFLINE)


def _sync(id: str, data: bytes) -> bytes:
    return struct.pack("<4sI", id.encode(), len(data)) + data


async def _read_sync(stream: _Stream, serial: str, path: str, wanted: bytes) -> bytes | None:
    """The data of one sync packet; None at the end of a file."""
    id, size = struct.unpack("<4sI", await stream.read_exactly(8))
    if id == b"DONE":
        return None
    data = await stream.read_exactly(size) if size else b""
    if id != wanted:
        raise DeviceError(f"{path} of {serial}: {data.decode(errors='replace')[:200] or id!r}")
    return data


class _Refused(Exception):
    """The server said FAIL."""


class _NoServer(ConnectionError):
    """What answers is no adb server."""


class _Stream:
    """A socket with the framing of the adb server. Large answers are read in place, without copies."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._loop = sock, asyncio.get_running_loop()

    @classmethod
    async def open(cls, host: str, port: int) -> _Stream:
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        with ExitStack() as unless_connected:
            unless_connected.callback(sock.close)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().sock_connect(sock, (host, port))
            unless_connected.pop_all()
        return cls(sock)

    async def request(self, service: str) -> None:
        """Ask for a service; `_Refused` with what the server says against it."""
        data = service.encode()
        if len(data) > 0xFFFF:
            raise DeviceError(f"a command of {len(data)} bytes is too long for adb", fix="push it as a file instead")
        await self.send(b"%04x" % len(data) + data)
        status = await self.read_exactly(4)
        if status == b"FAIL":
            raise _Refused((await self.read_exactly(await self.read_size())).decode(errors="replace").strip())
        if status != b"OKAY":
            raise _NoServer(f"{bytes(status)!r} is no answer of an adb server")

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._sock, data)

    async def read_size(self) -> int:
        """The length of what follows."""
        digits = await self.read_exactly(4)
        try:
            return int(digits, 16)
        except ValueError:
            raise _NoServer(f"{bytes(digits)!r} is no length") from None

    async def read_exactly(self, size: int) -> bytes:
        """So many bytes; `EOFError` where the other side ends before."""
        data = await self.read_some(size)
        if len(data) < size:
            raise EOFError(f"{len(data)} of {size} bytes")
        return data

    async def read_some(self, size: int) -> bytes:
        """So many bytes, or fewer at the end."""
        data = await self._loop.sock_recv(self._sock, size)
        while data and len(data) < size:
            more = await self._loop.sock_recv(self._sock, size - len(data))
            if not more:
                break
            data += more
        return data

    async def read_all(self, size_hint: int) -> bytearray:
        """Everything until the other side ends."""
        buffer, filled = bytearray(size_hint), 0
        while True:
            if filled == len(buffer):
                buffer.extend(bytes(max(FIRST_BUFFER, len(buffer))))
            with memoryview(buffer)[filled:] as free:
                got = await self._loop.sock_recv_into(self._sock, free)
            if not got:
                del buffer[filled:]
                return buffer
            filled += got

    def close(self) -> None:
        self._sock.close()

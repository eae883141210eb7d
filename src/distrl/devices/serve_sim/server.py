"""Simulated phones on ports of this machine, for `adb connect`: services, faults and the life of each phone."""

from __future__ import annotations

import asyncio
import struct
import time
from collections import Counter
from random import Random
from typing import Literal, get_args

import msgspec

from distrl.devices.base import Sleep
from distrl.devices.serve_sim.android import AndroidSettings, SimulatedAndroid
from distrl.devices.serve_sim.shell import Done
from distrl.devices.serve_sim.wire import Banner, Stream, StreamClosed, Transport

FaultKind = Literal["drop", "restart", "hang", "slow", "truncate", "garbage"]
FAULTS: tuple[FaultKind, ...] = get_args(FaultKind)
REGULAR_FILE = 0o100644
SYNC = struct.Struct("<4sI")
CLOSING_POLLS, CLOSING_POLL_S = 100, 0.01


class FaultSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How often a phone fails, and how."""

    rate: float = 0.0
    """Chance per command."""
    kinds: tuple[FaultKind, ...] = FAULTS
    seed: int = 0
    restart_s: float = 1.0
    """How long a restarting phone is gone."""
    slow_s: float = 2.0
    """What a slow answer takes longer."""


class ServedPhone:
    """One simulated phone behind one port."""

    def __init__(
        self,
        android: SimulatedAndroid,
        faults: FaultSettings | None = None,
        *,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.android, self._settings, self._sleep = android, faults or FaultSettings(), sleep
        self._random = Random(f"{self._settings.seed} {android.name}")
        self.next_fault: FaultKind | None = None
        """Happens to the next command, whatever the rate."""
        self.authorised = True
        """False: the next connection waits for an owner who never answers."""
        self.injected: Counter[str] = Counter()
        self.commands = 0
        self._transports: set[Transport] = set()
        self._server: asyncio.Server | None = None
        self._restarts: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def serial(self) -> str:
        """What adb calls it."""
        return f"127.0.0.1:{self.port}"

    async def start(self, port: int = 0) -> None:
        """Listen; port 0: any that is free."""
        self._server = await asyncio.start_server(self._serve_connection, "127.0.0.1", port, limit=2**22)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Be gone: connections are cut, the port is closed."""
        for restart in self._restarts:
            restart.cancel()
        await self._stop_listening()
        for _ in range(CLOSING_POLLS):  # connections that were cut end by themselves, a moment later
            if not self._transports:
                return
            await asyncio.sleep(CLOSING_POLL_S)

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
        for transport in list(self._transports):
            transport.drop()
        self._server = None

    async def restart(self) -> None:
        """Reboot: gone for a while, then back on the home screen. The adb server calls it offline until reconnected."""
        await self._stop_listening()
        self.android.boot()
        await self._sleep(self._settings.restart_s)
        await self.start(self.port)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        banner = Banner(name="distrl_sim", model="distrl_simulated_phone", authorised=self.authorised)
        transport = Transport(reader, writer, banner, lambda service, stream: self._serve(service, stream, transport))
        self._transports.add(transport)
        try:
            await transport.run()
        finally:
            self._transports.discard(transport)

    async def _serve(self, service: str, stream: Stream, transport: Transport) -> None:
        self.commands += 1
        name, _, rest = service.partition(":")
        if name == "sync":
            return await self._sync(stream)
        if name == "reboot":
            return self._reboot()
        fault = self._draw_fault()
        if fault in ("drop", "restart", "hang"):
            return await self._fail(fault, stream, transport)
        if name.partition(",")[0] not in ("shell", "exec"):
            return
        done = await self._spoil(self.android.shell(rest), fault)
        if name == "exec":  # one stream for both; what a command warns of comes before its output
            await stream.write(done.err + done.out)
        elif ",v2" in name:
            await stream.write(_packets(done))
        else:
            await stream.write(done.out + done.err)

    def _draw_fault(self) -> FaultKind | None:
        fault, self.next_fault = self.next_fault, None
        if fault is None and self._random.random() < self._settings.rate:
            fault = self._random.choice(self._settings.kinds)
        if fault is not None:
            self.injected[fault] += 1
        return fault

    async def _fail(self, fault: FaultKind, stream: Stream, transport: Transport) -> None:
        self.android.log.append(f"E distrl: {fault}")
        if fault == "restart":
            self._reboot()
        elif fault == "drop":
            asyncio.get_running_loop().call_soon(transport.drop)
        else:
            await stream.closed.wait()

    def _reboot(self) -> None:
        task = asyncio.create_task(self.restart(), name=f"restart of {self.serial}")
        self._restarts.add(task)
        task.add_done_callback(self._restarts.discard)

    async def _spoil(self, done: Done, fault: FaultKind | None) -> Done:
        if fault == "slow":
            await self._sleep(self._settings.slow_s)
        elif fault == "truncate" and len(done.out) > 1:
            return Done(done.out[: len(done.out) // 2], done.err, done.code)
        elif fault == "garbage":
            return Done(self._random.randbytes(len(done.out)), done.err, done.code)
        return done

    # files

    async def _sync(self, stream: Stream) -> None:
        reader = _Reader(stream)
        try:
            while True:
                id, size = SYNC.unpack(await reader.exactly(SYNC.size))
                if id == b"QUIT":
                    return
                await self._sync_request(
                    id, (await reader.exactly(size)).decode(errors="surrogateescape"), reader, stream
                )
        except StreamClosed:
            return

    async def _sync_request(self, id: bytes, path: str, reader: _Reader, stream: Stream) -> None:
        files = self.android.files
        if id == b"SEND":
            files[path.rpartition(",")[0]] = await reader.file()
            await stream.write(SYNC.pack(b"OKAY", 0))
        elif id == b"RECV" and path in files:
            data = files[path]
            for begin in range(0, len(data), 65536):
                part = data[begin : begin + 65536]
                await stream.write(SYNC.pack(b"DATA", len(part)) + part)
            await stream.write(SYNC.pack(b"DONE", 0))
        elif id == b"STAT":
            mode = REGULAR_FILE if path in files else 0
            await stream.write(struct.pack("<4s3I", b"STAT", mode, len(files.get(path, b"")), int(time.time())))
        elif id in (b"STA2", b"LST2"):
            await stream.write(_stat_v2(id, files.get(path)))
        else:
            said = f"open failed: No such file or directory: {path}" if id == b"RECV" else f"unknown request {id!r}"
            await stream.write(SYNC.pack(b"FAIL", len(said.encode())) + said.encode())


class _Reader:
    """A stream as bytes of asked-for length."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._held = stream, bytearray()

    async def exactly(self, size: int) -> bytes:
        while len(self._held) < size:
            self._held += await self._stream.read()
        found = bytes(self._held[:size])
        del self._held[:size]
        return found

    async def file(self) -> bytes:
        """What a client sends between SEND and DONE."""
        parts: list[bytes] = []
        while True:
            id, size = SYNC.unpack(await self.exactly(SYNC.size))
            if id == b"DONE":  # its number is a time, not a length
                return b"".join(parts)
            parts.append(await self.exactly(size))


def _packets(done: Done) -> bytes:
    """Shell v2: stdout, stderr and the exit code."""
    parts = [(1, done.out), (2, done.err), (3, bytes([done.code & 0xFF]))]
    return b"".join(struct.pack("<BI", kind, len(data)) + data for kind, data in parts if data)


def _stat_v2(id: bytes, data: bytes | None) -> bytes:
    error, mode = (0, REGULAR_FILE) if data is not None else (2, 0)
    now = int(time.time())
    return struct.pack("<4sI2Q4IQ3q", id, error, 0, 0, mode, 1, 0, 0, len(data or b""), now, now, now)


async def serve(
    count: int, *, settings: AndroidSettings, faults: FaultSettings | None = None, first_port: int = 0
) -> list[ServedPhone]:
    """So many phones on ports one after another, or on any that are free where `first_port` is 0."""
    phones = []
    for number in range(count):
        phone = ServedPhone(SimulatedAndroid(f"sim-{number}", settings, number=number), faults)
        await phone.start(first_port + number if first_port else 0)
        phones.append(phone)
    return phones

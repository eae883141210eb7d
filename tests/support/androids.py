"""Simulated phones behind the real adb program: a server on a port of its own, gone afterwards."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from distrl.config.schema import NO_PERTURBATIONS
from distrl.devices.android.adb import Adb, AdbConfig
from distrl.devices.android.adb_program import find_adb
from distrl.devices.serve_sim.android import AndroidSettings
from distrl.devices.serve_sim.server import FaultSettings, ServedPhone, serve
from distrl.errors import DeviceError

NO_ADB = "no adb program: these tests drive simulated phones through the real one (Debian and Ubuntu: apt install adb)"
CALM = AndroidSettings(perturbations=NO_PERTURBATIONS)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def own_server() -> Iterator[AdbConfig]:
    """An adb server of this test alone, started by whoever first talks to it; it sees none of the devices around it."""
    try:
        program = find_adb()
    except DeviceError:
        pytest.skip(NO_ADB)
    config = AdbConfig(port=free_port())
    with pytest.MonkeyPatch.context() as environment:
        for name in ("ADB_USB", "ADB_MDNS", "ADB_EMU"):
            environment.setenv(name, "0")
        try:
            yield config
        finally:
            kill = [program, "-P", str(config.port), "kill-server"]
            subprocess.run(kill, timeout=60, check=False, capture_output=True)


@contextmanager
def phones_behind_adb(count: int, *flags: str) -> Iterator[tuple[AdbConfig, list[str]]]:
    """So many simulated phones in a process of their own (`distrl devices serve-sim`), connected to an adb server of their own; their serials."""
    with own_server() as config:
        command = [sys.executable, "-m", "distrl", "devices", "serve-sim", "--count", str(count), "--first-port", "0"]
        command += ["--connect", "--json", "--width", "180", *flags, "--devices.android.port", str(config.port)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout
            yield config, next(json.loads(line) for line in process.stdout if line.startswith("{"))["serials"]
        finally:
            process.kill()
            process.wait()


@asynccontextmanager
async def connected(
    config: AdbConfig,
    count: int = 1,
    *,
    settings: AndroidSettings = CALM,
    faults: FaultSettings | None = None,
) -> AsyncIterator[tuple[Adb, list[ServedPhone]]]:
    """So many simulated phones that the server has connected to."""
    phones = await serve(count, settings=settings, faults=faults)
    adb = Adb(config)
    try:
        for phone in phones:
            assert "connected to" in await adb.connect(phone.serial)
        yield adb, phones
    finally:
        for phone in phones:
            await adb.disconnect(phone.serial)
            await phone.stop()

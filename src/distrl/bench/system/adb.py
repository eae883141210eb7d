"""`distrl bench adb`: a tap and a screenshot over the adb server's socket, beside the adb command line in the same run.

A simulated phone of 1080 × 2400 in a process of its own stands behind the real adb program: what is measured is the way
there and back, not what an Android takes over it. Client and command line take turns, ten calls each.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from statistics import median

import msgspec

from distrl.bench.base import BenchOptions
from distrl.config.schema import AndroidConfig
from distrl.devices.android.adb import Adb, AdbConfig
from distrl.devices.android.adb_program import find_adb
from distrl.devices.android.device import AndroidDevice
from distrl.devices.android.health import adb_version, draw_boxes
from distrl.devices.android.screen import read_raw
from distrl.errors import DeviceError

WIDTH, HEIGHT = 1080, 2400
START_S = 60.0
TURN, SHOW_SHARE = 10, 10


class AdbFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Medians, in milliseconds."""

    tap_ms: float
    """`input tap` over the server's socket."""
    screenshot_ms: float
    """A raw screenshot, read whole and checked."""
    cli_tap_ms: float
    """`adb shell input tap`."""
    cli_screenshot_ms: float
    """`adb exec-out screencap`."""
    show_ms: float
    """What `distrl devices show` does once it is loaded: state, picture, elements, boxes, PNG."""
    n: int
    """Of each; of `show_ms` a tenth."""
    adb: str
    """Version of the adb program."""
    device: str = f"simulated phone of {WIDTH}×{HEIGHT} behind the real adb, in a process of its own"


def run(options: BenchOptions) -> AdbFigures:
    """Measure; `DeviceError` where there is no adb."""
    program = find_adb()
    with _phone(program) as (config, serial):
        return asyncio.run(_measure(config, serial, program, n=20 if options.quick else 100))


async def _measure(config: AdbConfig, serial: str, program: str, *, n: int) -> AdbFigures:
    adb, cli = Adb(config), [program, "-P", str(config.port), "-s", serial]

    async def tap() -> None:
        await adb.check(serial, "input tap 5 5")

    async def take() -> None:
        if read_raw(await adb.exec_out(serial, "screencap", size_hint=4 * WIDTH * HEIGHT + 17)).size != (WIDTH, HEIGHT):
            raise DeviceError("the screenshot has another size than the phone")

    def tap_by_cli() -> None:
        subprocess.run([*cli, "shell", "input tap 5 5"], check=True, timeout=START_S)

    def take_by_cli() -> None:
        read_raw(
            subprocess.run([*cli, "exec-out", "screencap"], check=True, timeout=START_S, stdout=subprocess.PIPE).stdout
        )

    taps, cli_taps = await _take_turns(tap, tap_by_cli, n)

    async def show() -> None:
        device = AndroidDevice(serial, AndroidConfig(port=config.address[1], screenshot_width=0), adb)
        await device.phone.come_online()
        draw_boxes(await device.capture(screenshot=True))

    pictures, cli_pictures = await _take_turns(take, take_by_cli, n)
    shows = [await _timed(show) for _ in range(n // SHOW_SHARE)]
    return AdbFigures(
        tap_ms=1000 * median(taps),
        screenshot_ms=1000 * median(pictures),
        cli_tap_ms=1000 * median(cli_taps),
        cli_screenshot_ms=1000 * median(cli_pictures),
        show_ms=1000 * median(shows),
        n=n,
        adb=adb_version(AndroidConfig()).rpartition(", ")[2],
    )


async def _take_turns(
    work: Callable[[], Awaitable[None]], by_cli: Callable[[], None], n: int
) -> tuple[list[float], list[float]]:
    """Seconds of `n` calls of each, in turns, after a first turn that does not count."""
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(1 + n // TURN):
        for _ in range(TURN):
            ours.append(await _timed(work))
        for _ in range(TURN):
            began = time.perf_counter()
            by_cli()
            theirs.append(time.perf_counter() - began)
    return ours[TURN:], theirs[TURN:]


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


@contextmanager
def _phone(program: str) -> Iterator[tuple[AdbConfig, str]]:
    """A simulated phone in a process of its own, behind an adb server of its own; both are gone afterwards."""
    config = AdbConfig(port=_free_port(), program=program)
    size = ("--width", str(WIDTH), "--height", str(HEIGHT), "--first-port", "0")
    command = [sys.executable, "-m", "distrl", "devices", "serve-sim", *size, "--connect", "--json"]
    phone = subprocess.Popen(
        [*command, "--devices.android.port", str(config.port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield config, _serial(phone)
    finally:
        phone.kill()
        phone.wait()
        subprocess.run(
            [program, "-P", str(config.port), "kill-server"], capture_output=True, timeout=START_S, check=False
        )


def _serial(phone: subprocess.Popen[str]) -> str:
    """What the phone's process says it is called; it says so within a moment, or ends."""
    for line in phone.stdout or ():
        if line.startswith("{"):
            return str(json.loads(line)["serials"][0])
    raise DeviceError(f"the simulated phone ended: {(phone.stderr.read() if phone.stderr else '')[-300:]}")


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])

"""AndroidWorld's tasks on our devices: its package runs in a process of its own, in the Python that has it.

Screens and gestures go the same way as for any other task. What is AndroidWorld's is the set-up of each task and its own check, both
asked for over the pipes of `world_bridge.py`. A process that ends, hangs or says something else costs the episode that it was asked for.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from distrl.devices.android.adb import LOCAL_HOSTS, AdbConfig
from distrl.devices.android.adb_program import find_adb
from distrl.devices.android.records import state_folder
from distrl.devices.calls import abandon
from distrl.errors import ConfigError, DeviceLost, LossCause

BRIDGE = Path(__file__).with_name("world_bridge.py")
START_S, LIST_S = 120.0, 300.0
"""For the package to be imported; for all goals to be made."""
INITIALIZE_S, SCORE_S = 240.0, 50.0
LONGEST_LINE = 64 * 2**20
GRPC_BEYOND_CONSOLE = 3000
"""An emulator's gRPC port is its console's plus so many, as Android's tools have it: 5554 and 8554."""
ADB = """#!/bin/sh
# AndroidWorld's way to the adb server that distrl uses, on its port. It must not restart it: other devices use it too.
while [ "$1" = -P ]; do shift 2; done
case "$1" in kill-server | start-server) exit 0 ;; esac
exec {command} "$@"
"""
GET_PACKAGE = "install it from https://github.com/google-research/android_world, and name its Python: --{key} PATH"


class WorldTask(msgspec.Struct, frozen=True, kw_only=True):
    """One instance of a task, as the bridge describes it."""

    name: str
    seed: int
    goal: str
    complexity: float
    """AndroidWorld's own measure: it allows ten steps for each."""
    apps: tuple[str, ...] = ()


def list_tasks(python: str, *, seed: int, count: int, names: tuple[str, ...]) -> list[WorldTask]:
    """Instances of AndroidWorld's tasks with their goals; needs its package and no emulator. `ConfigError` without it."""
    key = "tasks.android_world.python"
    asked = json.dumps({"do": "tasks", "seed": seed, "count": count, "names": names}) + "\n"
    program = python or sys.executable
    try:
        done = subprocess.run(
            [program, str(BRIDGE)], input=asked, capture_output=True, text=True, timeout=START_S + LIST_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{key} = {program!r} cannot be used: {error}", fix=GET_PACKAGE.format(key=key)) from None
    for line in done.stdout.splitlines():
        told = _told(line)
        if "error" in told:
            raise _refused(str(told["error"]), program, key)
        if "answer" in told:
            return msgspec.convert(told["answer"], list[WorldTask])
    said = " ".join(done.stderr.split())[-300:]
    raise ConfigError(f"{program} ended with {done.returncode}: {said}", fix=GET_PACKAGE.format(key=key))


def _refused(said: str, program: str, key: str) -> ConfigError:
    if "ModuleNotFoundError" in said:
        return ConfigError(
            f"{program} has no AndroidWorld: {said}",
            expected="a Python with the package android_world and what it needs",
            fix=GET_PACKAGE.format(key=key),
        )
    return ConfigError(f"AndroidWorld refuses: {said}", fix="tasks.android_world.names; distrl tasks list")


def _told(line: str) -> dict[str, Any]:
    """One line of the bridge; an error where it is none."""
    try:
        told = json.loads(line)
    except ValueError:
        return {"error": f"the bridge said {line[:120]!r}"}
    return told if isinstance(told, dict) else {"error": f"the bridge said {line[:120]!r}"}


class World:
    """AndroidWorld for one device. Belongs to one event loop, and to whoever has the device's lease."""

    def __init__(self, python: str, adb: AdbConfig) -> None:
        self._python, self._adb = python or sys.executable, adb
        self._process: asyncio.subprocess.Process | None = None
        self._serial = ""

    async def initialize(self, serial: str, name: str, seed: int) -> str:
        """Bring the device to the start of a task; its goal."""
        if serial != self._serial:
            await self.close()
        if self._process is None:
            await self._start(serial)
        return str(await self._ask({"do": "initialize", "name": name, "seed": seed}, INITIALIZE_S))

    async def score(self, answer: str) -> float:
        """What AndroidWorld's check says about the device as it is: 1.0 is success."""
        told = await self._ask({"do": "score", "answer": answer}, SCORE_S)
        if not isinstance(told, int | float):
            raise self._lost(f"its score is {told!r:.80}")
        return float(told)

    async def close(self) -> None:
        """End the process; its next task starts another."""
        process, self._process, self._serial = self._process, None, ""
        if process is not None and process.returncode is None:
            process.kill()
            abandon(asyncio.ensure_future(process.wait()))

    async def _start(self, serial: str) -> None:
        console = console_port(serial)
        words = [
            "--adb",
            str(write_adb(self._adb)),
            "--console-port",
            str(console),
            "--grpc-port",
            str(console + GRPC_BEYOND_CONSOLE),
        ]
        try:
            self._process = await asyncio.create_subprocess_exec(
                self._python, str(BRIDGE), *words,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, limit=LONGEST_LINE,
            )  # fmt: skip
        except OSError as error:
            raise self._lost(f"{self._python} cannot be started: {error.strerror}") from None
        self._serial = serial
        told = await self._read(START_S, "to load its package")
        if not told.get("ready"):
            raise self._lost(str(told.get("error", told))[:300])

    async def _ask(self, asked: dict[str, object], limit_s: float) -> object:
        if self._process is None or self._process.stdin is None:
            raise self._lost("it was not started")
        try:
            self._process.stdin.write((json.dumps(asked) + "\n").encode())
            await self._process.stdin.drain()
        except ConnectionError as error:
            raise await self._ended(f"it ended: {error}") from None
        told = await self._read(limit_s, f"over {asked['do']}")
        if "error" in told:
            raise self._lost(f"{asked['do']}: {told['error']}"[:300])
        return told.get("answer")

    async def _read(self, limit_s: float, what: str) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(limit_s):
                line = await self._process.stdout.readline()
        except TimeoutError:
            raise await self._ended(f"it took over {limit_s:g} s {what}", LossCause.LATE) from None
        if not line:
            raise await self._ended(f"it ended {what}")
        return _told(line.decode(errors="replace"))

    async def _ended(self, why: str, cause: LossCause = LossCause.CRASH) -> DeviceLost:
        await self.close()
        return self._lost(why, cause)

    def _lost(self, why: str, cause: LossCause = LossCause.CRASH) -> DeviceLost:
        fix = "run its own minimal_task_runner.py on this emulator; devices.android.world_python names the Python"
        return DeviceLost(f"AndroidWorld on {self._serial or 'a device'}: {why}", fix=fix, cause=cause)


def write_adb(config: AdbConfig) -> Path:
    """A program that is adb to AndroidWorld, which knows one port and restarts the server when a command fails."""
    host, port = config.address
    words = [find_adb(config.program), *(() if host in LOCAL_HOSTS else ("-H", host)), "-P", str(port)]
    path = state_folder() / f"adb-{port}"
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_text(ADB.format(command=shlex.join(words)), "utf-8")
    fresh.chmod(0o700)
    fresh.replace(path)  # whole: another process may be about to run it
    return path


def console_port(serial: str) -> int:
    """Of an emulator, which is all that AndroidWorld knows; `DeviceLost` for any other device."""
    port = serial.removeprefix("emulator-")
    if port == serial or not port.isdecimal():
        raise DeviceLost(
            f"AndroidWorld runs on emulators alone, and {serial} is none",
            expected="emulator-5554 and the like",
            fix="devices.android.serials, or devices.android.emulator",
        )
    return int(port)

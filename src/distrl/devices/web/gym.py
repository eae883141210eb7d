"""MobileGym's tasks on our Chromium phones: its `bench_env` runs in a process of its own, in the Python that has what it needs.

Screens and gestures go the same way as for any other page. What is MobileGym's is the set-up of each task and its own judge, both asked for
over the pipes of `gym_bridge.py`; what they ask of a phone in return is evaluated in the page that it shows. One process serves
all phones of a role. One that ends, hangs or says something else costs the episodes that it was asked for, and is started again.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

import msgspec

from distrl.config.judging import MobileGymConfig
from distrl.devices.calls import abandon
from distrl.errors import ConfigError, DeviceError, DeviceLost, LossCause
from distrl.types import WebTask

BRIDGE = Path(__file__).with_name("gym_bridge.py")
START_S, LIST_S = 60.0, 240.0
"""For the package to be loaded; for all tasks to be looked at."""
SETUP_S, JUDGE_S = 55.0, 30.0
LONGEST_LINE = 256 * 2**20
LAST_WORDS = 300
GET_IT = "clone and serve MobileGym by its own instructions, and install bench_env/requirements.txt in that Python"

Ask = Callable[["Question"], Awaitable[msgspec.Raw]]
"""Answers what a task asks of its phone."""


class GymTask(msgspec.Struct, frozen=True, kw_only=True):
    """One task template of MobileGym, as the bridge describes it."""

    name: str
    split: Literal["train", "test"]
    level: str = ""
    apps: tuple[str, ...] = ()
    max_steps: int = 0
    asks: bool = False
    """Whether it has to be answered."""
    english: bool = False
    """Whether it has an English wording."""
    error: str = ""
    """Why it cannot be used at all; empty: it can be tried."""


class GymVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What MobileGym's judge says of a phone."""

    passed: bool
    """The goal is reached and nothing else has changed."""
    success: bool = False
    """The goal is reached."""
    progress: float = 0.0
    missing: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    fulfilled: tuple[WebTask, ...] = ()


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a task asks of its phone."""

    ask: Literal["evaluate", "open"]
    script: str = ""
    argument: msgspec.Raw = msgspec.Raw(b"null")


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the bridge: that it is ready, an answer, or a question."""

    ready: bool | None = None
    to: int = 0
    answer: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""
    ask: Literal["", "evaluate", "open"] = ""
    asked_for: int = msgspec.field(default=0, name="for")
    number: int = 0
    script: str = ""
    argument: msgspec.Raw = msgspec.Raw(b"null")


class _Instruction(msgspec.Struct, frozen=True, kw_only=True):
    instruction: str


class _Request:
    """What one phone has asked for and waits for."""

    def __init__(self, ask: Ask) -> None:
        self.ask, self.lost = ask, None  # type: Ask, DeviceError | None
        self.answer: asyncio.Future[_Line] = asyncio.get_running_loop().create_future()


class Gym:
    """MobileGym's tasks for the phones of one role. Belongs to one event loop."""

    def __init__(self, folder: str, python: str) -> None:
        self._folder, self._python = folder, python or sys.executable
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()
        self._requests: dict[int, _Request] = {}
        self._starting = asyncio.Lock()
        self._number = self._users = 0

    def use(self) -> None:
        """One more phone has it."""
        self._users += 1

    async def leave(self) -> None:
        """One phone less; the last one ends the process."""
        self._users -= 1
        if self._users <= 0:
            await self.close()

    async def set_up(self, phone: str, ask: Ask, *, task: str, seed: int, language: str, answers: str) -> str:
        """Bring a phone to the start of a task; its instruction."""
        asked = {"do": "setup", "phone": phone, "task": task, "seed": seed, "language": language, "answers": answers}
        told = await self._request(asked, ask, SETUP_S)
        return msgspec.json.decode(told, type=_Instruction).instruction

    async def moment(
        self, phone: str, ask: Ask, *, steps: int, lines: list[str], draws: int, seed: int, language: str
    ) -> tuple[WebTask, ...]:
        """Which training tasks a phone fulfils after so many steps, with these lines on its screen."""
        asked = {"do": "moment", "phone": phone, "steps": steps, "lines": lines, "draws": draws, "seed": seed}
        told = await self._request({**asked, "language": language}, ask, JUDGE_S)
        return msgspec.json.decode(told, type=tuple[WebTask, ...])

    async def judge(self, phone: str, ask: Ask, *, answer: str, draws: int, seed: int, language: str) -> GymVerdict:
        """What MobileGym's judge says of a phone as it is; with `draws`, which other training tasks a failure fulfils."""
        asked = {"do": "judge", "phone": phone, "answer": answer, "draws": draws, "seed": seed, "language": language}
        return msgspec.json.decode(await self._request(asked, ask, JUDGE_S), type=GymVerdict)

    async def close(self) -> None:
        """End the process; the next request starts another."""
        process, self._process, reading, self._reading = self._process, None, self._reading, None
        if reading is not None:
            reading.cancel()
        for task in self._answering:
            task.cancel()
        if process is not None and process.returncode is None:
            process.kill()
            abandon(asyncio.ensure_future(process.wait()))
        self._drop("it was ended")

    # parts

    async def _request(self, asked: dict[str, object], ask: Ask, limit_s: float) -> msgspec.Raw:
        process = await self._running()
        self._number += 1
        number, request = self._number, _Request(ask)
        self._requests[number] = request
        try:
            self._say(process, {**asked, "to": number})
            async with asyncio.timeout(limit_s) as deadline:
                line = await request.answer
        except TimeoutError:
            if not deadline.expired():
                raise
            if request.lost is None:
                await self.close()  # a task's own code may be in an endless loop, which holds up all others
            raise request.lost or self._lost(f"took over {limit_s:g} s over {asked['do']}") from None
        finally:
            self._requests.pop(number, None)
        if request.lost is not None:
            raise request.lost
        if line.error:
            raise self._lost(f"{asked['do']}: {line.error}")
        return line.answer

    async def _running(self) -> asyncio.subprocess.Process:
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                self._process = await self._start()
            return self._process

    async def _start(self) -> asyncio.subprocess.Process:
        try:
            process = await asyncio.create_subprocess_exec(
                self._python, str(BRIDGE), str(Path(self._folder).expanduser()),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                limit=LONGEST_LINE, env=_environment(),
            )  # fmt: skip
        except OSError as error:
            raise self._lost(f"{self._python} cannot be started: {error.strerror}") from None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_S):
                line = _read(await process.stdout.readline())
        except TimeoutError:
            process.kill()
            raise self._lost(f"took over {START_S:g} s to load its package") from None
        if line.ready is not True:
            raise self._lost(line.error or "ended while it loaded its package")
        self._reading = asyncio.create_task(self._read_all(process, process.stdout), name="lines of MobileGym")
        return process

    async def _read_all(self, process: asyncio.subprocess.Process, out: asyncio.StreamReader) -> None:
        why = "it ended"
        try:
            while said := await out.readline():
                self._take(process, _read(said))
        except ValueError as error:  # a line beyond all measure
            why = str(error)
        if self._process is process:
            self._process = self._reading = None
            if process.returncode is None:
                process.kill()
            self._drop(why)

    def _take(self, process: asyncio.subprocess.Process, line: _Line) -> None:
        if line.ask:
            task = asyncio.create_task(self._tell(process, line), name=f"question {line.number} of MobileGym")
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        elif (request := self._requests.get(line.to)) is not None and not request.answer.done():
            request.answer.set_result(line)

    async def _tell(self, process: asyncio.subprocess.Process, line: _Line) -> None:
        """Answer a question of a task; what the phone raises goes to whoever waits for the task, not through its code."""
        assert line.ask
        request = self._requests.get(line.asked_for)
        told: dict[str, object] = {"told": line.number}
        if request is None:
            told["error"] = "nobody waits for this any more"
        else:
            try:
                question = Question(ask=line.ask, script=line.script, argument=line.argument)
                told["value"] = await request.ask(question)
            except DeviceError as error:
                if isinstance(error, DeviceLost):
                    request.lost = request.lost or error
                told["error"] = str(error)
        self._say(process, told)

    def _say(self, process: asyncio.subprocess.Process, told: dict[str, object]) -> None:
        if process.stdin is None or process.stdin.is_closing():
            raise self._lost("it ended")
        process.stdin.write(msgspec.json.encode(told) + b"\n")

    def _drop(self, why: str) -> None:
        for request in self._requests.values():
            if not request.answer.done():
                request.answer.set_result(_Line(error=why))

    def _lost(self, why: str) -> DeviceLost:
        """Nothing is known against a phone where the tasks fail."""
        return DeviceLost(
            f"MobileGym in {self._folder}: {why}"[:LAST_WORDS],
            fix="distrl tasks check mobilegym names the tasks that can be used; tasks.mobilegym.leave_out leaves out others",
            cause=LossCause.SERVER,
        )


def list_tasks(folder: Path, config: MobileGymConfig) -> list[GymTask]:
    """All tasks of both splits, those in full that are chosen by name; needs no served page. `ConfigError` where folder or Python cannot be used."""
    program = config.python or sys.executable
    chosen = {"answers": config.answers, "names": config.names, "leave_out": config.leave_out}
    asked = json.dumps({"do": "tasks", "to": 1, **chosen}) + "\n"
    try:
        done = subprocess.run(
            [program, str(BRIDGE), str(folder)], input=asked, capture_output=True, text=True, timeout=START_S + LIST_S,
            check=False, env=_environment(),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"tasks.mobilegym.python = {program!r} cannot be used: {error}", fix=GET_IT) from None
    for said in done.stdout.splitlines():
        line = _read(said.encode())
        if line.error:
            raise ConfigError(
                f"{program} cannot load {folder}/bench_env: {line.error}",
                expected="MobileGym 0.1, and a Python with what its bench_env/requirements.txt names",
                fix=GET_IT + ": --tasks.mobilegym.python PATH",
            )
        if line.to:
            return msgspec.json.decode(line.answer, type=list[GymTask])
    last = " ".join(done.stderr.split())[-LAST_WORDS:]
    raise ConfigError(f"{program} ended with {done.returncode}: {last}", fix=GET_IT)


def _read(said: bytes) -> _Line:
    try:
        return msgspec.json.decode(said, type=_Line)
    except msgspec.DecodeError:
        return _Line(error=f"said {said[:120].decode(errors='replace')!r}" if said else "ended")


def _environment() -> dict[str, str]:
    """Ours, without what would have the other Python load our packages."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")} | {
        "PYTHONUTF8": "1"
    }

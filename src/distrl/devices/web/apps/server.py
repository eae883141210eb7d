"""One program of node that serves an app on loopback, for one phone: on free ports, in a folder of its own that goes with it.

A guardian, a process of its own, starts the program and waits for the end of its own standard input, which the owner holds:
after a `kill -9` of the owner it kills the program's process group and removes the folder.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from distrl.devices.base import Sleep
from distrl.errors import DeviceLost, LossCause

START_S, END_S, CALL_S, POLL_S = 90.0, 5.0, 20.0, 0.05
MOST_TRIES = 4
"""Choices of ports: another program may take one between its choice and its use."""
TAKEN = "EADDRINUSE"
SAID = "said"
GUARDIAN = """
import ctypes, os, shutil, signal, subprocess, sys, threading
folder = sys.argv[1]
tie = (lambda: ctypes.CDLL(None).prctl(1, 9)) if sys.platform == "linux" else None
with open(os.path.join(folder, "said"), "wb") as said:
    program = subprocess.Popen(sys.argv[2:], cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                               preexec_fn=tie, start_new_session=True)
print(program.pid, flush=True)
threading.Thread(target=program.wait, daemon=True).start()
try:
    while os.read(0, 64):
        pass
finally:
    try:
        os.killpg(program.pid, signal.SIGKILL)
    except OSError:
        pass
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            break
"""
KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT", "LD_LIBRARY_PATH")
"""What a program sees of the environment: no token of its owner's, and no proxy."""
QUIET = {"NO_UPDATE_NOTIFIER": "1", "DO_NOT_TRACK": "1", "npm_config_update_notifier": "false"}
Words = Callable[[Path, tuple[int, ...]], list[str]]
"""The command line of a program, for its folder and ports; it prepares the folder."""


def free_ports(count: int) -> tuple[int, ...]:
    """Ports of loopback that nothing listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return tuple(int(each.getsockname()[1]) for each in sockets)


class Server:
    """A program that answers HTTP on the first of its ports. Belongs to one event loop."""

    def __init__(self, name: str, guardian: asyncio.subprocess.Process, folder: Path, ports: tuple[int, ...]) -> None:
        self.name, self._guardian, self._folder, self.ports, self.pid = name, guardian, folder, ports, 0

    @classmethod
    async def start(
        cls,
        name: str,
        words: Words,
        *,
        num_ports: int = 1,
        says: str,
        choose: Callable[[int], tuple[int, ...]] = free_ports,
        sleep: Sleep = asyncio.sleep,
    ) -> Server:
        """Start it and wait until it `says` that it serves; `DeviceLost` where it does not come up on any of a few choices of ports."""
        seen = ""
        for _ in range(MOST_TRIES):
            server = await cls._begin(name, words, choose(num_ports))
            is_up = False
            try:
                seen = await server._until_said(says, sleep)
                is_up = not seen
            finally:
                if not is_up:
                    await server.close()
            if is_up:
                return server
            if TAKEN not in seen:
                break
        raise DeviceLost(
            f"{name} did not start within {START_S:g} s: {seen[-300:]}",
            expected=f"a program that says {says!r}",
            fix="run it by hand; node 20 or later, and free ports on 127.0.0.1",
        )

    @classmethod
    async def _begin(cls, name: str, words: Words, ports: tuple[int, ...]) -> Server:
        folder = Path(tempfile.mkdtemp(prefix="distrl-app-"))
        environment = {key: value for key in KEPT if (value := os.environ.get(key)) is not None}
        try:
            guardian = await asyncio.create_subprocess_exec(
                sys.executable, "-E", "-S", "-c", GUARDIAN, str(folder), *words(folder, ports),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True, env={**environment, **QUIET, "HOME": str(folder)},
            )  # fmt: skip
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise DeviceLost(f"{name} cannot be started: {error.strerror}") from error
        return cls(name, guardian, folder, ports)

    async def _until_said(self, says: str, sleep: Sleep) -> str:
        """Nothing once it serves; else what it said before it ended or time was up."""
        assert self._guardian.stdout is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                self.pid = int(await self._guardian.stdout.readline() or 0)
                while says not in (said := self.said()):
                    if not self.alive:
                        return self.said() or "it ended at once"
                    await sleep(POLL_S)
                return "" if TAKEN not in said else said
        return self.said() or "it said nothing"

    @property
    def alive(self) -> bool:
        """Whether its process is there."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return self.pid > 0

    def said(self) -> str:
        """The end of what it printed."""
        try:
            return (self._folder / SAID).read_text(errors="replace")[-4000:]
        except OSError:
            return ""

    @property
    def origin(self) -> str:
        """Where its pages are."""
        return f"http://127.0.0.1:{self.ports[0]}"

    async def ask(self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None) -> Any:
        """What it answers, from JSON; `DeviceLost` where it does not, or refuses."""
        return await asyncio.to_thread(self.ask_now, method, path, body, headers or {})

    def ask_now(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """The same at once, for a thread."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[0], timeout=CALL_S)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            text = answer.read()
            if answer.status >= 300:
                raise DeviceLost(f"{self.name} answers {method} {path[:80]} with {answer.status}: {text[:120]!r}")
            return json.loads(text) if text[:1] in (b"{", b"[", b'"') else None
        except (OSError, http.client.HTTPException, ValueError) as error:
            # The app is gone or broken, and nothing of it is held against who used it.
            raise DeviceLost(
                f"{self.name} does not answer {method} {path[:80]}: {error}", cause=LossCause.SERVER
            ) from None
        finally:
            connection.close()

    async def close(self) -> None:
        """End it and all that it started; its folder goes too."""
        if self._guardian.stdin is not None:
            self._guardian.stdin.close()
        try:
            async with asyncio.timeout(END_S):
                await self._guardian.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                if self.pid:
                    os.killpg(self.pid, signal.SIGKILL)
            with suppress(ProcessLookupError):
                self._guardian.kill()


def same_ports(server: Server | None) -> Callable[[int], tuple[int, ...]]:
    """Chooses the ports of a server that is started again, and free ones where they are taken meanwhile."""
    first = [server.ports] if server is not None else []
    return lambda count: first.pop() if first else free_ports(count)

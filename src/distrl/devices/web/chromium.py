"""The Chromium program: where it is, how it is started, and that it ends with whoever started it, however that ended.

A guardian, a process of its own, starts the browser and waits for the end of its own standard input, which the owner holds:
after a `kill -9` of the owner it kills the browser's process group and removes its profile.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from distrl.config.schema import WebConfig
from distrl.devices.web.cdp import Connection
from distrl.errors import DeviceError, DeviceLost

PROGRAMS = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome-stable",
    "google-chrome",
    "chrome",
)
"""Looked for in this order: the headless shell has no windows to look after and is the quickest."""
INSTALL = "apt-get install chromium-headless-shell (Debian), or chromium; or devices.web.chromium = PATH"
START_S = 30.0
END_S = 5.0
VERSION_S = 20.0
DEAD_PROXY = "http://distrl.invalid:9"
"""Everything that is not allowed goes there, and nothing is there."""
FLAGS = (
    "--headless", "--remote-debugging-pipe", "--disable-gpu", "--disable-quic", "--no-first-run", "--no-default-browser-check",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-default-apps", "--disable-breakpad", "--disable-crash-reporter", "--disable-domain-reliability",
    "--disable-client-side-phishing-detection", "--disable-hang-monitor", "--disable-prompt-on-repost", "--disable-popup-blocking",
    "--disable-dev-shm-usage", "--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows",
    "--disable-background-timer-throttling", "--disable-ipc-flooding-protection", "--disable-field-trial-config",
    "--disable-site-isolation-trials", "--process-per-site", "--mute-audio", "--password-store=basic", "--use-mock-keychain", "--hide-scrollbars",
    "--disable-features=Translate,MediaRouter,OptimizationHints,IsolateOrigins,site-per-process,PaintHolding,AcceptCHFrame",
    "--blink-settings=primaryHoverType=1,availableHoverTypes=1,primaryPointerType=2,availablePointerTypes=2",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    f"--proxy-server={DEAD_PROXY}", "--proxy-bypass-list=<-loopback>", "--lang=en-US", "--force-color-profile=srgb",
)  # fmt: skip
GUARDIAN = """
import ctypes, fcntl, os, shutil, signal, subprocess, sys
command, reply, profile = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (command, reply)]
tie = (lambda: ctypes.CDLL(None).prctl(1, 9)) if sys.platform == "linux" else (lambda: None)
def prepare():
    os.dup2(high[0], 3); os.dup2(high[1], 4)
    tie()
browser = subprocess.Popen(sys.argv[4:], stdin=subprocess.DEVNULL, pass_fds=(3, 4), preexec_fn=prepare, start_new_session=True)
for fd in {*high, command, reply} - {0, 1, 2}:
    os.close(fd)
print(browser.pid, flush=True)
try:
    while os.read(0, 64):
        pass
finally:
    try:
        os.killpg(browser.pid, signal.SIGKILL)
    except OSError:
        pass
    browser.wait()
    for _ in range(20):
        shutil.rmtree(profile, ignore_errors=True)
        if not os.path.exists(profile):
            break
"""


def find_chromium(program: str = "") -> str:
    """Path of the program; `DeviceError` with what to install where there is none."""
    if program:
        found = shutil.which(program)
        if found is None:
            raise DeviceError(
                f"devices.web.chromium = {program!r} is no program",
                expected="a path of Chromium or Chrome",
                fix=INSTALL,
            )
        return found
    for name in PROGRAMS:
        if (found := shutil.which(name)) is not None:
            return found
    raise DeviceError("there is no Chromium on this machine", expected=f"one of {', '.join(PROGRAMS)}", fix=INSTALL)


def resolver_rules(allow: Sequence[str]) -> str:
    """The flag that has names looked up for these origins and this machine alone: a hint of a page would ask for any, past every proxy."""
    names = dict.fromkeys(["localhost", "127.0.0.1", *(urlsplit(origin).hostname for origin in allow)])
    return "--host-resolver-rules=" + ", ".join(["MAP * ~NOTFOUND", *(f"EXCLUDE {name}" for name in names)])


def chromium_version(program: str = "") -> str:
    """Path and version of the program, which is run for it."""
    path = find_chromium(program)
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=VERSION_S, check=False)
    if done.returncode or not done.stdout.strip():
        raise DeviceError(f"`{path} --version` ended with {done.returncode}: {done.stderr.strip()[:200]}", fix=INSTALL)
    return f"{path}, {done.stdout.strip().splitlines()[-1]}"


class Chromium:
    """One running browser. Belongs to the event loop that started it."""

    def __init__(self, guardian: asyncio.subprocess.Process, connection: Connection, pid: int, said: Path) -> None:
        self._guardian, self.connection, self.pid, self._said = guardian, connection, pid, said

    @property
    def alive(self) -> bool:
        """Whether calls can be made."""
        return not self.connection.closed

    @classmethod
    async def start(cls, settings: WebConfig, *, name: str) -> Chromium:
        """Start it and wait until it answers; `DeviceError` where there is none, `DeviceLost` where it does not come up."""
        program = find_chromium(settings.chromium)
        profile = Path(tempfile.mkdtemp(prefix="distrl-chromium-"))
        words = [
            program,
            *FLAGS,
            resolver_rules(settings.allow),
            f"--user-data-dir={profile}",
            "--disk-cache-size=33554432",
        ]
        words += (
            ["--no-sandbox"] if settings.sandbox == "off" or (settings.sandbox == "auto" and os.geteuid() == 0) else []
        )
        commands, replies = os.pipe(), os.pipe()
        theirs = (commands[0], replies[1])
        try:
            with (profile / "said").open("wb") as said:
                guardian = await asyncio.create_subprocess_exec(
                    sys.executable, "-E", "-S", "-c", GUARDIAN, *map(str, theirs), str(profile), *words,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, pass_fds=theirs, start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            for fd in (commands[1], replies[0]):
                os.close(fd)
            shutil.rmtree(profile, ignore_errors=True)
            raise DeviceLost(f"{name} cannot be started: {error.strerror}") from error
        finally:
            for fd in theirs:
                os.close(fd)
        connection = Connection(commands[1], replies[0], name=name)
        browser = cls(guardian, connection, 0, profile / "said")
        is_up = False
        try:
            await browser._come_up()
            is_up = True
        finally:
            if not is_up:
                await browser.close()
        return browser

    async def _come_up(self) -> None:
        assert self._guardian.stdout is not None
        try:
            async with asyncio.timeout(START_S):
                line = await self._guardian.stdout.readline()
                self.pid = int(line or 0)
                await self.connection.call("Browser.getVersion", deadline_s=START_S)
        except (TimeoutError, DeviceError, ValueError) as error:
            raise DeviceLost(
                f"Chromium did not start within {START_S:g} s: {self._said_last() or error}",
                expected="a browser that answers over its pipe",
                fix="distrl doctor; `devices.web.sandbox = off` where the kernel gives no sandbox",
            ) from None

    def _said_last(self) -> str:
        try:
            lines = self._said.read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return " ".join(lines[-2:])[-300:]

    async def close(self) -> None:
        """End it and all that it started; its profile goes too."""
        self.connection.close("it was closed")
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

"""One Android emulator, by the name of its AVD: started or adopted, reset by a snapshot, brought back, stopped.

What was promised is checked by doing: an emulator is up once it has answered `getprop sys.boot_completed` and sent a whole
picture. Several processes may use one emulator in turn, under the leases of its name. Locked files in the user's Android
folder say who does: a port pair and the start of an AVD belong to one process, and the last who closes an emulator stops it.
Only what distrl has started is ever stopped, and only under the process number that was recorded then; it also ends once all
processes that use it are gone, however they ended, unless it was started to be kept.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec

from distrl.config.kinds import AndroidConfig, AvdName
from distrl.devices.android import console
from distrl.devices.android.adb import LOCAL_HOSTS, Adb, AdbConfig
from distrl.devices.android.records import (
    GUARDIAN,
    Running,
    began_of,
    is_free,
    lock,
    read_record,
    signal_group,
    state_folder,
    try_lock,
)
from distrl.devices.android.screen import read_raw
from distrl.devices.android.sdk import KVM, NO_ACCELERATION, Sdk, check_kvm, find_sdk
from distrl.devices.android.world import GRPC_BEYOND_CONSOLE
from distrl.devices.base import Clock, Sleep
from distrl.errors import ConfigError, CorruptFrame, DeviceError, DeviceLost, UsageError, closest

LAST_PORT = 5682
"""The highest even port that the emulator program takes."""
MADE = "distrl-"
"""How AVDs are called that are made from a system image."""
POLL_S = 0.2
SNAPSHOT_S = 60.0
"""For a snapshot to be saved or loaded; it takes about five seconds."""
RECONNECT_S = 30.0
"""For an emulator that runs to be usable again through a new connection, or after its snapshot was loaded."""
OFFLINE_S = 10.0
"""How long adb may call an emulator offline before it is told to reconnect; one that boots is offline for a while."""
KILL_S, TERM_S, GONE_S = 4.0, 3.0, 2.0
"""What an emulator may take over `kill` on its console, SIGTERM and SIGKILL: less than a device has to close, in all."""
TELL_S = 5.0
"""For the adb server to be told of an emulator."""
LOG_LINES = 6
SNAPSHOT_LINE = re.compile(r"^\S+\s+(\S+)\s+.*\d{4}-\d\d-\d\d ")
CAUSES = {  # what its log says: what it means, and the fix
    r"multiple emulators with the same avd": (
        "its AVD is in use",
        "stop the other emulator: adb devices, then adb -s SERIAL emu kill",
    ),
    r"kvm.*(permission|not found|not installed)|requires hardware acceleration": (
        "KVM cannot be used",
        "distrl doctor says why",
    ),
    r"broken avd system path|cannot find avd system path|system image": (
        "its system image is missing",
        "sdkmanager --list_installed; install the image of the AVD",
    ),
    r"address already in use|could not bind|failed to bind": ("a port was taken", "it is tried again on another pair"),
    r"not enough (disk )?space|no space left": ("the disk is full", "free some space, or move ANDROID_AVD_HOME"),
}

Remedy = Literal["reconnect", "snapshot", "cold_boot"]


class Emulator:
    """The emulator of one AVD. Whoever uses it has its lease."""

    def __init__(
        self,
        avd: str,
        settings: AndroidConfig,
        adb: Adb,
        *,
        kvm: Path = KVM,
        sleep: Sleep = asyncio.sleep,
        clock: Clock = time.monotonic,
    ) -> None:
        _check_name(avd)
        self.avd, self._settings, self._adb = avd, settings.emulator, adb
        self._kvm, self._sleep, self._clock = kvm, sleep, clock
        self._files = state_folder()
        self._port = 0
        self._in_use = -1
        """Locked for as long as this process uses the emulator."""
        self._claimed = -1
        """Locked for as long as the port pair is ours."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def serial(self) -> str:
        """What adb calls it; it has none before it was found or started."""
        return f"emulator-{self._port}"

    @property
    def started(self) -> Running | None:
        """The record of this emulator where distrl has started it and it still runs."""
        return read_record(self._files / f"{self.avd}.json")

    @property
    def is_own(self) -> bool:
        """Whether this very object has started it."""
        return self._process is not None

    # starting

    async def start(self, *, cold: bool = False, keep: bool = False) -> str:
        """Its serial, once it has shown a picture: it is adopted where it runs, else started, and created where it is ours."""
        await self._use()
        async with self._sole_starter():
            if await self.find():
                await self._until_ready(self._settings.boot_s)
            else:
                await self._launch(cold=cold, keep=keep)
        return self.serial

    async def find(self) -> bool:
        """Whether an emulator of this AVD runs and its console answers; `serial` is its serial from then on."""
        self._reap()
        listed = [found.serial.removeprefix("emulator-") for found in await self._adb.devices()]
        ports = {int(number) for number in listed if number.isdecimal()}
        if record := self.started:
            ports.add(record.port)
        names = await asyncio.gather(*map(avd_of, ports))
        self._port = next((port for port, name in zip(ports, names, strict=True) if name == self.avd), 0)
        return bool(self._port)

    async def _launch(self, *, cold: bool, keep: bool = False) -> None:
        """Start the program and wait until Android is up; the first time, save the snapshot to come back to."""
        sdk = await self.check()
        if self.avd not in await sdk.avds():
            await sdk.create(self.avd, self._settings)
        if record := self.started:  # it runs and its console does not answer: it hangs
            await self._end(record)
        self._claim_ports()
        self._spawn(sdk, cold=cold, keep=keep)
        await self._until_ready(self._settings.boot_s)
        with suppress(console.Refused):  # one that takes no snapshots is booted cold instead
            if self._settings.snapshot not in await self.snapshots():
                await self.save_snapshot()

    async def check(self) -> Sdk:
        """The SDK that can start it; `DeviceError` names what is missing: a program, KVM, the AVD or its system image."""
        sdk = find_sdk(self._settings)
        if not set(NO_ACCELERATION) & set(self._settings.arguments) and sys.platform == "linux":
            check_kvm(self._kvm)
        known = await sdk.avds()
        if self.avd in known:
            return sdk
        if self.avd not in made_avds(self._settings.count):
            raise DeviceError(
                f"there is no AVD {self.avd!r}",
                expected=closest(self.avd, known) if known else "an AVD of `emulator -list-avds`",
                fix=f"avdmanager create avd --name {self.avd} --package 'system-images;…'; or mend devices.android.emulator.avds",
            )
        sdk.check_image(self._settings.image)
        return sdk

    def _claim_ports(self) -> None:
        """A pair of ports that nobody listens on and no other process of distrl is about to."""
        self._let_go_of_ports()
        for port in range(self._settings.first_port, LAST_PORT + 1, 2):
            claim = lock(self._files / f"port-{port}")
            if claim is None:
                continue
            if is_free(port) and is_free(port + 1):
                self._port, self._claimed = port, claim
                return
            os.close(claim)
        raise DeviceError(
            f"no pair of ports is free for {self.avd} from {self._settings.first_port} to {LAST_PORT + 1}",
            expected="an even port and the next, on neither of which anything listens",
            fix="stop emulators: distrl devices emulators list; or a lower devices.android.emulator.first_port",
        )

    def _spawn(self, sdk: Sdk, *, cold: bool, keep: bool) -> None:
        settings, words = self._settings, [sdk.emulator, "-avd", self.avd, "-port", str(self._port)]
        words += ["-no-window", "-no-audio", "-no-boot-anim", "-no-snapshot-save"]
        words += ["-no-snapshot-load"] if cold else ["-snapshot", settings.snapshot]
        words += ["-memory", str(settings.memory_mb)] if settings.memory_mb else []
        words += ["-cores", str(settings.cores)] if settings.cores else []
        words += ["-grpc", str(self._port + GRPC_BEYOND_CONSOLE)] if settings.grpc else []
        tied = [] if keep else [sys.executable, "-E", "-S", "-c", GUARDIAN, str(self._users)]
        # The emulator itself tells this adb server that it is there.
        environment = {**sdk.environment, "ANDROID_ADB_SERVER_PORT": str(self._adb.config.address[1])}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*tied, *words, *settings.arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True,
            )  # fmt: skip
        pid = self._process.pid
        record = Running(port=self._port, pid=pid, began=began_of(pid), keep=keep)
        written = self._files / f"{self.avd}.json.new"
        written.write_bytes(msgspec.json.encode(record))
        written.replace(self._files / f"{self.avd}.json")

    async def _until_ready(self, limit_s: float) -> None:
        """Wait until Android has booted and sends a picture; `DeviceLost` says what it still waited for."""
        began_s = offline_s = self._clock()
        while missing := await self._missing():
            now_s = self._clock()
            if self._process is not None and self._process.poll() is not None:
                raise self._failed(f"{self.avd} ended with {self._process.returncode} before it was up")
            if now_s - began_s > limit_s:
                raise self._failed(f"{self.avd} was not up within {limit_s:g} s: it waits for {missing}")
            if now_s - offline_s > OFFLINE_S:
                offline_s = now_s
                await self._reconnect()
            await self._sleep(POLL_S)

    async def _missing(self) -> str:
        """What there is to wait for; empty: nothing, it is up."""
        state = await self._adb.state(self.serial)
        if not state:
            await tell_adb(self._adb.config, self._port)
        if state != "device":
            return f"adb, to which it is {state or 'unknown'}"
        try:
            if (await self._adb.shell(self.serial, "getprop sys.boot_completed")).text.strip() != "1":
                return "Android to boot (sys.boot_completed)"
            read_raw(await self._adb.exec_out(self.serial, "screencap"))
        except DeviceLost as error:
            return f"an answer: {error.seen}"
        except CorruptFrame as error:
            return f"a picture: {error.seen}"
        return ""

    async def _reconnect(self) -> None:
        with suppress(DeviceLost):  # there is none to reconnect yet
            await self._adb.reconnect(self.serial)

    # snapshots

    async def snapshots(self) -> list[str]:
        """The snapshots of its AVD."""
        lines = (await console.ask(self._port, "avd snapshot list")).splitlines()
        return [found[1] for line in lines if (found := SNAPSHOT_LINE.match(line))]

    async def save_snapshot(self) -> None:
        """Keep the emulator as it is under the name in the settings."""
        await console.ask(self._port, f"avd snapshot save {self._settings.snapshot}", deadline_s=SNAPSHOT_S)

    async def load_snapshot(self) -> None:
        """Go back to the snapshot, and see that the emulator answers; `DeviceError` where there is none."""
        name = self._settings.snapshot
        try:
            await console.ask(self._port, f"avd snapshot load {name}", deadline_s=SNAPSHOT_S)
        except console.Refused:
            if name in (found := await self.snapshots()):
                raise
            raise DeviceError(
                f"{self.avd} has no snapshot {name!r}",
                expected=closest(name, found) if found else "a snapshot",
                fix=f"adb -s {self.serial} emu avd snapshot save {name}",
            ) from None
        await self._until_ready(RECONNECT_S)

    # coming back

    async def recover(self, remedy: Remedy) -> str:
        """Bring a lost emulator back by a remedy, and by the next stronger one where a snapshot does not load; its serial.

        One whose process is gone, or whose console does not answer, is started again whatever the remedy.
        """
        if not await self.find():
            return await self.start(cold=remedy == "cold_boot")
        if remedy == "reconnect":
            await self._reconnect()
            await self._until_ready(RECONNECT_S)
        elif remedy == "cold_boot" or not await self._loaded():
            await self._boot_cold()
        return self.serial

    async def _loaded(self) -> bool:
        try:
            await self.load_snapshot()
        except DeviceError:
            return False
        return True

    async def _boot_cold(self) -> None:
        record = self.started
        if record is None:
            return await self._reboot_adopted()
        async with self._sole_starter():
            await self._end(record)
            await self._launch(cold=True, keep=record.keep)

    async def _reboot_adopted(self) -> None:
        """What someone else has started goes on in its own process."""
        await self._adb.reboot(self.serial)
        began_s = self._clock()
        while await self._adb.state(self.serial) == "device" and self._clock() - began_s < OFFLINE_S:
            await self._sleep(POLL_S)  # it goes on answering for a moment
        await self._until_ready(self._settings.boot_s)

    # ending

    async def close(self) -> None:
        """Use it no longer; the last who does so stops it, where distrl has started it and not to be kept."""
        if self._in_use < 0:
            return
        try:
            record = self.started
            if record is not None and not record.keep and try_lock(self._in_use):
                await self._end(record)
        finally:
            os.close(self._in_use)
            self._in_use = -1
            self._let_go_of_ports()

    async def stop(self) -> bool:
        """End it, whoever uses it, where distrl has started it; whether there was one."""
        record = self.started
        if record is not None:
            self._port = record.port
            await self._end(record)
        return record is not None

    async def _end(self, record: Running) -> None:
        """By its console, then SIGTERM, then SIGKILL, each with its deadline; cut short, at once by SIGKILL."""
        try:
            with suppress(DeviceError):
                await console.ask(record.port, "kill", deadline_s=KILL_S / 2)
            for limit_s, number in ((KILL_S / 2, signal.SIGTERM), (TERM_S, signal.SIGKILL)):
                if await self._gone(record, limit_s):
                    return
                signal_group(record, number)
            if not await self._gone(record, GONE_S):
                raise DeviceError(
                    f"{self.avd} (process {record.pid}) does not end", fix="a disk that hangs holds it: look at dmesg"
                )
        finally:
            signal_group(record, signal.SIGKILL)
            self._reap()
            self._let_go_of_ports()

    def _reap(self) -> None:
        """Forget a process of ours that has ended, and end what it has left."""
        process = self._process
        if process is None or (began_of(process.pid) and process.poll() is None):
            return
        if process.returncode is None:  # not reaped yet: its number is that of no other group
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        process.poll()
        self._process = None

    async def _gone(self, record: Running, limit_s: float) -> bool:
        began_s = self._clock()
        while record.is_alive and self._clock() - began_s < limit_s:
            if self._process is not None and sys.platform != "linux":
                self._process.poll()  # without /proc, one that is not reaped looks alive
            await self._sleep(POLL_S / 4)
        return not record.is_alive

    # who uses it

    async def _use(self) -> None:
        if self._in_use >= 0:
            return
        self._in_use = await self._taken(lambda: lock(self._users, shared=True), "whoever stops it to be done")

    @asynccontextmanager
    async def _sole_starter(self) -> AsyncIterator[None]:
        """While it lasts, no other process starts this AVD."""
        path = self._files / f"{self.avd}.starting"
        claim = await self._taken(lambda: lock(path), "another process that starts it")
        try:
            yield
        finally:
            os.close(claim)

    async def _taken(self, take: Callable[[], int | None], what: str) -> int:
        began_s, limit_s = self._clock(), self._settings.boot_s
        while (taken := take()) is None:
            if self._clock() - began_s > limit_s:
                raise DeviceError(
                    f"AVD {self.avd} is in use: waited {limit_s:g} s for {what}",
                    fix="distrl devices emulators list; give each run AVDs of its own",
                )
            await self._sleep(POLL_S)
        return taken

    def _let_go_of_ports(self) -> None:
        if self._claimed >= 0:
            os.close(self._claimed)
            self._claimed = -1

    @property
    def _users(self) -> Path:
        """Locked by every process that uses this emulator, together."""
        return self._files / f"{self.avd}.users"

    # what went wrong

    @property
    def _log(self) -> Path:
        return self._files / f"{self.avd}.log"

    def _failed(self, seen: str) -> DeviceLost:
        """The error of an emulator that is not up, with the cause where its log says one, and the end of the log."""
        cause, fix = "", f"its log is {self._log}"
        lines: list[str] = []
        if self._process is not None:
            lines = self._log.read_text("utf-8", errors="replace").strip().splitlines()
            text = "\n".join(lines)
            found = (means for pattern, means in CAUSES.items() if re.search(pattern, text, re.IGNORECASE))
            cause, fix = next(found, (cause, fix))
        ends = " | ".join(line.strip()[:150] for line in lines[-LOG_LINES:])
        told = f"; its log ends: {ends}" if ends else ""
        return DeviceLost(
            f"{seen}{cause and f'; {cause}'}{told}", expected="an Android that has booted and shows a screen", fix=fix
        )


# --- which there are ---------------------------------------------------------------------------------------------------


def _check_name(avd: str) -> None:
    """`UsageError` for what can be no AVD: its name becomes that of files."""
    try:
        msgspec.convert(avd, AvdName)
    except msgspec.ValidationError:
        raise UsageError(
            f"{avd[:80]!r} is no name of an AVD",
            expected="letters, digits, '.', '_' and '-', 80 at most",
            fix="distrl devices emulators list",
        ) from None


def made_avds(count: int) -> list[str]:
    """The names of the AVDs that are made from a system image."""
    return [f"{MADE}{number}" for number in range(count)]


def emulator_names(settings: AndroidConfig) -> list[str]:
    """The AVDs that the settings name, checked as far as they can be before one is started."""
    emulator = settings.emulator
    names = list(dict.fromkeys((*emulator.avds, *made_avds(emulator.count))))
    if emulator.count and not emulator.image:
        raise ConfigError(
            f"devices.android.emulator.count is {emulator.count}, and there is no image to make them from",
            expected="a system image",
            fix="devices.android.emulator.image = 'system-images;android-34;google_apis;x86_64'",
        )
    if names and settings.host not in LOCAL_HOSTS:
        raise ConfigError(
            f"devices.android.emulator starts emulators here, and the adb server is on {settings.host}",
            fix="start them there, and leave devices.android.emulator out",
        )
    return names


async def check_startable(settings: AndroidConfig, adb: Adb, names: Iterable[str]) -> None:
    """`DeviceError` where one of these does not run and could not be started: no program, no KVM, no AVD, no image."""
    emulators = [Emulator(name, settings, adb) for name in names]
    running = [await emulator.find() for emulator in emulators]
    for emulator, runs in zip(emulators, running, strict=True):
        if not runs:
            await emulator.check()


async def avd_of(port: int) -> str:
    """The AVD of the emulator with this console port; empty where none answers."""
    try:
        return (await console.ask(port, "avd name")).strip()
    except DeviceError:
        return ""


async def tell_adb(config: AdbConfig, port: int) -> None:
    """Tell the adb server that an emulator has this console port; it looks for those up to 5584 by itself, but not at once."""
    request = f"host:emulator:{port + 1}".encode()
    with suppress(OSError, TimeoutError):  # where the server is gone, the next call to it says so
        async with asyncio.timeout(TELL_S):
            _, writer = await asyncio.open_connection(*config.address)
            writer.write(b"%04x" % len(request) + request)
            await writer.drain()
            writer.close()

"""What can be asked of one Android over adb besides looking and touching: apps, settings, files, its lock and its log.

Names of packages and settings are checked, everything else is quoted. Coming back after a loss is here too: reconnect,
wait, reboot. Every call has the deadline `call_s`; how long a phone may take to boot is up to the caller.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

from distrl.config.schema import AndroidConfig
from distrl.devices.android.adb import POOL_RECONNECTS, Adb, AdbConfig, ShellResult, devices_now, refusal
from distrl.devices.android.quoting import ADB_KEYBOARD, CannotType, Typing, quote
from distrl.devices.base import Sleep
from distrl.errors import DeviceError, DeviceLost, LossCause, TaskError
from distrl.types import AndroidCheck, AndroidEnd

WAKE_UP = 224
LOG_LINES = 200
WHOLE = "distrl-whole"
"""Said after an answer that must not be cut off unnoticed."""
BOOT_POLL_S, GONE_POLLS, ONLINE_POLLS = 0.5, 20, 20
UNLOCK_POLL_S, UNLOCK_POLLS = 0.2, 10
"""A lock screen that is dismissed takes a moment to go."""
SYSTEM_UI = "com.android.systemui"
"""What the lock screen belongs to, as do notifications and quick settings."""
LOCKED = re.compile(r"(?:mShowingLockscreen|mDreamingLockscreen|isStatusBarKeyguard)=true|^\s*showing=true", re.M)
RESUMED = re.compile(r"(?:mResumedActivity|topResumedActivity|ResumedActivity).*? u\d+ (\S+?/\S+?)[ }]")
REFUSED = re.compile(r"^(?:Error\b|.*Exception|.*No activities found)", re.M)
"""What `am` and `monkey` say of an activity that they did not start."""
NOT_THERE = re.compile(r"No such file|Not a directory")
NAME = re.compile(r"[A-Za-z0-9_.]+(?:/[A-Za-z0-9_.$]+)?")


class Phone:
    """One Android, by its serial."""

    def __init__(
        self, serial: str, settings: AndroidConfig, adb: Adb | None = None, *, sleep: Sleep = asyncio.sleep
    ) -> None:
        self.serial, self._settings, self._sleep = serial, settings, sleep
        self.adb = adb or Adb(adb_config(settings))

    # commands

    async def run(self, command: str) -> None:
        """A gesture: what the phone's `input` refuses is a fault of the phone, for its words are ours."""
        done = await self.shell(command)
        if done.exit_code:
            said = (done.stderr or done.stdout).decode(errors="replace").strip()
            raise self.lost(f"`{command[:60]}` ended with {done.exit_code}: {said[:200]}")

    async def shell(self, command: str) -> ShellResult:
        """Run a command, whatever its exit code."""
        return await self.adb.shell(self.serial, command, deadline_s=self._settings.call_s)

    async def check(self, command: str) -> str:
        """The output of a command that has to succeed."""
        return await self.adb.check(self.serial, command, deadline_s=self._settings.call_s)

    def lost(self, what: str, cause: LossCause = LossCause.CRASH, *, fix: str = POOL_RECONNECTS) -> DeviceLost:
        """The error that returns the lease, for the pool to bring the phone back."""
        return DeviceLost(f"{self.serial}: {what}", fix=fix, cause=cause)

    # apps, settings and the lock

    async def tap(self, x_px: int, y_px: int) -> None:
        """Touch a point, in pixels."""
        await self.run(f"input tap {x_px} {y_px}")

    async def longest_side_px(self) -> int:
        """Of the screen, whichever way it is turned; 0 where the phone does not say."""
        found = re.search(r" size: (\d+)x(\d+)\s*$", (await self.shell("wm size")).text)  # the last line counts
        return max(int(found[1]), int(found[2])) if found else 0

    async def open(self, what: str) -> None:
        """Open a package, package/activity or URL."""
        if "://" in what:
            await self.start_intent("android.intent.action.VIEW", data=what)
        elif "/" in what:
            await self._start(f"am start -n {_name(what)}")
        else:
            await self._start(f"monkey -p {_name(what)} -c android.intent.category.LAUNCHER 1")

    async def stop_app(self, package: str) -> None:
        """Stop an app."""
        await self.check(f"am force-stop {_name(package)}")

    async def clear_app(self, package: str) -> None:
        """Delete an app's data."""
        if "Success" not in (told := await self.check(f"pm clear {_name(package)}")):
            raise DeviceError(f"{self.serial} cannot clear {package}: {told[:200]}", fix="is it installed?")

    async def put_setting(self, name: str, value: str) -> None:
        """Write a setting such as global/airplane_mode_on."""
        space, _, key = name.partition("/")
        await self.check(f"settings put {_name(space)} {_name(key)} {_word(value)}")

    async def start_intent(self, action: str, *, data: str = "", extras: dict[str, str] | None = None) -> None:
        """Start an activity by an intent; extras are text."""
        parts = [f"am start -a {_name(action)}", f"-d {_word(data)}" if data else ""]
        parts += [f"--es {_name(key)} {_word(value)}" for key, value in (extras or {}).items()]
        await self._start(" ".join(part for part in parts if part))

    async def _start(self, command: str) -> None:
        """Start an activity; older Androids say that there is none with exit code 0."""
        done = await self.shell(command)
        said = (done.stdout + done.stderr).decode(errors="replace")
        if done.exit_code or REFUSED.search(said):
            raise DeviceError(
                f"{self.serial} cannot open it: `{command[:80]}` says {' '.join(said.split())[:200]!r}",
                expected="an app that is installed",
                fix=f"adb -s {self.serial} shell pm list packages",
            )

    async def log_tail(self, lines: int = LOG_LINES) -> str:
        """The last lines of the phone's log."""
        return (await self.shell(f"logcat -d -t {lines}")).text

    async def choose_keyboard(self) -> Typing:
        """How to type: with ADBKeyBoard where it is installed. It stays chosen: another role may be typing when this one ends."""
        known = (await self._told("ime list -s -a")).split()
        if ADB_KEYBOARD in known:
            await self.check(f"ime enable {ADB_KEYBOARD}")
            await self.check(f"ime set {ADB_KEYBOARD}")
        return Typing(adb_keyboard=ADB_KEYBOARD in known)

    async def unlock(self) -> None:
        """Turn the screen on and open a lock without a secret; `DeviceLost` where somebody has to unlock it."""
        if await self.is_locked():
            await self._open_lock()

    async def _open_lock(self) -> None:
        await self.shell("wm dismiss-keyguard")
        for _ in range(UNLOCK_POLLS):
            if not await self.is_locked():
                return
            await self._sleep(UNLOCK_POLL_S)
        raise DeviceLost(
            f"{self.serial} is locked",
            expected="an unlocked screen",
            fix="unlock it, and set its screen lock to None",
            cause=LossCause.PERSON,
        )

    async def is_locked(self) -> bool:
        """Whether the lock screen is there, once the screen has been turned on."""
        return LOCKED.search(await self._told(f"input keyevent {WAKE_UP}; dumpsys window")) is not None

    async def read_state(self, check: AndroidCheck) -> AndroidEnd:
        """What a check asks about, without what the phone cannot tell; `DeviceLost` where an answer is damaged.

        Neither must look like a failure of the agent, nor like something that is not there.
        """
        settings = {name: value for name in check.settings if (value := await self._setting(name)) is not None}
        packages = {name: there for name in check.packages if (there := await self._has_package(name)) is not None}
        files = {path: there for path in check.files if (there := await self._has_file(path)) is not None}
        rows = {uri: told for uri, of in check.rows.items() if (told := await self._has_row(uri, of)) is not None}
        found = RESUMED.search(await self._told("dumpsys activity activities")) if check.activity else None
        if check.activity and found is None:
            raise self.lost("dumpsys names no activity in the foreground", LossCause.DAMAGED)
        return AndroidEnd(
            settings=settings, packages=packages, files=files, rows=rows, activity=found[1] if found else ""
        )

    async def _setting(self, name: str) -> str | None:
        space, _, key = name.partition("/")
        found, problem = await self._answer(f"settings get {_name(space)} {_name(key)}")
        return None if problem and not found else found

    async def _has_package(self, name: str) -> bool | None:
        found, problem = await self._answer(f"pm path {_name(name)}")
        return True if found.startswith("package:") else None if problem else False

    async def _has_file(self, path: str) -> bool | None:
        found, problem = await self._answer(f"ls -d {_word(path)}")
        return True if found else False if NOT_THERE.search(problem) else None

    async def _has_row(self, uri: str, wanted: dict[str, str]) -> bool | None:
        """Whether some row of a content provider holds all of these values; the provider itself compares them."""
        where = " AND ".join(f"{_name(column)}={_sql(value)}" for column, value in wanted.items())
        told, problem = await self._answer(f"content query --uri {_word(uri)} --where {_word(where)}")
        if told.startswith(("Row: ", "No result found")):
            return told.startswith("Row: ")
        if told or not problem:
            raise self.lost(f"{uri} says {told[:120]!r}", LossCause.DAMAGED)
        return None

    async def _told(self, command: str) -> str:
        """What a command says, whatever its exit code, known to be whole."""
        return (await self._answer(command))[0]

    async def _answer(self, command: str) -> tuple[str, str]:
        """The same, with its errors."""
        done = await self.shell(f"{command}; echo {WHOLE}")
        if not done.text.endswith(WHOLE):
            raise self.lost(f"the answer to `{command[:60]}` is cut off", LossCause.DAMAGED)
        return done.text.removesuffix(WHOLE).strip(), done.stderr.decode(errors="replace").strip()

    # coming back

    async def probe(self) -> None:
        """See that adb reaches it and that Android answers; `DeviceLost` where not."""
        if (state := await self.adb.state(self.serial)) != "device":
            raise refusal(self.serial, state or "not found")
        if (await self.shell("getprop sys.boot_completed")).text.strip() != "1":
            raise self.lost("Android has not booted", LossCause.OFFLINE)

    async def come_online(self) -> None:
        """See that the phone answers: reconnect where adb has lost it, wait where it boots. Nothing on it is changed."""
        state = await self.adb.state(self.serial)
        if state in ("unauthorized", "no permissions"):
            raise refusal(self.serial, state)
        if state != "device":
            await self.reconnect()
            await self.until_online()
        await self.until_booted()

    async def reconnect(self) -> None:
        """Make the adb server open its connection anew; `DeviceLost` where there is nothing to connect to."""
        state = await self.adb.state(self.serial)
        if state == "device" and ":" not in self.serial:
            return  # a USB device that is listed as usable only needs to answer
        if not state and ":" not in self.serial:
            raise refusal(self.serial, "not found")
        await self.adb.reconnect(self.serial, deadline_s=self._settings.call_s)

    async def until_online(self) -> None:
        """A device that was reconnected is listed as usable a moment later."""
        for _ in range(ONLINE_POLLS):
            if (state := await self.adb.state(self.serial)) == "device":
                return
            await self._sleep(BOOT_POLL_S)
        raise refusal(self.serial, state or "not found")

    async def _until_gone(self) -> None:
        """A phone goes on answering for a moment after it was told to reboot."""
        for _ in range(GONE_POLLS):
            if await self.adb.state(self.serial) != "device":
                return
            await self._sleep(BOOT_POLL_S)

    async def until_booted(self, *, rebooting: bool = False) -> None:
        """Wait until Android has booted, within the caller's deadline; only one that reboots may be out of reach."""
        while True:
            try:
                if (await self.shell("getprop sys.boot_completed")).text.strip() == "1":
                    return
            except DeviceLost:
                if not rebooting:
                    raise
                await self._reconnect_if_there()
            await self._sleep(BOOT_POLL_S)

    async def _reconnect_if_there(self) -> None:
        with suppress(DeviceLost):
            await self.reconnect()

    async def reboot(self) -> None:
        """Reboot, and wait until it has booted."""
        await self.adb.reboot(self.serial)
        await self._until_gone()
        await self.until_booted(rebooting=True)


def _name(text: str) -> str:
    """A package, component, action or setting as one word for the shell; `TaskError` for anything else."""
    if not NAME.fullmatch(text):
        raise TaskError(
            f"{text!r} is no name of a package, activity or setting", expected="such as com.android.settings"
        )
    return quote(text) if "$" in text else text  # an inner class, such as Settings$WifiSettingsActivity


def _word(text: str) -> str:
    """Text of a task as one word for the shell; `TaskError` for what no shell can take."""
    try:
        return quote(text)
    except CannotType as error:
        raise TaskError(f"{text[:80]!r} is what no shell can take: {error}", expected="text without NUL") from None


def _sql(text: str) -> str:
    """A value for the selection of a content provider."""
    return "'" + text.replace("'", "''") + "'"


def adb_config(settings: AndroidConfig) -> AdbConfig:
    """The adb server that the configuration names."""
    return AdbConfig(host=settings.host, port=settings.port, program=settings.adb)


def connected(settings: AndroidConfig) -> list[str]:
    """The devices that adb can use; `DeviceError` where there is none, with what it lists instead."""
    listed = devices_now(adb_config(settings))
    if not (usable := [found.serial for found in listed if found.state == "device"]):
        others = ", ".join(f"{found.serial} {found.state}" for found in listed[:8])
        raise DeviceError(
            f"adb knows no device that can be used{others and f', only: {others}'}",
            expected="one that `distrl devices check` finds well",
            fix="plug one in and accept its question, `adb connect HOST:PORT`, or `distrl devices serve-sim --connect`",
            cause=LossCause.GONE,
        )
    return usable

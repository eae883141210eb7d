"""An Android phone or emulator as a device, over the adb server.

After an action it waits until the screen has settled, by comparing pictures, instead of sleeping for a fixed time.
Picture and hierarchy belong to the same moment: a picture is taken before and after the hierarchy, and where the two
differ, all of it is taken again. Its name is its serial, or that of its AVD where it is an emulator that is started here:
every role of a run shares it.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import msgspec
from msgspec.structs import replace

from distrl.config.schema import AndroidConfig
from distrl.devices.android.adb import Adb, devices_now, refusal
from distrl.devices.android.emulator import RECONNECT_S, SNAPSHOT_S, Emulator, Remedy, check_startable, emulator_names
from distrl.devices.android.hierarchy import Hierarchy, NoHierarchy, parse
from distrl.devices.android.phone import SYSTEM_UI, Phone, adb_config, connected
from distrl.devices.android.quoting import CannotType, Typing, clearing_command, typing_commands
from distrl.devices.android.screen import (
    CLEARLY_CHANGED,
    Frame,
    Glance,
    encode,
    glance,
    has_changed,
    is_black,
    read_png,
    read_raw,
)
from distrl.devices.android.sdk import CREATE_S
from distrl.devices.android.world import World
from distrl.devices.base import Capture, Clock, Device, Fleet, Performed, Sleep, TimeScales
from distrl.errors import ConfigError, CorruptFrame, DeviceError, LossCause, TaskError
from distrl.types import (
    Action,
    AndroidCheck,
    AndroidSetup,
    DeviceEnd,
    Finish,
    LongPress,
    Press,
    SimEnd,
    SimSetup,
    Swipe,
    Tap,
    Task,
    TypeText,
    UiElement,
    Unparsed,
    Wait,
)

TIMES = TimeScales(boot_s=180.0, reset_s=300.0, step_s=60.0, restart_s=240.0, episode_s=900.0, backoff_s=1.0)
"""An emulator boots cold in about two minutes; a hierarchy takes Android a second or two, up to ten where the screen
moves. AndroidWorld's set-up of a task takes minutes; calls of adb have deadlines of their own."""
log = logging.getLogger("distrl.devices")
KEY_CODES = {"back": 4, "home": 3, "enter": 66}
LONG_PRESS_MS, SWIPE_MS = 800, 300
LOOK_AGAIN_S = 0.1
"""Between two pictures while the screen settles."""
FRESH_S = 0.2
"""A hierarchy that was read after an action serves the capture that follows within this time."""
SAME_MOMENT_TRIES = 3
DUMP_TRIES = 3
PICTURE_TRIES = 2
DUMP, TASK_FILE = "/data/local/tmp/distrl-ui.xml", "/data/local/tmp/distrl-task.json"
BLAMELESS = (LossCause.GONE, LossCause.PERSON, LossCause.SERVER)
"""What no reboot of a phone mends."""
WHOLE_PICTURES = 'devices.android.transfer = "png", which sends less; or another cable, port or network'
SCREENS_AT_REST = (
    "turn animations off; for a screen that never rests, such as a video, devices.android.elements = false"
)
NO_SERVICE = 20
"""Exit code of Android's `cmd` for a service that is not there."""


class AndroidDevice:
    """One phone, driven by one episode at a time."""

    def __init__(
        self,
        serial: str,
        settings: AndroidConfig,
        adb: Adb | None = None,
        *,
        emulator: Emulator | None = None,
        sleep: Sleep = asyncio.sleep,
        clock: Clock = time.monotonic,
    ) -> None:
        self.name, self._settings, self._emulator = serial, settings, emulator
        self.times = TIMES if emulator is None else _times_of_emulator(settings)
        self.phone = Phone(serial, settings, adb, sleep=sleep)
        """What can be asked of it besides: apps, settings, its log."""
        self._sleep, self._clock = sleep, clock
        self._typing = Typing()
        self._world = World(settings.world_python, adb_config(settings))
        self._ready = False
        self._task: Task | None = None
        self._glance: Glance | None = None
        """Of the picture that was taken last: whole ones take 10 MB each."""
        self._hierarchy: Hierarchy | None = None
        self._read_at_s = 0.0
        self._picture_bytes = 64 * 1024
        self._restarts_in_a_row = 0
        self.unsettled = self.mismatched = 0
        """Times that the screen kept changing until `settle_s` was over, and captures whose elements and picture are of
        different moments since it changed all the while."""

    # the device protocol

    async def reset(self, task: Task) -> None:
        """Bring the phone to the start of `task`; `TaskError` for a set-up that no phone over ADB understands."""
        await self._get_ready()
        self._task, self._glance, self._hierarchy = task, None, None
        match task.setup:
            case SimSetup():
                await self._reset_simulated(task)
            case AndroidSetup() as setup if setup.world:
                await self._reset_world(task, setup.world)
            case AndroidSetup() as setup:
                await self._reset_android(setup)
            case other:
                raise TaskError(
                    f"task {task.id} is set up by {type(other).__name__}, which a phone over ADB does not know",
                    expected="an AndroidSetup",
                    fix="choose devices.kind for the devices of this suite, or another tasks.suite",
                )
        await self._settle()
        self._restarts_in_a_row = 0

    async def _get_ready(self) -> None:
        """An emulator is started where it does not run, and goes back to its snapshot where the settings say so."""
        if self._emulator is not None:
            if not self._ready:
                self.phone.serial = await self._emulator.start()
            if self._settings.emulator.reset == "snapshot":
                self._ready = False
                await self._emulator.load_snapshot()
        if not self._ready:
            await self.phone.come_online()
            self._typing = await self.phone.choose_keyboard()
            self._ready = True
        await self.phone.unlock()

    async def capture(self, *, screenshot: bool) -> Capture:
        """Picture and elements of the same moment; without a picture, the elements alone."""
        if not self._settings.elements:
            frame = await self._take_picture()
            if is_black(glance(frame).points_HWC):  # went off while the policy was thinking
                await self.phone.unlock()
                frame = await self._take_picture()
            self._glance = glance(frame)
            return await self._capture_of(frame, None, screenshot=screenshot)
        fresh = self._hierarchy is not None and self._clock() - self._read_at_s < FRESH_S
        if not screenshot:
            hierarchy = self._hierarchy if fresh and self._hierarchy else await self._read_hierarchy()
            return await self._capture_of(None, hierarchy, screenshot=False)
        before = self._glance if fresh and self._glance else glance(await self._take_picture())
        for attempt in range(SAME_MOMENT_TRIES):
            if attempt or not fresh:
                await self._read_hierarchy()
            frame = await self._take_picture()
            self._glance = glance(frame)
            if not has_changed(before, self._glance):
                break
            before = self._glance
        else:
            self._tell_mismatch()
        return await self._capture_of(frame, self._hierarchy, screenshot=True)

    async def perform(self, action: Action) -> Performed:
        """Carry out `action` and wait until the screen has settled; an impossible one is an invalid step."""
        match action:
            case Finish(answer=answer):
                return Performed(valid=True, changed=False, reward=await self._score(answer))
            case Unparsed(raw=raw):
                return Performed(valid=False, changed=False, why=f"not an action: {raw[:80]!r}")
        before, elements = self._glance or glance(await self._take_picture()), self._elements
        try:
            commands = self._commands(action, before.size)
        except (CannotType, _Impossible) as error:
            return Performed(valid=False, changed=False, why=str(error))
        for command in commands:
            await self.phone.run(command)
        if isinstance(action, Wait):
            await self._sleep(self._settings.wait_s)
        settled = await self._settle()
        if elements is None:
            return Performed(valid=True, changed=has_changed(before, settled))
        after = await self._read_hierarchy()  # the capture that follows finds it fresh
        changed = after.elements != elements or has_changed(before, settled, CLEARLY_CHANGED)
        return Performed(valid=True, changed=changed)

    @property
    def _elements(self) -> tuple[UiElement, ...] | None:
        """What was there when the policy looked; None: it does not look at elements."""
        return self._hierarchy.elements if self._hierarchy is not None and self._settings.elements else None

    async def end_state(self) -> DeviceEnd | None:
        """What the task's check asks about; None where it asks nothing of the phone. `DeviceLost` where the phone has locked itself."""
        if self._task is None:
            raise DeviceError(f"{self.name} has no task yet", fix="call reset(task) first")
        await self.phone.unlock()  # what an agent did on a lock screen is no failure of its own
        if isinstance(self._task.setup, SimSetup):
            told = await self.phone.check("cmd distrl end-state")
            try:
                return msgspec.json.decode(told, type=SimEnd)
            except msgspec.DecodeError as error:
                raise self.phone.lost(f"its end state is damaged: {error}", LossCause.DAMAGED) from None
        return await self.phone.read_state(self._task.check) if isinstance(self._task.check, AndroidCheck) else None

    async def probe(self) -> None:
        """See that it answers; an emulator that nobody has started yet is well."""
        if self._ready or self._emulator is None:
            await self.phone.probe()

    async def restart(self) -> None:
        """Bring it back, whatever it was that happened."""
        await self.restart_after(LossCause.CRASH)

    async def restart_after(self, cause: LossCause) -> None:
        """Reconnect, or reboot after several losses in a row, and wait until the phone answers.

        An emulator goes back to its snapshot in between, at once where it hung, and is started again where it is gone. A
        phone is not rebooted for what no reboot would mend.
        """
        self._ready, self._task, self._glance, self._hierarchy = False, None, None, None
        remedy = self._next_remedy(cause)
        if self._emulator is not None:
            self.phone.serial = await self._emulator.recover(remedy)
        else:
            await self.phone.reconnect()
            if remedy == "cold_boot":
                await self.phone.reboot()
        await self.phone.come_online()
        if cause is LossCause.PERSON:
            await self.phone.unlock()  # else the next episode would be lost again
        await self._keep_log()

    def _next_remedy(self, cause: LossCause) -> Remedy:
        """What this restart tries: stronger with each loss in a row, then from the beginning."""
        if cause in BLAMELESS and self._emulator is None:
            return "reconnect"
        self._restarts_in_a_row += 1
        if 0 < self._settings.reboot_after < self._restarts_in_a_row:
            self._restarts_in_a_row = 0
            return "cold_boot"
        return "reconnect" if self._restarts_in_a_row == 1 and cause is not LossCause.LATE else "snapshot"

    async def close(self) -> None:
        """Every call has a connection of its own, so that nothing is held but an emulator that was started."""
        self._glance = self._hierarchy = None
        await self._world.close()
        if self._emulator is not None:
            await self._emulator.close()

    # set-ups and states

    async def _reset_simulated(self, task: Task) -> None:
        await self.phone.adb.push(
            self.phone.serial, msgspec.json.encode(task), TASK_FILE, deadline_s=self._settings.call_s
        )
        done = await self.phone.shell(f"cmd distrl reset {TASK_FILE}")
        if done.exit_code == NO_SERVICE or b"Can't find service" in done.stderr + done.stdout:
            raise TaskError(
                f"task {task.id} is for simulated phones, and {self.name} is none",
                expected="a suite whose tasks have an AndroidSetup",
                fix="another tasks.suite, or phones of `distrl devices serve-sim`",
            )
        if done.exit_code:
            raise self.phone.lost(f"the task was refused: {done.stderr.decode(errors='replace')[:200]}")

    @property
    def _is_of_world(self) -> bool:
        return self._task is not None and isinstance(self._task.setup, AndroidSetup) and bool(self._task.setup.world)

    async def _reset_world(self, task: Task, world: str) -> None:
        name, _, seed = world.partition("/")
        goal = await self._world.initialize(self.phone.serial, name, int(seed) if seed.isdecimal() else 0)
        if goal != task.instruction:
            raise TaskError(
                f"AndroidWorld says another goal for {world} than task {task.id}: {goal[:120]!r}",
                expected=repr(task.instruction[:120]),
                fix="name the same Python as tasks.android_world.python and devices.android.world_python",
            )

    async def _score(self, answer: str) -> float:
        """What AndroidWorld gives for a task of its own, on a screen that is on."""
        if not self._is_of_world:
            return 0.0
        await self.phone.unlock()
        return await self._world.score(answer)

    async def _reset_android(self, setup: AndroidSetup) -> None:
        for package in setup.stop:
            await self.phone.stop_app(package)
        for package in setup.clear:
            await self.phone.clear_app(package)
        for name, value in setup.settings.items():
            await self.phone.put_setting(name, value)
        await self.phone.run(f"input keyevent {KEY_CODES['home']}")
        if setup.open:
            await self.phone.open(setup.open)

    # seeing

    async def _capture_of(self, frame: Frame | None, hierarchy: Hierarchy | None, *, screenshot: bool) -> Capture:
        width, height = frame.size if frame else (hierarchy.width_px, hierarchy.height_px) if hierarchy else (0, 0)
        picture = b""
        if screenshot and frame is not None:
            picture = await asyncio.to_thread(encode, frame, self._settings.screenshot_width)
        return Capture(
            elements=hierarchy.elements if hierarchy else (),
            screenshot=picture,
            width_px=width,
            height_px=height,
            app=hierarchy.package if hierarchy else "",
        )

    def _tell_mismatch(self) -> None:
        """Count it, and tell the first time: elements that are not on the picture mislead whoever reads both."""
        self.mismatched += 1
        if self.mismatched == 1:
            log.warning(
                "%s: the screen never rests, so picture and elements are of different moments: turn animations off, or "
                "devices.android.elements = false",
                self.name,
            )

    async def _take_picture(self) -> Frame:
        """The screen; one that comes damaged is taken once more."""
        png, display = self._settings.transfer == "png", self._settings.display
        problem = CorruptFrame("no picture")
        for _ in range(PICTURE_TRIES):
            data = await self.phone.adb.exec_out(
                self.phone.serial,
                f"screencap{' -p' * png}{f' -d {display}' if display else ''}",
                deadline_s=self._settings.call_s,
                size_hint=self._picture_bytes,
            )
            self._picture_bytes = max(
                64 * 1024, len(data) + 1
            )  # one more byte, so that the end is seen without growing
            try:
                return read_png(data) if png else read_raw(data)
            except CorruptFrame as error:
                problem = error
        raise self.phone.lost(
            f"{PICTURE_TRIES} damaged screenshots in a row, the last: {problem.seen}",
            LossCause.DAMAGED,
            fix=WHOLE_PICTURES,
        )

    async def _settle(self) -> Glance:
        """The screen once it has not changed for `quiet_s`, or as it is when `settle_s` are over."""
        began_s = quiet_since_s = self._clock()
        seen = glance(await self._take_picture())
        while self._clock() - quiet_since_s < self._settings.quiet_s:
            if self._clock() - began_s > self._settings.settle_s:
                self.unsettled += 1
                break
            await self._sleep(LOOK_AGAIN_S)
            latest = glance(await self._take_picture())
            if has_changed(seen, latest):
                quiet_since_s = self._clock()
            seen = latest
        self._glance = seen
        return seen

    async def _read_hierarchy(self) -> Hierarchy:
        """The UI hierarchy; Android gives none while the screen is busy, so it is asked for a few times."""
        problem = ""
        for _ in range(DUMP_TRIES):
            # The old file goes first: `uiautomator` may fail with exit code 0, and must not leave us with what was.
            done = await self.phone.shell(f"rm -f {DUMP}; uiautomator dump {DUMP} >/dev/null && cat {DUMP}")
            try:
                found = parse(done.stdout, self._glance.size if self._glance else None)
            except NoHierarchy as error:
                said = done.stderr.decode(errors="replace").strip()
                problem = f"{error}{f' ({said[:120]})' if said else ''}"
                await self.phone.unlock()  # a screen that is off has none
            else:
                if found.package != SYSTEM_UI or not await self.phone.is_locked():
                    self._hierarchy, self._read_at_s = found, self._clock()
                    return found
                problem = "the screen is locked"
                await self.phone.unlock()
        raise self.phone.lost(
            f"no UI hierarchy in {DUMP_TRIES} tries: {problem}", LossCause.DAMAGED, fix=SCREENS_AT_REST
        )

    # acting

    def _commands(self, action: Action, size: tuple[int, int]) -> list[str]:
        """What to run on the phone; `_Impossible` for what cannot be done."""
        match action:
            case Tap(x=x, y=y):
                return [f"input tap {_pixels(x, y, size)}"]
            case LongPress(x=x, y=y):
                point = _pixels(x, y, size)
                return [f"input swipe {point} {point} {LONG_PRESS_MS}"]
            case Swipe(x=x, y=y, to_x=to_x, to_y=to_y):
                return [f"input swipe {_pixels(x, y, size)} {_pixels(to_x, to_y, size)} {SWIPE_MS}"]
            case TypeText(text=text):
                return self._type(text)
            case Press(key=key):
                return [f"input keyevent {KEY_CODES[key]}"]
        return []

    def _type(self, text: str) -> list[str]:
        """What the field held is replaced."""
        if not text:
            raise _Impossible("there is nothing to type")
        held = 0
        if self._hierarchy is not None:
            focused = [element for element in self._hierarchy.elements if element.focused]
            if not focused:
                raise _Impossible("no field has the focus: tap one first")
            field = next((element for element in focused if element.class_name == "EditText"), focused[-1])
            held = len(field.text)
        clear = clearing_command(held, self._typing)
        return [*([clear] if clear else []), *typing_commands(text, self._typing)]

    async def _keep_log(self) -> None:
        if self._settings.logcat:
            folder = Path(self._settings.logcat)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{re.sub(r'[^A-Za-z0-9.-]', '-', self.name)}.log").write_text(
                await self.phone.log_tail(), "utf-8"
            )


class _Impossible(ValueError):
    """An action that cannot be carried out."""


def _pixels(x: float, y: float, size: tuple[int, int]) -> str:
    if not (0.0 <= x < 1.0 and 0.0 <= y < 1.0):
        raise _Impossible(f"({x:.3g}, {y:.3g}) is outside the screen")
    width, height = size
    return f"{int(x * width)} {int(y * height)}"


def make_devices(settings: AndroidConfig, fleet: Fleet) -> list[Device]:
    """The phones of one role. Workers share the serials out among themselves; an evaluation may use all of them.

    Names are serials, and AVDs of emulators that are started here, so that a lease across processes keeps a phone from being
    driven by two. An emulator is started by the first who has its lease.
    """
    avds = emulator_names(settings)
    serials = [*settings.serials, *avds] or connected(settings)
    own = settings.evaluation_serials
    if fleet.purpose == "evaluation":
        serials = list(own) or serials
    elif fleet.owner in fleet.workers:
        shared_out = [serial for serial in serials if serial not in own]
        serials = shared_out[fleet.workers.index(fleet.owner) :: len(fleet.workers)]
    if not serials:
        raise ConfigError(
            f"there is no Android device for {fleet.owner}",
            expected=f"a device for each of {len(fleet.workers) or 1} worker(s)",
            fix="adb devices -l; devices.android.serials names them; or fewer rollout.workers",
        )
    chosen = serials[: fleet.count]
    _check_emulators(settings, [name for name in chosen if name in avds])
    adb = Adb(adb_config(settings))
    emulators = {name: Emulator(name, settings, adb) for name in chosen if name in avds}
    return [cast(Device, AndroidDevice(name, settings, adb, emulator=emulators.get(name))) for name in chosen]


def _check_emulators(settings: AndroidConfig, avds: list[str]) -> None:
    """`DeviceError` for what no restart would mend, such as no emulator program, before anything is played."""
    if not avds:
        return

    async def check() -> None:
        await check_startable(settings, Adb(adb_config(settings)), avds)

    # In a thread of its own: a loop may run in this one.
    with ThreadPoolExecutor(1, thread_name_prefix="emulators") as thread:
        thread.submit(lambda: asyncio.run(check())).result()


def _times_of_emulator(settings: AndroidConfig) -> TimeScales:
    """With time to create, boot and save a snapshot, or to load one that fails and boot cold."""
    boot_s = settings.emulator.boot_s
    return replace(
        TIMES,
        boot_s=CREATE_S + boot_s + SNAPSHOT_S,
        reset_s=TIMES.reset_s + (SNAPSHOT_S + RECONNECT_S) * (settings.emulator.reset == "snapshot"),
        restart_s=TIMES.restart_s + boot_s + SNAPSHOT_S,
        absent_s=0.0,
    )


def check_connected(settings: AndroidConfig) -> None:
    """`DeviceError` where there is no adb, or no device to begin with; of those that are named, all but one may come later."""
    if not (settings.serials or emulator_names(settings)):
        connected(settings)
        return
    states = {found.serial: found.state for found in devices_now(adb_config(settings))}
    lost = [refusal(name, states.get(name, "not found")) for name in settings.serials if not _may_come(name, states)]
    if lost and len(lost) == len(settings.serials) and not emulator_names(settings):
        raise lost[0]


def _may_come(serial: str, states: dict[str, str]) -> bool:
    """Whether a restart could bring a device that is named: one over TCP is connected to, an offline one reconnected."""
    return states.get(serial) not in ("unauthorized", "no permissions") and (serial in states or ":" in serial)

"""A simulated phone that answers Android's shell commands the way Android does.

Apps are packages (`org.distrl.sim.notes`), screens activities; a task is set up and its end told by `cmd distrl`, a
service that no real Android has. Everything else (`input`, `screencap`, `uiautomator`, `am`, `pm`, `settings`,
`dumpsys`, `getprop`, `wm`, `ime`, `logcat`) is as on a phone, as far as anyone has asked for it. It is no Android: what
was tried on it was not tried on one.
"""

from __future__ import annotations

import base64
import binascii
import sqlite3
import struct
import time
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from xml.sax.saxutils import quoteattr

import msgspec
from msgspec.structs import replace

from distrl.config.schema import PerturbationConfig
from distrl.devices.base import Clock
from distrl.devices.serve_sim.lock import ScreenLock
from distrl.devices.serve_sim.shell import Command, Done, run
from distrl.devices.sim import phone
from distrl.devices.sim.app import push
from distrl.devices.sim.apps import APPS
from distrl.devices.sim.layout import HEIGHT, WIDTH, elements_of
from distrl.devices.sim.state import PhoneState, Place, end_state
from distrl.devices.sim.world import HOME, content, start_state
from distrl.errors import DistrlError
from distrl.types import Action, Bounds, LongPress, Press, Swipe, Tap, Task, TypeText, UiElement, Wait

PACKAGE = "org.distrl.sim."
ADB_KEYBOARD = "com.android.adbkeyboard/.AdbIME"
LATIN_KEYBOARD = "com.android.inputmethod.latin/.LatinIME"
LONG_PRESS_MS = 400
MOMENT_S = 0.1
"""How long a moment of a loading screen lasts."""
RGBA_8888, SRGB = 1, 1
KEYS = {"KEYCODE_HOME": 3, "KEYCODE_BACK": 4, "KEYCODE_ENTER": 66, "KEYCODE_DEL": 67, "KEYCODE_TAB": 61, "KEYCODE_MOVE_END": 123, "KEYCODE_WAKEUP": 224, "KEYCODE_APP_SWITCH": 187}  # fmt: skip
MULTIPLE_DISPLAYS = b"""[Warning] Multiple displays were found, but no display id was specified! Defaulting to the first display found.
A display ID can be specified with the [-d display-id] option.
See "dumpsys SurfaceFlinger --display-id" for valid display IDs.
"""
ACTIONS = {"android.settings.SETTINGS": "settings"}
"""Intents that an app answers."""
WIDGETS = ("Switch", "CheckBox", "Button", "EditText", "TextView", "ImageButton", "ScrollView", "ProgressBar")
"""Classes that Android has too; the others get a name of their own."""


class AndroidSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What kind of phone."""

    width_px: int = 360
    height_px: int = 0
    """0: twice the width; a higher screen has a black bar at the bottom."""
    num_displays: int = 1
    """A phone that folds has two: `screencap` warns of that before the picture."""
    adb_keyboard: bool = True
    """Whether ADBKeyBoard is installed."""
    perturbations: PerturbationConfig = PerturbationConfig()

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.width_px, self.height_px or 2 * self.width_px


class SimulatedAndroid:
    """One phone: its state, its files and what its shell knows."""

    def __init__(self, name: str, settings: AndroidSettings, *, number: int = 0, clock: Clock = time.monotonic) -> None:
        self.name, self.settings, self._number, self._clock = name, settings, number, clock
        self.files: dict[str, bytes] = {}
        self.log: deque[str] = deque(maxlen=1000)
        self.system: dict[tuple[str, str], str] = {("global", "airplane_mode_on"): "0", ("system", "screen_brightness"): "128"}  # fmt: skip
        self._keyboard = LATIN_KEYBOARD
        self.lock = ScreenLock(clock)
        self.started: deque[list[str]] = deque(maxlen=100)
        """The options of each `am start`."""
        self._raw: tuple[PhoneState, bytes] | None = None
        self.boot()

    def boot(self) -> None:
        """Start anew: the home screen, and no task."""
        seed = self._number
        self._state = self._start = PhoneState(seed=seed, tables=content(seed, held_out=False), stack=(HOME,))
        self._typed, self._moved_s = "", self._clock()
        self.lock.lock(self.lock.kind)
        self.log.append("I ActivityManager: System now ready")

    @property
    def state(self) -> PhoneState:
        """The phone as it is now: what loads goes on loading."""
        while self._state.loading and self._clock() - self._moved_s >= MOMENT_S:
            self._moved_s += MOMENT_S
            self._state = phone.perform(self._state, phone.show(self._state), Wait()).state
        return self._state

    def shell(self, line: str) -> Done:
        """Run a command line."""
        return run(line, self._commands(), self.files)

    def act(self, action: Action) -> None:
        """Do something to the phone; the impossible does nothing, as on a real one, nor does a touch while it is locked."""
        if self.lock.blocks:
            return
        state = self.state
        outcome = phone.perform(state, phone.show(state), action)
        if outcome.state.focus != state.focus or outcome.state.place is not state.place:
            self._typed = ""
        self._state, self._moved_s = outcome.state, self._clock()
        self.log.append(f"I InputDispatcher: {type(action).__name__}")

    def _commands(self) -> dict[str, Command]:
        return {
            "input": self._input,
            "screencap": self._screencap,
            "uiautomator": self._uiautomator,
            "am": self._am,
            "pm": self._pm,
            "monkey": self._monkey,
            "settings": self._settings,
            "content": self._content,
            "dumpsys": self._dumpsys,
            "getprop": self._getprop,
            "wm": self._wm,
            "ime": self._ime,
            "logcat": self._logcat,
            "locksettings": self.lock.settings,
            "cmd": self._cmd,
        }

    # input

    def _input(self, words: list[str], data: bytes) -> Done:
        left = words[1:]
        if left and left[0] in ("touchscreen", "keyboard"):
            left = left[1:]
        try:
            match left:
                case ["tap", x, y]:
                    self.act(Tap(*self._point(x, y)))
                case ["swipe", *numbers] if len(numbers) in (4, 5):
                    self._swipe([float(number) for number in numbers])
                case ["text", text]:
                    return self._type(_spaces(text))
                case ["keyevent", *keys] if keys:
                    for key in keys:
                        self._key(KEYS[key] if key in KEYS else int(key))
                case _:
                    return Done(
                        err=b"Error: Invalid arguments for command\nUsage: input [<source>] <command> [<arg>...]\n",
                        code=255,
                    )
        except ValueError as error:
            return Done(err=f"Error: Invalid arguments: {error}\n".encode(), code=255)
        return Done()

    def _point(self, x: str | float, y: str | float) -> tuple[float, float]:
        width = self.settings.width_px
        return float(x) / width, float(y) / (width * HEIGHT / WIDTH)

    def _swipe(self, numbers: list[float]) -> None:
        begin, end = self._point(*numbers[:2]), self._point(*numbers[2:4])
        if self.lock.blocks and not self.lock.asleep and begin[1] > end[1]:
            return self.lock.dismiss()
        lasts_ms = numbers[4] if len(numbers) == 5 else 300
        if begin == end:
            self.act(LongPress(*begin) if lasts_ms >= LONG_PRESS_MS else Tap(*begin))
        else:
            self.act(Swipe(*begin, *end))

    def _type(self, text: str) -> Done:
        if not text.isascii():
            return Done(
                err=b"Exception occurred while executing 'text':\njava.lang.NullPointerException: Attempt to get length of null array\n",
                code=255,
            )
        self._insert(text)
        return Done()

    def _insert(self, text: str) -> None:
        """Text at the end of what the focused field holds; without one it goes nowhere."""
        if self.lock.blocks:
            return self.lock.type(text)
        state = self.state
        if not state.focus:
            return
        held = self._typed or self._held(state)
        self.act(TypeText(held + text))
        self._typed = held + text

    def _held(self, state: PhoneState) -> str:
        view = phone.view_of(state)
        return next((widget.text for widget in view.body if widget.kind == "field" and widget.id == state.focus), "")

    def _key(self, code: int) -> None:
        if self.lock.press(code):
            return
        if code == 67:
            self._delete()
        elif code in (3, 4, 66):
            self.act(Press({3: "home", 4: "back", 66: "enter"}[code]))  # type: ignore[arg-type]

    def _delete(self) -> None:
        state = self.state
        if state.focus:
            held = (self._typed or self._held(state))[:-1]
            place = replace(state.place, drafts={**state.place.drafts, state.focus: held.strip()})
            self._state, self._typed = replace(state, stack=(*state.stack[:-1], place)), held

    # what it shows

    def _screencap(self, words: list[str], data: bytes) -> Done:
        several = self.settings.num_displays > 1 and "-d" not in words
        picture = self._png() if "-p" in words else self._pixels()
        return Done(picture, MULTIPLE_DISPLAYS if several else b"")

    def _pixels(self) -> bytes:
        if self.lock.blocks:
            return struct.pack("<4I", *self.settings.size, RGBA_8888, SRGB) + self.lock.pixels(self.settings.size)
        state = self.state
        if self._raw is None or self._raw[0] is not state:
            self._raw = state, self._draw(state)
        return self._raw[1]

    def _draw(self, state: PhoneState) -> bytes:
        from distrl.devices.sim.render import draw  # Pillow and its fonts are loaded where someone wants pictures

        width, height = self.settings.size
        picture = draw(state, width / WIDTH).convert("RGBA").tobytes()
        wanted = width * height * 4
        bar = b"\0\0\0\xff" * ((wanted - len(picture)) // 4)
        return struct.pack("<4I", width, height, RGBA_8888, SRGB) + picture[:wanted] + bar

    def _png(self) -> bytes:
        from io import BytesIO

        from PIL import Image

        raw = self._pixels()
        file = BytesIO()
        Image.frombytes("RGBA", self.settings.size, raw[16:]).save(file, "PNG")
        return file.getvalue()

    def _uiautomator(self, words: list[str], data: bytes) -> Done:
        if words[1:2] != ["dump"]:
            return Done(err=b"Usage: uiautomator <subcommand> [options]\n", code=1)
        path = next((word for word in words[2:] if not word.startswith("-")), "/sdcard/window_dump.xml")
        said = f"UI hierchary dumped to: {path}\n".encode()  # spelt so by Android
        shown = (self.lock.hierarchy(self.settings.size) if self.lock.blocks else self._hierarchy()).encode()
        if not shown:
            return Done(err=b"ERROR: null root node returned by UiTestAutomationBridge.\n")  # with exit code 0
        if path == "/dev/tty":
            return Done(shown + said)
        self.files[path] = shown
        return Done(said)

    def _hierarchy(self) -> str:
        state, (width, height) = self.state, self.settings.size
        package = f"{PACKAGE}{state.place.app}"
        nodes = "".join(
            _node(element, index, package, width)
            for index, element in enumerate(elements_of(phone.show(state), state.focus))
        )
        root = UiElement(bounds=Bounds(0, 0, 1, height / (width * HEIGHT / WIDTH)), class_name="FrameLayout")
        whole = _node(root, 0, package, width, inside=nodes)
        return f"<?xml version='1.0' encoding='UTF-8' standalone='yes' ?><hierarchy rotation=\"0\">{whole}</hierarchy>"

    # apps

    def _am(self, words: list[str], data: bytes) -> Done:
        match words[1:]:
            case ["start", *options]:
                return self._start_activity(options)
            case ["force-stop", package]:
                self._leave(package.removeprefix(PACKAGE))
                return Done()
            case ["broadcast", *options]:
                return self._broadcast(options)
        return Done(err=b"Activity manager (activity) commands:\n", code=255)

    def _start_activity(self, options: list[str]) -> Done:
        self.started.append(options)
        component, category, action = _after(options, "-n"), _after(options, "-c"), _after(options, "-a")
        package = component.partition("/")[0] or _after(options, "-p") or f"{PACKAGE}{ACTIONS.get(action, '')}"
        said = f"Starting: Intent {{ cmp={component} }}\n".encode()
        if category.endswith(".HOME"):
            self.act(Press("home"))
            return Done(said)
        if package.removeprefix(PACKAGE) not in APPS:
            shown = f"Error type 3\nError: Activity class {{{component or package}}} does not exist.\n"
            return Done(said, shown.encode(), 1)
        self._open(package)
        return Done(said)

    def _open(self, package: str) -> None:
        home = replace(self.state, stack=(HOME,), focus="", loading=0)
        self._state = push(home, Place(app=package.removeprefix(PACKAGE), screen="home"))
        self._typed = ""
        self.log.append(f"I ActivityTaskManager: START u0 {{cmp={package}/.home}}")

    def _leave(self, app: str) -> None:
        state = self.state
        stack = tuple(place for place in state.stack if place.app != app) or (HOME,)
        self._state = replace(state, stack=stack, focus="", loading=0)

    def _broadcast(self, options: list[str]) -> Done:
        action = _after(options, "-a")
        if self._keyboard == ADB_KEYBOARD and action == "ADB_INPUT_B64":
            try:
                self._insert(base64.b64decode(_after(options, "msg"), validate=True).decode())
            except (binascii.Error, UnicodeDecodeError):
                self.log.append("E AdbIME: bad base-64")
        elif self._keyboard == ADB_KEYBOARD and action == "ADB_CLEAR_TEXT":
            for _ in range(len(self._typed or self._held(self.state)) if self.state.focus else 0):
                self._delete()
        return Done(f"Broadcasting: Intent {{ act={action} flg=0x400000 }}\nBroadcast completed: result=0\n".encode())

    def _pm(self, words: list[str], data: bytes) -> Done:
        packages = [
            *(f"{PACKAGE}{app}" for app in APPS),
            *([ADB_KEYBOARD.partition("/")[0]] if self.settings.adb_keyboard else []),
        ]
        match words[1:]:
            case ["list", "packages", *wanted]:
                names = [name for name in packages if all(word.startswith("-") or word in name for word in wanted)]
                return Done("".join(f"package:{name}\n" for name in names).encode())
            case ["path", package]:
                found = package in packages
                return Done(f"package:/data/app/{package}/base.apk\n".encode() if found else b"", b"", int(not found))
            case ["clear", package]:
                if package not in packages:
                    return Done(b"Failed\n", b"", 1)
                self._leave(package.removeprefix(PACKAGE))
                return Done(b"Success\n")
        return Done(err=b"Package manager (package) commands:\n", code=255)

    def _monkey(self, words: list[str], data: bytes) -> Done:
        package = _after(words, "-p")
        if package.removeprefix(PACKAGE) not in APPS:
            return Done(b"** No activities found to run, monkey aborted.\n", b"", 252)
        self._open(package)
        return Done(b"Events injected: 1\n")

    # the system

    def _settings(self, words: list[str], data: bytes) -> Done:
        match words[1:]:
            case ["get", space, name]:
                return Done(f"{self.system.get((space, name), 'null')}\n".encode())
            case ["put", space, name, value]:
                self.system[space, name] = value
                return Done()
            case ["delete", space, name]:
                return Done(f"Deleted {int(self.system.pop((space, name), None) is not None)} rows\n".encode())
            case ["list", space]:
                found = sorted((name, value) for (its, name), value in self.system.items() if its == space)
                return Done("".join(f"{name}={value}\n" for name, value in found).encode())
        return Done(err=b"Settings provider (settings) commands:\n", code=255)

    def _content(self, words: list[str], data: bytes) -> Done:
        """`content query`, for the provider of settings, which is the only one here."""
        uri, where = _after(words, "--uri"), _after(words, "--where") or "1"
        space = uri.removeprefix("content://settings/")
        if words[1:2] != ["query"] or space not in ("global", "secure", "system"):
            return Done(err=f"[ERROR] Error while accessing provider:{uri}\n".encode(), code=1)
        base = sqlite3.connect(":memory:")
        try:
            base.execute("CREATE TABLE rows (_id INTEGER PRIMARY KEY, name TEXT, value TEXT)")
            held = [(name, value) for (its, name), value in sorted(self.system.items()) if its == space]
            base.executemany("INSERT INTO rows (name, value) VALUES (?, ?)", held)
            # Whoever asks may say what they like: the table is theirs alone, and gone afterwards.
            asked = f"SELECT _id, name, value FROM rows WHERE {where}"  # noqa: S608
            found = base.execute(asked).fetchall()
        except sqlite3.Error as error:
            return Done(err=f"[ERROR] {error}\n".encode(), code=1)
        finally:
            base.close()
        rows = (f"Row: {n} _id={id}, name={name}, value={value}\n" for n, (id, name, value) in enumerate(found))
        return Done(("".join(rows) or "No result found.\n").encode())

    def _dumpsys(self, words: list[str], data: bytes) -> Done:
        place = self.state.place
        activity = f"{PACKAGE}{place.app}/.{place.screen}"
        shown = {
            "window": f"  mCurrentFocus=Window{{5d1c u0 {activity}}}\n  mFocusedApp=ActivityRecord{{7a u0 {activity} t1}}\n{self.lock.window()}",
            "activity": "  mResumedActivity: null\n"
            if self.lock.blocks
            else f"  mResumedActivity: ActivityRecord{{7a u0 {activity} t1}}\n",
            "input_method": f"  mInputShown={str(bool(self.state.focus)).lower()}\n",
            "power": self.lock.power(),
            "battery": "Current Battery Service state:\n  level: 100\n",
        }
        service = words[1] if words[1:] else ""
        if service not in shown:
            return Done(err=f"Can't find service: {service}\n".encode())
        return Done(shown[service].encode())

    def _getprop(self, words: list[str], data: bytes) -> Done:
        facts = {
            "sys.boot_completed": "1",
            "ro.product.model": "distrl simulated phone",
            "ro.build.version.release": "14",
            "ro.build.version.sdk": "34",
            "ro.serialno": self.name,
            "ro.distrl.simulated": "1",
        }
        if words[1:]:
            return Done(f"{facts.get(words[1], '')}\n".encode())
        return Done("".join(f"[{name}]: [{value}]\n" for name, value in facts.items()).encode())

    def _wm(self, words: list[str], data: bytes) -> Done:
        if words[1:] == ["dismiss-keyguard"]:
            self.lock.dismiss()
            return Done()
        width, height = self.settings.size
        shown = {
            "size": f"Physical size: {width}x{height}\n",
            "density": f"Physical density: {round(160 * width / WIDTH)}\n",
        }
        return (
            Done(shown[words[1]].encode())
            if words[1:2] and words[1] in shown
            else Done(err=b"Window manager (window) commands:\n", code=255)
        )

    def _ime(self, words: list[str], data: bytes) -> Done:
        known = [LATIN_KEYBOARD, *([ADB_KEYBOARD] if self.settings.adb_keyboard else [])]
        match words[1:]:
            case ["list", *_]:
                return Done("".join(f"{name}\n" for name in known).encode())
            case [("enable" | "set") as verb, name]:
                if name not in known:
                    return Done(err=f"Unknown input method {name} cannot be {verb}\n".encode(), code=255)
                self._keyboard = name if verb == "set" else self._keyboard
                self.system["secure", "default_input_method"] = self._keyboard
                return Done(
                    f"Input method {name} {'selected' if verb == 'set' else 'is enabled'} for user #0\n".encode()
                )
        return Done(err=b"ime <command>:\n", code=255)

    def _logcat(self, words: list[str], data: bytes) -> Done:
        count = int(_after(words, "-t") or 1000)
        return Done("".join(f"{line}\n" for line in list(self.log)[-count:]).encode())

    # what no Android has

    def _cmd(self, words: list[str], data: bytes) -> Done:
        match words[1:]:
            case ["distrl", "reset", path]:
                return self._reset(path)
            case ["distrl", "end-state"]:
                return Done(msgspec.json.encode(end_state(self._start, self.state)) + b"\n")
        return Done(err=f"cmd: Can't find service: {words[1] if words[1:] else ''}\n".encode(), code=20)

    def _reset(self, path: str) -> Done:
        try:
            task = msgspec.json.decode(self.files.get(path, b""), type=Task)
            self._start = self._state = start_state(task, self.settings.perturbations)
        except (msgspec.DecodeError, DistrlError) as error:
            return Done(err=f"no task in {path}: {error}\n".encode(), code=1)
        self._typed, self._moved_s = "", self._clock()
        self.log.append(f"I distrl: {task.id}")
        return Done()


def _after(options: list[str], name: str) -> str:
    return next((value for option, value in pairwise(options) if option == name), "")


def _spaces(text: str) -> str:
    """What `input text` makes of its argument."""
    found, escaped = "", False
    for letter in text:
        if escaped and letter == "s":
            found, escaped = found[:-1] + " ", False
        else:
            found, escaped = found + letter, letter == "%"
    return found


def _node(element: UiElement, index: int, package: str, width: int, *, inside: str = "") -> str:
    kind, scale_y = element.class_name, width * HEIGHT / WIDTH
    box = element.bounds
    corners = round(box.left * width), round(box.top * scale_y), round(box.right * width), round(box.bottom * scale_y)
    facts = {
        "index": str(index),
        "text": element.text,
        "resource-id": f"{package}:id/{element.resource_id}" if element.resource_id else "",
        "class": f"android.widget.{kind}" if kind in WIDGETS or inside else f"{PACKAGE}widget.{kind}",
        "package": package,
        "content-desc": element.description,
        **{name: str(on).lower() for name, on in _flags(element)},
        "bounds": "[{},{}][{},{}]".format(*corners),
    }
    shown = " ".join(f"{name}={quoteattr(_plain(value))}" for name, value in facts.items())
    return f"<node {shown}>{inside}</node>" if inside else f"<node {shown} />"


def _flags(element: UiElement) -> Iterator[tuple[str, bool]]:
    yield "checkable", element.checked is not None
    yield "checked", bool(element.checked)
    yield "clickable", element.clickable
    yield "enabled", element.enabled
    yield "focusable", element.class_name == "EditText"
    yield "focused", element.focused
    yield "scrollable", element.scrollable
    yield "long-clickable", False
    yield "password", False
    yield "selected", False


def _plain(text: str) -> str:
    """Text without the characters that XML cannot hold."""
    return "".join(letter for letter in text if letter in "\t\n\r" or letter >= " ")

"""Stand-ins for the SDK's `emulator` and `avdmanager`: their arguments, files and console, with a simulated phone behind adb's port.

`lay_out_sdk` writes both into a folder of the SDK's shape. An AVD has a folder with `fake.json`, which says how it behaves:
how long it boots, what it logs, what it dies of, whether its snapshots load. Snapshots are files, so they outlive the process.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pickle
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent
IMAGE = "system-images;android-34;google_apis;x86_64"
TURN_S = 900.0
FLAGS = {"-no-window", "-no-audio", "-no-boot-anim", "-no-snapshot-save", "-no-snapshot-load", "-no-accel"}
OPTIONS = {"-avd", "-port", "-snapshot", "-memory", "-cores", "-accel", "-gpu"}
STATE = ("files", "system", "_keyboard", "_state", "_start")
"""Of a simulated phone, what a snapshot holds."""
SHIM = """#!{python}
import sys
sys.path[:0] = {path!r}
from support.fake_emulator import {main}
sys.exit({main}(sys.argv[1:]))
"""


@contextmanager
def emulator_ports() -> Iterator[None]:
    """The ports of emulators, of which a machine has 65 pairs: whoever else tests with them here waits."""
    until = time.monotonic() + TURN_S
    with open(Path(tempfile.gettempdir()) / f"distrl-test-emulators-{os.getuid()}", "w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                assert time.monotonic() < until, "another test run on this machine keeps the ports of emulators"
                time.sleep(0.2)
        yield


def lay_out_sdk(root: Path, *, avds: dict[str, dict[str, Any]] | None = None, image: bool = True) -> Path:
    """An SDK with both programs and one system image; AVDs by name, and how each behaves."""
    for program, main in (("emulator/emulator", "emulate"), ("cmdline-tools/latest/bin/avdmanager", "manage")):
        path = root / program
        path.parent.mkdir(parents=True)
        path.write_text(SHIM.format(python=sys.executable, path=[str(TESTS), str(TESTS.parent / "src")], main=main))
        path.chmod(0o755)
    if image:
        (root / IMAGE.replace(";", "/")).mkdir(parents=True)
    for name, behaviour in (avds or {}).items():
        lay_out_avd(name, behaviour)
    return root


def lay_out_avd(name: str, behaviour: dict[str, Any]) -> None:
    """An AVD as avdmanager would have made it."""
    folder = _avd_home() / f"{name}.avd"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fake.json").write_text(json.dumps(behaviour))
    (_avd_home() / f"{name}.ini").write_text(f"path={folder}\n")


def _avd_home() -> Path:
    return Path(os.environ["ANDROID_USER_HOME"]) / "avd"


# --- avdmanager --------------------------------------------------------------------------------------------------------


def manage(words: list[str]) -> int:
    """`avdmanager create avd --name N --package P [--device D]`."""
    options = dict(zip(words[2::2], words[3::2], strict=True))
    if words[:2] != ["create", "avd"] or not options.keys() <= {"--name", "--package", "--device"}:
        print(f"Error: unknown arguments {words}", file=sys.stderr)
        return 1
    if not (Path(os.environ["ANDROID_HOME"]) / options["--package"].replace(";", "/")).is_dir():
        print("Error: Package path is not valid. Valid system image paths are:\nnull", file=sys.stderr)
        return 1
    if (_avd_home() / f"{options['--name']}.ini").exists():
        print(f"Error: Android Virtual Device '{options['--name']}' already exists.", file=sys.stderr)
        return 1
    print("Do you wish to create a custom hardware profile? [no] ", end="")
    if sys.stdin.readline().strip() != "no":
        return 1
    lay_out_avd(options["--name"], {"device": options.get("--device", "")})
    return 0


# --- emulator ----------------------------------------------------------------------------------------------------------


def emulate(words: list[str]) -> int:
    """`emulator -list-avds`, `-version`, or `-avd NAME -port PORT …` until it is killed."""
    if words == ["-list-avds"]:
        print("\n".join(sorted(path.stem for path in _avd_home().glob("*.ini"))))
        return 0
    if words == ["-version"]:
        print("Android emulator version 35.1.2.0 (build_id 0) (stand-in)")
        return 0
    options: dict[str, str] = {}
    left = iter(words)
    for word in left:
        if word not in FLAGS | OPTIONS:
            print(f"unknown option: {word}\nplease use -help for a list of valid options", file=sys.stderr)
            return 1
        options[word] = next(left) if word in OPTIONS else ""
    folder = _avd_home() / f"{options['-avd']}.avd"
    if not folder.exists():
        print(f"PANIC: Unknown AVD name [{options['-avd']}]", file=sys.stderr)
        return 1
    behaviour = json.loads((folder / "fake.json").read_text())
    print(f"INFO    | Android emulator version 35.1.2.0 (stand-in)\n{behaviour.get('log', '')}", flush=True)
    if "dies" in behaviour:
        print(behaviour["dies"], flush=True)
        return 1
    return _run(options, folder, behaviour)


def _runs(pid: str) -> bool:
    """Whether this process is there and has not ended; one that nobody has reaped yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _run(options: dict[str, str], folder: Path, behaviour: dict[str, Any]) -> int:
    lock = folder / "hardware-qemu.ini.lock"
    if lock.exists() and _runs(lock.read_text()):
        print("ERROR   | Running multiple emulators with the same AVD is an experimental feature.", flush=True)
        return 1
    lock.write_text(str(os.getpid()))
    asyncio.run(_Emulator(options, folder, behaviour).run())
    return 0


class _Emulator:
    def __init__(self, options: dict[str, str], folder: Path, behaviour: dict[str, Any]) -> None:
        from distrl.config.kinds import NO_PERTURBATIONS
        from distrl.devices.serve_sim.android import AndroidSettings, SimulatedAndroid
        from distrl.devices.serve_sim.server import ServedPhone
        from distrl.devices.serve_sim.shell import Done

        boots_s, began = behaviour.get("boots_s", 0.0), time.monotonic()

        class Booting(SimulatedAndroid):
            def _getprop(self, words: list[str], data: bytes) -> Done:
                if words[1:] == ["sys.boot_completed"] and time.monotonic() - began < boots_s:
                    return Done(b"\n")
                return super()._getprop(words, data)

        self.options, self.folder, self.behaviour = options, folder, behaviour
        self.port = int(options["-port"])
        self.android = Booting(options["-avd"], AndroidSettings(perturbations=NO_PERTURBATIONS))
        self.phone = ServedPhone(self.android)
        self.killed = asyncio.Event()

    async def run(self) -> None:
        self._note("start")
        wanted = self.options.get("-snapshot", "")
        if wanted and self._snapshot(wanted).exists():
            self._load(wanted)
        await self.phone.start(self.port + 1)
        await asyncio.start_server(self._converse, "127.0.0.1", self.port)
        await self._tell_adb()
        await self.killed.wait()

    async def _tell_adb(self) -> None:
        """As the real one does; where no server runs, the server looks for emulators when it starts."""
        request = f"host:emulator:{self.port + 1}".encode()
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", int(os.environ.get("ANDROID_ADB_SERVER_PORT", 5037)))
        except OSError:
            return
        writer.write(b"%04x" % len(request) + request)
        await writer.drain()
        writer.close()

    # the console

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        token = self._token()
        greeting = ["Android Console: type 'help' for a list of commands", "OK"]
        if token:
            greeting[:1] = [
                "Android Console: Authentication required",
                "Android Console: type 'auth <auth_token>' to authenticate",
                f"Android Console: you can find your <auth_token> in\r\n'{Path.home() / '.emulator_console_auth_token'}'",
            ]
        writer.write(("\r\n".join(greeting) + "\r\n").encode())
        entered = not token
        while line := (await reader.readline()).decode().strip():
            if line.startswith("auth "):
                entered = line == f"auth {token}"
                answer = "Android Console: type 'help' for a list of commands\r\nOK"
                answer = answer if entered else "KO: authentication token does not match"
            else:
                answer = self._answer(line.split()) if entered else "KO: unknown command, try 'help'"
            writer.write(f"{answer}\r\n".encode())
            await writer.drain()
            if line == "kill" and not self.behaviour.get("deaf"):
                self.killed.set()
        writer.close()

    def _token(self) -> str:
        path = Path.home() / ".emulator_console_auth_token"
        if not path.exists():
            path.write_text(secrets.token_urlsafe(12))
        return path.read_text().strip()

    def _answer(self, words: list[str]) -> str:
        match words:
            case ["avd", "name"]:
                return f"{self.options['-avd']}\r\nOK"
            case ["avd", "snapshot", "list"]:
                rows = [
                    f"--        {path.name}            75M 2026-01-09 11:41:45   00:10:07.753"
                    for path in self._snapshots()
                ]
                head = [
                    "List of snapshots present on all disks:",
                    "ID        TAG                 VM SIZE                DATE       VM CLOCK",
                ]
                return "\r\n".join([*(head if rows else ["There is no snapshot available."]), *rows, "OK"])
            case ["avd", "snapshot", "save", name]:
                self._snapshot(name).parent.mkdir(exist_ok=True)
                self._snapshot(name).write_bytes(pickle.dumps({key: getattr(self.android, key) for key in STATE}))
                self._note(f"save {name}")
                return "OK"
            case ["avd", "snapshot", "load", name]:
                if not self._snapshot(name).exists() or self.behaviour.get("load_fails"):
                    return f"KO: Device 'cache' does not have the requested snapshot '{name}'"
                self._load(name)
                for transport in list(self.phone._transports):
                    transport.drop()  # the guest knows nothing of connections that were made since
                return "OK"
            case ["kill"]:
                return "OK: killing emulator, bye bye"
        return "KO: unknown command, try 'help'"

    def _snapshots(self) -> list[Path]:
        return sorted((self.folder / "snapshots").glob("*"))

    def _snapshot(self, name: str) -> Path:
        return self.folder / "snapshots" / name

    def _load(self, name: str) -> None:
        for key, value in pickle.loads(self._snapshot(name).read_bytes()).items():
            setattr(self.android, key, value)
        self.android._raw = None
        self._note(f"load {name}")

    def _note(self, what: str) -> None:
        """What happened to this AVD, for the test to read."""
        words = f"{what} {' '.join(sys.argv[1:])}" if what == "start" else what
        with (self.folder / "history").open("a") as file:
            file.write(f"{words}\n")

"""`distrl doctor`: does this machine do what a run needs? Every check but that of optional packages tries the thing itself."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from distrl.bench.base import memory_bytes, num_cores
from distrl.cli.main import console, print_json, printable
from distrl.errors import DeviceError, DistrlError, raised_as
from distrl.experience.durable import storage_errors
from distrl.installing import install

if TYPE_CHECKING:
    from distrl.devices.android.health import DeviceHealth

PACKAGES = {"msgspec": "msgspec", "numpy": "numpy", "pillow": "PIL", "rich": "rich", "gymnasium": "gymnasium", "safetensors": "safetensors"}  # fmt: skip
OLDEST_PYTHON = (3, 11)
ENOUGH_DISK_GB, ENOUGH_MEMORY_GB = 1.0, 2.0
VLM_PACKAGES = ("transformers", "peft", "accelerate")
TORCH = """
import torch
a = torch.ones(64, 64)
assert float((a @ a)[0, 0]) == 64
names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
print(f"{torch.__version__}; sees", ", ".join(names) or "no GPU, which the pixel and vlm policies want, and the pointer does not")
"""
TORCH_TIMEOUT_S = 120.0
ELSEWHERE = "try another folder with --root FOLDER, which `distrl train` takes as --run.root FOLDER"

Probe = Callable[[], str]
"""Tries something and returns what it saw; raises what went wrong."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What trying one thing showed."""

    name: str
    ok: bool
    seen: str
    fix: str
    """What to do about it; empty where all is well."""
    ready: bool = True
    """False: it is not there or does not work, and only some runs need it, which `seen` names."""


class UnfitError(DistrlError):
    """Something is there but does not suffice."""


class NotReadyError(DistrlError):
    """Something that only some runs need cannot be used."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument(
        "--root", type=Path, default=Path("runs"), metavar="FOLDER", help="where runs will be kept (runs)"
    )


def run(args: argparse.Namespace) -> int:
    """Try everything; 1 where something failed."""
    checks = list(all_checks(args.root))
    _print_table(checks)
    if args.json:
        print_json({"checks": checks})
    return 0 if all(check.ok for check in checks) else 1


def all_checks(root: Path) -> Iterator[Check]:
    """Every check, one after another."""
    again = f"make test, or {install('train')}"
    yield attempt("python", "install Python 3.11 or newer", _python)
    yield attempt("packages", again, _packages)
    yield attempt("torch", again, _torch)
    yield attempt("bfloat16 on the CPU", again, _bfloat16)
    yield attempt("vlm packages", again, _vlm_packages)
    yield attempt("cores and memory", f"use a machine with {ENOUGH_MEMORY_GB:g} GB or more", _machine)
    yield attempt("disk", f"free some space, or {ELSEWHERE}", lambda: _disk(root))
    yield attempt("durable writes", f"on a local disk, {ELSEWHERE}", lambda: _fsync(root))
    yield attempt("index", f"on a disk that allows file locks, {ELSEWHERE}", lambda: _sqlite(root))
    yield attempt("simulated phone", "reinstall: " + again, _phone)
    yield attempt("drawing", "reinstall Pillow: " + again, _drawing)
    yield attempt("adb", "install Android's platform-tools", _adb)
    yield (emulator := attempt("emulator program", "install Android's SDK", _emulator_program))
    yield attempt("KVM", "turn virtualisation on", _kvm)
    if emulator.ready:  # else there is nothing more to say of the SDK
        yield attempt("android sdk", "install Android's SDK", _android_sdk)
    yield from _android()
    yield attempt("chromium", "distrl devices show web", _chromium)
    yield attempt("terminal", "set PYTHONUTF8=1", _terminal)


def attempt(name: str, fix: str, probe: Probe) -> Check:
    """What `probe` found. Whatever it raises is the finding, since a doctor must not fall ill over a patient."""
    try:
        with raised_as(lambda error: UnfitError(str(error).strip()[-300:] or type(error).__name__)):
            return Check(name=name, ok=True, seen=probe(), fix="")
    except NotReadyError as error:
        return Check(name=name, ok=True, seen=error.seen, fix="", ready=False)
    except DistrlError as error:
        return Check(name=name, ok=False, seen=error.seen, fix=error.fix or fix)


def _python() -> str:
    if sys.version_info[:2] < OLDEST_PYTHON:
        raise UnfitError(f"Python {platform.python_version()}")
    return platform.python_version()


def _packages() -> str:
    for module in PACKAGES.values():
        import_module(module)
    return ", ".join(f"{name} {version(name)}" for name in PACKAGES)


def _vlm_packages() -> str:
    """What is installed for language models, not loaded: that takes seconds, and other policies need none of it."""
    missing = [name for name in VLM_PACKAGES if find_spec(name) is None]
    if missing:
        return f"no {', '.join(missing)}: needed for policy.kind = vlm alone; {install('train,vlm')}"
    return ", ".join(f"{name} {version(name)}" for name in VLM_PACKAGES)


def _torch() -> str:
    """In a process of its own: a broken build may take the whole process with it."""
    done = subprocess.run(
        [sys.executable, "-c", TORCH], capture_output=True, text=True, timeout=TORCH_TIMEOUT_S, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise UnfitError(lines[-1] if lines else f"ended with {done.returncode}")
    return done.stdout.strip()


def _bfloat16() -> str:
    """No failure where it is not to be had: only a language model that is asked to compute so on the CPU needs it."""
    from distrl.runtime.placement import BFLOAT16_FIX, computes_bfloat16

    if find_spec("torch") is None:
        return "not tried without torch"
    if computes_bfloat16():
        return "multiplies"
    return f"a process that multiplies such matrices dies; policy.vlm.dtype = bfloat16 on the CPU needs {BFLOAT16_FIX}"


def _machine() -> str:
    memory_gb = memory_bytes() / 2**30
    seen = f"{num_cores()} cores, {memory_gb:.1f} GB"
    if memory_gb and memory_gb < ENOUGH_MEMORY_GB:
        raise UnfitError(seen)
    return seen


@contextmanager
def _folder_in(root: Path) -> Iterator[Path]:
    """A folder where the runs will be, gone afterwards; the root itself is not made before it is needed."""
    with storage_errors(root, flag="--root"):
        place = root.absolute()
        while not place.exists():
            place = place.parent
        made = tempfile.TemporaryDirectory(prefix=".distrl-doctor-", dir=place)
    with made as folder:
        yield Path(folder)


def _disk(root: Path) -> str:
    with _folder_in(root) as folder:
        free_gb = shutil.disk_usage(folder).free / 2**30
    seen = f"{free_gb:.1f} GB free"
    if free_gb < ENOUGH_DISK_GB:
        raise UnfitError(f"{seen}, {ENOUGH_DISK_GB:g} GB wanted")
    return seen


def _fsync(root: Path) -> str:
    with _folder_in(root) as folder:
        began = time.perf_counter()
        with (folder / "new").open("wb") as file:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        (folder / "new").replace(folder / "kept")
        if (folder / "kept").stat().st_size != 4096:
            raise UnfitError("what was written is not what is there")
        return f"{(time.perf_counter() - began) * 1000:.1f} ms to write, sync and rename 4 KiB"


def _sqlite(root: Path) -> str:
    with _folder_in(root) as folder:
        base = sqlite3.connect(folder / "index.db")
        mode = base.execute("pragma journal_mode=wal").fetchone()[0]
        base.execute("create table t (id text primary key)")
        base.close()
    if mode != "wal":
        raise UnfitError(f"SQLite {sqlite3.sqlite_version} has no write-ahead log here ({mode})")
    return f"SQLite {sqlite3.sqlite_version} with a write-ahead log"


def _phone() -> str:
    from distrl.tasks.sim.oracle import play_oracle
    from distrl.tasks.sim.suites import suite

    task = suite("sim-general").task("test", 0)
    played = play_oracle(task)
    if not played.verdict.success:
        raise UnfitError(f"the oracle failed {task.id}: {task.instruction!r}")
    return f"{task.id} solved in {len(played.actions)} steps: {task.instruction!r}"


def _drawing() -> str:
    from distrl.config.schema import DevicesConfig
    from distrl.devices.base import Fleet, find_devices
    from distrl.rollout.stepping import SteppedEpisode
    from distrl.tasks.base import suite

    (phone,) = find_devices(DevicesConfig(), Fleet(owner="doctor", count=1, seed=0, purpose="evaluation"))
    episode = SteppedEpisode(phone, suite("sim-general").task("test", 0), history=0)
    began = time.perf_counter()
    screen = episode.capture(screenshot=True)
    return f"{screen.width_px}×{screen.height_px} in {(time.perf_counter() - began) * 1000:.0f} ms"


def _adb() -> str:
    from distrl.config.schema import AndroidConfig
    from distrl.devices.android.health import adb_version

    return _unless_missing(lambda: adb_version(AndroidConfig()), "devices.kind = android")


def _unless_missing(probe: Probe, needed_for: str) -> str:
    """What a probe sees; `NotReadyError` where it fails: nobody who does not need it fails over it, and its fix is told all the same."""
    try:
        return probe()
    except DeviceError as error:
        raise NotReadyError(f"needed for {needed_for} alone: {error.seen}; {error.fix}") from error


def _emulator_program() -> str:
    from distrl.config.schema import AndroidConfig
    from distrl.devices.android.health import emulator_program

    return _unless_missing(lambda: emulator_program(AndroidConfig()), "emulators")


def _kvm() -> str:
    from distrl.devices.android.sdk import check_kvm

    return _unless_missing(check_kvm, "emulators")


def _android_sdk() -> str:
    from distrl.config.schema import AndroidConfig
    from distrl.devices.android.health import sdk_content

    return _unless_missing(lambda: sdk_content(AndroidConfig()), "emulators")


def _android() -> Iterator[Check]:
    """The adb server, and each of its devices by taking a picture and tapping its corner; no server is started for it."""
    tried: list[DeviceHealth] = []
    yield attempt("adb server", "distrl devices check", lambda: _adb_server(tried))
    for device in tried:
        yield Check(name=f"device {device.serial}", ok=device.ok, seen=device.seen, fix=device.fix)


def _adb_server(tried: list[DeviceHealth]) -> str:
    """Its port and version; what trying each of its devices showed goes to `tried`."""
    from distrl.config.schema import AndroidConfig
    from distrl.devices.android.adb import Adb
    from distrl.devices.android.adb_program import server_listens
    from distrl.devices.android.health import check_all
    from distrl.devices.android.phone import adb_config

    config = adb_config(AndroidConfig())
    host, port = config.address
    if not asyncio.run(server_listens(host, port)):
        return f"none on port {port}: `distrl devices check` starts one and tries what is connected"
    version = asyncio.run(Adb(config).version())
    tried += asyncio.run(check_all(AndroidConfig()))
    devices = f"{len(tried)} device(s)" if tried else "no device, which simulated phones do not need"
    return f"port {port}, version 1.0.{version}, {devices}"


def _chromium() -> str:
    """Version, and a page of our own opened and tapped."""
    from distrl.config.schema import WebConfig
    from distrl.devices.web.chromium import chromium_version
    from distrl.devices.web.health import try_phone

    def probe() -> str:
        return f"{chromium_version()}: {asyncio.run(try_phone(WebConfig()))}"

    return _unless_missing(probe, "devices.kind = web")


def _terminal() -> str:
    encoding = sys.stdout.encoding or "unknown"
    "…×│".encode(encoding)
    size = shutil.get_terminal_size()
    kind = f"a terminal of {size.columns}×{size.lines}" if sys.stdout.isatty() else "no terminal, so plain lines"
    return f"{kind}, {encoding}"


def _print_table(checks: list[Check]) -> None:
    from rich.table import Column, Table

    # Folded and never cut off: what is seen holds commands to copy.
    table = Table(Column("check", overflow="fold"), "", Column("seen", overflow="fold"), box=None, pad_edge=False)
    for check in checks:
        seen = printable(check.seen if check.ok else f"{check.seen}\ntry: {check.fix}")
        state = "FAILED" if not check.ok else "ok" if check.ready else "not ready"
        table.add_row(printable(check.name), state, seen, style="" if check.ok else "bold red")
    console().print(table)
    failed = sum(not check.ok for check in checks)
    others = sum(not check.ready for check in checks)
    passed = f"all {len(checks) - others} checks passed" + (f", {others} not ready" if others else "")
    print(f"{failed} of {len(checks)} checks failed" if failed else passed)

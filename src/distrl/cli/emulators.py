"""`distrl devices emulators list|start|stop`: emulators that go on running, for runs to adopt."""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

import msgspec

from distrl.cli.main import console, print_json
from distrl.config.schema import AndroidConfig
from distrl.devices.android.adb import Adb
from distrl.devices.android.emulator import Emulator, emulator_names
from distrl.devices.android.phone import adb_config
from distrl.devices.android.records import running_names, state_folder
from distrl.devices.android.sdk import find_sdk
from distrl.errors import DeviceError, UsageError

HELP = "Android emulators: which there are, start them, stop what distrl has started"


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """An emulator as shown to people."""

    avd: str
    serial: str
    """Empty where it does not run."""
    started_by: str
    """distrl, or somebody else."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare `list`, `start` and `stop`."""
    actions = parser.add_subparsers(dest="emulators_action", required=True, metavar="list|start|stop")
    made = {
        "list": "AVDs, and which of them run",
        "start": "start these, wait until each shows a picture, and leave them running",
        "stop": "stop these, where distrl has started them",
    }
    for name, text in made.items():
        each = actions.add_parser(name, help=text, allow_abbrev=False)
        if name != "list":
            each.add_argument("avds", nargs="*", metavar="AVD", help="these alone (those of the configuration)")
        each.add_argument("--config", type=Path, metavar="CONFIG.toml", help="take [devices.android] from this file")
        each.add_argument("--json", action="store_true", help="one JSON object on the last line")


def run(args: argparse.Namespace, settings: AndroidConfig) -> int:
    """Do what was asked for."""
    verb = {"list": _list, "start": _start, "stop": _stop}[args.emulators_action]
    return asyncio.run(verb(args, settings))


async def _list(args: argparse.Namespace, settings: AndroidConfig) -> int:
    from rich.table import Table

    adb = Adb(adb_config(settings))
    known = await find_sdk(settings.emulator).avds()
    names = dict.fromkeys((*known, *emulator_names(settings)))
    found = [await _describe(Emulator(name, settings, adb)) for name in names]
    table = Table("AVD", "serial", "started by", box=None, pad_edge=False)
    for emulator in found:
        table.add_row(emulator.avd, emulator.serial or "does not run", emulator.started_by)
    if found:
        console().print(table)
    else:
        print("there is no AVD: set devices.android.emulator.count and image, or avdmanager create avd")
    if args.json:
        print_json({"emulators": found})
    return 0


async def _describe(emulator: Emulator) -> Shown:
    runs = await emulator.find()
    by = ("distrl" if emulator.started else "somebody else") if runs else ""
    return Shown(avd=emulator.avd, serial=emulator.serial if runs else "", started_by=by)


async def _start(args: argparse.Namespace, settings: AndroidConfig) -> int:
    names = args.avds or emulator_names(settings)
    if not names:
        raise UsageError(
            "there is no emulator to start",
            expected="names of AVDs, or devices.android.emulator.avds or count",
            fix="distrl devices emulators list",
        )
    adb = Adb(adb_config(settings))
    starts = (_start_one(Emulator(name, settings, adb)) for name in names)
    # All to their end: one that fails must not leave another half booted.
    for failed in await asyncio.gather(*starts, return_exceptions=True):
        if failed is not None:
            raise failed
    if args.json:
        print_json({"emulators": [await _describe(Emulator(name, settings, adb)) for name in names]})
    return 0


async def _start_one(emulator: Emulator) -> None:
    began = time.perf_counter()
    try:
        serial = await emulator.start(keep=True)
    except DeviceError:
        await (emulator.stop() if emulator.is_own else emulator.close())  # others may use what was there before
        raise
    print(f"{emulator.avd} is {serial}, up after {time.perf_counter() - began:.1f} s")
    await emulator.close()


async def _stop(args: argparse.Namespace, settings: AndroidConfig) -> int:
    adb, stopped = Adb(adb_config(settings)), []
    for name in args.avds or list(running_names(state_folder())):
        emulator = Emulator(name, settings, adb)
        if await emulator.stop():
            stopped.append(name)
            print(f"{name} is stopped")
        elif args.avds:
            _refuse(name, emulator.serial if await emulator.find() else "")
    if not stopped:
        print("no emulator that distrl has started runs")
    if args.json:
        print_json({"stopped": stopped})
    return 0


def _refuse(name: str, serial: str) -> None:
    if serial:
        raise DeviceError(f"{name} was not started by distrl", expected="one that was", fix=f"adb -s {serial} emu kill")
    raise DeviceError(f"{name} does not run", expected="one that runs", fix="distrl devices emulators list")

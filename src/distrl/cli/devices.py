"""`distrl devices`: the Android devices of this machine, what one shows, whether they work; and simulated ones for adb."""

from __future__ import annotations

import argparse
import asyncio
import re
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from distrl.cli import device_stats, emulators
from distrl.cli.main import console, print_json, printable, real_number, whole_number
from distrl.config.load import load_config
from distrl.config.schema import AndroidConfig
from distrl.devices.android.adb import Adb
from distrl.devices.android.device import AndroidDevice
from distrl.devices.android.health import check_all, draw_boxes
from distrl.devices.android.phone import Phone, adb_config
from distrl.devices.base import Capture
from distrl.errors import DeviceError, UsageError

if TYPE_CHECKING:
    from distrl.devices.serve_sim.server import ServedPhone

TAKES_CONFIG = True
FIRST_PORT, LAST_PORT = 6100, 65535
MOST_PHONES = 1000
"""Of one process: each holds a port and a screen."""
MOST_PIXELS = 10_000


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare `list`, `show`, `check`, `tap`, `stats`, `emulators` and `serve-sim`."""
    verbs = "list|show|check|tap|stats|emulators|serve-sim"
    actions = parser.add_subparsers(dest="action", required=True, metavar=verbs)
    made = {
        "list": "the devices that adb knows, whatever their state",
        "show": "a screenshot with a box around each element",
        "check": "try each device: picture, elements, a tap on the corner",
        "tap": "touch a point",
        "serve-sim": "simulated phones that any adb client can drive, until Ctrl-C",
    }
    parsers = {name: actions.add_parser(name, help=text, allow_abbrev=False) for name, text in made.items()}
    for name in ("show", "tap"):
        text = "as `distrl devices list` names it" + ("; web: a Chromium phone" if name == "show" else "")
        parsers[name].add_argument("serial", metavar="SERIAL", help=text)
    parsers["show"].add_argument("--url", default="", metavar="URL", help="of a Chromium phone: a page, or a task of MiniWoB++ (a page of our own)")  # fmt: skip
    parsers["show"].add_argument("--out", type=Path, metavar="FILE", help="where the PNG goes (runs/show/SERIAL.png)")
    parsers["check"].add_argument("serials", nargs="*", metavar="SERIAL", help="these alone (all)")
    for axis in ("x", "y"):
        pixels = whole_number(axis.upper(), 0, MOST_PIXELS, 100)
        parsers["tap"].add_argument(axis, type=pixels, metavar=axis.upper(), help="in pixels from the top left")
    _configure_serving(parsers["serve-sim"])
    for each in parsers.values():
        each.add_argument("--config", type=Path, metavar="CONFIG.toml", help="take [devices.android] from this file")
        each.add_argument("--json", action="store_true", help="one JSON object on the last line")
    device_stats.configure(actions.add_parser("stats", help=device_stats.HELP, allow_abbrev=False))
    emulators.configure(actions.add_parser("emulators", help=emulators.HELP, allow_abbrev=False))


def _configure_serving(parser: argparse.ArgumentParser) -> None:
    numbers = {  # flag: least, most, default, name, help
        "--count": (1, MOST_PHONES, 1, "N", "how many phones (1)"),
        "--first-port": (0, LAST_PORT, FIRST_PORT, "P", f"of the first phone; 0: any ({FIRST_PORT})"),
        "--width": (48, 4320, 1080, "PX", "of the screen (1080)"),
        "--height": (0, MOST_PIXELS, 0, "PX", "of the screen; 0: twice the width (0)"),
    }
    for flag, (least, most, default, name, text) in numbers.items():
        number = whole_number(flag, least, most, default)
        parser.add_argument(flag, type=number, default=default, metavar=name, help=text)
    share = real_number("--fault-rate", 0.0, 1.0, 0.05)
    parser.add_argument("--fault-rate", type=share, default=0.0, metavar="SHARE", help="chance per command that it fails (0)")  # fmt: skip
    parser.add_argument("--connect", action="store_true", help="connect the adb server to them")
    pause = real_number("--report-every", 0.0, 3600.0, 5.0)
    text = "with --json, print commands and faults so far as an object every so many seconds; 0: only at the end"
    parser.add_argument("--report-every", type=pause, default=0.0, metavar="S", help=text)


def run(args: argparse.Namespace) -> int:
    """Do what was asked for."""
    if args.action == "stats":
        return device_stats.run(args)
    if args.action == "show" and args.serial == "web":
        return _show_web(args)
    settings = load_config(args.config, {**args.overrides, "devices.kind": "android"}).devices.android
    if args.action == "list":
        return asyncio.run(_list(args, settings))
    if args.action == "show":
        return asyncio.run(_show(args, settings))
    if args.action == "check":
        return asyncio.run(_check(args, settings))
    if args.action == "tap":
        return asyncio.run(_tap(args, settings))
    if args.action == "emulators":
        return emulators.run(args, settings)
    asyncio.run(_serve(args, settings))
    return 0


async def _list(args: argparse.Namespace, settings: AndroidConfig) -> int:
    from rich.table import Table

    found = await Adb(adb_config(settings)).devices()
    table = Table("serial", "state", "model", box=None, pad_edge=False)
    for device in found:
        table.add_row(printable(device.serial), printable(device.state), printable(device.model))
    if found:
        console().print(table)
    else:
        print("adb knows no device: plug one in, `adb connect HOST:PORT`, or `distrl devices serve-sim --connect`")
    if args.json:
        print_json({"devices": found})
    return 0


async def _show(args: argparse.Namespace, settings: AndroidConfig) -> int:
    began = time.perf_counter()
    device = AndroidDevice(args.serial, replace(settings, screenshot_width=0))  # its pixels are those of `tap`
    await device.phone.come_online()
    return _print_capture(args, await device.capture(screenshot=True), began_s=began)


def _show_web(args: argparse.Namespace) -> int:
    from distrl.devices.web.health import show_page

    began = time.perf_counter()
    settings = load_config(args.config, {**args.overrides, "devices.kind": "web"}).devices.web
    capture = asyncio.run(show_page(settings, args.url))
    return _print_capture(args, capture, began_s=began)


def _print_capture(args: argparse.Namespace, capture: Capture, *, began_s: float) -> int:
    out: Path = args.out or picture_path(args.serial)
    try:
        if args.out is None:
            out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(draw_boxes(capture))
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}", fix="another --out") from None
    for number, element in enumerate(capture.elements):
        words = element.text or element.description or element.resource_id
        x, y = element.bounds.centre
        place = f"{int(x * capture.width_px):4} {int(y * capture.height_px):4}"
        shown = " ".join(printable(f"{element.class_name:16} {words[:80]}").splitlines())
        print(f"{number:3} {'tap' if element.clickable else '   '} {place}  {shown}")
    took_s = time.perf_counter() - began_s
    print(f"{printable(capture.app) or 'an unknown app'}; {out} in {took_s:.2f} s")
    if args.json:
        facts = {"app": capture.app, "file": str(out), "took_s": took_s, "elements": capture.elements}
        print_json({"serial": args.serial, "width_px": capture.width_px, "height_px": capture.height_px, **facts})
    return 0


def picture_path(serial: str) -> Path:
    """Where a picture of this device goes: whoever made a device chose its serial, and must not choose a folder too."""
    return Path("runs", "show", f"{re.sub(r'[^A-Za-z0-9._-]', '-', serial).lstrip('.')}.png")


async def _check(args: argparse.Namespace, settings: AndroidConfig) -> int:
    found = await check_all(settings, tuple(args.serials))
    if not found:
        raise DeviceError("adb knows no device", expected="one or more", fix="plug one in, or adb connect HOST:PORT")
    for health in found:
        print(printable(f"{health.serial}  {'ok' if health.ok else 'FAILED'}  {health.seen}"))
        if health.fix:
            print(printable(f"  try: {health.fix}"))
    if args.json:
        print_json({"devices": found})
    return 0 if all(health.ok for health in found) else DeviceError.exit_code


async def _tap(args: argparse.Namespace, settings: AndroidConfig) -> int:
    phone = Phone(args.serial, settings)
    await phone.come_online()
    await phone.unlock()
    if 0 < (longest := await phone.longest_side_px()) <= max(args.x, args.y):
        seen = f"({args.x}, {args.y}) is not on the screen of {args.serial}"
        shown = f"distrl devices show {args.serial} lists what there is to tap"
        raise UsageError(seen, expected=f"below {longest} pixels", fix=shown)
    began = time.perf_counter()
    await phone.tap(args.x, args.y)
    took_ms = 1000 * (time.perf_counter() - began)
    print(f"tapped ({args.x}, {args.y}) on {args.serial} in {took_ms:.1f} ms")
    if args.json:
        print_json({"serial": args.serial, "x_px": args.x, "y_px": args.y, "took_ms": took_ms})
    return 0


def _check_serving(args: argparse.Namespace) -> None:
    """`UsageError` where numbers that are fine alone do not fit together."""
    if args.height and args.height < 2 * args.width:
        raise UsageError(
            f"--width {args.width} --height {args.height} does not fit",
            expected="a screen at least twice as high as wide",
            fix=f"--width {args.width} --height {2 * args.width}",
        )
    last = args.first_port + args.count - 1
    if args.first_port and last > LAST_PORT:
        raise UsageError(
            f"--first-port {args.first_port} --count {args.count} needs ports up to {last}",
            expected=f"ports up to {LAST_PORT}",
            fix=f"--first-port {LAST_PORT + 1 - args.count}, or --first-port 0 for any that are free",
        )


async def _serve(args: argparse.Namespace, settings: AndroidConfig) -> None:
    from distrl.devices.serve_sim.android import AndroidSettings
    from distrl.devices.serve_sim.server import FaultSettings, serve

    _check_serving(args)
    try:
        phones = await serve(
            args.count,
            settings=AndroidSettings(width_px=args.width, height_px=args.height),
            faults=FaultSettings(rate=args.fault_rate),
            first_port=args.first_port,
        )
    except OSError as error:
        expected = f"{args.count} free port(s) from {args.first_port} on"
        raise UsageError(f"cannot listen: {error.strerror}", expected=expected, fix="--first-port 0") from None
    if args.connect:
        for phone in phones:
            await Adb(adb_config(settings)).connect(phone.serial)
    for phone in phones:
        print(phone.serial if args.connect else f"adb connect {phone.serial}")
    print("simulated phones, no Androids; Ctrl-C ends them")
    if args.json:
        print_json({"serials": [phone.serial for phone in phones]})
    sys.stdout.flush()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell starts what it puts in the background deaf to Ctrl-C
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await _until_stopped(stopped, phones, report_s=args.report_every if args.json else 0.0)
    told = _told(phones)
    print(f"{told['commands']} commands, faults injected: {told['faults'] or 'none'}")
    if args.json:
        print_json(told)
    for phone in phones:
        await phone.stop()


async def _until_stopped(stopped: asyncio.Event, phones: list[ServedPhone], *, report_s: float) -> None:
    while not stopped.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), report_s or None)
        if report_s and not stopped.is_set():
            print_json(_told(phones))
            sys.stdout.flush()


def _told(phones: list[ServedPhone]) -> dict[str, object]:
    """What the phones have been through."""
    injected = sum((phone.injected for phone in phones), Counter())
    return {"commands": sum(phone.commands for phone in phones), "faults": dict(injected)}

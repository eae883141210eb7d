"""Does adb work here, and does each device? Everything is tried: a picture is taken, the hierarchy read, a point tapped."""

from __future__ import annotations

import asyncio
import subprocess
import time
from io import BytesIO

import msgspec
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from distrl.config.schema import AndroidConfig
from distrl.devices.android.adb import Adb, Listed
from distrl.devices.android.adb_program import does_not_run, find_adb
from distrl.devices.android.device import AndroidDevice
from distrl.devices.android.phone import adb_config
from distrl.devices.android.screen import is_black
from distrl.devices.android.sdk import find_sdk
from distrl.devices.base import Capture
from distrl.errors import DeviceError, DistrlError
from distrl.types import Bounds

VERSION_S = 10.0
HEALTH_S = 30.0
"""For one device, all that is tried together."""
BOX_COLOURS = {True: "#e5484d", False: "#8b8d98"}
"""Of what can be tapped, and of what cannot."""
LEAST_TAG_PX, TAGS_ACROSS, TAG_EDGE_PX = 10, 28, 3
"""Height of a number, at least and as a share of the width; the space around it."""


class DeviceHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What trying one device showed."""

    serial: str
    ok: bool
    seen: str
    fix: str = ""
    """What to do about it; empty where all is well."""


def adb_version(settings: AndroidConfig) -> str:
    """Path and version of the adb program; `DeviceError` where there is none."""
    program = find_adb(settings.adb)
    try:
        done = subprocess.run([program, "version"], capture_output=True, text=True, timeout=VERSION_S, check=False)
    except OSError as error:
        raise does_not_run(program, error) from None
    except subprocess.TimeoutExpired:
        raise DeviceError(f"`{program} version` took over {VERSION_S:g} s", fix="run it yourself") from None
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        raise DeviceError(f"`{program} version` ended with {done.returncode}", fix="reinstall Android's platform-tools")
    release = next((line.removeprefix("Version ") for line in lines if line.startswith("Version ")), "")
    return f"{program}, {release or lines[0]}"


async def check_all(settings: AndroidConfig, serials: tuple[str, ...] = ()) -> list[DeviceHealth]:
    """Try these devices, all at once; without names, all that the adb server lists."""
    adb = Adb(adb_config(settings))
    await adb.version()
    listed = {found.serial: found for found in await adb.devices()}
    return list(
        await asyncio.gather(*(_check(serial, listed.get(serial), settings, adb) for serial in serials or listed))
    )


async def _check(serial: str, listed: Listed | None, settings: AndroidConfig, adb: Adb) -> DeviceHealth:
    try:
        async with asyncio.timeout(HEALTH_S):
            seen = await _try(AndroidDevice(serial, settings, adb), settings)
    except DistrlError as error:
        return DeviceHealth(serial=serial, ok=False, seen=error.seen, fix=error.fix)
    except TimeoutError:
        return DeviceHealth(serial=serial, ok=False, seen=f"no answer within {HEALTH_S:g} s", fix="adb reconnect")
    model = listed.model if listed else ""
    return DeviceHealth(serial=serial, ok=True, seen=f"{model}: {seen}" if model else seen)


async def _try(device: AndroidDevice, settings: AndroidConfig) -> str:
    await device.phone.come_online()
    await device.phone.unlock()
    began = time.perf_counter()
    capture = await device.capture(screenshot=True)
    took_ms = 1000 * (time.perf_counter() - began)
    if is_black(np.asarray(Image.open(BytesIO(capture.screenshot)).convert("L"))):
        raise DeviceError(f"{device.name} shows a black screen", fix="look at it: it is on, and shows nothing")
    began = time.perf_counter()
    await device.phone.tap(0, 0)  # the corner of the status bar, where nothing is
    tap_ms = 1000 * (time.perf_counter() - began)
    shown = f"{len(capture.elements)} elements" if settings.elements else "no elements asked for"
    if device.mismatched:
        shown += " of another moment than the picture, since the screen never rests"
    return f"{capture.width_px}×{capture.height_px}, {shown}, captured in {took_ms:.0f} ms, tapped in {tap_ms:.1f} ms"


def emulator_program(settings: AndroidConfig) -> str:
    """Path and version of the emulator program, which is run for it; `DeviceError` where there is none."""
    sdk = find_sdk(settings.emulator)
    return f"{sdk.emulator}, {asyncio.run(sdk.version())}"


def sdk_content(settings: AndroidConfig) -> str:
    """What the SDK has to make emulators from, and those that are made; `DeviceError` where there is no SDK."""
    sdk = find_sdk(settings.emulator)
    avds = asyncio.run(sdk.avds())
    images = ", ".join(sdk.images()) or "no system image (sdkmanager 'system-images;android-34;google_apis;x86_64')"
    manager = (
        "" if sdk.avdmanager else "; no avdmanager, so that no AVD can be made (sdkmanager 'cmdline-tools;latest')"
    )
    shown = f"AVDs {', '.join(avds)}" if avds else "no AVD"
    return f"{sdk.root}: {images}; {shown}{manager}"


def draw_boxes(capture: Capture) -> bytes:
    """The screenshot with a box around each element and its number on a tag, as they come, as a PNG."""
    image = Image.open(BytesIO(capture.screenshot)).convert("RGB")
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(max(LEAST_TAG_PX, image.width // TAGS_ACROSS))
    boxes = [_corners(element.bounds, image.size) for element in capture.elements]
    colours = [BOX_COLOURS[element.clickable] for element in capture.elements]
    for box, colour in zip(boxes, colours, strict=True):
        pen.rectangle(box, outline=colour, width=2)
    for number, (box, colour) in enumerate(zip(boxes, colours, strict=True)):
        place = (box[0] + TAG_EDGE_PX, box[1] + TAG_EDGE_PX)
        left, top, right, bottom = pen.textbbox(place, str(number), font)
        edges = (left - TAG_EDGE_PX, top - TAG_EDGE_PX, right + TAG_EDGE_PX, bottom + TAG_EDGE_PX)
        pen.rectangle(edges, fill=colour)
        pen.text(place, str(number), "white", font)
    file = BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue()


def _corners(box: Bounds, size: tuple[int, int]) -> tuple[float, float, float, float]:
    """In pixels."""
    (width, height), right, bottom = size, max(box.left, box.right), max(box.top, box.bottom)
    return (box.left * width, box.top * height, right * width - 1, bottom * height - 1)

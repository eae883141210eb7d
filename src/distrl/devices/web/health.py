"""Does Chromium work here? A page is opened, looked at and tapped."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from pathlib import Path

from msgspec.structs import replace

from distrl.config.schema import WebConfig
from distrl.devices.base import Capture
from distrl.devices.web.browser import Browser
from distrl.devices.web.device import WebDevice
from distrl.devices.web.sites import FolderSite
from distrl.devices.web.tab import origin_of
from distrl.errors import DeviceError, UsageError
from distrl.types import Tap, WebSetup

SAMPLE = Path(__file__).parent / "sample"


async def try_phone(settings: WebConfig) -> str:
    """What opening and tapping our own page took; `DeviceError` where it does not do what it should."""
    began = time.perf_counter()
    async with AsyncExitStack() as stack:
        device = await _started(stack, settings, "")
        capture = await device.capture(screenshot=True)
        up_s, began = time.perf_counter() - began, time.perf_counter()
        button = next((each for each in capture.elements if each.resource_id == "tap"), None)
        if button is None:
            raise DeviceError(f"its page shows {len(capture.elements)} elements, and the button is none of them")
        performed = await device.perform(Tap(*button.bounds.centre))
        if not performed.changed:
            raise DeviceError("a tap on a button changed nothing", expected="a page that says so")
        tap_ms = 1000 * (time.perf_counter() - began)
    size = f"{capture.width_px}×{capture.height_px}, {len(capture.elements)} elements"
    return f"{size}, up in {up_s:.1f} s, tapped in {tap_ms:.0f} ms"


async def show_page(settings: WebConfig, url: str) -> Capture:
    """What a phone shows of an address, of a task of MiniWoB++ by its name, or without either of our own page."""
    async with AsyncExitStack() as stack:
        device = await _started(stack, settings, url)
        return await device.capture(screenshot=True)


async def _started(stack: AsyncExitStack, settings: WebConfig, url: str) -> WebDevice:
    site = FolderSite(SAMPLE)
    stack.callback(site.close)
    setup = WebSetup(url=url, page="miniwob") if url and "/" not in url else None
    if setup is None:
        address = url or f"{await site.start()}/index.html"
        if not origin_of(address):
            raise UsageError(
                f"--url {address!r:.120} is no address of a page",
                expected="http:// or https://, or the name of a task of MiniWoB++",
                fix="--url http://127.0.0.1:8000/",
            )
        settings = replace(settings, allow=(*settings.allow, origin_of(address)))  # whoever types an address means it
        setup = WebSetup(url=address)
    device = WebDevice("show/web-0", settings, Browser(settings, name="browser"))
    stack.push_async_callback(device.close)
    await device.start(setup)
    return device

"""Real Chromium phones for tests, and small pages for them; where there is no Chromium, a test says that it was skipped."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from distrl.config.schema import WebConfig
from distrl.devices.base import Capture, Performed
from distrl.devices.web.browser import Browser
from distrl.devices.web.chromium import INSTALL, find_chromium
from distrl.devices.web.device import WebDevice
from distrl.devices.web.sites import FolderSite
from distrl.errors import DeviceError
from distrl.types import Tap, UiElement, WebSetup


def has_chromium() -> bool:
    """Whether these tests can run here."""
    try:
        find_chromium()
    except DeviceError:
        return False
    return True


needs_chromium = pytest.mark.skipif(not has_chromium(), reason=f"there is no Chromium: make system, or {INSTALL}")


class Pages:
    """Pages by their names, served on loopback, and phones that may open them."""

    def __init__(self, site: FolderSite, folder: Path, settings: WebConfig) -> None:
        self._site, self._folder, self.settings = site, folder, settings
        self.browser = Browser(settings, name="browser")
        self.devices: list[WebDevice] = []

    def write(self, name: str, body: str) -> str:
        """Its address."""
        viewport = '<meta name="viewport" content="width=device-width, initial-scale=1">'
        (self._folder / name).write_text(
            f"<!DOCTYPE html><html><head>{viewport}<title>{name}</title></head><body>{body}</body></html>"
        )
        return f"{self._site.origin}/{name}"

    def phone(self) -> WebDevice:
        """One more phone in the same browser."""
        device = WebDevice(f"test/web-{len(self.devices)}", self.settings, self.browser)
        self.devices.append(device)
        return device

    async def shown(self, body: str, *, name: str = "page.html") -> WebDevice:
        """A phone that shows this page."""
        device = self.devices[0] if self.devices else self.phone()
        await device.start(WebSetup(url=self.write(name, body)))
        return device


@asynccontextmanager
async def pages(folder: Path, **settings: Any) -> AsyncIterator[Pages]:
    """A site of `folder` and no phone yet; browser and all are gone afterwards."""
    site = FolderSite(folder)
    origin = await site.start()
    chosen: Mapping[str, Any] = {"load_s": 30.0, "call_s": 30.0, "wait_s": 0.05, **settings}
    found = Pages(site, folder, WebConfig(**{**chosen, "allow": (origin, *chosen.get("allow", ()))}))
    try:
        yield found
    finally:
        for device in found.devices:
            await device.close()
        site.close()


def named(capture: Capture, text: str) -> UiElement:
    """The one element that says this."""
    found = [each for each in capture.elements if text in (each.text, each.description, each.resource_id)]
    assert len(found) == 1, [(each.text, each.description) for each in capture.elements]
    return found[0]


async def tap(device: WebDevice, text: str) -> Performed:
    """Tap the middle of the element that says this."""
    return await device.perform(Tap(*named(await device.capture(screenshot=False), text).bounds.centre))


async def texts(device: WebDevice) -> list[str]:
    """What its screen says, in order."""
    return [each.text for each in (await device.capture(screenshot=False)).elements if each.text]


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def group_of(pid: int) -> list[int]:
    """All processes of the group that `pid` leads."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and is_running(int(entry)):
            try:
                if os.getpgid(int(entry)) == pid:
                    found.append(int(entry))
            except OSError:
                continue
    return found


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The origin of a folder that a thread of its own serves, for what runs an event loop of its own."""
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing of what is served is told."""

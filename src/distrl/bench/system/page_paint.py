"""Pages of the dashboard in a real Chromium: when one is painted, counted from the start of its navigation, and one that stays open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import msgspec

from distrl.config.kinds import WebConfig
from distrl.devices.web.browser import Browser
from distrl.devices.web.cdp import Connection, Params
from distrl.errors import UsageError

PATIENCE_S = 60.0
LOOK_EVERY_S = 0.02
WINDOW: Params = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
# The first frame after the rows are there: what was added before one frame is on the screen with the next.
NOTE = """
new MutationObserver((_, seen) => {
  if (!document.querySelector("a.row")) return;
  seen.disconnect();
  requestAnimationFrame(() => requestAnimationFrame(() => { window.painted_ms = performance.now(); }));
}).observe(document, { childList: true, subtree: true });
"""
READ = """(() => {
  const first = performance.getEntriesByName("first-contentful-paint")[0];
  return window.painted_ms && first ? [first.startTime, window.painted_ms, document.querySelectorAll("a.row").length] : null;
})()"""


class Painted(msgspec.Struct, frozen=True, kw_only=True):
    """When what was on the screen, in milliseconds."""

    first_ms: float
    """Anything of the page (first contentful paint)."""
    rows_ms: float
    """The rows of the list."""
    rows: int


def painted(address: str) -> Painted:
    """The list of episodes at an address, in a browser that has just started and knows nothing of it."""
    return asyncio.run(_painted(address))


async def _painted(address: str) -> Painted:
    browser = Browser(WebConfig(), name="bench view")
    try:
        context = await browser.open([address.split("/runs/", maxsplit=1)[0]])
        tab = await browser.open_tab(context, lambda _: None)
        call, session = context.connection.call, tab.session
        await call("Page.enable", session=session)
        await call("Page.addScriptToEvaluateOnNewDocument", {"source": NOTE}, session=session)
        await call("Page.navigate", {"url": address}, session=session)
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            answer = await call("Runtime.evaluate", {"expression": READ, "returnByValue": True}, session=session)
            if found := answer["result"].get("value"):
                return Painted(first_ms=found[0], rows_ms=found[1], rows=int(found[2]))
            await asyncio.sleep(LOOK_EVERY_S)
        raise UsageError(f"{address} was not painted within {PATIENCE_S:g} s", fix="open it in a browser and look")
    finally:
        await browser.close()


class Tab:
    """A tab of a browser that stays open, at one address or another; belongs to `open_tab`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: Connection, session: str, pid: int) -> None:
        self._loop, self._connection, self._session = loop, connection, session
        self.pid = pid
        """Of the browser."""

    def show(self, address: str, *, until: str = "true") -> None:
        """Go to an address, and wait until an expression holds there."""
        self._call("Page.navigate", {"url": address})
        until_s = time.monotonic() + PATIENCE_S
        while not self.read(until):
            if time.monotonic() > until_s:
                raise UsageError(f"{address} does not come to show {until} within {PATIENCE_S:g} s", fix="open it in a browser and look")  # fmt: skip
            time.sleep(0.1)

    def close(self) -> None:
        """Leave the page for an empty one, which costs nothing."""
        self.show("about:blank")

    def read(self, expression: str) -> object:
        """The value of an expression on the page."""
        answer = self._call("Runtime.evaluate", {"expression": expression, "returnByValue": True})
        return answer["result"].get("value")

    def _call(self, method: str, params: Params) -> Params:
        asked = self._connection.call(method, params, session=self._session)
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result(PATIENCE_S)


@contextmanager
def open_tab(origin: str) -> Iterator[Tab]:
    """A browser with an empty tab that reaches one origin."""
    loop, browser = asyncio.new_event_loop(), Browser(WebConfig(), name="bench view")
    Thread(target=loop.run_forever, name="browser", daemon=True).start()

    async def opened() -> Tab:
        context = await browser.open([origin])
        tab = await browser.open_tab(context, lambda _: None)
        call = context.connection.call
        await call("Page.enable", session=tab.session)
        await call("Emulation.setDeviceMetricsOverride", WINDOW, session=tab.session)
        return Tab(loop, context.connection, tab.session, browser.pid)

    try:
        yield asyncio.run_coroutine_threadsafe(opened(), loop).result(PATIENCE_S)
    finally:
        asyncio.run_coroutine_threadsafe(browser.close(), loop).result(PATIENCE_S)
        loop.call_soon_threadsafe(loop.stop)

"""When a page of the dashboard is painted in a real Chromium, counted from the start of its navigation."""

from __future__ import annotations

import asyncio
import time

import msgspec

from distrl.config.kinds import WebConfig
from distrl.devices.web.browser import Browser
from distrl.errors import UsageError

PATIENCE_S = 60.0
LOOK_EVERY_S = 0.02
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

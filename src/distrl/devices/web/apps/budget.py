"""Actual Budget without a server: pages alone, whose data live in the phone's own browser context and are asked for there.

Tables: `accounts` by name (`balance` in cents, `closed`), `transactions` by id (`account`, `amount` in cents, `payee`, `category`, `notes`),
`categories` of expenses by name (`group`, `hidden`, `budgeted` this month in cents), `payees` by name.
"""

from __future__ import annotations

import asyncio
import json
from importlib import resources
from pathlib import Path
from typing import TypeVar

from distrl.devices.web.apps.base import Tables
from distrl.devices.web.apps.packages import package_folder
from distrl.devices.web.sites import FolderSite
from distrl.devices.web.tab import Tab, Thrown, origin_of
from distrl.errors import DeviceLost, LossCause

SCRIPT = resources.files("distrl.devices.web.apps").joinpath("budget.js").read_text(encoding="utf-8")
ISOLATED = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}
"""Its database needs memory that threads share, which browsers give to such pages alone."""
READY = "typeof $send === 'function' && typeof __actionsForMenu === 'object' && typeof __navigate === 'function' && !!document.querySelector('button')"
T = TypeVar("T")
READY_S, CALL_S, POLL_S = 90.0, 120.0, 0.1


class Budget:
    """The budget of one phone."""

    name, size = "budget", (0, 0)

    def __init__(self, folder: Path, phone: str) -> None:
        self._site, self._phone = FolderSite(package_folder(folder, self.name) / "build", headers=ISOLATED), phone

    @property
    def alive(self) -> bool:
        """Whether its pages are served."""
        return bool(self._site.origin)

    @property
    def allowed(self) -> str:
        """Where its pages are."""
        return self._site.origin

    async def serve(self) -> None:
        """Serve its pages on a free port."""
        await self._site.start()

    async def begin(self, tab: Tab, records: Tables) -> None:
        """Delete all accounts, payees and rules, bring categories back to what they were, and add these records."""
        if origin_of(tab.url) != self._site.origin:
            await self._open(tab)
        await self._call(tab, f"{SCRIPT.strip()} && __distrl_app.begin({json.dumps(records)})", bool)

    async def home(self, tab: Tab) -> None:
        """Its overview, without loading the page anew."""
        await self._call(tab, "(__navigate('/budget'), true)", bool)

    async def rebuild(self, tab: Tab) -> None:
        """Drop its database with all else that the browser keeps for it."""
        await self._open(tab)

    async def read(self, tab: Tab) -> Tables:
        """What its database holds; nothing of it is known where the phone shows another page."""
        return await self._call(tab, "__distrl_app.read()", Tables)

    async def close(self) -> None:
        """Serve no longer."""
        self._site.close()

    async def _open(self, tab: Tab) -> None:
        origin = self._site.origin
        await tab.go(f"{origin}/favicon-16x16.png")
        await tab.forget(origin)
        await tab.go(f"{origin}/")
        loop = asyncio.get_running_loop()
        until_s = loop.time() + READY_S
        while not await tab.evaluate(READY, bool):
            if loop.time() > until_s:
                raise DeviceLost(f"budget of {self._phone} did not come up within {READY_S:g} s", cause=LossCause.LATE)
            await asyncio.sleep(POLL_S)

    async def _call(self, tab: Tab, expression: str, kind: type[T]) -> T:
        try:
            return await tab.evaluate(expression, kind, deadline_s=CALL_S)
        except Thrown as error:
            raise DeviceLost(f"budget of {self._phone} cannot be asked: {error.seen}"[:400]) from None

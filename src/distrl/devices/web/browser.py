"""One browser that all phones of a process share: started when the first of them needs it, and again after it was lost.

Each phone has a browser context of its own: cookies, storage and caches are its alone. A context reaches the addresses of
its allow-list and nothing else, whatever a page tries: the rest goes to a proxy that is not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

import msgspec

from distrl.config.schema import WebConfig
from distrl.devices.web.cdp import Connection, Params
from distrl.devices.web.chromium import DEAD_PROXY, END_S, Chromium
from distrl.devices.web.sites import FolderSite
from distrl.errors import DeviceError, DeviceLost
from distrl.installing import install

SITES = {"miniwob": ("miniwob", "html", "miniwob")}
"""Sites that a phone can be sent to by name: package, folder in it, and the extra of distrl that brings it."""
PAGE_SCRIPT = resources.files("distrl.devices.web").joinpath("page.js").read_text(encoding="utf-8")


class TargetInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A tab, as the browser tells of it."""

    target_id: str
    type: str
    url: str = ""
    opener_id: str = ""
    browser_context_id: str = ""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What a phone has for itself in the browser."""

    connection: Connection
    id: str
    allowed: tuple[str, ...]
    """Origins that its pages reach."""
    own: str = ""
    """The one of them that is served by this process."""


class Attached(msgspec.Struct, frozen=True, kw_only=True):
    """A tab that can be called."""

    target: str
    session: str


class Browser:
    """Starts Chromium on demand and opens contexts in it. Belongs to one event loop."""

    def __init__(self, settings: WebConfig, *, name: str) -> None:
        self._settings, self._name = settings, name
        self._chromium: Chromium | None = None
        self._starting = asyncio.Lock()
        self._sites: dict[str, FolderSite] = {}
        self._on_popup: dict[str, Callable[[TargetInfo], None]] = {}
        self._users = 0
        self.started = 0
        """Browsers started so far."""

    @property
    def pid(self) -> int:
        """Of the browser that runs; 0: none does."""
        return self._chromium.pid if self._chromium is not None and self._chromium.alive else 0

    def use(self) -> None:
        """One more phone has it."""
        self._users += 1

    async def leave(self) -> None:
        """One phone less; the last one closes it."""
        self._users -= 1
        if self._users <= 0:
            await self.close()

    async def close(self) -> None:
        """End the browser and the sites that were served."""
        chromium, self._chromium = self._chromium, None
        for site in self._sites.values():
            site.close()
        self._sites.clear()
        if chromium is not None:
            await chromium.close()

    async def site(self, name: str) -> str:
        """Where the pages of an installed package are served; `DeviceError` where it is not installed."""
        if name not in self._sites:
            package, folder, extra = SITES[name]
            spec = find_spec(package)
            if spec is None or spec.origin is None:
                raise DeviceError(
                    f"the package {package} is not installed", expected=f"distrl with its extra [{extra}]",
                    fix=install(extra),
                )  # fmt: skip
            self._sites[name] = FolderSite(Path(spec.origin).parent / folder)
        return await self._sites[name].start()

    async def open(self, allowed: Sequence[str], *, own: str = "") -> Context:
        """A new context that reaches these origins alone, and `own`."""
        connection = (await self._running()).connection
        origins = (*allowed, *([own] if own else []))
        how = {
            "disposeOnDetach": True,
            "proxyServer": DEAD_PROXY,
            "proxyBypassList": ";".join(["<-loopback>", *origins, *map(_socket_of, origins)]),
        }
        made = await connection.call("Target.createBrowserContext", how)
        id = str(made["browserContextId"])
        await connection.call("Browser.setDownloadBehavior", {"behavior": "deny", "browserContextId": id})
        return Context(connection=connection, id=id, allowed=origins, own=own)

    async def open_tab(self, context: Context, on_popup: Callable[[TargetInfo], None]) -> Attached:
        """A new tab with an empty page; `on_popup` hears of what its pages open beside it."""
        connection = context.connection
        made = await connection.call("Target.createTarget", {"url": "about:blank", "browserContextId": context.id})
        target = str(made["targetId"])
        self._on_popup[target] = on_popup
        attached = await connection.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        return Attached(target=target, session=str(attached["sessionId"]))

    async def close_tab(self, context: Context, target: str) -> None:
        """Close one tab; nothing where it is gone."""
        self._on_popup.pop(target, None)
        with suppress(DeviceError):
            await context.connection.call("Target.closeTarget", {"targetId": target}, deadline_s=END_S)

    async def dispose(self, context: Context) -> None:
        """Close a context with all its tabs; one that cannot be closed takes the browser with it."""
        connection = context.connection
        if connection.closed:
            return
        try:
            await connection.call("Target.disposeBrowserContext", {"browserContextId": context.id}, deadline_s=END_S)
        except DeviceLost:
            await self.end(connection)
        except DeviceError:
            pass  # it is gone already

    async def end(self, connection: Connection) -> None:
        """End the browser behind this connection: it hangs. The next tab starts another."""
        chromium = self._chromium
        if chromium is not None and chromium.connection is connection:
            self._chromium = None
            await chromium.close()

    async def _running(self) -> Chromium:
        async with self._starting:
            if self._chromium is None or not self._chromium.alive:
                if self._chromium is not None:
                    await self._chromium.close()
                self._on_popup.clear()
                self._chromium = await Chromium.start(self._settings, name=self._name)
                self.started += 1
                self._chromium.connection.listen("", self._hear)
                await self._chromium.connection.call("Target.setDiscoverTargets", {"discover": True})
            return self._chromium

    def _hear(self, method: str, params: Params) -> None:
        if method not in ("Target.targetCreated", "Target.targetInfoChanged"):
            return
        with suppress(msgspec.ValidationError):
            info = msgspec.convert(params["targetInfo"], TargetInfo)
            if info.type == "page" and info.opener_id and (on_popup := self._on_popup.get(info.opener_id)):
                on_popup(info)


def _socket_of(origin: str) -> str:
    """Where the web sockets of an origin go."""
    return "ws" + origin.removeprefix("http")

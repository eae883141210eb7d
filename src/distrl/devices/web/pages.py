"""What a Chromium phone has to know of the page it shows: how a task begins on it, and what the page itself does and tells.

Any page will do. MiniWoB++'s pages ask, reward and end by themselves. A page that is a phone has functions for input and state.
All of it is JavaScript of ours with values as JSON: nothing of a task or a screen becomes code.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from distrl.config.schema import PhonePageConfig
from distrl.devices.web.browser import Browser
from distrl.devices.web.tab import Tab, Thrown, origin_of
from distrl.errors import DeviceLost, TaskError
from distrl.types import Action, LongPress, Press, Swipe, Tap, TypeText, WebSetup

MINIWOB_SIZE = (160, 210)
"""CSS pixels that a page of MiniWoB++ is made for."""
NO_LIMIT_MS = 1_000_000_000
READY_S, POLL_S = 60.0, 0.05
FRESH: frozenset[str] = frozenset()
"""Tasks whose pages do not come back to their start by themselves, and are loaded anew for each episode."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What a page says of itself."""

    done: bool = False
    reward: float = 0.0
    instruction: str = ""
    reason: str = ""
    app: str = ""


class PageKind(Protocol):
    """One kind of page. Sizes and points are in CSS pixels."""

    status: str
    """Expression that gives a `Status`; "null": the page says nothing of itself."""
    skip: str
    """Selector of what is no part of the screen."""
    keeps: bool
    """Whether a page can begin the next task without being loaded anew."""
    mobile: bool
    """Whether the page says what its viewport is, as pages for phones do."""

    async def origin(self, browser: Browser) -> str:
        """What it is served from, besides what the settings allow; empty: nothing."""

    async def start(self, tab: Tab, setup: WebSetup) -> None:
        """Bring a fresh tab to the start of a task."""

    async def perform(self, tab: Tab, action: Action) -> str | None:
        """Carry out an action in the page's own way: why it could not, or nothing; None: the browser is to do it."""


class AnyPage:
    """A page that knows nothing of tasks."""

    status, skip, keeps, mobile = "null", "", False, True

    async def origin(self, browser: Browser) -> str:
        """It comes from where the settings allow."""
        return ""

    async def start(self, tab: Tab, setup: WebSetup) -> None:
        """Open it."""
        await tab.go(setup.url)

    async def perform(self, tab: Tab, action: Action) -> str | None:
        """Home is where the task began; all else is the browser's."""
        return None


class MiniWobPage:
    """A task of MiniWoB++, from the package's own pages."""

    status = (
        "{done: WOB_DONE_GLOBAL, reward: WOB_RAW_REWARD_GLOBAL, instruction: "
        "((said) => typeof said === 'string' ? said : String(said.utterance))(core.getUtterance()), "
        "reason: String(WOB_REWARD_REASON || '').slice(0, 200)}"
    )
    skip = "#query, #reward-display, #click-canvas, #sync-task-cover"
    keeps, mobile = True, False

    async def origin(self, browser: Browser) -> str:
        """A folder of the package, served on loopback."""
        return await browser.site("miniwob")

    async def start(self, tab: Tab, setup: WebSetup) -> None:
        """Let the page make up the task of this seed, as MiniWoB++'s own environment does; it is loaded once for all its episodes."""
        url = f"{tab.context.own}/miniwob/{quote(setup.url, safe='')}.html"
        if tab.url != url or setup.url in FRESH:
            await tab.go(url)
        begin = (
            f"(core.EPISODE_MAX_TIME = {NO_LIMIT_MS}, Math.seedrandom({json.dumps(str(setup.seed))}), "
            "core.startEpisodeReal(), document.getElementById('click-canvas').style.display = 'none', "
            "document.getElementById('reward-display').style.display = 'none', "
            "document.documentElement.style.overflow = 'clip', scrollTo(0, 0), true)"
        )
        try:
            await tab.evaluate(begin, bool)
        except Thrown as error:
            raise TaskError(
                f"there is no task {setup.url[:80]!r} of MiniWoB++, or its page does not start: {error.seen}",
                expected="a task of the package miniwob",
                fix="distrl tasks list --suite miniwob",
            ) from None

    async def perform(self, tab: Tab, action: Action) -> str | None:
        """There is no way back from a task, and nowhere else to go."""
        if isinstance(action, Press) and action.key != "enter":
            return f"a page of MiniWoB++ has no {action.key}"
        return None


class PhonePage:
    """A page that is a phone, by the functions that it offers."""

    keeps, mobile = True, True

    def __init__(self, names: PhonePageConfig, *, load_s: float) -> None:
        self._names, self._load_s, self.skip = names, load_s, names.keyboard
        route = f"((at) => String(at && at.app !== undefined ? at.app : at ?? ''))({names.route}())"
        self.status = f"{{app: {route}.slice(0, 80)}}" if names.route else "null"

    async def origin(self, browser: Browser) -> str:
        """It comes from where the settings allow."""
        return ""

    async def start(self, tab: Tab, setup: WebSetup) -> None:
        """Open it, or bring it back to its first state where it is open."""
        if origin_of(tab.url) != origin_of(setup.url):
            await tab.go(setup.url)
        await self._check(tab)
        await self.call(tab, self._names.ready)
        await self.call(tab, self._names.reset)
        await self.call(tab, self._names.home)

    async def perform(self, tab: Tab, action: Action) -> str | None:
        """By the page's own functions; None for what it has none for."""
        names = self._names
        match action:
            case Tap(x=x, y=y):
                return await self._input(tab, names.tap, *tab.point(x, y))
            case LongPress(x=x, y=y):
                return await self._input(tab, names.long_press, *tab.point(x, y))
            case Swipe():
                points = (tab.point(action.x, action.y), tab.point(action.to_x, action.to_y))
                start, end = ({"x": left, "y": top} for left, top in points)
                return await self._input(tab, names.swipe, start, end)
            case TypeText(text=text):
                return await self._input(tab, names.type, text)
            case Press(key=key):
                return await self._input(tab, {"back": names.back, "home": names.home, "enter": names.enter}[key])
        return None

    async def _input(self, tab: Tab, name: str, *arguments: Any) -> str | None:
        if not name:
            return None
        try:
            await self.call(tab, name, *arguments)
        except Thrown as error:
            return error.seen[:200]
        return ""

    async def call(self, tab: Tab, name: str, *arguments: Any) -> Any:
        """What a function of the page gives, as JSON; nothing where it has none."""
        if not name:
            return None
        passed = ", ".join(json.dumps(argument) for argument in arguments)
        expression = (
            f"(async () => {{ const given = await {name}({passed}); return given === undefined ? null : given; }})()"
        )
        return await tab.evaluate(expression, object, deadline_s=READY_S)

    async def _check(self, tab: Tab) -> None:
        """Wait for the functions that the page has to have: its scripts may offer them long after it was loaded."""
        wanted = [name for name in msgspec.structs.astuple(msgspec.structs.replace(self._names, keyboard="")) if name]
        ask = f"[{', '.join(_is_function(name) for name in wanted)}]"
        until_s = asyncio.get_running_loop().time() + self._load_s
        while not all(there := await tab.evaluate(ask, list[bool])):
            if asyncio.get_running_loop().time() > until_s:
                missing = [name for name, found in zip(wanted, there, strict=True) if not found]
                raise DeviceLost(
                    f"{tab.url[:120]} has no {', '.join(missing[:4])}, {self._load_s:g} s after it was loaded",
                    expected="a page that is a phone, with the functions of devices.web.phone",
                    fix="serve the page of that version, or name its functions under [devices.web.phone]; empty: it has none",
                )
            await asyncio.sleep(POLL_S)


def _is_function(name: str) -> str:
    return f"typeof globalThis.{name.replace('.', '?.')} === 'function'"

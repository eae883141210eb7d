"""A Chromium phone as a device: pages with a phone's screen and touch, in a browser that all phones of a process share.

After an action it waits until the page rests. What was seen then serves the capture that follows, so that a step is one
round trip for the gesture and one for the look. Its name begins with its owner's: no other role can reach it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import cast

import msgspec

from distrl.config.schema import WebConfig
from distrl.devices.base import Capture, Device, Fleet, Performed, Sleep, TimeScales
from distrl.devices.web.browser import Browser, Context
from distrl.devices.web.chromium import find_chromium
from distrl.devices.web.gym import Gym
from distrl.devices.web.gym_page import GymPage, no_gym
from distrl.devices.web.pages import MINIWOB_SIZE, AnyPage, MiniWobPage, PageKind, PhonePage, Status
from distrl.devices.web.tab import Seen, Tab, Thrown, origin_of, read_elements
from distrl.errors import DeviceError, DeviceLost, TaskError
from distrl.types import (
    Action,
    DeviceEnd,
    Finish,
    LongPress,
    Press,
    Swipe,
    Tap,
    Task,
    TypeText,
    UiElement,
    Unparsed,
    Wait,
    WebEnd,
    WebSetup,
)

TIMES = TimeScales(boot_s=60.0, reset_s=60.0, step_s=40.0, restart_s=60.0, episode_s=300.0, backoff_s=0.2)
"""On a busy machine a browser takes many seconds to start."""
log = logging.getLogger("distrl.devices")


class WebDevice:
    """One phone, driven by one episode at a time."""

    def __init__(
        self, name: str, settings: WebConfig, browser: Browser, *, gym: Gym | None = None, sleep: Sleep = asyncio.sleep
    ) -> None:
        self.name, self.times, self._gym = name, TIMES, gym
        self._settings, self._browser, self._sleep = settings, browser, sleep
        self._context: Context | None = None
        self._tabs: dict[str, Tab] = {}
        """By the page that they hold, the one used last at the end."""
        self._kept_kind: type[object] = AnyPage
        self._tab: Tab | None = None
        self._page: PageKind = AnyPage()
        self._setup: WebSetup | None = None
        self._seen: Seen | None = None
        self._elements: tuple[UiElement, ...] = ()
        self._status = Status()
        self._fresh, self._using = False, False
        self._pictures, self._picture = False, b""
        """Whether the last capture wanted one, and the one of what was seen last; empty: it has still to be taken."""
        self.unsettled = 0
        """Looks at a page that kept changing until `settle_s` was over."""

    # the device protocol

    async def reset(self, task: Task) -> None:
        """Bring the phone to the start of `task`; `TaskError` for a set-up that no Chromium phone understands."""
        if not isinstance(task.setup, WebSetup):
            raise TaskError(
                f"task {task.id} is set up by {type(task.setup).__name__}, which a Chromium phone does not know",
                expected="a WebSetup",
                fix="choose devices.kind for the devices of this suite, or another tasks.suite",
            )
        await self.start(task.setup)

    async def start(self, setup: WebSetup) -> None:
        """The same, from a set-up alone."""
        self._check(setup)
        self._setup, self._seen, self._fresh, self._status = setup, None, False, Status()
        page = self._page = self._kind_of(setup)
        self._tab = tab = await self._tab_for(page, setup)
        width, height = self._size(setup)
        if (width, height) != (tab.width, tab.height) or not tab.sized:
            await tab.resize(width, height, mobile=page.mobile)
        await page.start(tab, setup)
        await self._look()

    async def capture(self, *, screenshot: bool) -> Capture:
        """The screen as it is now; right after an action, as it came to rest."""
        tab = self._present()
        if not self._fresh:
            await self._look()
        self._fresh, self._pictures = False, screenshot
        picture = (self._picture or await tab.picture()) if screenshot else b""
        self._picture = b""
        return Capture(
            elements=self._elements if self._settings.elements else (),
            screenshot=picture,
            width_px=math.floor(tab.width * tab.scale),
            height_px=math.floor(tab.height * tab.scale),
            app=self._status.app or (self._seen.title if self._seen else ""),
            instruction=self._page.instruction if isinstance(self._page, GymPage) else self._status.instruction,
        )

    async def perform(self, action: Action) -> Performed:
        """Carry out `action` and wait until the page rests; an impossible one is an invalid step."""
        match action:
            case Finish():
                page = self._page
                reward = await page.claim(self._present(), action) if isinstance(page, GymPage) else 0.0
                return Performed(valid=True, changed=False, reward=reward)
            case Unparsed(raw=raw):
                await self._look_back(changed=False)
                return Performed(valid=False, changed=False, why=f"not an action: {raw[:80]!r}")
        tab = self._present()
        before, drawn, url, earned = self._elements, self._drawn(), tab.url, self._status.reward
        why = await self._page.perform(tab, action)
        if why is None:
            why = await self._act(tab, action)
        if why:
            await self._look_back(changed=False)
            return Performed(valid=False, changed=False, why=why)
        await self._look()
        changed = self._elements != before or self._drawn() != drawn or tab.url != url
        await self._look_back(changed=changed)
        status = self._status
        return Performed(valid=True, changed=changed or status.done, done=status.done, reward=status.reward - earned)

    async def end_state(self) -> DeviceEnd | None:
        """Where it stands, and what the page said of its reward."""
        tab = self._present()
        title = self._seen.title if self._seen else ""
        if isinstance(self._page, GymPage):
            return self._page.end(tab.url[:500], title)
        return WebEnd(url=tab.url[:500], title=title, reason=self._status.reason)

    async def restart(self) -> None:
        """Throw away all that it has in the browser, and see that one answers; a browser that hangs is replaced."""
        await self._leave_context()
        await self._open_context(self._page)

    async def probe(self) -> None:
        """Ask its page for a number."""
        if self._tab is not None:
            await self._tab.evaluate("1", int)

    async def close(self) -> None:
        """Close its tabs; the last phone of a process ends the browser."""
        try:
            await self._leave_context()
        finally:
            if self._using:
                self._using = False
                if self._gym is not None:
                    await self._gym.leave()
                await self._browser.leave()

    # beyond the protocol

    @property
    def tab(self) -> Tab:
        """What it shows; `DeviceError` before its first task."""
        return self._present()

    @property
    def page(self) -> PageKind:
        """The kind of page that it shows."""
        return self._page

    # parts

    def _check(self, setup: WebSetup) -> None:
        if setup.page != "miniwob" and not origin_of(setup.url):
            raise TaskError(
                f"{setup.url[:120]!r} is no address that a Chromium phone goes to",
                expected="http:// or https://, and an origin of devices.web.allow",
                fix="serve the page over HTTP: python3 -m http.server --bind 127.0.0.1",
            )

    def _kind_of(self, setup: WebSetup) -> PageKind:
        names, load_s = self._settings.phone, self._settings.load_s
        if setup.page == "miniwob":
            return MiniWobPage()
        if setup.page == "mobilegym":
            if self._gym is None:
                raise no_gym()
            return GymPage(names, self._gym, phone=self.name, load_s=load_s)
        return PhonePage(names, load_s=load_s) if setup.page == "phone" else AnyPage()

    def _size(self, setup: WebSetup) -> tuple[int, int]:
        usual = MINIWOB_SIZE if setup.page == "miniwob" else (self._settings.width, self._settings.height)
        return setup.width or usual[0], setup.height or usual[1]

    async def _tab_for(self, page: PageKind, setup: WebSetup) -> Tab:
        """A tab that holds the page already, where such pages are kept; else a fresh one, of any other page in a fresh context."""
        key = f"{setup.page} {setup.url}"
        if not page.keeps or self._kept_kind is not type(page):
            await self._leave_context()
        if (tab := self._tabs.pop(key, None)) is None:
            if self._context is None:
                await self._open_context(page)
            assert self._context is not None
            while len(self._tabs) >= self._settings.kept_pages:
                await self._tabs.pop(next(iter(self._tabs))).close()
            tab = await Tab.open(self._browser, self._context, self._settings, name=self.name, sleep=self._sleep)
        self._tabs[key] = tab  # the one used last comes last
        return tab

    async def _open_context(self, page: PageKind) -> None:
        if not self._using:
            self._using = True
            self._browser.use()
            if self._gym is not None:
                self._gym.use()
        own = await page.origin(self._browser)
        self._context, self._kept_kind = await self._browser.open(self._settings.allow, own=own), type(page)

    async def _leave_context(self) -> None:
        context, self._context, self._tab, self._seen, self._fresh = self._context, None, None, None, False
        self._tabs.clear()
        if context is not None:
            await self._browser.dispose(context)

    def _present(self) -> Tab:
        if self._tab is None:
            raise DeviceError(f"{self.name} has no task yet", fix="call reset(task) first")
        return self._tab

    async def _look(self) -> None:
        tab, self._picture = self._present(), b""
        if self._pictures:
            seen, self._picture = await tab.look_with_picture(self._page.status, skip=self._page.skip)
        else:
            seen = await tab.look(self._page.status, skip=self._page.skip)
        if not seen.rested:
            self.unsettled += 1
        try:
            status = msgspec.json.decode(seen.status, type=Status | None) or Status()
        except msgspec.DecodeError as error:
            raise DeviceLost(f"the page on {self.name} says of itself what cannot be read: {error}") from None
        self._seen, self._status, self._fresh = seen, status, True
        self._elements = read_elements(seen)

    async def _look_back(self, *, changed: bool) -> None:
        if isinstance(self._page, GymPage):
            await self._page.look_back(self._present(), self._elements, changed=changed)

    def _drawn(self) -> int:
        return self._seen.drawn if self._seen else 0

    async def _act(self, tab: Tab, action: Action) -> str:
        """What the browser does: why it could not, or nothing."""
        match action:
            case Tap(x=x, y=y):
                if why := _outside(x, y):
                    return why
                await tab.tap(*tab.point(x, y))
            case LongPress(x=x, y=y):
                if why := _outside(x, y):
                    return why
                await tab.hold(*tab.point(x, y))
            case Swipe(x=x, y=y, to_x=to_x, to_y=to_y):
                if why := _outside(x, y) or _outside(to_x, to_y):
                    return why
                await tab.swipe(tab.point(x, y), tab.point(to_x, to_y))
            case TypeText(text=text):
                return await self._type(tab, text)
            case Press(key="enter"):
                await tab.key("Enter")
            case Press(key="back"):
                if await self._shut_list(tab):
                    return ""
                return "" if await tab.back() else "there is no earlier page"
            case Press(key="home"):
                assert self._setup is not None
                await tab.go(self._setup.url)
            case Wait():
                await self._sleep(self._settings.wait_s)
        return ""

    async def _type(self, tab: Tab, text: str) -> str:
        try:
            return await tab.type_text(text)
        except Thrown as error:
            return error.seen[:200]

    async def _shut_list(self, tab: Tab) -> bool:
        try:
            return await tab.evaluate("__distrl.shut_picker()", bool)
        except Thrown:
            return False


def _outside(x: float, y: float) -> str:
    return "" if 0.0 <= x < 1.0 and 0.0 <= y < 1.0 else f"({x:.3g}, {y:.3g}) is outside the screen"


def make_devices(settings: WebConfig, fleet: Fleet) -> list[Device]:
    """The phones of one role, in one browser, which starts with the first task; `DeviceError` where there is no Chromium."""
    find_chromium(settings.chromium)
    browser = Browser(settings, name=f"{fleet.owner}/browser")
    gym = Gym(settings.gym_folder, settings.gym_python) if settings.gym_folder else None
    names = (f"{fleet.owner}/web-{number}" for number in range(fleet.count))
    return [cast(Device, WebDevice(name, settings, browser, gym=gym)) for name in names]

"""A Chromium phone with web apps of its own. An app that died is a fault of the device, and never a failure of the agent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from distrl.config.schema import WebConfig
from distrl.devices.base import Performed, Sleep, TimeScales
from distrl.devices.web.apps.base import App, Tables, changes_between, tables_of
from distrl.devices.web.apps.budget import Budget
from distrl.devices.web.apps.mail import Mail
from distrl.devices.web.apps.wiki import Wiki
from distrl.devices.web.browser import Browser
from distrl.devices.web.device import WebDevice
from distrl.devices.web.pages import PageKind
from distrl.devices.web.tab import Tab
from distrl.errors import DeviceLost, LossCause, TaskError
from distrl.types import Action, AppEnd, AppSetup, DeviceEnd, Press, Task, WebSetup

TIMES = TimeScales(boot_s=300.0, reset_s=180.0, step_s=60.0, restart_s=180.0, episode_s=900.0, backoff_s=0.2)
"""The first task starts programs and loads several megabytes of scripts."""
FIRST_LOAD_S, FIRST_CALL_S = 120.0, 60.0
SETTLE_S = 5.0
log = logging.getLogger("distrl.devices")


class AppPage:
    """The page of an app at the start of a task."""

    status, skip, keeps, mobile = "null", "", True, True

    def __init__(self, app: App, start: Tables) -> None:
        self.app, self.begun_with = app, start

    async def origin(self, browser: Browser) -> str:
        """All apps of the phone are allowed already."""
        return ""

    async def start(self, tab: Tab, setup: WebSetup) -> None:
        """Give the app its records, and see that it holds these and no others."""
        for attempt in range(2):
            if attempt:
                log.info("%s of %s is set up anew", self.app.name, tab.name)
                await self.app.rebuild(tab)
            await self.app.begin(tab, self.begun_with)
            wrong = changes_between(self.begun_with, await self.app.read(tab))
            if not wrong:
                await tab.forget_history()
                return
        first = wrong[0]
        raise DeviceLost(
            f"{self.app.name} of {tab.name} cannot be brought to the start of its task: "
            f"{first.table}/{first.id} is {first.after}"[:400],
            expected=str(first.before)[:200],
        )

    async def perform(self, tab: Tab, action: Action) -> str | None:
        """Home is the app's first screen; all else is the browser's."""
        if isinstance(action, Press) and action.key == "home":
            await self.app.home(tab)
            return ""
        return None


class AppPhone(WebDevice):
    """One phone: tasks with an `AppSetup`, and all that any Chromium phone takes."""

    def __init__(
        self, name: str, settings: WebConfig, browser: Browser, *, apps: Sequence[App], sleep: Sleep = asyncio.sleep
    ) -> None:
        patient = replace(
            settings,
            load_s=max(settings.load_s, FIRST_LOAD_S),
            call_s=max(settings.call_s, FIRST_CALL_S),
            settle_s=max(settings.settle_s, SETTLE_S),
        )
        super().__init__(name, patient, browser, sleep=sleep)
        self.times, self._own_allow = TIMES, settings.allow
        self._apps = {app.name: app for app in apps}
        self._app_page: AppPage | None = None

    async def reset(self, task: Task) -> None:
        """Bring the phone, and the app that `task` is about, to its start."""
        self._app_page = None
        if not isinstance(task.setup, AppSetup):
            await super().reset(task)
            return
        app = self._apps.get(task.setup.app)
        if app is None:
            raise TaskError(f"{self.name} has no app {task.setup.app!r}", expected=", ".join(self._apps))
        await self._serve()
        self._app_page = AppPage(app, tables_of(task.setup.records))
        width, height = app.size
        await self.start(WebSetup(url=f"{app.allowed}/", width=width, height=height))

    async def perform(self, action: Action) -> Performed:
        """As any Chromium phone, while the app runs."""
        self._check_app()
        return await super().perform(action)

    async def end_state(self) -> DeviceEnd | None:
        """What changed in the app's own data."""
        page = self._app_page
        if page is None:
            return await super().end_state()
        self._check_app()
        left = await page.app.read(self.tab)
        return AppEnd(changes=changes_between(page.begun_with, left), url=self.tab.url[:500])

    async def restart(self) -> None:
        """Start what ended, and throw away all that the phone has in the browser."""
        await self._serve()
        await super().restart()

    async def close(self) -> None:
        """Its tabs, and the programs of its apps."""
        try:
            await super().close()
        finally:
            await asyncio.gather(*(app.close() for app in self._apps.values()))

    def _kind_of(self, setup: WebSetup) -> PageKind:
        return self._app_page or super()._kind_of(setup)

    async def _serve(self) -> None:
        """Start the apps that do not run; the phone may go to all of them, and nowhere near those of other phones."""
        ended = [app for app in self._apps.values() if not app.alive]
        if not ended:
            return
        await self._leave_context()
        await asyncio.gather(*(app.serve() for app in ended))
        own = tuple(app.allowed for app in self._apps.values())
        self._settings = replace(self._settings, allow=(*self._own_allow, *own))

    def _check_app(self) -> None:
        if self._app_page is not None and not self._app_page.app.alive:
            raise DeviceLost(
                f"{self._app_page.app.name} of {self.name} has ended in the middle of a task", cause=LossCause.SERVER
            )


def make_apps(folder: Path, phone: str) -> list[App]:
    """The apps of one phone; none of them runs yet."""
    return [Budget(folder, phone), Mail(folder, phone), Wiki(folder, phone)]

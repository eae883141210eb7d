"""One tab with a phone's screen: going to pages, gestures, and one look that waits until the page rests.

What a page does to get away is stopped here and counted: dialogs are answered, pop-ups closed, downloads refused, and
addresses outside the allow-list not gone to. A tab that crashed or does not answer raises `DeviceLost`.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections import Counter
from contextlib import suppress
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from distrl.config.schema import WebConfig
from distrl.devices.base import Sleep
from distrl.devices.web.browser import PAGE_SCRIPT, Browser, Context, TargetInfo
from distrl.devices.web.cdp import Params, Refused
from distrl.errors import DeviceError, DeviceLost, LossCause, TaskError
from distrl.types import Bounds, UiElement

MOST_DIALOGS = MOST_POPUPS = 25
"""Within one action; a page with more is a storm."""
LONG_PRESS_S, SWIPE_STEPS, SWIPE_S = 0.7, 6, 0.12
RETRY_S, FETCH_POLL_S = 0.05, 0.01
POPUP_S = 0.5
"""How long a pop-up may take to say where it goes."""
ENDLESS = frozenset({"EventSource", "Ping", "Media", "Prefetch", "Other"})
"""Kinds of requests that no screen waits for; pages that are prefetched are among "Other"."""
T = TypeVar("T")
Touch = Literal["touchStart", "touchMove", "touchEnd", "touchCancel"]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a page."""

    elements: tuple[tuple[Any, ...], ...] = ()
    foreign: int = 0
    """Frames of other origins, which have to be looked into one by one."""
    width: float = 1.0
    height: float = 1.0
    title: str = ""
    drawn: int = 0
    """A hash of how all that can be touched is styled."""
    rested: bool = True
    changes: int = 0
    """How often the page had changed by then."""
    status: msgspec.Raw = msgspec.Raw(b"null")
    """What the kind of page says of itself."""


class _Remote(msgspec.Struct, frozen=True, kw_only=True):
    value: msgspec.Raw = msgspec.Raw(b"null")


class _Thrown(msgspec.Struct, frozen=True, kw_only=True):
    text: str = ""
    exception: dict[str, Any] = {}


class _Evaluated(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    result: _Remote = _Remote()
    exception_details: _Thrown | None = None


class Thrown(DeviceError):
    """A function of the page raised."""


class Tab:
    """One phone's tab. Belongs to one event loop."""

    def __init__(self, browser: Browser, context: Context, settings: WebConfig, *, name: str, sleep: Sleep) -> None:
        self._browser, self.context, self._settings, self.name, self._sleep = browser, context, settings, name, sleep
        self._connection, self._allowed = context.connection, frozenset(context.allowed)
        self._target = self._session = self._lost = self._frame = self._popup = ""
        self._loading, self._loaded = False, asyncio.Event()
        self._dialogs = self._opened = 0
        """Dialogs and pop-ups within this action."""
        self._popups: set[str] = set()
        """Pop-ups that have not yet said where they go."""
        self._requests: dict[str, str] = {}
        """Addresses that the page has asked for and not yet got, without their queries, by the request."""
        self._endless: set[str] = set()
        """Those of them whose answer did not come within `settle_s`: the document is told news that way, and they are not waited for again."""
        self._arrivals = 0
        """Documents and answers that came so far: after each, the screen may differ without a change of the page's own."""
        self.url, self.sized = "about:blank", False
        self.width, self.height, self.scale = settings.width, settings.height, settings.pixel_ratio
        self._viewport = (float(settings.width), float(settings.height))
        """What the screen shows of the page, in the page's own pixels: more than the screen has where it was not made for phones."""
        self.counted: Counter[str] = Counter()
        """What was stopped so far: dialogs, popups, blocked, choosers."""

    @classmethod
    async def open(
        cls, browser: Browser, context: Context, settings: WebConfig, *, name: str, sleep: Sleep = asyncio.sleep
    ) -> Tab:
        """A fresh tab with an empty page."""
        tab = cls(browser, context, settings, name=name, sleep=sleep)
        try:
            attached = await browser.open_tab(context, tab._take_popup)
            tab._target, tab._session = attached.target, attached.session
            context.connection.listen(tab._session, tab._hear)
            await tab._prepare()
        except Refused as error:
            raise DeviceLost(f"{name} cannot open a tab: {error}") from error
        return tab

    async def _prepare(self) -> None:
        patterns = [{"urlPattern": "*", "resourceType": "Document", "requestStage": "Request"}]
        calls: list[tuple[str, Params]] = [
            ("Page.enable", {}),
            ("Runtime.enable", {}),
            ("Page.addScriptToEvaluateOnNewDocument", {"source": PAGE_SCRIPT, "runImmediately": True}),
            ("Fetch.enable", {"patterns": patterns}),
            ("Network.enable", {"maxTotalBufferSize": 0, "maxResourceBufferSize": 0}),
            ("Page.setInterceptFileChooserDialog", {"enabled": True}),
            ("Emulation.setFocusEmulationEnabled", {"enabled": True}),
            ("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 1}),
        ]
        answers = [self._begin(method, params) for method, params in calls]
        await self._all(answers)
        tree = await self._call("Page.getFrameTree")
        self._frame = str(tree["frameTree"]["frame"]["id"])

    async def resize(self, width: int, height: int, *, mobile: bool) -> None:
        """Give it a screen of so many CSS pixels; a `mobile` one heeds what a page says of its viewport."""
        self.width, self.height, self.sized = width, height, True
        self._viewport = (float(width), float(height))
        metrics = {"width": width, "height": height, "deviceScaleFactor": self.scale, "mobile": mobile}
        await self._call(
            "Emulation.setDeviceMetricsOverride",
            {**metrics, "screenWidth": width, "screenHeight": height,
             "screenOrientation": {"type": "portraitPrimary", "angle": 0}},
        )  # fmt: skip

    # going to pages

    def check_allowed(self, url: str) -> None:
        """`TaskError` for an address that this phone may not go to."""
        if origin_of(url) not in self._allowed:
            raise TaskError(
                f"{url[:200]!r} is not among the addresses that {self.name} may go to",
                expected=f"one of {', '.join(sorted(self._allowed)) or 'none: the list is empty'}",
                fix=f'devices.web.allow = ["{origin_of(url) or "http://127.0.0.1:8000"}"], if that is meant',
            )

    async def go(self, url: str) -> None:
        """Load a page whole; `DeviceLost` where that fails or takes longer than `load_s`."""
        self.check_allowed(url)
        self._began_action()
        self._loaded.clear()
        self._loading = True
        done = await self._call("Page.navigate", {"url": url}, deadline_s=self._settings.load_s)
        if problem := done.get("errorText"):
            raise DeviceLost(f"{self.name} cannot open {url[:200]}: {problem}")
        if "loaderId" in done:  # without one it stayed within the document
            await self._until_loaded(self._settings.load_s, url)

    async def _until_loaded(self, limit_s: float, url: str) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await self._loaded.wait()
        except TimeoutError:
            raise DeviceLost(
                f"{url[:200]} did not load within {limit_s:g} s on {self.name}", cause=LossCause.LATE
            ) from None
        self._check_alive()

    async def forget(self, origin: str) -> None:
        """Drop all that the browser keeps for the pages of an origin: cookies, storage, caches."""
        await self._call("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})

    async def forget_history(self) -> None:
        """From here there is no way back."""
        await self._call("Page.resetNavigationHistory")

    async def back(self) -> bool:
        """Go back one page; whether there was one."""
        self._began_action()
        history = await self._call("Page.getNavigationHistory")
        index = int(history["currentIndex"])
        if index < 1 or str(history["entries"][index - 1]["url"]) == "about:blank":
            return False
        self._loaded.clear()
        await self._call("Page.navigateToHistoryEntry", {"entryId": history["entries"][index - 1]["id"]})
        return True

    # gestures

    def point(self, x: float, y: float) -> tuple[float, float]:
        """Where on the page a share of the screen is, in CSS pixels."""
        return x * self._viewport[0], y * self._viewport[1]

    async def tap(self, x: float, y: float) -> None:
        """Touch a point, in CSS pixels."""
        self._began_action()
        await self._all([self._touch("touchStart", (x, y)), self._touch("touchEnd")])

    async def hold(self, x: float, y: float) -> None:
        """Touch a point for so long that a phone would open what belongs to it: the page hears of a context menu, and of no click."""
        self._began_action()
        await self._all([self._touch("touchStart", (x, y))])
        await self._sleep(LONG_PRESS_S)
        # Chromium takes no touch over the protocol for a long press, however long; a context menu is what one comes to.
        mouse = {"x": x, "y": y, "button": "right", "clickCount": 1}
        kinds = ("mousePressed", "mouseReleased")
        asked = [self._begin("Input.dispatchMouseEvent", {"type": kind, **mouse}) for kind in kinds]
        await self._all([*asked, self._touch("touchCancel")])

    async def swipe(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Move a finger from one point to another."""
        self._began_action()
        answers = [self._touch("touchStart", start)]
        for step in range(1, SWIPE_STEPS + 1):
            await self._sleep(SWIPE_S / SWIPE_STEPS)
            share = step / SWIPE_STEPS
            point = (start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share)
            answers.append(self._touch("touchMove", point))
        answers.append(self._touch("touchEnd"))
        await self._all(answers)

    async def type_text(self, text: str) -> str:
        """Replace what the focused field holds; why that cannot be done, or nothing."""
        self._began_action()
        said = await self.evaluate(f"__distrl.prepare({json.dumps(text)})", str)
        if said == "keys":
            if text:
                await self._call("Input.insertText", {"text": text})
            else:
                await self.key("Delete")
            return ""
        return "" if said == "done" else said

    async def key(self, key: Literal["Enter", "Delete"]) -> None:
        """Press a key of the keyboard."""
        self._began_action()
        code = {"Enter": 13, "Delete": 46}[key]
        facts = {"key": key, "code": key, "windowsVirtualKeyCode": code, "nativeVirtualKeyCode": code}
        text = {"text": "\r", "unmodifiedText": "\r"} if key == "Enter" else {}
        down = self._begin("Input.dispatchKeyEvent", {"type": "keyDown", **facts, **text})
        await self._all([down, self._begin("Input.dispatchKeyEvent", {"type": "keyUp", **facts})])

    def _touch(self, kind: Touch, point: tuple[float, float] | None = None) -> asyncio.Future[msgspec.Raw]:
        points = [] if point is None else [{"x": round(point[0], 2), "y": round(point[1], 2), "id": 0}]
        return self._begin("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    # seeing

    async def look(self, status: str = "null", *, skip: str = "") -> Seen:
        """The page once it rests, or as it is after `settle_s`; `status` is an expression of the page's kind."""
        settings = self._settings
        quiet_ms, settle_ms = 1000 * settings.quiet_s, 1000 * settings.settle_s
        arguments = f"{settings.most_elements}, {json.dumps(skip)}"
        ask = (
            f"__distrl.rest({quiet_ms:g}, {settle_ms:g}).then((rested) => "
            f"({{...__distrl.look({arguments}), rested, status: {status}}}))"
        )
        loop = asyncio.get_running_loop()
        settled_s = loop.time() + settings.settle_s
        until_s = settled_s + settings.load_s
        while True:
            self._check_alive()
            await self._follow_popup()
            if self._loading:
                await self._until_loaded(settings.load_s, self.url)
            try:
                seen = await self.evaluate(ask, Seen, deadline_s=settings.settle_s + settings.call_s)
            except (Refused, Thrown) as error:  # the page went away meanwhile, or its script has not run yet
                if loop.time() > until_s:
                    raise DeviceLost(f"{self.name} shows a page that cannot be read: {error}") from error
                await self._sleep(RETRY_S)
                continue
            self._viewport = (seen.width, seen.height)
            if self._requests and not self._loading:
                if loop.time() < settled_s:
                    await self._until_fetched(settled_s)
                    continue
                self._endless.update(self._requests.values())
                self._requests.clear()
                seen = msgspec.structs.replace(seen, rested=False)
            if not (self._loading or self._popup or self._popups) or loop.time() > until_s:
                return await self._with_frames(seen) if seen.foreign else seen

    async def look_with_picture(self, status: str = "null", *, skip: str = "") -> tuple[Seen, bytes]:
        """The same, with a picture that was begun while the page came to rest; empty where the page has changed since."""
        early = asyncio.create_task(self._early_picture(), name=f"{self.name}: picture")
        try:
            seen = await self.look(status, skip=skip)
            changes, arrivals, picture = await early
        finally:
            early.cancel()
            early.add_done_callback(_looked_at)
        same = (changes, arrivals) == (seen.changes, self._arrivals) and seen.rested and not seen.foreign
        return seen, picture if same else b""

    async def _early_picture(self) -> tuple[int, int, bytes]:
        """How often the page had changed, and a picture begun after that; nothing where the page goes away."""
        try:
            changes = await self.evaluate("__distrl.watch()", int)
            return changes, self._arrivals, await self.picture()
        except (Refused, Thrown):
            return -1, -1, b""

    async def _until_fetched(self, until_s: float) -> None:
        while self._requests and asyncio.get_running_loop().time() < until_s:
            self._check_alive()
            await self._sleep(FETCH_POLL_S)

    async def picture(self) -> bytes:
        """The screen as a JPEG."""
        shot = await self._call(
            "Page.captureScreenshot",
            {"format": "jpeg", "quality": self._settings.screenshot_quality, "optimizeForSpeed": True},
        )
        return b64decode(shot["data"])

    async def evaluate(self, expression: str, kind: type[T], *, deadline_s: float | None = None) -> T:
        """The value of an expression of ours; `Thrown` where the page's own code raises."""
        done = await self._connection.call_as(
            _Evaluated,
            "Runtime.evaluate",
            {"expression": expression, "awaitPromise": True, "returnByValue": True, "userGesture": True},
            session=self._session,
            deadline_s=self._settings.call_s if deadline_s is None else deadline_s,
        )
        if done.exception_details is not None:
            said = done.exception_details.exception.get("description") or done.exception_details.text
            raise Thrown(f"the page raised {str(said)[:300]}")
        try:
            return msgspec.json.decode(done.result.value, type=kind)
        except msgspec.DecodeError as error:
            raise Thrown(f"the page answered with something else: {error}") from None

    async def _with_frames(self, seen: Seen) -> Seen:
        """`seen` with what stands in frames of other origins, which the page itself may not look into."""
        tree = await self._call("Page.getFrameTree")
        found = list(seen.elements)
        own = tree["frameTree"]["frame"].get("securityOrigin")
        for child in tree["frameTree"].get("childFrames", []):
            if child["frame"].get("securityOrigin") == own:
                continue
            with suppress(Refused, Thrown, msgspec.ValidationError):
                found += await self._in_frame(str(child["frame"]["id"]), seen)
        return msgspec.structs.replace(seen, elements=tuple(found[: self._settings.most_elements]))

    async def _in_frame(self, frame: str, seen: Seen) -> list[tuple[Any, ...]]:
        owner = await self._call("DOM.getFrameOwner", {"frameId": frame})
        box = (await self._call("DOM.getBoxModel", {"backendNodeId": owner["backendNodeId"]}))["model"]["content"]
        left, top, right, bottom = box[0], box[1], box[4], box[5]
        world = await self._call("Page.createIsolatedWorld", {"frameId": frame, "worldName": "distrl"})
        asked = {"contextId": world["executionContextId"], "returnByValue": True}
        source = f"{PAGE_SCRIPT}\n__distrl.look({self._settings.most_elements}, '')"
        done = await self._connection.call_as(
            _Evaluated, "Runtime.evaluate", {"expression": source, **asked}, session=self._session
        )
        inner = msgspec.json.decode(done.result.value, type=Seen)
        shown = []
        for element in inner.elements:
            x, y = (element[0] + element[2]) / 2 + left, (element[1] + element[3]) / 2 + top
            if left <= x < right and top <= y < bottom and 0 <= x < seen.width and 0 <= y < seen.height:
                moved = (element[0] + left, element[1] + top, element[2] + left, element[3] + top)
                shown.append((*moved, *element[4:]))
        return shown

    # what pages try

    def _hear(self, method: str, params: Params) -> None:
        match method:
            case "Page.javascriptDialogOpening":
                self._answer_dialog(str(params.get("type", "")))
            case "Fetch.requestPaused":
                self._decide_request(params)
            case "Page.frameNavigated" if not params["frame"].get("parentId"):
                self._frame, self.url = str(params["frame"]["id"]), str(params["frame"]["url"])
                self._arrivals += 1
                self._requests.clear()  # nobody tells of the end of what the last document asked for
                self._endless.clear()
            case "Page.navigatedWithinDocument" if params.get("frameId") == self._frame:
                self.url = str(params["url"])
            case "Page.frameStartedLoading" if params.get("frameId") == self._frame:
                self._loading = True
                self._loaded.clear()
            case "Page.frameStoppedLoading" if params.get("frameId") == self._frame:
                self._loading = False
                self._loaded.set()
            case "Network.requestWillBeSent":
                self._take_request(params)
            case "Network.loadingFinished" | "Network.loadingFailed":
                self._arrivals += 1
                self._requests.pop(str(params["requestId"]), None)
            case "Page.fileChooserOpened":
                self.counted["choosers"] += 1
            case "Inspector.targetCrashed":
                self._lose("its tab crashed")
            case "Inspector.detached" | "closed":
                self._lose(str(params.get("why") or params.get("reason") or "it was detached"))

    def _take_request(self, params: Params) -> None:
        address = str(params["request"]["url"]).partition("?")[0]
        of_page = params.get("loaderId")  # a worker's program has none, and its end is not told here
        if of_page and params.get("type") not in ENDLESS and address not in self._endless:
            self._requests[str(params["requestId"])] = address

    def _answer_dialog(self, kind: str) -> None:
        self._dialogs += 1
        self.counted["dialogs"] += 1
        if self._dialogs > MOST_DIALOGS:
            self._lose(f"its page opened over {MOST_DIALOGS} dialogs at once")
            return
        self._begin("Page.handleJavaScriptDialog", {"accept": kind != "prompt"})

    def _decide_request(self, params: Params) -> None:
        url = str(params["request"]["url"])
        if origin_of(url) in self._allowed or url.startswith(("about:", "data:", "blob:")):
            self._begin("Fetch.continueRequest", {"requestId": params["requestId"]})
            return
        self.counted["blocked"] += 1
        self._begin("Fetch.failRequest", {"requestId": params["requestId"], "errorReason": "Aborted"})

    def _take_popup(self, info: TargetInfo) -> None:
        """A phone shows one page at a time: what would open beside it opens in its place, where that is allowed."""
        if info.target_id not in self._popups:
            self._opened += 1
            self.counted["popups"] += 1
            if self._opened > MOST_POPUPS:
                self._lose(f"its page opened over {MOST_POPUPS} pop-ups at once")
            self._popups.add(info.target_id)
            asyncio.get_running_loop().call_later(POPUP_S, self._close_popup, info.target_id)
        if info.url and info.url != "about:blank":  # it is told only after the pop-up is there
            self._popup = info.url if origin_of(info.url) in self._allowed else ""
            self._close_popup(info.target_id)

    def _close_popup(self, target: str) -> None:
        if target in self._popups:
            self._popups.discard(target)
            self._connection.begin("Target.closeTarget", {"targetId": target})

    async def _follow_popup(self) -> None:
        while self._popups:
            await self._sleep(RETRY_S)
            self._check_alive()
        url, self._popup = self._popup, ""
        if url:
            await self.go(url)

    def _began_action(self) -> None:
        self._check_alive()
        self._dialogs = self._opened = 0

    def _lose(self, why: str) -> None:
        self._lost = self._lost or why
        self._loading = False
        self._loaded.set()
        # Whatever waits for the page waits no longer.
        self._connection.drop(self._session, self._fault())

    def _check_alive(self) -> None:
        if self._lost:
            raise self._fault()

    def _fault(self) -> DeviceLost:
        """Where the browser is gone, nothing is known against this phone."""
        cause = LossCause.SERVER if self._connection.closed else LossCause.CRASH
        return DeviceLost(f"{self.name} is lost: {self._lost}", cause=cause)

    async def close(self) -> None:
        """Close it, and not its context."""
        self._connection.listen(self._session, None)
        await self._browser.close_tab(self.context, self._target)

    async def _call(self, method: str, params: Params | None = None, *, deadline_s: float | None = None) -> Params:
        limit_s = self._settings.call_s if deadline_s is None else deadline_s
        return await self._connection.call(method, params, session=self._session, deadline_s=limit_s)

    def _begin(self, method: str, params: Params) -> asyncio.Future[msgspec.Raw]:
        return self._connection.begin(method, params, session=self._session)

    async def _all(self, answers: list[asyncio.Future[msgspec.Raw]]) -> None:
        try:
            async with asyncio.timeout(self._settings.call_s) as deadline:
                await asyncio.gather(*answers)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise DeviceLost(
                f"{self.name} did not answer within {self._settings.call_s:g} s", cause=LossCause.LATE
            ) from None


def _looked_at(task: asyncio.Task[tuple[int, int, bytes]]) -> None:
    """What became of a picture that is not wanted any more is nobody's concern."""
    if not task.cancelled():
        task.exception()


def origin_of(url: str) -> str:
    """Scheme, host and port of a web address; empty for everything else."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return ""
    usual = {"http": 80, "https": 443}[parts.scheme]
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + ("" if port in (None, usual) else f":{port}")


def read_elements(seen: Seen) -> tuple[UiElement, ...]:
    """The elements of a look, in shares of the screen."""
    return tuple(_element(raw, seen.width, seen.height) for raw in seen.elements)


def _element(raw: tuple[Any, ...], width: float, height: float) -> UiElement:
    left, top, right, bottom, text, description, kind, name, clickable, scrollable, checked, focused, enabled = raw
    return UiElement(
        bounds=Bounds(
            round(left / width, 4), round(top / height, 4), round(right / width, 4), round(bottom / height, 4)
        ),
        text=str(text),
        description=str(description),
        class_name=str(kind),
        resource_id=str(name),
        clickable=bool(clickable),
        scrollable=bool(scrollable),
        checked=None if checked is None else bool(checked),
        focused=bool(focused),
        enabled=bool(enabled),
    )

"""A real headless Chromium for tests, over its debugging pipe: no port, no driver, no package."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

PATIENCE_S = 60.0
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--force-color-profile=srgb", "--remote-debugging-pipe",
    "--disable-dev-shm-usage",
)  # fmt: skip
KEYS = {
    "ArrowLeft": 37,
    "ArrowRight": 39,
    "Home": 36,
    "End": 35,
    "Escape": 27,
    "Tab": 9,
    "Enter": 13,
    "Backspace": 8,
    "ArrowUp": 38,
    "ArrowDown": 40,
    " ": 32,
}


def chromium() -> str:
    """The program; a test that needs it is skipped, with the reason, where it is not installed."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip("no Chromium on this machine: `make system` installs it, or `apt install chromium`")
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    """One browser; it is gone afterwards, whatever happened."""
    program = chromium()
    with TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        found = Browser(program, profile)
        try:
            yield found
        finally:
            found.close()


class Browser:
    """Chromium under our command."""

    def __init__(self, program: str, profile: str) -> None:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()

        def plug() -> None:  # the browser reads commands from 3 and answers on 4
            os.dup2(theirs_in, 100)
            os.dup2(theirs_out, 101)
            os.dup2(100, 3)
            os.dup2(101, 4)

        self._process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=plug, close_fds=False, start_new_session=True,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        os.set_blocking(self._in, False)
        self._number, self._buffer = 0, b""
        self._answers: dict[int, dict[str, Any]] = {}
        self._pages: dict[str, Page] = {}

    def page(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        """A new page of its own, without cookies of others."""
        context = self.ask("Target.createBrowserContext")["browserContextId"]
        target = self.ask("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.ask(f"{domain}.enable")
        page.resize(width, height)
        page.theme(dark=dark)
        return page

    def ask(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """The answer to one command."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        until_s = time.monotonic() + PATIENCE_S
        while number not in self._answers:
            assert time.monotonic() < until_s, f"Chromium did not answer {method}"
            self.listen()
        answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        found: dict[str, Any] = answer["result"]
        return found

    def listen(self) -> None:
        """Take in what the browser has said."""
        try:
            found = os.read(self._in, 1 << 20)
        except BlockingIOError:
            time.sleep(0.005)
            return
        assert found, "Chromium is gone"
        *whole, self._buffer = (self._buffer + found).split(b"\0")
        for raw in whole:
            message = json.loads(raw)
            if "id" in message:
                self._answers[message["id"]] = message
            elif (page := self._pages.get(message.get("sessionId", ""))) is not None:
                page.hear(message["method"], message["params"])

    def close(self) -> None:
        """End it with all its processes."""
        for handle in (self._out, self._in):
            os.close(handle)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait()


class Page:
    """One page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.errors: list[str] = []
        """What was said on the console as an error, and exceptions."""

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to one command for this page."""
        return self._browser.ask(method, self._session, **params)

    def hear(self, method: str, params: dict[str, Any]) -> None:
        """Note errors."""
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.errors.append(" ".join(str(one.get("value", one.get("description"))) for one in params["args"]))

    def resize(self, width: int, height: int, *, scale: float = 1.0) -> None:
        """Give the window another size."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )

    def theme(self, *, dark: bool) -> None:
        """Prefer dark or light."""
        value = "dark" if dark else "light"
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def open(self, address: str) -> None:
        """Go there, and wait until it is loaded."""
        self.ask("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """The value of an expression on the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, f"{script}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def until(self, script: str) -> Any:
        """The value of an expression once it is true."""
        until_s = time.monotonic() + PATIENCE_S
        while not (found := self.run(script)):
            if time.monotonic() > until_s:
                text = self.run("document.body.innerText.slice(0, 2000)")
                raise AssertionError(f"never true: {script}\n{self.errors}\n{text}")
            time.sleep(0.03)
        return found

    def until_python(self, holds: Callable[[], bool]) -> None:
        """Wait for something outside the page, and listen meanwhile."""
        until_s = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < until_s, "it took too long"
            self.run("1")
            time.sleep(0.03)

    def text(self, selector: str = "main") -> str:
        """What a person reads there."""
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def click(self, selector: str) -> None:
        """Press the mouse in its middle."""
        found = self.until(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null; e.scrollIntoView({{block: 'center'}});"
            "const b = e.getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=found[0], y=found[1], button="left", clickCount=1)

    def press(self, at: tuple[float, float], *, hold_s: float = 0.0) -> None:
        """Press the mouse at a place, and release it after a while, as the events themselves say: a slow machine makes no long press of a tap."""
        now_s = time.time()
        for kind, at_s in (("mousePressed", now_s - hold_s - 0.05), ("mouseReleased", now_s)):
            self.ask(
                "Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=1, timestamp=at_s
            )

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press, move and release the mouse."""
        self.ask("Input.dispatchMouseEvent", type="mousePressed", x=start[0], y=start[1], button="left", clickCount=1)
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=end[0], y=end[1], button="left", buttons=1)
        self.ask("Input.dispatchMouseEvent", type="mouseReleased", x=end[0], y=end[1], button="left", clickCount=1)

    def key(self, key: str) -> None:
        """Press one key."""
        code = KEYS.get(key, ord(key[0].upper()))
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.ask("Input.insertText", text=text)

    def picture(self, path: Path, *, whole: bool = False) -> Path:
        """A screenshot as a PNG."""
        found = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(found["data"]))
        return path

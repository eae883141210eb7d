"""`distrl bench web`: steps per second of Chromium phones, beside MiniWoB++'s and MobileGym's own environments in the same run.

Both play the same pages with taps on elements drawn at random and look at elements and a screenshot at every step, as MiniWoB++'s
environment does by default. It drives a Chrome of its own per environment over Selenium, with chromedriver, from a thread each. It is
measured before and after ours, so that a machine that changes meanwhile shows.

Where the environment variable `DISTRL_MOBILEGYM` names a file as for `distrl bench mobilegym`, and MobileGym is served, so are phones that
show it, beside its own environment on Playwright: taps at random, fifteen to an episode, a screenshot at each, 360 x 800 CSS pixels. Its
environment pauses about 0.65 s after each action and takes pictures of 1080 x 2400; it is measured so, and without pause at our size.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any, cast

import msgspec

from distrl.bench.base import BenchOptions
from distrl.bench.learning.mobilegym import VARIABLE
from distrl.config.load import load_config
from distrl.config.schema import Config, WebConfig
from distrl.devices.base import Fleet
from distrl.devices.web.browser import Browser
from distrl.devices.web.chromium import chromium_version, find_chromium
from distrl.devices.web.device import WebDevice, make_devices
from distrl.errors import DeviceError
from distrl.tasks.mobilegym import MobileGymSuite
from distrl.types import Tap, WebSetup

PHONES = (1, 2, 4, 8)
COMPARED = 4
PAGES = ("click-tab-2", "login-user", "click-checkboxes", "email-inbox")
"""Of number i: the one of this place, counted round. MiniWoB++'s environment has one page for good."""
EPISODE_STEPS = 6
GYM_TASK, GYM_STEPS = "wechat.ReadMyWxid", 15
OWN_GYM, OWN_PAUSE_S = Path(__file__).with_name("gym_speed.py"), 0.8
"""Its own default, which it varies by itself."""
SECONDS, QUICK_SECONDS = 30.0, 10.0


class WebFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What both reached."""

    steps_per_s: dict[str, float]
    """By the number of phones."""
    episodes_per_s: dict[str, float]
    selenium_steps_per_s: float | None
    """Of four environments, the mean of both measurements; None: not installed."""
    selenium_runs: list[float]
    speedup_at_4: float | None
    mobilegym: GymFigures | None = None
    """None: the environment variable names no file."""
    chromium: str
    pages: tuple[str, ...] = PAGES
    seconds: float


class GymFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The same on MobileGym's page."""

    steps_per_s: dict[str, float]
    """By the number of phones, with elements and a screenshot at each step."""
    own_steps_per_s: float
    """Of four of its own environments as they are, the mean of two measurements."""
    own_runs: list[float]
    own_unpaused_steps_per_s: float
    """Of the same without the pause, with pictures of our size."""
    speedup_at_4: float
    speedup_unpaused_at_4: float
    version: str


class _Count(msgspec.Struct, kw_only=True):
    steps: int = 0
    episodes: int = 0


def run(options: BenchOptions) -> WebFigures:
    """Measure; `DeviceError` where there is no Chromium."""
    seconds = QUICK_SECONDS if options.quick else SECONDS
    version = chromium_version()
    theirs = [found] if (found := _selenium(seconds)) is not None else []
    ours = {phones: asyncio.run(_measure(phones, seconds)) for phones in PHONES}
    theirs += [found] if theirs and (found := _selenium(seconds)) is not None else []
    selenium = sum(theirs) / len(theirs) if theirs else None
    gym = _mobilegym(seconds) if os.environ.get(VARIABLE) else None
    return WebFigures(
        mobilegym=gym,
        steps_per_s={str(phones): count.steps / seconds for phones, count in ours.items()},
        episodes_per_s={str(phones): count.episodes / seconds for phones, count in ours.items()},
        selenium_steps_per_s=selenium,
        selenium_runs=theirs,
        speedup_at_4=ours[COMPARED].steps / seconds / selenium if selenium else None,
        chromium=version.rpartition(", ")[2],
        seconds=seconds,
    )


# --- MobileGym --------------------------------------------------------------------------------------------------------


def _mobilegym(seconds: float) -> GymFigures:
    config = load_config(Path(os.environ[VARIABLE]), {})
    settings = config.tasks.mobilegym
    version = MobileGymSuite(settings).version
    own = [_own_gym(config, seconds, delay_s=OWN_PAUSE_S, scale=3.0)]
    unpaused = _own_gym(config, seconds, delay_s=0.0, scale=1.0)
    ours = {phones: asyncio.run(_measure_gym(config, phones, seconds)) for phones in PHONES}
    own.append(_own_gym(config, seconds, delay_s=OWN_PAUSE_S, scale=3.0))
    at_4, mean = ours[COMPARED].steps / seconds, sum(own) / len(own)
    return GymFigures(
        steps_per_s={str(phones): count.steps / seconds for phones, count in ours.items()},
        own_steps_per_s=mean,
        own_runs=own,
        own_unpaused_steps_per_s=unpaused,
        speedup_at_4=at_4 / mean,
        speedup_unpaused_at_4=at_4 / unpaused,
        version=version,
    )


def _own_gym(config: Config, seconds: float, *, delay_s: float, scale: float) -> float:
    settings = config.tasks.mobilegym
    numbers = [str(COMPARED), str(seconds), str(delay_s), str(scale)]
    command = [settings.python or sys.executable, str(OWN_GYM), str(Path(settings.folder).expanduser()), settings.url]
    command += [str(find_chromium(config.devices.web.chromium)), *numbers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 120, check=False)
    if done.returncode or not done.stdout.strip():
        raise DeviceError(
            f"MobileGym's own environment ended with {done.returncode}: {' '.join(done.stderr.split())[-300:]}",
            expected="steps per second",
            fix="install what its bench_env/requirements.txt names into tasks.mobilegym.python, and serve its page",
        )
    return float(done.stdout.split()[-1])


async def _measure_gym(config: Config, phones: int, seconds: float) -> _Count:
    """Phones that play the same task again and again, each set up by its own class."""
    count = _Count()
    devices = [
        cast(WebDevice, device)
        for device in make_devices(config.devices.web, Fleet(owner="bench", count=phones, seed=0))
    ]
    try:
        await asyncio.gather(*(_gym_episode(device, config, 0, _Count()) for device in devices))
        until_s = time.monotonic() + seconds
        await asyncio.gather(
            *(_play_gym(device, config, number, until_s, count) for number, device in enumerate(devices))
        )
    finally:
        await asyncio.gather(*(device.close() for device in devices))
    return count


async def _play_gym(device: WebDevice, config: Config, number: int, until_s: float, count: _Count) -> None:
    while time.monotonic() < until_s:
        await _gym_episode(device, config, number, count, until_s=until_s)


async def _gym_episode(
    device: WebDevice, config: Config, number: int, count: _Count, *, until_s: float = float("inf")
) -> None:
    random = Random(f"{number} {count.steps}")
    await device.start(WebSetup(url=config.tasks.mobilegym.url, page="mobilegym", task=GYM_TASK))
    for _ in range(GYM_STEPS):
        if time.monotonic() >= until_s:
            return
        await device.perform(Tap(random.random(), random.random()))
        await device.capture(screenshot=True)
        count.steps += 1
    count.episodes += 1


# --- our phones -------------------------------------------------------------------------------------------------------


async def _measure(phones: int, seconds: float) -> _Count:
    browser, count = Browser(WebConfig(), name="bench/browser"), _Count()
    devices = [WebDevice(f"bench/web-{number}", WebConfig(), browser) for number in range(phones)]
    try:
        await asyncio.gather(*(_episode(device, number, 0, _Count()) for number, device in enumerate(devices)))
        until_s = time.monotonic() + seconds
        await asyncio.gather(*(_play(device, number, until_s, count) for number, device in enumerate(devices)))
    finally:
        await asyncio.gather(*(device.close() for device in devices))
    return count


async def _play(device: WebDevice, number: int, until_s: float, count: _Count) -> None:
    seed = 0
    while time.monotonic() < until_s:
        seed += 1
        await _episode(device, number, seed, count, until_s=until_s)


async def _episode(device: WebDevice, number: int, seed: int, count: _Count, *, until_s: float = float("inf")) -> None:
    random = Random(f"{number} {seed}")
    await device.start(WebSetup(url=PAGES[number % len(PAGES)], page="miniwob", seed=seed))
    for _ in range(EPISODE_STEPS):
        capture = await device.capture(screenshot=True)
        chosen = [element for element in capture.elements if element.clickable]
        if not chosen or time.monotonic() >= until_s:
            return
        done = (await device.perform(Tap(*random.choice(chosen).bounds.centre))).done
        count.steps += 1
        if done:
            break
    count.episodes += 1


# --- MiniWoB++'s environment ------------------------------------------------------------------------------------------


def _selenium(seconds: float) -> float | None:
    """Steps per second of four environments; None where Selenium or chromedriver is not installed."""
    chrome, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if find_spec("selenium") is None or find_spec("miniwob") is None or chrome is None or driver is None:
        return None
    os.environ["MINIWOB_CHROME_BINARY"], os.environ["MINIWOB_CHROMEDRIVER"] = chrome, driver
    with ThreadPoolExecutor(COMPARED) as threads:
        environments = list(threads.map(_environment, range(COMPARED)))
        try:
            until_s = time.monotonic() + seconds
            steps = list(threads.map(lambda number: _drive(environments[number], number, until_s), range(COMPARED)))
        finally:
            list(threads.map(lambda environment: environment.close(), environments))
    if not all(steps):
        raise DeviceError(
            f"the four environments of MiniWoB++ made {steps} steps in {seconds:g} s",
            expected="some in each",
            fix="measure without --quick, on a machine that does nothing else",
        )
    return sum(steps) / seconds


def _environment(number: int) -> Any:
    from miniwob.environment import MiniWoBEnvironment

    environment = MiniWoBEnvironment(subdomain=PAGES[number % len(PAGES)])
    environment.reset(seed=0)
    return environment


def _drive(environment: Any, number: int, until_s: float) -> int:
    from miniwob.action import ActionTypes

    random, steps, seed = Random(number), 0, 0
    while time.monotonic() < until_s:
        seed += 1
        seen, _ = environment.reset(seed=seed)
        for _ in range(EPISODE_STEPS):
            shown = _within(_leaves(seen["dom_elements"]), seen["screenshot"].shape)
            if not shown or time.monotonic() >= until_s:
                break
            middle = list(_middle(random.choice(shown)))
            action = environment.unwrapped.create_action(ActionTypes.CLICK_COORDS, coords=middle)
            seen, _, over, _, _ = environment.step(action)
            steps += 1
            if over:
                break
    return steps


def _leaves(elements: Any) -> list[Any]:
    """What holds no other element: that is where a click does something."""
    parents = {int(each["parent"]) for each in elements}
    return [each for each in elements if int(each["ref"]) not in parents]


def _middle(each: Any) -> tuple[float, float]:
    return float(each["left"][0] + each["width"][0] / 2), float(each["top"][0] + each["height"][0] / 2)


def _within(elements: list[Any], shape: tuple[int, ...]) -> list[Any]:
    """Those whose middle is on its screen: Selenium refuses to click elsewhere."""
    height, width = shape[:2]
    return [each for each in elements if 0 <= _middle(each)[0] < width and 0 <= _middle(each)[1] < height]

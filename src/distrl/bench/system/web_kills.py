"""`distrl bench web_kills`: episodes on Chromium phones while the browser is killed again and again.

Eight phones in one browser play MiniWoB++ with taps drawn at random, through the pool and the episode loop that workers use. After every
50 episodes the browser's whole process group is ended with `kill -9`. An episode that was cut off is counted, and its task is played
again, so that every task comes to an end. Afterwards no process and no profile may be left.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import msgspec

from distrl.bench.base import BenchOptions
from distrl.config.judging import MiniWobConfig
from distrl.config.schema import WebConfig
from distrl.devices.pool import DevicePool
from distrl.devices.web.browser import Browser
from distrl.devices.web.device import WebDevice
from distrl.errors import LossCause
from distrl.rollout.episode import EpisodeLimits, EpisodeTools, run_episode
from distrl.tasks.miniwob import MiniWobSuite
from distrl.types import Decision, Observation, Tap, Task, Wait

PHONES = 8
EPISODES, QUICK_EPISODES = 1000, 60
KILL_EVERY, QUICK_KILL_EVERY = 50, 20
PAGES = ("click-test-2", "click-tab", "click-link", "login-user", "click-checkboxes", "click-button")
LEASE_S = 120.0
MOST_TRIES = 10
GONE_S = 20.0
"""How long processes may take to go after the end."""


class WebKillFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What became of all episodes."""

    episodes: int
    """Tasks that were to be played."""
    finished: int
    lost: int
    """Of them, those that never came to an end."""
    kills: int
    cut_off: int
    """Attempts that a killed browser ended; their tasks were played again."""
    browsers: int
    """Browsers that were started."""
    quarantined: int
    processes_left: int
    profiles_left: int
    wall_s: float


class _Run:
    def __init__(self, episodes: int, kill_every: int) -> None:
        self.settings, self.kill_every = WebConfig(), kill_every
        self.browser = Browser(self.settings, name="bench/browser")
        self.devices = [WebDevice(f"bench/web-{number}", self.settings, self.browser) for number in range(PHONES)]
        self.pool = DevicePool(self.devices)
        suite = MiniWobSuite(MiniWobConfig(tasks=PAGES, train_seeds=episodes))
        self.tasks = [(number, suite.task("train", number)) for number in reversed(range(episodes))]
        self.ended: Counter[str] = Counter()
        self.pids: list[int] = []
        self.cut_off = self.kills = 0

    async def lane(self) -> None:
        """One task after another until none is left."""
        while self.tasks:
            number, task = self.tasks.pop()
            for _ in range(MOST_TRIES):
                if await self._attempt(number, task):
                    self.ended["finished"] += 1
                    self._maybe_kill()
                    break
                self.cut_off += 1
            else:
                self.ended["lost"] += 1

    async def _attempt(self, number: int, task: Task) -> bool:
        random = Random(number)

        async def decide(seen: Observation) -> tuple[Decision, int]:
            chosen = [element for element in seen.elements if element.clickable]
            action = Tap(*random.choice(chosen).bounds.centre) if chosen else Wait()
            return Decision(action=action, choice=(), logp=0.0, entropy=0.0, value=0.0), 0

        device = await self.pool.lease(LEASE_S)
        lost, cause = "the bench broke off", LossCause.CRASH
        try:
            tools = EpisodeTools(decide=decide, clock=time.monotonic)
            played = await run_episode(str(number), device, task, tools, EpisodeLimits(history=0, repeat_penalty=0.0))
            lost, cause = played.lost, played.cause
        finally:
            self.pool.release(device, lost=lost, cause=cause)
        return not lost

    def _maybe_kill(self) -> None:
        if self.ended["finished"] % self.kill_every == 0 and (pid := self.browser.pid):
            self.pids.append(pid)
            self.kills += 1
            os.killpg(pid, signal.SIGKILL)


def run(options: BenchOptions) -> WebKillFigures:
    """Measure; `DeviceError` where there is no Chromium."""
    quick = options.quick
    return asyncio.run(measure(QUICK_EPISODES if quick else EPISODES, QUICK_KILL_EVERY if quick else KILL_EVERY))


async def measure(episodes: int, kill_every: int) -> WebKillFigures:
    """So many episodes, and a kill after every `kill_every` of them."""
    began_s, before = time.monotonic(), profiles()
    run = _Run(episodes, kill_every)
    try:
        await asyncio.gather(*(run.lane() for _ in range(PHONES)))
        quarantined = sum(status.health == "quarantined" for status in run.pool.status())
        run.pids.append(run.browser.pid)
    finally:
        await run.pool.close()
    wall_s = time.monotonic() - began_s
    left = await _left(run.pids, before)
    return WebKillFigures(
        episodes=episodes,
        finished=run.ended["finished"],
        lost=run.ended["lost"],
        kills=run.kills,
        cut_off=run.cut_off,
        browsers=run.browser.started,
        quarantined=quarantined,
        processes_left=left[0],
        profiles_left=left[1],
        wall_s=wall_s,
    )


async def _left(pids: list[int], before: set[Path]) -> tuple[int, int]:
    """Processes of these groups and profiles that are still there once they had time to go."""
    until_s = time.monotonic() + GONE_S
    while True:
        groups, folders = sum(_has_processes(pid) for pid in pids if pid), len(profiles() - before)
        if not (groups or folders) or time.monotonic() > until_s:
            return groups, folders
        await asyncio.sleep(0.1)


def _has_processes(group: int) -> bool:
    with suppress(ProcessLookupError):
        os.killpg(group, 0)
        return True
    return False


def profiles() -> set[Path]:
    """Folders of browsers on this machine."""
    return set(Path(tempfile.gettempdir()).glob("distrl-chromium-*"))

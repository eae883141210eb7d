"""MiniWoB++ on real Chromium phones: its own instructions, rewards and endings, the same for the same seed."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from distrl.bench.system.web_kills import measure
from distrl.config.schema import WebConfig
from distrl.devices.base import Capture
from distrl.devices.web.browser import Browser
from distrl.devices.web.device import WebDevice
from distrl.rollout.episode import EpisodeLimits, EpisodeTools, attempt_of, run_episode, with_verdict
from distrl.tasks.judges import RewardJudge, judge_attempt
from distrl.tasks.miniwob import MiniWobSuite
from distrl.types import Decision, Ending, Observation, Press, Tap, TypeText, WebSetup
from support.webs import named, needs_chromium

pytest.importorskip("miniwob")
pytestmark = needs_chromium


def run(work: Callable[[WebDevice, Browser], Awaitable[None]]) -> None:
    async def within() -> None:
        browser = Browser(WebConfig(), name="browser")
        device = WebDevice("test/web-0", WebConfig(), browser)
        try:
            async with asyncio.timeout(120):
                await work(device, browser)
        finally:
            await device.close()
        assert not browser.pid

    asyncio.run(within())


def test_a_seed_decides_what_a_page_asks_for_whatever_was_played_before() -> None:
    async def work(device: WebDevice, browser: Browser) -> None:
        async def shown(page: str, seed: int) -> Capture:
            await device.start(WebSetup(url=page, page="miniwob", seed=seed))
            return await device.capture(screenshot=False)

        for page in ("login-user", "click-tab-2", "click-dialog"):
            first, other = await shown(page, 7), await shown(page, 8)
            assert first.instruction
            assert first.elements
            assert (other.instruction, other.elements) != (first.instruction, first.elements)
            assert await shown(page, 7) == first

    run(work)


def test_the_page_says_when_it_is_over_and_what_it_was_worth() -> None:
    async def work(device: WebDevice, browser: Browser) -> None:
        await device.start(WebSetup(url="enter-text", page="miniwob", seed=3))
        asked = (await device.capture(screenshot=False)).instruction
        wanted = asked.split('"')[1]
        for text, reward in ((wanted, 1.0), ("something else", -1.0)):
            await device.start(WebSetup(url="enter-text", page="miniwob", seed=3))
            capture = await device.capture(screenshot=False)
            field = next(each for each in capture.elements if each.class_name == "EditText")
            await device.perform(Tap(*field.bounds.centre))
            assert not (await device.perform(TypeText(text))).done
            assert not (await device.perform(Press("home"))).valid
            submit = named(await device.capture(screenshot=False), "Submit")
            done = await device.perform(Tap(*submit.bounds.centre))
            assert (done.done, done.reward) == (True, reward)

    run(work)


def test_an_episode_has_the_pages_own_instruction_reward_and_end() -> None:
    suite = MiniWobSuite()
    index = suite.pages.index("click-button")
    task = suite.task("test", index)

    async def decide(seen: Observation) -> tuple[Decision, int]:
        wanted = seen.instruction.split('"')[1]
        at = next(each for each in seen.elements if each.class_name == "Button" and each.text == wanted)
        return Decision(action=Tap(*at.bounds.centre), choice=(), logp=0.0, entropy=0.0, value=0.0), 0

    async def work(device: WebDevice, browser: Browser) -> None:
        tools = EpisodeTools(decide=decide, clock=asyncio.get_running_loop().time)
        played = await run_episode("e", device, task, tools, EpisodeLimits(history=4, repeat_penalty=0.0))
        assert played.trajectory is not None
        verdict = await judge_attempt(RewardJudge(), attempt_of(played.trajectory), deadline_s=5.0)
        found = with_verdict(played.trajectory, verdict)
        assert found.ending is Ending.ENVIRONMENT
        assert found.verdict.success
        assert found.steps[0].device_reward == 1.0
        assert found.task.instruction == found.steps[0].observation.instruction
        assert found.task.instruction.startswith("Click on the")

    run(work)


def test_browsers_that_are_killed_cost_no_episode_and_leave_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        tempfile, "tempdir", str(tmp_path)
    )  # profiles of other browsers of this machine are not counted
    found = asyncio.run(measure(12, 4))
    assert (found.episodes, found.finished, found.lost, found.kills) == (12, 12, 0, 3)
    assert found.browsers in (3, 4)  # the last kill may come after the last episode
    assert (found.quarantined, found.processes_left, found.profiles_left) == (0, 0, 0)

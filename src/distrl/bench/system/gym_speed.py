"""Steps per second of MobileGym's own environment: a program for the Python that has what `bench_env` needs, and nothing of distrl in it.

    python gym_speed.py FOLDER URL CHROMIUM PHONES SECONDS DELAY_S SCALE

So many of its environments share one browser, as its own pool has them, and tap at random. The last line says how many steps they made.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import Any

EPISODE_STEPS = 15
APP, WIDTH, HEIGHT = "wechat", 360, 800


async def begin(env: Any) -> None:
    """The start of an episode in one app, whose data alone it waits for."""
    await env.reset(app_ids=[APP])
    await env.open_app(APP)


async def play(env: Any, number: int, until_s: float) -> int:
    """Steps of one environment until then."""
    from bench_env.env.base import Action

    draw, steps = random.Random(number), 0
    while time.monotonic() < until_s:
        await begin(env)
        for _ in range(EPISODE_STEPS):
            if time.monotonic() >= until_s:
                break
            await env.step(Action.click([draw.randrange(1000), draw.randrange(1000)]))
            steps += 1
    return steps


async def measure(url: str, chromium: str, phones: int, seconds: float, delay_s: float, scale: float) -> float:
    """Steps per second of all of them."""
    from bench_env.env.mobile_gym import MobileGymEnv
    from playwright.async_api import async_playwright  # type: ignore[import-not-found]

    async with async_playwright() as playwright:
        arguments = MobileGymEnv.get_launch_args(True, None, "chromium")
        arguments["args"] = [*arguments.get("args", []), "--no-sandbox"]
        browser = await playwright.chromium.launch(**{**arguments, "executable_path": chromium})
        envs = [
            MobileGymEnv(
                url=url, browser=browser, viewport_size=(WIDTH, HEIGHT), device_scale_factor=scale,
                physical_size=(int(WIDTH * scale), int(HEIGHT * scale)), headless=True, delay_after_action=delay_s,
                verbose=False, worker_id=number,
            )
            for number in range(phones)
        ]  # fmt: skip
        await asyncio.gather(*(env.start() for env in envs))
        await asyncio.gather(*(begin(env) for env in envs))
        until_s = time.monotonic() + seconds
        steps = await asyncio.gather(*(play(env, number, until_s) for number, env in enumerate(envs)))
        await asyncio.gather(*(env.close() for env in envs))
        await browser.close()
    return sum(steps) / seconds


def main() -> None:
    """Measure as the command line says."""
    folder, url, chromium, phones, seconds, delay_s, scale = sys.argv[1:]
    sys.path.insert(0, folder)
    rate = asyncio.run(measure(url, chromium, int(phones), float(seconds), float(delay_s), float(scale)))
    sys.stdout.write(f"{rate}\n")


if __name__ == "__main__":
    main()

"""Time that passes only when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

HANGS_S = 20.0
"""Real seconds after which a scene counts as hanging; none should take one."""


class FakeTime:
    """A clock and a sleep that agree with each other and never really wait."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def clock(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        """Wait until the test has advanced the time that far."""
        self.slept.append(seconds)
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.now_s + seconds, wake))
        await wake

    async def jump(self, seconds: float) -> None:
        """A sleep that takes no turn of the loop: time simply moves on."""
        self.slept.append(seconds)
        self.now_s += seconds

    async def advance(self, seconds: float) -> None:
        """Let time pass, waking sleepers in their order."""
        await settle()
        end_s = self.now_s + seconds
        while due := [entry for entry in self._sleepers if entry[0] <= end_s and not entry[1].done()]:
            entry = min(due, key=lambda sleeper: sleeper[0])
            self._sleepers.remove(entry)
            self.now_s = max(self.now_s, entry[0])
            entry[1].set_result(None)
            await settle()
        self.now_s = end_s


async def settle(turns: int = 20) -> None:
    """Let every task that can go on do so."""
    for _ in range(turns):
        await asyncio.sleep(0)


def play(scene: Callable[[FakeTime], Coroutine[Any, Any, None]]) -> None:
    """Run a scene that is over in no time, or fail."""

    async def limited() -> None:
        async with asyncio.timeout(HANGS_S):
            await scene(FakeTime())

    asyncio.run(limited())

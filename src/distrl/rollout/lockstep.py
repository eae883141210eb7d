"""Lock-step, to compare with: no device of a worker gets its next decision before all of them have shown their screens.

A gate in front of the batcher, as the emulators of one machine are driven in DigiRL (arXiv 2406.11896). Episodes
`enter` together and `leave` one by one; whoever is left goes on in step without them. A device that is slow is waited
for, one that is lost leaves, and a gathering that lasts longer than `patience_s` goes on without those who are missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from distrl.devices.base import Sleep
from distrl.rollout.episode import Decide
from distrl.types import Decision, Observation


class LockStep:
    """A gate that opens when every episode under way has asked. Belongs to one event loop."""

    def __init__(
        self,
        decide: Decide,
        *,
        patience_s: float,
        tell_late: Callable[[int], None] = lambda missing: None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._decide, self._patience_s, self._tell_late, self._sleep = decide, patience_s, tell_late, sleep
        self._playing = 0
        self._asking: list[asyncio.Future[None]] = []
        self._alarm: asyncio.Task[None] | None = None
        self._is_open = False

    @property
    def waiting(self) -> str:
        """Whom those who have asked wait for; empty: nobody has asked."""
        asked = len(self._asking)
        return f"the slowest device: {asked} of {self._playing} have shown their screens" if asked else ""

    def enter(self, count: int) -> None:
        """So many episodes begin together; call it before the first of them asks."""
        self._playing += count

    def leave(self) -> None:
        """One of them is over, however it ended."""
        self._playing -= 1
        self._go_if_all_ask()

    def open(self) -> None:
        """Hold nobody back from now on."""
        self._is_open = True
        self._go()

    async def decide(self, observation: Observation) -> tuple[Decision, int]:
        """A decision and the version that made it, once all have asked."""
        if not self._is_open:
            await self._turn()
        return await self._decide(observation)

    async def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._asking.append(turn)
        if self._alarm is None:
            self._alarm = asyncio.create_task(self._ring(), name="deadline of a lock-step")
        # Not at once: the last to ask would reach the batcher before the others, and have a batch to itself.
        loop.call_soon(self._go_if_all_ask)
        try:
            await turn
        finally:
            if turn in self._asking:
                self._asking.remove(turn)

    def _go_if_all_ask(self) -> None:
        if len(self._asking) >= self._playing:
            self._go()

    def _go(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        asking, self._asking = self._asking, []
        for turn in asking:
            if not turn.done():
                turn.set_result(None)

    async def _ring(self) -> None:
        await self._sleep(self._patience_s)
        self._alarm = None
        self._tell_late(self._playing - len(self._asking))
        self._go()

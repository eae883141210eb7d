"""Who may start how many episodes with one version: all that want to, or a round and no more.

In sync mode a version is played for one round of episodes, and then everyone waits for the next version. A round is
given out exactly: one episode too many would still run when the learner goes on, one too few would keep it waiting.
An episode that came to nothing is given out again.

Lock-step is for comparison with DigiRL (arXiv 2406.11896), which drives the emulators of one machine so: a gate in front of
the batcher lets no device have its next decision before all of them have shown their screens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from distrl.devices.base import Sleep
from distrl.rollout.episode import Decide
from distrl.transport.base import Claims
from distrl.types import Decision, Observation

LOOK_AGAIN_S = 0.1
"""How often a worker asks whether some episode of a round that is all out came to nothing."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The right to play one episode with a version."""

    version: int
    number: int = 0
    """Among the claims that all workers share; 0: there is no such table."""


class Rounds(Protocol):
    """What a worker asks before it starts episodes."""

    @property
    def refusal(self) -> str:
        """Why nobody may start when `claim` gives nothing."""

    def claim(self, version: int, count: int) -> list[Claim]:
        """Those of `count` episodes that this worker may start with a version; it settles each of them."""

    def settle(self, claim: Claim, *, delivered: bool) -> None:
        """An episode that was claimed is over, and in the store or come to nothing."""


class NoRounds:
    """Async mode: whoever wants to may start."""

    refusal = ""

    def claim(self, version: int, count: int) -> list[Claim]:
        return [Claim(version=version)] * count

    def settle(self, claim: Claim, *, delivered: bool) -> None:
        """Nobody counts."""


class EqualShares:
    """Each worker plays its own share of a round, however fast or slow it is, as in DigiRL."""

    def __init__(self, share: int, delivered: Callable[[int], int]) -> None:
        self._share, self._delivered = share, delivered
        self._started: dict[int, int] = {}
        self.refusal = f"this worker's {share} episodes of the round are out"

    def claim(self, version: int, count: int) -> list[Claim]:
        if version not in self._started:
            self._started[version] = self._delivered(version)  # by an earlier incarnation of this worker
        granted = max(0, min(count, self._share - self._started[version]))
        self._started[version] += granted
        return [Claim(version=version)] * granted

    def settle(self, claim: Claim, *, delivered: bool) -> None:
        self._started[claim.version] -= not delivered


def share_of(round_episodes: int, workers: int, worker: int) -> int:
    """One worker's part of a round; the parts of all add up to it."""
    share, rest = divmod(round_episodes, workers)
    return share + (worker < rest)


class SharedRound:
    """One queue for all workers: whoever is free takes the next episode of the round."""

    def __init__(self, round_episodes: int, claims: Claims, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._round_episodes, self._claims, self._clock = round_episodes, claims, clock
        self._out, self._again_s = -1, 0.0
        self.refusal = f"all {round_episodes} episodes of the round are out"

    def claim(self, version: int, count: int) -> list[Claim]:
        if version == self._out and self._clock() < self._again_s:
            return []
        numbers = self._claims.take(version, count, self._round_episodes)
        if not numbers:
            self._out, self._again_s = version, self._clock() + LOOK_AGAIN_S
        return [Claim(version=version, number=number) for number in numbers]

    def settle(self, claim: Claim, *, delivered: bool) -> None:
        self._claims.settle(claim.number)


# --- lock-step --------------------------------------------------------------------------------------------------------


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
            self._alarm = asyncio.create_task(self._expire(), name="deadline of a lock-step")
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

    async def _expire(self) -> None:
        await self._sleep(self._patience_s)
        self._alarm = None
        self._tell_late(self._playing - len(self._asking))
        self._go()

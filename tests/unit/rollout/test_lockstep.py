"""The gate of a lock-step: who is held back, for how long, and what lets the others go on."""

from __future__ import annotations

import asyncio

from distrl.rollout.rounds import LockStep
from distrl.types import Decision, Observation, Press
from support.faketime import FakeTime, play, settle

PATIENCE_S = 40.0


class Fleet:
    """Devices that need different times for a step, in front of one gate, and what became of their decisions."""

    def __init__(self, time: FakeTime, *, episodes: int) -> None:
        self.time = time
        self.decided: list[tuple[float, str]] = []
        self.late: list[int] = []
        self.gate = LockStep(self._decide, patience_s=PATIENCE_S, tell_late=self.late.append, sleep=time.sleep)
        self.gate.enter(episodes)

    async def _decide(self, seen: Observation) -> tuple[Decision, int]:
        self.decided.append((self.time.now_s, seen.instruction))
        return Decision(action=Press("back"), choice=(), logp=0.0, entropy=0.0, value=0.0), 0

    def begin(self, name: str, *, step_s: float, steps: int) -> asyncio.Task[None]:
        """An episode of so many steps, each taking so long before the device shows its screen."""
        return asyncio.create_task(self._episode(name, step_s, steps), name=name)

    async def _episode(self, name: str, step_s: float, steps: int) -> None:
        try:
            for step in range(steps):
                await self.time.sleep(step_s)
                await self.gate.decide(Observation(instruction=f"{name}{step}"))
        finally:
            self.gate.leave()

    def times(self, name: str) -> list[float]:
        return [at_s for at_s, who in self.decided if who.startswith(name)]


def test_every_step_waits_for_the_slowest_device() -> None:
    async def scene(time: FakeTime) -> None:
        fleet = Fleet(time, episodes=3)
        for name, step_s in (("a", 1.0), ("b", 2.0), ("c", 5.0)):
            fleet.begin(name, step_s=step_s, steps=3)
        await time.advance(4.9)
        assert fleet.decided == []
        assert fleet.gate.waiting == "the slowest device: 2 of 3 have shown their screens"
        await time.advance(20.0)
        assert fleet.times("a") == fleet.times("b") == fleet.times("c") == [5.0, 10.0, 15.0]
        assert [who[1] for _, who in fleet.decided] == [*"000", *"111", *"222"]
        assert fleet.gate.waiting == ""
        assert fleet.late == []

    play(scene)


def test_an_episode_that_is_over_is_not_waited_for_and_neither_is_a_device_that_is_lost() -> None:
    async def scene(time: FakeTime) -> None:
        fleet = Fleet(time, episodes=3)
        fleet.begin("a", step_s=1.0, steps=6)
        fleet.begin("b", step_s=2.0, steps=1)
        stuck = fleet.begin("c", step_s=1000.0, steps=1)
        await time.advance(7.0)
        assert fleet.decided == []
        stuck.cancel()  # its call has missed its deadline: the device is lost, and its episode leaves
        await time.advance(10.0)
        assert fleet.times("b") == [7.0]
        assert fleet.times("a") == [7.0, 8.0, 9.0, 10.0, 11.0, 12.0]

    play(scene)


def test_whoever_gives_up_while_waiting_holds_nobody_up() -> None:
    async def scene(time: FakeTime) -> None:
        fleet = Fleet(time, episodes=3)
        given_up = fleet.begin("a", step_s=1.0, steps=3)
        for name in "bc":
            fleet.begin(name, step_s=3.0, steps=2)
        await time.advance(2.0)
        given_up.cancel()
        await time.advance(10.0)
        assert fleet.times("b") == fleet.times("c") == [3.0, 6.0]
        assert fleet.times("a") == []

    play(scene)


def test_nobody_is_waited_for_longer_than_the_patience_and_it_is_told_how_many_were_missing() -> None:
    async def scene(time: FakeTime) -> None:
        fleet = Fleet(time, episodes=3)
        for name in "ab":
            fleet.begin(name, step_s=1.0, steps=2)
        fleet.begin("c", step_s=50.0, steps=2)
        await time.advance(300.0)
        assert fleet.times("a") == fleet.times("b") == [1.0 + PATIENCE_S, 50.0]
        assert fleet.times("c") == [50.0, 100.0]
        assert fleet.late == [1]

    play(scene)


def test_each_gathering_has_its_own_deadline() -> None:
    async def scene(time: FakeTime) -> None:
        fleet = Fleet(time, episodes=2)
        fleet.begin("a", step_s=1.0, steps=10)
        fleet.begin("b", step_s=30.0, steps=10)
        await time.advance(400.0)
        assert fleet.times("a") == [30.0 * step for step in range(1, 11)]
        assert fleet.late == []

    play(scene)


def test_an_open_gate_holds_nobody_back() -> None:
    async def scene(time: FakeTime) -> None:
        fleet = Fleet(time, episodes=2)
        fleet.begin("a", step_s=1.0, steps=3)
        fleet.begin("b", step_s=1000.0, steps=1)
        await time.advance(5.0)
        assert fleet.decided == []
        fleet.gate.open()
        await settle()
        assert fleet.times("a") == [5.0]
        await time.advance(5.0)
        assert fleet.times("a") == [5.0, 6.0, 7.0]

    play(scene)

"""The way to the store ends: when all is kept, or with words when the store takes too long."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from distrl.errors import StoreError
from distrl.rollout.outbox import END_DEADLINE_S, STORE_DEADLINE_S, Outbox
from distrl.types import Trajectory
from support.rollouts import HANGS_S, Kept
from support.trajectories import make_trajectory

HANGING = """
import asyncio, threading
from distrl.rollout import outbox
from distrl.errors import StoreError

class Hung:
    def add(self, trajectory):
        threading.Event().wait()

async def scene():
    box = outbox.Outbox(Hung(), lambda *_: None, capacity=9)
    await box.put("a trajectory")
    await box.run()

outbox.STORE_DEADLINE_S = 0.01
try:
    asyncio.run(scene())
except StoreError as error:
    print(error.seen)
"""


def test_a_process_ends_although_its_store_hangs() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=HANGS_S, check=True)
    assert "the store took over 0.01 s" in ended.stdout


class SlowDisk:
    """An outbox over a sink that takes a while for each trajectory, by a clock of its own."""

    def __init__(self, each_s: float) -> None:
        self.now_s, self._each_s, self.sink = 0.0, each_s, Kept()
        self.sink.on_add = self._take
        self.outbox = Outbox(self.sink, lambda *_: None, capacity=99, clock=lambda: self.now_s)

    def _take(self, trajectory: Trajectory) -> None:
        self.now_s += self._each_s

    async def end(self, count: int) -> None:
        """Hand over so many, and let the worker end."""
        for number in range(count):
            await self.outbox.put(make_trajectory(f"e{number}"))
        self.outbox.finish()
        await self.outbox.run()


def test_all_that_is_left_at_the_end_has_one_deadline_together() -> None:
    slow = SlowDisk(0.9 * STORE_DEADLINE_S)  # each in time by itself
    with pytest.raises(StoreError, match=rf"3 trajectories are not stored {END_DEADLINE_S:g} s after the worker's end"):
        asyncio.run(slow.end(5))


def test_what_is_stored_in_time_lets_the_worker_end_in_peace() -> None:
    quick = SlowDisk(END_DEADLINE_S / 6)
    asyncio.run(quick.end(5))
    assert (len(quick.sink.trajectories), quick.outbox.num_waiting) == (5, 0)

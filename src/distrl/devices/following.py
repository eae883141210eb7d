"""Devices that come while a run goes on: the factory is asked again now and then, and what is new joins the pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from distrl.devices.base import Device, is_own
from distrl.devices.pool import DevicePool
from distrl.errors import DistrlError

END_S = 10.0
"""How long those that play on what came may take to end once they are cancelled."""


class Following:
    """Looks for devices that are not in the pool yet. Those that have gone stay there, as absent."""

    def __init__(
        self, find: Callable[[], Sequence[Device]], *, every_s: float, most: int, tell: Callable[[str], None]
    ) -> None:
        self._find, self.every_s, self._most, self._tell = find, every_s, most, tell
        self._said = ""

    async def keep(
        self,
        pool: DevicePool,
        play: Callable[[], Coroutine[Any, Any, None]],
        stopping: asyncio.Event,
        grown: Callable[[int], None],
    ) -> None:
        """Let devices join until told to stop, and `play` once for each that may be in use; `grown` hears how many that are."""
        lanes, num_lanes = list[asyncio.Task[None]](), pool.num_in_use
        stopped = asyncio.create_task(stopping.wait(), name="the end of what comes")
        try:
            while not stopped.done():
                await asyncio.wait({stopped, *lanes}, timeout=self.every_s, return_when=asyncio.FIRST_COMPLETED)
                for lane in lanes:
                    if lane.done():
                        lane.result()
                await self.join(pool)
                for number in range(num_lanes, pool.num_in_use):
                    lanes.append(asyncio.create_task(play(), name=f"lane {number}"))
                num_lanes = pool.num_in_use
                grown(num_lanes)
            await asyncio.gather(*lanes)
        finally:
            for task in (stopped, *lanes):
                task.cancel()
            await asyncio.wait({stopped, *lanes}, timeout=END_S)

    async def join(self, pool: DevicePool) -> None:
        """Let what is new join, up to `most` devices that are there."""
        try:
            found = await asyncio.to_thread(self._find)  # it may ask a server that does not answer
        except DistrlError as error:
            if error.seen != self._said:  # once, and not every time
                self._said = error.seen
                self._tell(error.seen)
            return
        self._said = ""
        for device in found:
            if device.name not in pool and pool.num_present < self._most:
                pool.add(device)


def can_follow(devices: Sequence[Device], owner: str) -> bool:
    """Whether devices of this kind may come and go: those that are made for one role alone do not."""
    return not any(is_own(device.name, owner) for device in devices)

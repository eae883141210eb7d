"""Leases devices to episodes and looks after their health.

A lost device is restarted in the background with growing back-off and returned to service. One that keeps failing
without a good episode in between is quarantined and tried again much later. Every wait has a deadline and a name,
and `status()` can always say what each device is waiting for.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any

import msgspec

from distrl.devices.base import DEVICE_FAULTS, Clock, Device, DeviceLeases, NoLeases, Sleep
from distrl.devices.calls import abandon
from distrl.errors import DeviceError

CLOSE_S = 10.0
"""How long a device may take to close. Whoever waits for the end of a worker is more patient."""
LEASE_POLL_S = 0.05
"""How soon a pool asks again for devices that other roles have; the pause doubles while they give back none."""
LEASE_SWEEP_S = 0.4
"""By then each of these devices is asked for again, unless far fewer episodes wait than there are devices: an ask takes no
more devices than there are episodes that wait, and asks come no faster than `LEASE_POLL_S`."""


class Health(StrEnum):
    """Where a device stands."""

    HEALTHY = "healthy"
    """Free to be leased."""
    LEASED = "leased"
    RESTARTING = "restarting"
    QUARANTINED = "quarantined"


class PoolLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How patient the pool is with one device."""

    restart_s: float = 60.0
    """A restart that takes longer has failed."""
    backoff_s: float = 0.5
    """Wait before the first restart; doubles with each failure in a row."""
    longest_backoff_s: float = 30.0
    """The back-off grows no further than this."""
    quarantine_after: int = 5
    """Failures in a row, without a good episode in between, that put a device in quarantine."""
    quarantine_s: float = 300.0
    """How long it stays there before it is tried again."""


def limits_of(device: Device) -> PoolLimits:
    """What the device's own time scales come to."""
    times = device.times
    return PoolLimits(
        restart_s=times.restart_s,
        backoff_s=times.backoff_s,
        longest_backoff_s=60 * times.backoff_s,
        quarantine_s=240 * times.backoff_s,
    )


class DeviceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One device as shown to people."""

    name: str
    health: Health
    failures: int
    """In a row, since the last good episode."""
    losses: int
    """In all."""
    waiting: str
    """What it is waiting for and why; empty: for nothing but an episode."""
    waiting_s: float
    """For how long it has been as it is."""
    deadline_s: float | None
    """Seconds until that wait ends by itself; None: whoever leased it has the deadline."""


class _Slot:
    """A device and its record of health."""

    def __init__(self, device: Device, limits: PoolLimits, now_s: float) -> None:
        self.device, self.limits = device, limits
        self.health = Health.HEALTHY
        self.failures = self.losses = 0
        self.waiting = ""
        self.since_s = now_s
        self.until_s: float | None = None


class DevicePool:
    """All devices of one process, whether it collects or evaluates. Belongs to one event loop.

    Without `limits`, each device's own time scales say how long restarts may take and how long to wait before them.
    With `leases`, devices are shared with other roles: each is taken for an episode, kept while it is brought back after a
    loss, and then given back.
    """

    def __init__(
        self,
        devices: Iterable[Device],
        limits: PoolLimits | None = None,
        *,
        leases: DeviceLeases | None = None,
        sleep: Sleep = asyncio.sleep,
        clock: Clock = time.monotonic,
    ) -> None:
        self._sleep, self._clock = sleep, clock
        self._shares, self._leases = leases is not None, leases or NoLeases()
        self._slots = {device.name: _Slot(device, limits or limits_of(device), clock()) for device in devices}
        self._free = deque(self._slots.values())
        self._queue: deque[asyncio.Future[_Slot]] = deque()
        self._asking: asyncio.Task[None] | None = None
        self._pause_s = LEASE_POLL_S
        self._recoveries: set[asyncio.Task[None]] = set()
        self._bug: BaseException | None = None

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def num_waiting(self) -> int:
        """Episodes that wait for a device."""
        return len(self._queue)

    def status(self) -> list[DeviceStatus]:
        """How every device is, by name."""
        now = self._clock()
        return [_describe(name, slot, now) for name, slot in sorted(self._slots.items())]

    def describe(self) -> str:
        """Why whoever waits for a device has none, such as "1 restarting, 3 quarantined"."""
        counts = Counter(slot.health for slot in self._slots.values())
        shown = ", ".join(f"{count} {health}" for health, count in sorted(counts.items())) or "the pool is empty"
        shared = f"; the {counts[Health.HEALTHY]} healthy are leased to other roles" * bool(counts[Health.HEALTHY])
        return f"{shown}{shared}"

    async def lease(self, timeout_s: float) -> Device:
        """A healthy device, the longest idle first; `DeviceError` where none comes free in time."""
        if self._bug is not None:
            raise self._bug
        self._forget_gone()
        slot = (None if self._queue else self._take_free()) or await self._queue_up(timeout_s)
        self._stop_asking_if_served()
        self._mark(slot, Health.LEASED, "the end of its episode")
        return slot.device

    def release(self, device: Device, *, lost: str = "") -> None:
        """Return a lease: after a good episode, or with the reason why the device was lost."""
        slot = self._slots.get(device.name)
        if slot is None or slot.health is not Health.LEASED:
            raise DeviceError(f"{device.name} is not leased", fix="release each lease once, to the pool that gave it")
        if lost:
            slot.losses += 1
            self._recover(slot, lost)
        else:
            slot.failures = 0
            self._offer(slot)

    @asynccontextmanager
    async def leased(self, timeout_s: float) -> AsyncIterator[Device]:
        """A device for the length of a block; one of `DEVICE_FAULTS` leaving it means that it was lost."""
        device = await self.lease(timeout_s)
        lost = ""
        try:
            yield device
        except DEVICE_FAULTS as error:
            lost = str(error) or "it missed a deadline"
            raise
        finally:
            self.release(device, lost=lost)

    async def close(self) -> list[str]:
        """Stop all recoveries, turn away whoever waits and close every device; what went wrong, a sentence per device.

        All of them are closed at once. One that raises or takes longer than `CLOSE_S` is left as it is.
        """
        for recovery in self._recoveries:
            recovery.cancel()
        await asyncio.gather(*self._recoveries, return_exceptions=True)
        self._turn_away(DeviceError("the device pool was closed"))
        self._queue.clear()
        self._stop_asking_if_served()
        # A bug of one device must not leave the others open.
        closed = await asyncio.gather(*map(self._close, self._slots), return_exceptions=True)
        for name in self._slots:
            self._leases.give_back(name)
        failed = [(name, error) for name, error in zip(self._slots, closed, strict=True) if error is not None]
        return [f"{name} was not closed: {type(error).__name__}: {error}" for name, error in failed]

    async def _close(self, name: str) -> None:
        device = self._slots[name].device
        await self._within(device.close(), CLOSE_S, name=name, what="close")

    # waiting for a device

    async def _queue_up(self, timeout_s: float) -> _Slot:
        turn: asyncio.Future[_Slot] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        alarm = asyncio.create_task(self._expire(turn, timeout_s), name="deadline of a lease")
        if self._shares and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._ask_again(), name="devices of other roles")
            self._asking.add_done_callback(self._end_asking)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._offer(turn.result())  # it was handed over in the very moment that its taker was cancelled
            raise
        finally:
            alarm.cancel()
            if turn in self._queue:
                self._queue.remove(turn)
            self._stop_asking_if_served()

    async def _ask_again(self) -> None:
        """Take what other roles give back, for all who wait; ever less often while they give back nothing."""
        while True:
            await self._sleep(self._pause_s)
            if self._serve():
                self._pause_s = LEASE_POLL_S
            else:
                sweep_s = LEASE_SWEEP_S * len(self._queue) / max(1, len(self._queue), len(self._free))
                self._pause_s = max(LEASE_POLL_S, min(2 * self._pause_s, sweep_s))

    def _end_asking(self, asking: asyncio.Task[None]) -> None:
        if not asking.cancelled() and (error := asking.exception()) is not None:
            self._turn_away(error)  # such as that of a disk, on which leases are files

    def _stop_asking_if_served(self) -> None:
        """Ask other roles for nothing, and be the next one nowhere, while nobody waits."""
        if self._queue:
            return
        self._leases.stop_waiting()
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    async def _expire(self, turn: asyncio.Future[_Slot], timeout_s: float) -> None:
        await self._sleep(timeout_s)
        if not turn.done():
            turn.set_exception(
                DeviceError(
                    f"no device came free within {timeout_s:g} s: {self.describe()}",
                    fix="add devices, or look at why they are lost",
                )
            )

    def _offer(self, slot: _Slot) -> None:
        """Give the device to whoever waits longest, or keep it for the next one."""
        self._mark(slot, Health.HEALTHY)
        self._leases.give_back(slot.device.name)
        if self._queue:
            self._free.appendleft(slot)  # those before it are leased to other roles
        else:
            self._free.append(slot)
        self._serve()

    def _serve(self) -> bool:
        """Give devices that are free to those who wait longest; whether somebody got one.

        No more devices are asked for than there are who wait. Those that other roles have are asked for last the next time.
        """
        self._forget_gone()
        num_waiting = len(self._queue)
        for _ in range(min(num_waiting, len(self._free))):
            if self._leases.take(self._free[0].device.name):
                self._queue.popleft().set_result(self._free.popleft())
            else:
                self._free.rotate(-1)
        return len(self._queue) < num_waiting

    def _forget_gone(self) -> None:
        """Who was turned away or has given up is in the queue until its task gets its turn."""
        self._queue = deque(turn for turn in self._queue if not turn.done())

    def _take_free(self) -> _Slot | None:
        """The device that has been idle longest of those that no other role has."""
        for slot in self._free:
            if self._leases.take(slot.device.name):
                self._free.remove(slot)
                return slot
        return None

    def _turn_away(self, error: BaseException) -> None:
        for turn in self._queue:
            if not turn.done():
                turn.set_exception(error)

    # recovery

    def _recover(self, slot: _Slot, reason: str) -> None:
        # Marked at once: the task starts only when the loop gets round to it, and status() must not lag behind.
        wait_s = self._mark_failed(slot, reason)
        recovery = asyncio.create_task(self._bring_back(slot, wait_s), name=f"recovery of {slot.device.name}")
        self._recoveries.add(recovery)
        recovery.add_done_callback(self._end_recovery)

    def _mark_failed(self, slot: _Slot, reason: str) -> float:
        """Count a failure; the seconds to wait before the next restart."""
        limits = slot.limits
        slot.failures += 1
        reason = (reason.splitlines() or ["it missed a deadline"])[0]
        if slot.failures >= limits.quarantine_after:
            wait_s = limits.quarantine_s
            self._mark(slot, Health.QUARANTINED, f"the end of its quarantine: {reason}", wait_s)
        else:
            wait_s = min(limits.longest_backoff_s, limits.backoff_s * 2 ** (slot.failures - 1))
            self._mark(slot, Health.RESTARTING, f"its next restart: {reason}", wait_s)
        return wait_s

    async def _bring_back(self, slot: _Slot, wait_s: float) -> None:
        while True:
            await self._sleep(wait_s)
            self._mark(slot, Health.RESTARTING, "its restart to finish", slot.limits.restart_s)
            try:
                await self._restart(slot)
            except DEVICE_FAULTS as error:
                wait_s = self._mark_failed(slot, str(error))
            else:
                return self._offer(slot)

    async def _restart(self, slot: _Slot) -> None:
        device, limit_s = slot.device, slot.limits.restart_s
        await self._within(device.restart(), limit_s, name=device.name, what="restart")

    async def _within(self, work: Coroutine[Any, Any, None], limit_s: float, *, name: str, what: str) -> None:
        """Do something with a device; past its deadline it is cancelled and not waited for: it may not heed that."""
        task = asyncio.create_task(work, name=f"{what} of {name}")
        alarm = asyncio.ensure_future(self._sleep(limit_s))
        try:
            await asyncio.wait({task, alarm}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise TimeoutError(f"its {what} took longer than {limit_s:g} s")
            task.result()
        finally:
            abandon(task)
            alarm.cancel()

    def _end_recovery(self, recovery: asyncio.Task[None]) -> None:
        """A recovery that died of a bug must not take its device away in silence: the next lease raises it."""
        self._recoveries.discard(recovery)
        if not recovery.cancelled() and (bug := recovery.exception()) is not None:
            self._bug = bug
            self._turn_away(bug)

    def _mark(self, slot: _Slot, health: Health, waiting: str = "", wait_s: float | None = None) -> None:
        now = self._clock()
        slot.health, slot.waiting, slot.since_s = health, waiting, now
        slot.until_s = None if wait_s is None else now + wait_s


def _describe(name: str, slot: _Slot, now_s: float) -> DeviceStatus:
    return DeviceStatus(
        name=name,
        health=slot.health,
        failures=slot.failures,
        losses=slot.losses,
        waiting=slot.waiting,
        waiting_s=now_s - slot.since_s,
        deadline_s=None if slot.until_s is None else max(0.0, slot.until_s - now_s),
    )

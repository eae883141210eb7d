"""Leases devices to episodes and looks after their health.

A lost device is restarted in the background with growing back-off and returned to service. One that keeps failing
without a good episode in between is quarantined and tried again much later. What is done goes by the cause: a device that
is not connected is awaited, one that needs a person waits for one, and neither that nor a server that does not answer is held
against it. Spare devices are leased while others are down, idle ones are asked whether they are well, and devices may join.
Every wait has a deadline and a name, and `status()` can always say what each device is waiting for.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

from distrl.devices.base import (
    DEVICE_FAULTS,
    Clock,
    Device,
    DeviceLeases,
    NoLeases,
    Probes,
    RestartsByCause,
    Sleep,
    cause_of,
)
from distrl.devices.calls import abandon
from distrl.devices.health import UP, DeviceEvent, DeviceStatus, Health, PoolLimits, Slot, limits_of
from distrl.errors import DeviceError, LossCause

CLOSE_S = 10.0
"""How long a device may take to close. Whoever waits for the end of a worker is more patient."""
PROBE_POLL_S = 5.0
"""How often idle devices are looked through for those that are to be asked whether they are well."""
LEASE_POLL_S = 0.05
"""How soon a pool asks again for devices that other roles have; the pause doubles while they give back none."""
LEASE_SWEEP_S = 0.4
"""By then each of these devices is asked for again, unless far fewer episodes wait than there are devices: an ask takes no
more devices than there are episodes that wait, and asks come no faster than `LEASE_POLL_S`."""


class DevicePool:
    """All devices of one process, whether it collects or evaluates. Belongs to one event loop.

    Without `limits`, each device's own time scales say how long restarts may take and how long to wait before them.
    With `leases`, devices are shared with other roles: each is taken for an episode, kept while it is brought back after a
    loss, and then given back. With `active`, no more than so many are in use; the others are spares. `tell` hears what happens
    between episodes.
    """

    def __init__(
        self,
        devices: Iterable[Device],
        limits: PoolLimits | None = None,
        *,
        leases: DeviceLeases | None = None,
        active: int | None = None,
        tell: Callable[[DeviceEvent], None] = lambda event: None,
        sleep: Sleep = asyncio.sleep,
        clock: Clock = time.monotonic,
    ) -> None:
        self._sleep, self._clock = sleep, clock
        self._shares, self._leases = leases is not None, leases or NoLeases()
        self._limits, self._active, self._tell = limits, active, tell
        self._slots: dict[str, Slot] = {}
        self._free: deque[Slot] = deque()
        for device in devices:
            self._enter(device)
        self._queue: deque[asyncio.Future[Slot]] = deque()
        self._asking: asyncio.Task[None] | None = None
        self._pause_s = LEASE_POLL_S
        self._recoveries: set[asyncio.Task[None]] = set()
        self._probing: asyncio.Task[None] | None = None
        self._bug: BaseException | None = None

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def num_in_use(self) -> int:
        """Devices that episodes may use at once: all but the spares."""
        return sum(not slot.is_spare for slot in self._slots.values())

    def __contains__(self, name: str) -> bool:
        return name in self._slots

    @property
    def num_present(self) -> int:
        """Devices that are not known to be away."""
        return sum(slot.health is not Health.ABSENT for slot in self._slots.values())

    def add(self, device: Device) -> None:
        """Let a device join that was not there before."""
        self._enter(device)
        self._tell(DeviceEvent(kind="device_joined", device=device.name))
        self._serve()

    def _enter(self, device: Device) -> None:
        is_spare = self._active is not None and self.num_in_use >= self._active
        slot = Slot(device, self._limits or limits_of(device), self._clock(), is_spare=is_spare)
        self._slots[device.name] = slot
        self._free.append(slot)

    @property
    def num_waiting(self) -> int:
        """Episodes that wait for a device."""
        return len(self._queue)

    def status(self) -> list[DeviceStatus]:
        """How every device is, by name."""
        now = self._clock()
        return [slot.describe(now) for _, slot in sorted(self._slots.items())]

    def describe(self) -> str:
        """Why whoever waits for a device has none, such as "1 leased, 1 quarantined (R58M waits for somebody …)"."""
        counts = Counter(slot.health for slot in self._slots.values())
        shown = ", ".join(f"{count} {health}" for health, count in sorted(counts.items())) or "the pool is empty"
        down = sorted((slot for slot in self._slots.values() if slot.health not in UP), key=_needs_no_person)
        shown += f" ({down[0].device.name} waits for {down[0].waiting})" if down else ""
        shared = f"; the {counts[Health.HEALTHY]} healthy are leased to other roles or runs" * bool(
            counts[Health.HEALTHY]
        )
        return f"{shown}{shared}"

    async def lease(self, timeout_s: float) -> Device:
        """A healthy device, the longest idle first; `DeviceError` where none comes free in time."""
        if self._bug is not None:
            raise self._bug
        self._forget_gone()
        self._start_probing()
        slot = (None if self._queue else self._take_free()) or await self._queue_up(timeout_s)
        self._stop_asking_if_served()
        self._mark(slot, Health.LEASED, "the end of its episode")
        return slot.device

    def release(self, device: Device, *, lost: str = "", cause: LossCause = LossCause.CRASH) -> None:
        """Return a lease: after a good episode, or with the reason why the device was lost."""
        slot = self._slots.get(device.name)
        if slot is None or slot.health is not Health.LEASED:
            raise DeviceError(f"{device.name} is not leased", fix="release each lease once, to the pool that gave it")
        if lost:
            self._recover(slot, lost, cause)
        else:
            slot.failures = 0
            self._offer(slot)

    @asynccontextmanager
    async def leased(self, timeout_s: float) -> AsyncIterator[Device]:
        """A device for the length of a block; one of `DEVICE_FAULTS` leaving it means that it was lost."""
        device = await self.lease(timeout_s)
        lost, cause = "", LossCause.CRASH
        try:
            yield device
        except DEVICE_FAULTS as error:
            lost, cause = str(error) or "it missed a deadline", cause_of(error)
            raise
        finally:
            self.release(device, lost=lost, cause=cause)

    async def close(self) -> list[str]:
        """Stop all recoveries, turn away whoever waits and close every device; what went wrong, a sentence per device.

        All of them are closed at once. One that raises or takes longer than `CLOSE_S` is left as it is.
        """
        background = [*self._recoveries, *([self._probing] if self._probing else [])]
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
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

    async def _queue_up(self, timeout_s: float) -> Slot:
        turn: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
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

    async def _expire(self, turn: asyncio.Future[Slot], timeout_s: float) -> None:
        await self._sleep(timeout_s)
        if not turn.done():
            turn.set_exception(
                DeviceError(
                    f"no device came free within {timeout_s:g} s: {self.describe()}",
                    fix="add devices, or look at why they are lost",
                )
            )

    def _offer(self, slot: Slot) -> None:
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
        for slot in self._usable()[:num_waiting]:
            self._free.remove(slot)
            if self._leases.take(slot.device.name):
                self._mark(slot, Health.LEASED, "the end of its episode")
                self._queue.popleft().set_result(slot)
            else:
                self._free.append(slot)
        return len(self._queue) < num_waiting

    def _usable(self) -> list[Slot]:
        """Free devices in the order in which they are asked for; spares come last, and only as many as stand in for others."""
        if self._active is None:
            return list(self._free)
        wanted = sum(slot.health not in UP for slot in self._slots.values() if not slot.is_spare)
        wanted -= sum(slot.health is Health.LEASED for slot in self._slots.values() if slot.is_spare)
        spares = [slot for slot in self._free if slot.is_spare][: max(0, wanted)]
        return [*(slot for slot in self._free if not slot.is_spare), *spares]

    def _forget_gone(self) -> None:
        """Who was turned away or has given up is in the queue until its task gets its turn."""
        self._queue = deque(turn for turn in self._queue if not turn.done())

    def _take_free(self) -> Slot | None:
        """The device that has been idle longest of those that no other role has."""
        for slot in self._usable():
            if self._leases.take(slot.device.name):
                self._free.remove(slot)
                return slot
        return None

    def _turn_away(self, error: BaseException) -> None:
        for turn in self._queue:
            if not turn.done():
                turn.set_exception(error)

    # recovery

    def _recover(self, slot: Slot, reason: str, cause: LossCause) -> None:
        slot.lost_at_s, slot.tries = self._clock(), 0
        slot.causes[cause] += 1
        # Marked at once: the task starts only when the loop gets round to it, and status() must not lag behind.
        wait_s = self._mark_failed(slot, reason, cause)
        self._serve()  # a spare may stand in for it
        recovery = asyncio.create_task(self._bring_back(slot, wait_s), name=f"recovery of {slot.device.name}")
        self._recoveries.add(recovery)
        recovery.add_done_callback(self._end_recovery)

    def _mark_failed(self, slot: Slot, reason: str, cause: LossCause) -> float:
        """Take note of a failure; the seconds to wait before the next restart."""
        health, waits_for, wait_s = slot.after_failure(cause)
        self._mark(slot, health, f"{waits_for}: {(reason.splitlines() or ['it missed a deadline'])[0]}", wait_s)
        return wait_s

    async def _bring_back(self, slot: Slot, wait_s: float) -> None:
        while True:
            await self._sleep(wait_s)
            if slot.health is not Health.ABSENT:  # one that is away is only looked for
                self._mark(slot, Health.RESTARTING, "its restart to finish", slot.limits.restart_s)
            try:
                await self._restart(slot)
            except DEVICE_FAULTS as error:
                why, cause = str(error).partition("\n")[0], cause_of(error)
                if cause is not slot.cause or cause is not LossCause.GONE:  # not every time that it is still away
                    name = slot.device.name
                    self._tell(DeviceEvent(kind="device_restart_failed", device=name, cause=cause, why=why))
                wait_s = self._mark_failed(slot, str(error), cause)
            else:
                down_s = round(self._clock() - slot.lost_at_s, 2)
                self._tell(DeviceEvent(kind="device_back", device=slot.device.name, cause=slot.cause, down_s=down_s))
                return self._offer(slot)

    async def _restart(self, slot: Slot) -> None:
        device, limit_s = slot.device, slot.limits.restart_s
        restart = device.restart_after(slot.cause) if isinstance(device, RestartsByCause) else device.restart()
        await self._within(restart, limit_s, name=device.name, what="restart")

    # devices that are idle

    def _start_probing(self) -> None:
        if self._probing is None and any(isinstance(slot.device, Probes) for slot in self._slots.values()):
            self._probing = asyncio.create_task(self._keep_probing(), name="probes of idle devices")
            self._probing.add_done_callback(self._end_probing)

    async def _keep_probing(self) -> None:
        while True:
            await self._sleep(PROBE_POLL_S)
            due = [slot for slot in self._free if self._clock() - slot.since_s >= slot.limits.probe_s]
            for slot in due:
                if slot not in self._free or not isinstance(slot.device, Probes):
                    continue  # leased while others were probed
                if self._leases.take(slot.device.name):
                    self._free.remove(slot)
                    await self._probe(slot, slot.device)

    async def _probe(self, slot: Slot, device: Probes) -> None:
        """Ask a device whether it is well, one at a time: nothing else waits for that."""
        limit_s = slot.limits.restart_s
        self._mark(slot, Health.PROBED, "its probe to finish", limit_s)
        try:
            await self._within(device.probe(), limit_s, name=slot.device.name, what="probe")
        except DEVICE_FAULTS as error:
            why, cause = str(error) or "it missed a deadline", cause_of(error)
            event = DeviceEvent(
                kind="device_probe_failed", device=slot.device.name, cause=cause, why=why.partition("\n")[0]
            )
            self._tell(event)
            self._recover(slot, why, cause)
        else:
            self._offer(slot)

    def _end_probing(self, probing: asyncio.Task[None]) -> None:
        if not probing.cancelled() and (bug := probing.exception()) is not None:
            self._bug = bug
            self._turn_away(bug)

    async def _within(self, work: Coroutine[Any, Any, None], limit_s: float, *, name: str, what: str) -> None:
        """Do something with a device; past its deadline it is cancelled and not waited for: it may ignore that."""
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

    def _mark(self, slot: Slot, health: Health, waiting: str = "", wait_s: float | None = None) -> None:
        slot.mark(health, waiting, now_s=self._clock(), wait_s=wait_s)


def _needs_no_person(slot: Slot) -> bool:
    return slot.cause is not LossCause.PERSON

from __future__ import annotations

import asyncio

import pytest

from distrl.config.schema import FaultConfig, LatencyConfig
from distrl.devices.health import DeviceStatus, Health, PoolLimits
from distrl.devices.pool import CLOSE_S, LEASE_POLL_S, LEASE_SWEEP_S, DevicePool
from distrl.devices.sim.device import SimDevice, SimSettings
from distrl.errors import DeviceError, DeviceLost, StoreError
from distrl.tasks.sim.suites import suite
from distrl.transport.memory import LeaseTable, MemoryLeases
from distrl.types import Wait
from support.faketime import FakeTime, play, settle

LIMITS = PoolLimits(restart_s=20.0, backoff_s=1.0, longest_backoff_s=4.0, quarantine_after=4, quarantine_s=100.0)
INSTANT = SimSettings(latency=LatencyConfig(profile="instant"))


class Stubborn(SimDevice):
    """A phone whose next restarts go as the test says."""

    def __init__(self, name: str, time: FakeTime, *outcomes: Exception | float) -> None:
        super().__init__(name, INSTANT, sleep=time.sleep, clock=time.clock)
        self.time, self.outcomes, self.restarted_at = time, list(outcomes), list[float]()

    async def restart(self) -> None:
        self.restarted_at.append(self.time.now_s)
        outcome = self.outcomes.pop(0) if self.outcomes else 0.0
        if isinstance(outcome, Exception):
            raise outcome
        await self.time.sleep(outcome)


def a_pool(time: FakeTime, *devices: SimDevice, limits: PoolLimits = LIMITS) -> DevicePool:
    return DevicePool(devices, limits, sleep=time.sleep, clock=time.clock)


def phones(time: FakeTime, count: int) -> list[SimDevice]:
    return [SimDevice(f"phone-{number}", INSTANT, sleep=time.sleep, clock=time.clock) for number in range(count)]


def only(pool: DevicePool) -> DeviceStatus:
    (status,) = pool.status()
    return status


def test_devices_are_leased_once_each_and_the_longest_idle_comes_first():
    async def scene(time: FakeTime) -> None:
        pool = a_pool(time, *phones(time, 3))
        first, second = await pool.lease(1.0), await pool.lease(1.0)
        assert [first.name, second.name] == ["phone-0", "phone-1"]
        pool.release(first)
        assert [(await pool.lease(1.0)).name, (await pool.lease(1.0)).name] == ["phone-2", "phone-0"]
        assert {status.health for status in pool.status()} == {Health.LEASED}

    play(scene)


def test_whoever_waits_longest_gets_the_next_free_device():
    async def scene(time: FakeTime) -> None:
        pool = a_pool(time, *phones(time, 1))
        device = await pool.lease(1.0)
        waiting = [asyncio.create_task(pool.lease(50.0)) for _ in range(2)]
        await settle()
        assert pool.num_waiting == 2
        pool.release(device)
        await settle()
        assert [task.done() for task in waiting] == [True, False]
        pool.release(waiting[0].result())
        assert (await waiting[1]) is device

    play(scene)


def test_a_wait_for_a_device_ends_at_its_deadline_and_says_what_they_all_do():
    async def scene(time: FakeTime) -> None:
        pool = a_pool(time, *phones(time, 2))
        await pool.lease(1.0)
        pool.release(await pool.lease(1.0), lost="it crashed")
        waiting = asyncio.create_task(pool.lease(0.5))
        await time.advance(0.5)
        with pytest.raises(DeviceError, match=r"no device came free within 0\.5 s: 1 leased, 1 restarting") as late:
            await waiting
        assert "phone-1 waits for its next restart: it crashed" in late.value.seen
        assert pool.num_waiting == 0

    play(scene)


def test_a_cancelled_wait_loses_no_device():
    async def scene(time: FakeTime) -> None:
        pool = a_pool(time, *phones(time, 1))
        device = await pool.lease(1.0)
        waiting = asyncio.create_task(pool.lease(50.0))
        await settle()
        pool.release(device)  # hands it over …
        waiting.cancel()  # … to someone who is gone before noticing
        await settle()
        assert only(pool).health is Health.HEALTHY
        assert (await pool.lease(1.0)) is device

    play(scene)


def test_a_lost_device_is_restarted_after_a_moment_and_returned_to_service():
    async def scene(time: FakeTime) -> None:
        device = Stubborn("phone-0", time, 5.0)
        pool = a_pool(time, device)
        pool.release(await pool.lease(1.0), lost="crash\nwith details")
        status = only(pool)
        assert (status.health, status.waiting) == (Health.RESTARTING, "its next restart: crash")
        assert status.deadline_s == 1.0
        await time.advance(1.0)
        assert only(pool).waiting == "its restart to finish"
        assert only(pool).deadline_s == 20.0
        await time.advance(5.0)
        assert only(pool).health is Health.HEALTHY
        assert (await pool.lease(1.0)) is device

    play(scene)


def test_failed_restarts_are_tried_again_with_growing_back_off_and_end_in_quarantine():
    async def scene(time: FakeTime) -> None:
        trouble = [DeviceLost("still gone") for _ in range(5)]
        device = Stubborn("phone-0", time, *trouble)
        pool = a_pool(time, device)
        pool.release(await pool.lease(1.0), lost="crash")
        await time.advance(7.0)
        assert device.restarted_at == [1.0, 3.0, 7.0]
        status = only(pool)
        assert (status.health, status.failures, status.losses) == (Health.QUARANTINED, 4, 1)
        assert status.waiting == "the end of its quarantine: still gone"
        assert status.deadline_s == 100.0
        await time.advance(300.0)
        assert device.restarted_at[3:] == [107.0, 207.0, 307.0]
        assert only(pool).health is Health.HEALTHY

    play(scene)


def test_back_off_grows_no_further_than_its_limit():
    async def scene(time: FakeTime) -> None:
        device = Stubborn("phone-0", time, *[DeviceLost("gone") for _ in range(6)])
        limits = PoolLimits(backoff_s=1.0, longest_backoff_s=4.0, quarantine_after=99)
        pool = a_pool(time, device, limits=limits)
        pool.release(await pool.lease(1.0), lost="crash")
        await time.advance(20.0)
        assert device.restarted_at == [1.0, 3.0, 7.0, 11.0, 15.0, 19.0]

    play(scene)


def test_a_restart_that_hangs_has_failed_at_its_deadline():
    async def scene(time: FakeTime) -> None:
        device = Stubborn("phone-0", time, 10_000.0)
        pool = a_pool(time, device)
        pool.release(await pool.lease(1.0), lost="freeze")
        await time.advance(21.0)
        assert only(pool).waiting == "its next restart: its restart took longer than 20 s"
        await time.advance(2.0)
        assert only(pool).health is Health.HEALTHY
        assert device.restarted_at == [1.0, 23.0]

    play(scene)


def test_a_good_episode_wipes_the_slate():
    async def scene(time: FakeTime) -> None:
        pool = a_pool(time, Stubborn("phone-0", time))
        for _ in range(10):
            pool.release(await pool.lease(200.0), lost="crash")
            await time.advance(1.0)
            assert only(pool).health is Health.HEALTHY
            pool.release(await pool.lease(1.0))
        assert (only(pool).failures, only(pool).losses) == (0, 10)

    play(scene)


def test_losing_it_again_and_again_quarantines_a_device_though_every_restart_works():
    async def scene(time: FakeTime) -> None:
        pool = a_pool(time, Stubborn("phone-0", time))
        for _ in range(4):
            waiting = asyncio.create_task(pool.lease(50.0))
            await time.advance(10.0)
            pool.release(await waiting, lost="crash")
        assert only(pool).health is Health.QUARANTINED

    play(scene)


def test_a_block_that_ends_in_a_lost_device_starts_its_recovery_and_another_error_does_not():
    async def scene(time: FakeTime) -> None:
        pool = a_pool(time, Stubborn("phone-0", time))
        with pytest.raises(DeviceLost):
            async with pool.leased(1.0):
                raise DeviceLost("crash")
        assert only(pool).health is Health.RESTARTING
        await time.advance(1.0)
        with pytest.raises(KeyError):
            async with pool.leased(1.0):
                raise KeyError("a bug in the policy")
        assert only(pool).health is Health.HEALTHY

    play(scene)


def test_a_lease_cannot_be_returned_twice():
    async def scene(time: FakeTime) -> None:
        pool = a_pool(time, *phones(time, 1))
        device = await pool.lease(1.0)
        pool.release(device)
        with pytest.raises(DeviceError, match="phone-0 is not leased"):
            pool.release(device)

    play(scene)


def test_a_bug_in_a_restart_is_raised_to_whoever_waits():
    async def scene(time: FakeTime) -> None:
        pool = a_pool(time, Stubborn("phone-0", time, ZeroDivisionError()))
        pool.release(await pool.lease(1.0), lost="crash")
        waiting = asyncio.create_task(pool.lease(50.0))
        await time.advance(1.0)
        with pytest.raises(ZeroDivisionError):
            await waiting
        with pytest.raises(ZeroDivisionError):
            await pool.lease(1.0)

    play(scene)


def test_closing_stops_recoveries_and_turns_the_waiting_away():
    async def scene(time: FakeTime) -> None:
        pool = a_pool(time, Stubborn("phone-0", time, 10.0))
        pool.release(await pool.lease(1.0), lost="crash")
        waiting = asyncio.create_task(pool.lease(50.0))
        await time.advance(2.0)
        await pool.close()
        with pytest.raises(DeviceError, match="closed"):
            await waiting
        assert {task.get_name() for task in asyncio.all_tasks()} == {asyncio.current_task().get_name()}  # type: ignore[union-attr]

    play(scene)


class Clinging(SimDevice):
    """A phone whose closing goes as the test says."""

    def __init__(self, name: str, time: FakeTime, outcome: Exception | float) -> None:
        super().__init__(name, INSTANT, sleep=time.sleep, clock=time.clock)
        self.time, self.outcome, self.closed = time, outcome, False

    async def close(self) -> None:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        await self.time.sleep(self.outcome)
        self.closed = True


def test_every_device_is_closed_though_others_raise_or_hang_and_each_of_those_is_named():
    async def scene(time: FakeTime) -> None:
        outcomes = [DeviceLost("gone"), 0.5 * CLOSE_S, ZeroDivisionError("a bug"), 1e9]
        devices = [Clinging(f"phone-{n}", time, outcome) for n, outcome in enumerate(outcomes)]
        closing = asyncio.create_task(a_pool(time, *devices).close())
        await time.advance(0.9 * CLOSE_S)
        assert not closing.done(), "one of them still hangs"
        await time.advance(0.2 * CLOSE_S)
        assert await closing == [
            "phone-0 was not closed: DeviceLost: gone",
            "phone-2 was not closed: ZeroDivisionError: a bug",
            "phone-3 was not closed: TimeoutError: its close took longer than 10 s",
        ]
        assert [device.closed for device in devices] == [False, True, False, False]

    play(scene)


def test_a_pool_of_failing_phones_keeps_serving_episodes():
    async def scene(time: FakeTime) -> None:
        faults = FaultConfig(crash_rate=0.05, disconnect_rate=0.05)
        settings = SimSettings(latency=LatencyConfig(profile="emulator", time_scale=0.1), faults=faults)
        pool = a_pool(time, *(SimDevice(f"phone-{n}", settings, sleep=time.sleep, clock=time.clock) for n in range(4)))
        task, good = suite("sim-general").task("train", 0), 0

        async def episode() -> None:
            nonlocal good
            try:
                async with pool.leased(1000.0) as device:
                    await device.reset(task)
                    for _ in range(5):
                        await device.perform(Wait())
                    good += 1
            except DeviceLost:
                return

        episodes = [asyncio.create_task(episode()) for _ in range(40)]
        await time.advance(1000.0)
        assert all(episode.done() for episode in episodes)
        assert 10 < good < 40
        assert {status.health for status in pool.status()} == {Health.HEALTHY}

    play(scene)


# devices that other roles use too


def sharing(time: FakeTime, table: LeaseTable, owner: str, *devices: SimDevice) -> DevicePool:
    return DevicePool(devices, LIMITS, leases=MemoryLeases(table, owner), sleep=time.sleep, clock=time.clock)


def test_a_device_that_another_role_plays_on_is_waited_for_and_the_others_are_taken():
    async def scene(time: FakeTime) -> None:
        table = LeaseTable()
        worker = sharing(time, table, "worker-0", *phones(time, 2))
        evaluator = sharing(time, table, "evaluator", *phones(time, 2))
        first = await worker.lease(1.0)
        assert (await evaluator.lease(1.0)).name == "phone-1"
        waiting = asyncio.create_task(evaluator.lease(50.0))
        await time.advance(10.0)
        assert not waiting.done()
        worker.release(first)
        await time.advance(LEASE_SWEEP_S)
        assert (await waiting).name == "phone-0"
        with pytest.raises(DeviceError, match="leased to other roles or runs"):
            await asyncio.gather(worker.lease(2.0), time.advance(3.0))

    play(scene)


def test_who_waits_for_another_roles_device_is_served_before_that_role_has_it_again():
    async def scene(time: FakeTime) -> None:
        table = LeaseTable()
        worker = sharing(time, table, "worker-0", *phones(time, 1))
        evaluator = sharing(time, table, "evaluator", *phones(time, 1))
        held = await worker.lease(1.0)
        waiting = asyncio.create_task(evaluator.lease(50.0))
        again = asyncio.create_task(worker.lease(50.0))
        await time.advance(1.0)
        worker.release(held)
        await time.advance(1.0)
        assert (waiting.done(), again.done()) == (True, False)
        evaluator.release(waiting.result())
        await time.advance(1.0)
        assert again.done()

    play(scene)


def test_who_gave_up_waiting_or_found_another_device_holds_nobody_up():
    async def scene(time: FakeTime) -> None:
        table = LeaseTable()
        worker = sharing(time, table, "worker-0", *phones(time, 1))
        evaluator = sharing(time, table, "evaluator", *phones(time, 2))
        held = await worker.lease(1.0)
        assert (await evaluator.lease(1.0)).name == "phone-1"
        assert table.next == {}
        late = asyncio.create_task(evaluator.lease(2.0))
        await time.advance(1.0)
        assert table.next == {"phone-0": "evaluator"}
        await time.advance(2.0)
        with pytest.raises(DeviceError):
            await late
        assert table.next == {}
        worker.release(held)
        assert await worker.lease(0.0) is held

    play(scene)


def test_a_lost_device_is_kept_from_other_roles_until_it_is_back_and_given_back_at_the_end():
    async def scene(time: FakeTime) -> None:
        table = LeaseTable()
        worker = sharing(time, table, "worker-0", Stubborn("phone-0", time, 5.0))
        evaluator = MemoryLeases(table, "evaluator")
        worker.release(await worker.lease(1.0), lost="gone")
        await time.advance(3.0)
        assert not evaluator.take("phone-0")
        await time.advance(4.0)
        assert evaluator.take("phone-0")
        evaluator.give_back("phone-0")
        await worker.lease(1.0)
        await worker.close()
        assert table.holder == {}

    play(scene)


class Counting(MemoryLeases):
    """Leases that count how often they are asked for."""

    num_takes = 0

    def take(self, device: str) -> bool:
        self.num_takes += 1
        return super().take(device)


def test_many_lanes_that_wait_for_devices_of_another_role_ask_seldom():
    async def scene(time: FakeTime) -> None:
        table, num = LeaseTable(), 32
        worker = sharing(time, table, "worker-0", *phones(time, num))
        held = [await worker.lease(1.0) for _ in range(num)]
        leases = Counting(table, "evaluator")
        pool = DevicePool(phones(time, num), LIMITS, leases=leases, sleep=time.sleep, clock=time.clock)
        got = []

        async def lane() -> None:
            while len(got) < num:
                try:
                    got.append(await pool.lease(1.0))
                except DeviceError:
                    continue

        lanes = [asyncio.create_task(lane()) for _ in range(num)]
        await time.advance(10.0)
        assert leases.num_takes / 10.0 < 200.0, "each device a few times a second, however many wait"
        for device in held:
            worker.release(device)
        await time.advance(2 * LEASE_SWEEP_S)
        assert len(got) == num, "and none is left idle for long"
        for one in lanes:
            one.cancel()

    play(scene)


def test_an_ask_takes_no_more_devices_than_there_are_episodes_that_wait_and_comes_to_each_device():
    async def scene(time: FakeTime) -> None:
        table, num = LeaseTable(), 8
        worker = sharing(time, table, "worker-0", *phones(time, num))
        held = [await worker.lease(1.0) for _ in range(num)]
        leases = Counting(table, "evaluator")
        pool = DevicePool(phones(time, num), LIMITS, leases=leases, sleep=time.sleep, clock=time.clock)
        waiting = asyncio.create_task(pool.lease(50.0))
        await time.advance(0.0)
        before = leases.num_takes
        await time.advance(1.0)
        assert leases.num_takes - before <= 1.0 / LEASE_POLL_S + 1
        worker.release(held[5])
        await time.advance(num * LEASE_POLL_S)
        assert (await waiting).name == held[5].name

    play(scene)


def test_an_error_of_the_leases_reaches_whoever_waits():
    class Broken(MemoryLeases):
        is_broken = False

        def take(self, device: str) -> bool:
            if self.is_broken:
                raise StoreError("the disk is gone")
            return super().take(device)

    async def scene(time: FakeTime) -> None:
        table = LeaseTable()
        worker = sharing(time, table, "worker-0", *phones(time, 1))
        await worker.lease(1.0)
        leases = Broken(table, "evaluator")
        pool = DevicePool(phones(time, 1), LIMITS, leases=leases, sleep=time.sleep, clock=time.clock)
        waiting = asyncio.create_task(pool.lease(50.0))
        await time.advance(0.0)
        leases.is_broken = True
        await time.advance(1.0)
        with pytest.raises(StoreError, match="the disk is gone"):
            await waiting

    play(scene)

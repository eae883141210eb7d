"""What becomes of a lost device goes by the cause; spares stand in for it, idle ones are probed, new ones join."""

from __future__ import annotations

import asyncio

import pytest

from distrl.config.schema import LatencyConfig
from distrl.devices.following import Following, can_follow
from distrl.devices.health import DeviceEvent, DeviceStatus, Health, PoolLimits
from distrl.devices.pool import PROBE_POLL_S, DevicePool
from distrl.devices.sim.device import SimDevice, SimSettings
from distrl.errors import DeviceError, DeviceLost, LossCause
from support.faketime import FakeTime, play, settle
from support.rollouts import until

LIMITS = PoolLimits(
    restart_s=20.0,
    backoff_s=1.0,
    longest_backoff_s=8.0,
    quarantine_after=3,
    quarantine_s=100.0,
    absent_s=2.0,
    probe_s=30.0,
)
GONE, PERSON, SERVER, LATE = LossCause.GONE, LossCause.PERSON, LossCause.SERVER, LossCause.LATE


class Told(SimDevice):
    """A phone whose next restarts and probes raise what the test says, or nothing."""

    def __init__(
        self, name: str, time: FakeTime, *outcomes: LossCause | None, probes: tuple[LossCause | None, ...] = ()
    ):
        super().__init__(
            name, SimSettings(latency=LatencyConfig(profile="instant")), sleep=time.sleep, clock=time.clock
        )
        self.outcomes, self.probes, self.causes, self.probed = list(outcomes), list(probes), list[LossCause](), 0

    async def restart_after(self, cause: LossCause) -> None:
        self.causes.append(cause)
        self._follow(self.outcomes)

    async def probe(self) -> None:
        self.probed += 1
        self._follow(self.probes)

    def _follow(self, outcomes: list[LossCause | None]) -> None:
        if outcomes and (cause := outcomes.pop(0)) is not None:
            raise DeviceLost(f"{self.name} is {cause}", cause=cause)


def a_pool(
    time: FakeTime, *devices: SimDevice, active: int | None = None, told: list[DeviceEvent] | None = None
) -> DevicePool:
    tell = told.append if told is not None else lambda event: None
    return DevicePool(devices, LIMITS, active=active, tell=tell, sleep=time.sleep, clock=time.clock)


def by_name(pool: DevicePool) -> dict[str, DeviceStatus]:
    return {status.name: status for status in pool.status()}


async def lose(pool: DevicePool, cause: LossCause) -> None:
    pool.release(await pool.lease(1.0), lost=f"it is {cause}", cause=cause)
    await settle()


# --- by cause ---------------------------------------------------------------------------------------------------------


def test_a_device_that_is_away_is_looked_for_again_and_again_and_never_quarantined() -> None:
    async def scene(time: FakeTime) -> None:
        told: list[DeviceEvent] = []
        device = Told("phone", time, *[GONE] * 20)
        pool = a_pool(time, device, told=told)
        await lose(pool, GONE)
        status = by_name(pool)["phone"]
        assert (status.health, status.waiting) == (Health.ABSENT, "its connection: it is gone")
        assert pool.num_present == 0
        await time.advance(40.0)
        assert by_name(pool)["phone"].health is Health.ABSENT
        assert (len(device.causes), set(device.causes)) == (20, {GONE})
        await time.advance(2.0)
        status = by_name(pool)["phone"]
        assert (status.health, status.failures, status.losses, status.causes) == (Health.HEALTHY, 0, 1, {"gone": 1})
        assert [(event.kind, event.down_s) for event in told] == [("device_back", 42.0)]  # not a line each time

    play(scene)


def test_one_that_is_started_here_is_restarted_when_it_is_gone() -> None:
    async def scene(time: FakeTime) -> None:
        limits = PoolLimits(backoff_s=1.0, quarantine_after=2, quarantine_s=50.0, absent_s=0.0)
        device = Told("emulator", time, GONE)
        pool = DevicePool([device], limits, sleep=time.sleep, clock=time.clock)
        await lose(pool, GONE)
        assert by_name(pool)["emulator"].health is Health.RESTARTING
        await time.advance(1.0)
        assert by_name(pool)["emulator"].health is Health.QUARANTINED

    play(scene)


def test_one_that_needs_a_person_waits_for_one_and_a_silent_server_is_not_held_against_a_device() -> None:
    async def scene(time: FakeTime) -> None:
        locked, served = Told("locked", time, PERSON, PERSON), Told("served", time, *[SERVER] * 6)
        pool = a_pool(time, locked, served)
        await lose(pool, PERSON)
        await lose(pool, SERVER)
        assert by_name(pool)["locked"].waiting == "somebody to look at it: it is person"
        assert by_name(pool)["served"].waiting == "what it is reached through: it is server"
        await time.advance(23.0)
        assert (len(locked.causes), len(served.causes)) == (2, 5)  # after 8, 16; after 1, 3, 7, 15, 23
        await time.advance(20.0)
        assert {status.health for status in pool.status()} == {Health.HEALTHY}
        assert {status.failures for status in pool.status()} == {0}

    play(scene)


def test_a_device_is_told_why_it_was_lost_and_the_latest_failure_counts() -> None:
    async def scene(time: FakeTime) -> None:
        told: list[DeviceEvent] = []
        device = Told("phone", time, LossCause.OFFLINE)
        pool = a_pool(time, device, told=told)
        await lose(pool, LATE)
        await time.advance(3.0)
        assert device.causes == [LATE, LossCause.OFFLINE]
        assert [(event.kind, event.cause) for event in told] == [
            ("device_restart_failed", "offline"),
            ("device_back", "offline"),
        ]
        assert by_name(pool)["phone"].causes == {"late": 1}

    play(scene)


def test_what_a_block_raises_says_the_cause() -> None:
    async def scene(time: FakeTime) -> None:
        for error, cause in (
            (TimeoutError(), "late"),
            (ConnectionResetError(), "offline"),
            (DeviceError("x"), "crash"),
        ):
            pool = a_pool(time, Told("phone", time))
            with pytest.raises(type(error)):
                async with pool.leased(1.0):
                    raise error
            assert by_name(pool)["phone"].causes == {cause: 1}

    play(scene)


def test_a_back_off_that_doubled_very_often_is_still_a_number() -> None:
    assert LIMITS.backoff_of(5000) == LIMITS.longest_backoff_s


# --- spares -----------------------------------------------------------------------------------------------------------


def test_a_spare_is_leased_while_another_is_down_and_rests_once_that_is_back() -> None:
    async def scene(time: FakeTime) -> None:
        pool = a_pool(time, *(Told(name, time) for name in ("a", "b", "spare")), active=2)
        assert pool.num_in_use == 2
        assert by_name(pool)["spare"].is_spare
        a, b = await pool.lease(1.0), await pool.lease(1.0)
        waiting = asyncio.create_task(pool.lease(50.0))
        await settle()
        assert not waiting.done()  # two are in use, and the third is a spare
        pool.release(a, lost="it crashed")
        await settle()
        assert waiting.result().name == "spare"
        await time.advance(1.0)  # a is back
        pool.release(waiting.result())
        pool.release(b)
        leased = [(await pool.lease(1.0)).name for _ in range(2)]
        assert sorted(leased) == ["a", "b"]
        hopeless = asyncio.create_task(pool.lease(5.0))
        await time.advance(5.0)
        with pytest.raises(DeviceError, match="no device came free"):
            await hopeless

    play(scene)


def test_as_many_spares_are_used_as_devices_are_down() -> None:
    async def scene(time: FakeTime) -> None:
        pool = a_pool(time, *(Told(name, time, *[GONE] * 99) for name in "abcde"), active=3)
        for _ in range(2):
            await lose(pool, GONE)
        leased = {(await pool.lease(1.0)).name for _ in range(3)}
        assert leased == {"c", "d", "e"}

    play(scene)


# --- probes -----------------------------------------------------------------------------------------------------------


def test_an_idle_device_is_probed_and_one_that_fails_is_brought_back() -> None:
    async def scene(time: FakeTime) -> None:
        told: list[DeviceEvent] = []
        idle, ill = Told("idle", time), Told("ill", time, probes=(LossCause.OFFLINE,))
        busy = Told("busy", time)
        pool = a_pool(time, busy, idle, ill, told=told)
        assert (await pool.lease(1.0)) is busy
        await time.advance(LIMITS.probe_s)
        assert (idle.probed, ill.probed, busy.probed) == (1, 1, 0)
        assert by_name(pool)["idle"].health is Health.HEALTHY
        assert by_name(pool)["ill"].health is Health.RESTARTING
        await time.advance(LIMITS.probe_s + 2 * PROBE_POLL_S)
        assert ill.causes == [LossCause.OFFLINE]
        assert (idle.probed, ill.probed) == (2, 2)
        assert [event.kind for event in told] == ["device_probe_failed", "device_back"]
        assert by_name(pool)["ill"].health is Health.HEALTHY
        await pool.close()

    play(scene)


def test_a_device_that_is_probed_is_not_leased_meanwhile() -> None:
    async def scene(time: FakeTime) -> None:
        class Slow(Told):
            async def probe(self) -> None:
                await time.sleep(3.0)

        pool = a_pool(time, Slow("slow", time), Told("busy", time))
        first, second = await pool.lease(1.0), await pool.lease(1.0)
        pool.release(first)
        await time.advance(LIMITS.probe_s)
        assert by_name(pool)["slow"].health is Health.PROBED
        waiting = asyncio.create_task(pool.lease(10.0))
        await settle()
        assert not waiting.done()
        await time.advance(3.0)
        assert waiting.result() is first
        pool.release(second)
        await pool.close()

    play(scene)


# --- devices that come ------------------------------------------------------------------------------------------------


def test_a_device_that_joins_is_given_to_whoever_waits_and_is_a_spare_where_there_are_enough() -> None:
    async def scene(time: FakeTime) -> None:
        pool = a_pool(time, Told("a", time), active=2)
        await pool.lease(1.0)
        waiting = asyncio.create_task(pool.lease(50.0))
        await settle()
        pool.add(Told("b", time))
        await settle()
        assert waiting.result().name == "b"
        pool.add(Told("c", time))
        assert (pool.num_in_use, by_name(pool)["c"].is_spare) == (2, True)

    play(scene)


def test_what_is_new_joins_and_gets_a_lane_and_errors_are_told_once() -> None:
    async def scene(time: FakeTime) -> None:
        there, told, grown, played = ["a", "b"], list[str](), list[int](), list[str]()
        broken, failed = False, 0

        def find() -> list[SimDevice]:
            nonlocal failed
            if broken:
                failed += 1
                raise DeviceError("no adb server answers")
            return [Told(name, time) for name in there]

        pool = a_pool(time, Told("a", time), Told("b", time), active=3)
        stopping = asyncio.Event()

        async def lane() -> None:
            device = await pool.lease(1.0)
            played.append(device.name)
            await stopping.wait()

        following = Following(find, every_s=0.01, most=4, tell=told.append)
        first = [asyncio.create_task(lane()) for _ in range(2)]
        keeping = asyncio.create_task(following.keep(pool, lane, stopping, grown.append))
        there = ["b", "c", "d", "e", "f"]
        await until(lambda: len(pool) == 4 and len(played) == 3)  # joined, and its lane has begun
        assert set(by_name(pool)) == {"a", "b", "c", "d"}  # as many as may be there
        assert set(played) == {"a", "b", "c"}  # and d is a spare
        assert grown[-1] == 3
        broken = True
        await until(lambda: failed >= 5)
        assert told == ["no adb server answers"]
        stopping.set()
        await asyncio.gather(keeping, *first)

    play(scene)


def test_devices_of_one_role_alone_do_not_come_or_go() -> None:
    assert not can_follow([SimDevice("worker-0/phone-1", SimSettings())], "worker-0")
    assert can_follow([SimDevice("R58M12ABC", SimSettings())], "worker-0")

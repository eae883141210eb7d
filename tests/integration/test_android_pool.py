"""A pool of phones behind the real adb: phones go and come, the server dies, idle ones fail their probe, each loss has its cause."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Iterator

import pytest
from msgspec.structs import replace

from distrl.config.schema import AndroidConfig
from distrl.devices.android.adb import Adb, AdbConfig
from distrl.devices.android.adb_program import find_adb, server_listens
from distrl.devices.android.device import AndroidDevice, make_devices
from distrl.devices.base import Fleet, cause_of
from distrl.devices.following import Following, can_follow
from distrl.devices.health import DeviceStatus, Health, PoolLimits
from distrl.devices.pool import DevicePool
from distrl.devices.serve_sim.server import FaultKind, FaultSettings, ServedPhone
from distrl.devices.serve_sim.shell import Done
from distrl.errors import DeviceError, LossCause
from distrl.types import AndroidCheck, AndroidEnd, AndroidSetup, Task
from support.androids import connected, own_server

QUICK = AndroidConfig(quiet_s=0.0, wait_s=0.0, call_s=15.0)
LIMITS = PoolLimits(restart_s=20.0, backoff_s=0.05, longest_backoff_s=0.2, quarantine_after=9, absent_s=0.1)
LIMIT_S = 120.0
TASK = Task(
    id="pool/train/0",
    suite="pool",
    template="pool",
    split="train",
    instruction="Open the clock",
    setup=AndroidSetup(),
    check=AndroidCheck(activity="clock"),
)
Play = Callable[[DevicePool, list[ServedPhone], Adb], Awaitable[None]]


@pytest.fixture(scope="module")
def config() -> Iterator[AdbConfig]:
    with own_server() as config:
        yield config


def with_a_pool(config: AdbConfig, count: int, play: Play, *, probe_s: float = 60.0, call_s: float = 15.0) -> None:
    async def run() -> None:
        async with asyncio.timeout(LIMIT_S), connected(config, count, faults=FaultSettings(restart_s=0.3)) as served:
            adb, phones = served
            settings = replace(QUICK, port=config.port, call_s=call_s)
            devices = [AndroidDevice(phone.serial, settings, adb) for phone in phones]
            pool = DevicePool(devices, replace(LIMITS, probe_s=probe_s))
            try:
                await play(pool, phones, adb)
            finally:
                await pool.close()

    asyncio.run(run())


async def until(pool: DevicePool, name: str, health: Health) -> DeviceStatus:
    while True:
        status = next(status for status in pool.status() if status.name == name)
        if status.health is health:
            return status
        await asyncio.sleep(0.02)


async def use(pool: DevicePool) -> LossCause | None:
    """Reset and look at a device of the pool; why it was lost, if it was."""
    try:
        async with pool.leased(60.0) as device:
            await device.reset(TASK)
            await device.capture(screenshot=False)
    except DeviceError as error:
        return cause_of(error)
    return None


def test_a_phone_that_goes_away_is_awaited_and_taken_back_as_soon_as_it_is_there(config: AdbConfig) -> None:
    async def play(pool: DevicePool, phones: list[ServedPhone], adb: Adb) -> None:
        assert await use(pool) is None
        port = phones[0].port
        await phones[0].stop()
        assert await use(pool) in (LossCause.OFFLINE, LossCause.GONE)
        absent = await until(pool, phones[0].serial, Health.ABSENT)
        assert absent.waiting.startswith("its connection: ")
        await asyncio.sleep(1.0)  # ten times that it is looked for, of which none is held against it
        assert (await until(pool, phones[0].serial, Health.ABSENT)).failures <= 1
        await phones[0].start(port)
        await until(pool, phones[0].serial, Health.HEALTHY)
        assert await use(pool) is None

    with_a_pool(config, 1, play)


def test_a_server_that_is_killed_is_started_again_and_no_phone_is_blamed(config: AdbConfig) -> None:
    async def play(pool: DevicePool, phones: list[ServedPhone], adb: Adb) -> None:
        assert await use(pool) is None
        for _ in range(2):
            subprocess.run([find_adb(), "-P", str(config.port), "kill-server"], check=True, capture_output=True)
            while await server_listens(*config.address):
                await asyncio.sleep(0.02)
            cause = await use(pool)
            assert cause in (None, LossCause.GONE, LossCause.SERVER, LossCause.OFFLINE)
            if adb._started:  # it starts the server once, and from then on somebody else has to
                subprocess.run([find_adb(), "-P", str(config.port), "start-server"], check=True, capture_output=True)
            status = await until(pool, phones[0].serial, Health.HEALTHY)
            assert status.failures <= 1
        assert await use(pool) is None

    with_a_pool(config, 1, play)


@pytest.mark.parametrize(
    ("fault", "causes"),
    [
        ("drop", {LossCause.OFFLINE, LossCause.GONE}),
        ("restart", {LossCause.OFFLINE, LossCause.GONE}),
        ("hang", {LossCause.LATE}),
    ],
)
def test_each_fault_has_its_cause_and_the_phone_comes_back(
    config: AdbConfig, fault: FaultKind, causes: set[LossCause]
) -> None:
    async def play(pool: DevicePool, phones: list[ServedPhone], adb: Adb) -> None:
        assert await use(pool) is None
        phones[0].next_fault = fault
        assert await use(pool) in causes
        await until(pool, phones[0].serial, Health.HEALTHY)
        assert await use(pool) is None

    with_a_pool(config, 1, play, call_s=2.0 if fault == "hang" else 15.0)


def test_a_locked_phone_waits_for_somebody_and_plays_once_it_is_unlocked(config: AdbConfig) -> None:
    async def play(pool: DevicePool, phones: list[ServedPhone], adb: Adb) -> None:
        phones[0].android.lock.lock("secure")
        async with pool.leased(60.0) as device:
            phone = device.phone  # type: ignore[attr-defined]
        with pytest.raises(DeviceError, match="is locked"):
            async with pool.leased(60.0):
                await phone.unlock()
        status = await until(pool, phones[0].serial, Health.QUARANTINED)
        assert status.waiting.startswith("somebody to look at it: ")
        assert status.failures == 0
        phones[0].android.lock.lock("")
        await until(pool, phones[0].serial, Health.HEALTHY)

    with_a_pool(config, 1, play)


def test_an_idle_phone_that_does_not_answer_is_found_by_its_probe(config: AdbConfig) -> None:
    async def play(pool: DevicePool, phones: list[ServedPhone], adb: Adb) -> None:
        assert await use(pool) is None
        await phones[1].stop()
        await until(pool, phones[1].serial, Health.ABSENT)
        assert (await until(pool, phones[1].serial, Health.ABSENT)).losses == 1
        assert await use(pool) is None  # the other one

    with_a_pool(config, 2, play, probe_s=0.1)


def test_phones_that_are_connected_later_join(config: AdbConfig) -> None:
    async def run() -> None:
        async with connected(config, 3) as (adb, phones):
            for late in phones[1:]:
                await adb.disconnect(late.serial)
            settings = replace(QUICK, port=config.port)
            fleet = Fleet(owner="worker-0", count=2, seed=0, workers=("worker-0",))
            made = make_devices(settings, fleet)
            assert [device.name for device in made] == [phones[0].serial]
            assert can_follow(made, "worker-0")
            pool = DevicePool(made, active=2)
            following = Following(lambda: make_devices(settings, fleet), every_s=0.1, most=2, tell=print)
            for late in phones[1:]:
                await adb.connect(late.serial)
            await following.join(pool)
            assert len(pool) == 2
            await following.join(pool)
            assert len(pool) == 2  # as many as the worker may have
            await pool.close()

    asyncio.run(run())


def test_a_check_asks_a_content_provider_for_a_row_whatever_its_values_hold(config: AdbConfig) -> None:
    uri, value = "content://settings/system", "it's 5 % \" $HOME; -- 中"

    async def play(pool: DevicePool, phones: list[ServedPhone], adb: Adb) -> None:
        phones[0].android.system["system", "note"] = value
        async with pool.leased(60.0) as device:
            for wanted, there in (({"name": "note", "value": value}, True), ({"name": "note", "value": "it"}, False)):
                check = AndroidCheck(rows={uri: wanted})
                await device.reset(replace(TASK, check=check))
                assert await device.end_state() == AndroidEnd(rows={uri: there})
            await device.reset(replace(TASK, check=AndroidCheck(rows={"content://nobody": {"a": "b"}})))
            assert (
                await device.end_state() == AndroidEnd()
            )  # there is no such provider: unknown, and no fault of the phone
            phones[0].android._content = lambda *_: Done(bytes(range(100)))  # type: ignore[method-assign]
            with pytest.raises(DeviceError, match="content://nobody says"):
                await device.end_state()

    with_a_pool(config, 1, play)

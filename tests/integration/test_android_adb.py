"""The client, the real adb program and simulated phones: commands, files, faults and the way back."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import subprocess
from collections.abc import Iterator

import pytest

from distrl.config.schema import AndroidConfig
from distrl.devices.android.adb import Adb, AdbConfig
from distrl.devices.android.adb_program import find_adb
from distrl.devices.android.health import check_all
from distrl.devices.serve_sim.android import AndroidSettings
from distrl.devices.serve_sim.server import ServedPhone
from distrl.errors import DeviceError, DeviceLost, LossCause
from support.androids import connected, free_port, own_server


@pytest.fixture(scope="module")
def config() -> Iterator[AdbConfig]:
    with own_server() as config:
        yield config


def test_the_server_is_started_once_and_names_its_phones(config: AdbConfig) -> None:
    async def play() -> None:
        async with connected(config, 3) as (adb, phones):
            assert await adb.version() >= 41
            listed = await adb.devices()
            assert {found.serial for found in listed} == {phone.serial for phone in phones}
            assert {found.state for found in listed} == {"device"}
            assert listed[0].model == "distrl_simulated_phone"

    asyncio.run(play())


def test_many_who_find_no_server_start_one_together() -> None:
    with own_server() as alone:

        async def play() -> None:
            found = await asyncio.gather(*(Adb(alone).devices() for _ in range(4)))
            assert found == [[]] * 4

        asyncio.run(play())


def test_a_command_gives_output_errors_and_exit_code_apart(config: AdbConfig) -> None:
    async def play() -> None:
        async with connected(config) as (adb, (phone,)):
            done = await adb.shell(phone.serial, "echo out; nonsense")
            assert (done.stdout, done.exit_code) == (b"out\n", 127)
            assert b"nonsense: inaccessible or not found" in done.stderr
            assert await adb.check(phone.serial, "wm size") == "Physical size: 360x720"
            with pytest.raises(DeviceError, match="ended with 127"):
                await adb.check(phone.serial, "nonsense")

    asyncio.run(play())


def test_adbs_own_command_line_drives_the_phone_too(config: AdbConfig) -> None:
    async def play() -> None:
        async with connected(config) as (_, (phone,)):
            said = await asyncio.to_thread(_cli, config, phone, "shell", "input tap 45 140; echo $PWD || true")
            assert said.returncode == 2
            assert b"not simulated" in said.stderr
            said = await asyncio.to_thread(_cli, config, phone, "shell", "getprop ro.build.version.sdk")
            assert said.stdout == b"34\n"
            said = await asyncio.to_thread(_cli, config, phone, "exec-out", "screencap -p")
            assert said.stdout.startswith(b"\x89PNG")

    asyncio.run(play())


def test_files_go_there_and_back_whole(config: AdbConfig) -> None:
    data = bytes(range(256)) * 1000

    async def play() -> None:
        async with connected(config) as (adb, (phone,)):
            await adb.push(phone.serial, data, "/data/local/tmp/a b'c")
            assert phone.android.files["/data/local/tmp/a b'c"] == data
            assert await adb.pull(phone.serial, "/data/local/tmp/a b'c") == data
            with pytest.raises(DeviceError, match="No such file"):
                await adb.pull(phone.serial, "/sdcard/none")

    asyncio.run(play())


def test_a_raw_picture_comes_whole(config: AdbConfig) -> None:
    async def play() -> None:
        async with connected(config, settings=AndroidSettings(width_px=1080, height_px=2400)) as (adb, (phone,)):
            raw = await adb.exec_out(phone.serial, "screencap")
            assert struct.unpack_from("<3I", raw) == (1080, 2400, 1)
            assert len(raw) == 16 + 4 * 1080 * 2400

    asyncio.run(play())


def test_after_a_restart_the_phone_is_offline_until_reconnected(config: AdbConfig) -> None:
    async def play() -> None:
        async with connected(config) as (adb, (phone,)):
            await phone.restart()
            await _until(lambda: _state_is(adb, phone, "offline"))
            assert "already connected" in await adb.connect(phone.serial)
            with pytest.raises(DeviceLost, match="offline") as lost:
                await adb.shell(phone.serial, "true")
            assert (lost.value.cause, "adb reconnect" in lost.value.fix) == (LossCause.OFFLINE, True)
            await adb.reconnect(phone.serial)
            await _until(lambda: _state_is(adb, phone, "device"))
            assert (await adb.shell(phone.serial, "true")).exit_code == 0

    asyncio.run(play())


def test_a_phone_that_hangs_costs_its_deadline_and_names_the_call(config: AdbConfig) -> None:
    async def play() -> None:
        async with connected(config, 2) as (adb, (hung, fine)):
            hung.next_fault = "hang"
            with pytest.raises(DeviceLost, match=r"`input tap 1 1` on .* took over 0.3 s"):
                await adb.shell(hung.serial, "input tap 1 1", deadline_s=0.3)
            assert (await adb.shell(fine.serial, "true")).exit_code == 0
            assert (await adb.shell(hung.serial, "true")).exit_code == 0

    asyncio.run(play())


def test_a_dropped_connection_is_a_lost_device(config: AdbConfig) -> None:
    async def play() -> None:
        async with connected(config) as (adb, (phone,)):
            phone.next_fault = "drop"
            with pytest.raises(DeviceLost):
                await adb.shell(phone.serial, "true", deadline_s=5)
            await _until(lambda: _state_is(adb, phone, "offline"))
            await _until(lambda: _reconnected(adb, phone))
            assert (await adb.shell(phone.serial, "true")).exit_code == 0

    asyncio.run(play())


def test_an_unknown_serial_and_a_dead_address_are_refused_with_the_fix(config: AdbConfig) -> None:
    async def play() -> None:
        adb = Adb(config)
        with pytest.raises(DeviceLost, match="knows no device 'R58M12ABC'"):
            await adb.shell("R58M12ABC", "true")
        with pytest.raises(DeviceLost, match="cannot connect"):
            await adb.reconnect(f"127.0.0.1:{free_port()}")

    asyncio.run(play())


def test_a_phone_that_has_not_authorised_this_machine_says_so(config: AdbConfig) -> None:
    async def play() -> None:
        async with connected(config) as (adb, (phone,)):
            phone.authorised = False
            with contextlib.suppress(DeviceLost):  # newer servers say at once that it is not authorised
                await adb.reconnect(phone.serial)
            await _until(lambda: _state_is(adb, phone, "unauthorized"))
            with pytest.raises(DeviceLost, match="has not authorised"):
                await adb.shell(phone.serial, "true")
            (health,) = await check_all(AndroidConfig(port=config.port))
            assert not health.ok
            assert "accept" in health.fix

    asyncio.run(play())


def _cli(config: AdbConfig, phone: ServedPhone, *words: str) -> subprocess.CompletedProcess[bytes]:
    command = [find_adb(), "-P", str(config.port), "-s", phone.serial, *words]
    return subprocess.run(command, capture_output=True, timeout=60, check=False)


async def _state_is(adb: Adb, phone: ServedPhone, state: str) -> bool:
    return await adb.state(phone.serial) == state


async def _reconnected(adb: Adb, phone: ServedPhone) -> bool:
    """As the pool does: a server that tries by itself meanwhile may leave the device offline, and is asked again."""
    await adb.reconnect(phone.serial)
    for _ in range(100):
        if await _state_is(adb, phone, "device"):
            return True
        await asyncio.sleep(0.02)
    return False


async def _until(holds) -> None:  # type: ignore[no-untyped-def]
    async with asyncio.timeout(60):
        while not await holds():
            await asyncio.sleep(0.02)

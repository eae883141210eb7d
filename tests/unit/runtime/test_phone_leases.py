"""A phone over ADB belongs to one program at a time, whichever run, evaluation or other program of this user that is."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from distrl.config.load import load_config
from distrl.config.schema import DevicesConfig
from distrl.devices.android.records import Running, began_of, state_folder
from distrl.devices.base import TimeScales
from distrl.errors import DeviceError
from distrl.runtime.factory import leases_of, make_pool
from distrl.transport.lease_files import phone_leases
from support.roles import a_context

PHONES = load_config(None, {"devices.kind": "android"})
SIMULATED = load_config(None, {})


class Phone:
    """All that a pool that leases asks of a device."""

    times = TimeScales()

    def __init__(self, name: str) -> None:
        self.name = name

    async def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANDROID_USER_HOME", str(tmp_path / "android"))


def test_two_runs_never_drive_one_phone_at_once(tmp_path: Path) -> None:
    async def scene() -> None:
        contexts = [a_context("worker-0", tmp_path / run, PHONES) for run in ("one", "other")]
        one, other = (make_pool(context, [Phone("R58M"), Phone("ZX1G")][:count]) for context, count in zip(contexts, (2, 1), strict=True))  # type: ignore[list-item]  # fmt: skip
        first, second = await one.lease(1.0), await one.lease(1.0)
        with pytest.raises(DeviceError, match="leased to other roles or runs"):
            await other.lease(0.3)
        waiting = asyncio.create_task(other.lease(20.0))
        one.release(first if first.name == "R58M" else second)
        assert (await waiting).name == "R58M"
        await one.close()
        await other.close()

    asyncio.run(scene())


def test_the_evaluator_of_a_run_and_an_evaluation_beside_it_take_turns(tmp_path: Path) -> None:
    role = leases_of(a_context("evaluator", tmp_path / "run", PHONES))
    beside = phone_leases(PHONES.devices, "evaluate")
    assert beside is not None
    assert role.take("R58M")
    assert not beside.take("R58M")
    role.give_back("R58M")
    assert beside.take("R58M")


@pytest.mark.parametrize("first", ["distrl-0", "emulator-5554"])
def test_an_emulator_is_one_phone_under_the_name_of_its_avd_and_under_its_serial(first: str) -> None:
    """A run that starts emulators knows them by their AVDs, a run beside it by what adb lists."""
    second = {"distrl-0": "emulator-5554", "emulator-5554": "distrl-0"}[first]
    running = Running(port=5554, pid=os.getpid(), began=began_of(os.getpid()))
    (state_folder() / "distrl-0.json").write_bytes(msgspec.json.encode(running))
    (state_folder() / "distrl-1.json").write_text("damaged")
    one, other = (phone_leases(PHONES.devices, owner) for owner in ("evaluate", "watch"))
    assert one is not None
    assert other is not None
    assert one.take(first)
    assert not other.take(second)
    assert other.take("emulator-5556")
    one.give_back(first)
    assert other.take(second)


def test_devices_of_other_kinds_are_shared_within_their_run_alone(tmp_path: Path) -> None:
    assert phone_leases(DevicesConfig(kind="web"), "evaluate") is None
    one, other = (leases_of(a_context("worker-0", tmp_path / run, SIMULATED)) for run in ("one", "other"))
    assert one.take("shared")
    assert other.take("shared")

"""AndroidWorld's tasks through our device: a stand-in for its package, the real adb, a simulated phone that adb takes for an emulator."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from distrl.config.judging import AndroidWorldConfig
from distrl.config.load import load_config
from distrl.config.schema import AndroidConfig
from distrl.devices.android.adb import Adb, AdbConfig
from distrl.devices.android.device import AndroidDevice
from distrl.devices.android.emulator import tell_adb
from distrl.devices.android.world import World
from distrl.devices.base import Device
from distrl.devices.serve_sim.android import SimulatedAndroid
from distrl.devices.serve_sim.server import ServedPhone
from distrl.errors import ConfigError, DeviceLost, TaskError
from distrl.runtime.trust import code_of
from distrl.tasks.android_world import AndroidWorldSuite
from distrl.tasks.base import SPLITS, find_suite, refuse_overlap, tasks_of
from distrl.tasks.judges import Attempt, AutoJudge
from distrl.types import Ending, EndState, Finish, Press, Task
from support.androids import CALM, own_server

FAKE = Path(__file__).parents[1] / "support" / "fake_android_world"
UP_S = 60.0


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python that has the package, which ours has not."""
    program = tmp_path_factory.mktemp("world") / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={FAKE} exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return str(program)


@pytest.fixture(scope="module")
def config() -> Iterator[AdbConfig]:
    with own_server() as config:
        yield config


def a_suite(python: str, *names: str, instances: int = 2) -> AndroidWorldSuite:
    return AndroidWorldSuite(AndroidWorldConfig(python=python, names=names, instances=instances))


def test_goals_are_made_without_an_emulator_and_no_split_shares_one(python: str) -> None:
    made = a_suite(python)
    assert {split: made.size(split) for split in SPLITS} == {"train": 4, "tune": 4, "test": 6}
    refuse_overlap(task for split in ("train", "tune") for task in tasks_of(made, split))
    tested = {task.instruction for task in tasks_of(made, "test")}
    assert "Which level is the volume?" in tested  # twice there, whatever the seed, and nowhere else
    assert not tested & {task.instruction for split in ("train", "tune") for task in tasks_of(made, split)}
    assert made.task("test", 0).max_steps == 19  # of a complexity of 1.96, cut off as there
    again = a_suite(python)
    assert [again.task("test", n) for n in range(6)] == [made.task("test", n) for n in range(6)]


def test_the_suite_is_named_by_the_settings_and_its_python_is_somebodys_program(python: str) -> None:
    settings = {"tasks.suite": "android_world", "tasks.android_world.python": python, "warm_start.demonstrations": 0}
    config = load_config(None, settings)
    assert find_suite(config.tasks).name == "android_world"
    assert code_of(config)["tasks.android_world.python"] == python


def test_without_the_package_or_with_a_wrong_name_it_says_what_to_do(python: str) -> None:
    with pytest.raises(ConfigError, match="has no AndroidWorld") as caught:
        a_suite(sys.executable)
    assert "github.com/google-research/android_world" in caught.value.fix
    with pytest.raises(ConfigError, match="there is no task 'SetVolum'"):
        a_suite(python, "SetVolum")
    with pytest.raises(ConfigError, match="cannot be used"):
        a_suite("/no/such/python")


def free_pair() -> int:
    """An even port that is free with the next one, as an emulator has them."""
    while True:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1] // 2 * 2
        with socket.socket() as one, socket.socket() as other:
            try:
                one.bind(("127.0.0.1", port))
                other.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return int(port)


async def an_emulator(config: AdbConfig) -> tuple[ServedPhone, str]:
    """A simulated phone that the adb server lists as an emulator."""
    phone, port = ServedPhone(SimulatedAndroid("emulator", CALM)), free_pair()
    await phone.start(port + 1)
    adb, serial = Adb(config), f"emulator-{port}"
    async with asyncio.timeout(UP_S):
        while await adb.state(serial) != "device":
            await tell_adb(config, port)
            await asyncio.sleep(0.1)
    return phone, serial


def judged(task: Task, reward: float) -> str:
    attempt = Attempt(task=task, end=EndState(claim=Finish(), reward=reward), ending=Ending.FINISHED)
    return asyncio.run(AutoJudge().judge(attempt)).outcome


def test_a_task_is_set_up_and_checked_by_the_package_on_the_device_that_we_drive(
    config: AdbConfig, python: str
) -> None:
    suite = a_suite(python, "AskVolume", "SetVolume", instances=1)
    question, setting = suite.task("test", 0), suite.task("test", 1)
    level = setting.instruction.split()[-1]

    async def run() -> list[float]:
        phone, serial = await an_emulator(config)
        settings = AndroidConfig(port=config.port, quiet_s=0.0, wait_s=0.0, world_python=python, elements=False)
        device = AndroidDevice(serial, settings)
        assert isinstance(device, Device)
        rewards = []
        try:
            await device.reset(setting)
            assert phone.android.state.place.app == "launcher"  # the set-up has left an app open
            assert (await device.perform(Press("home"))).reward == 0.0
            rewards.append((await device.perform(Finish())).reward)
            phone.android.system["system", "volume"] = level
            rewards.append((await device.perform(Finish())).reward)
            await device.reset(question)
            assert phone.android.state.place.app == "settings"  # its task says that it does not begin at home
            assert phone.android.system["system", "torn_down"] == "1"
            rewards.append((await device.perform(Finish(answer="0"))).reward)
            rewards.append((await device.perform(Finish(answer="17"))).reward)
        finally:
            await device.close()
            await phone.stop()
        return rewards

    rewards = asyncio.run(run())
    assert rewards == [0.0, 1.0, 1.0, 0.0]
    assert [judged(setting, rewards[0]), judged(setting, rewards[1])] == ["failure", "success"]


def test_what_the_package_raises_costs_the_episode_and_a_process_that_ends_is_started_again(
    config: AdbConfig, python: str
) -> None:
    async def run() -> None:
        phone, serial = await an_emulator(config)
        world, other = World(python, config), ServedPhone(SimulatedAndroid("other", CALM))
        await other.start()
        await Adb(config).connect(other.serial)
        try:
            with pytest.raises(DeviceLost, match="app snapshot is missing"):
                await world.initialize(serial, "BrokenTask", 1)
            # The package restarts the adb server then; a server that was restarted knows no phone over TCP.
            assert await Adb(config).state(other.serial) == "device"
            assert (await world.initialize(serial, "SetVolume", 1)).startswith("Set the volume to ")
            assert world._process is not None
            world._process.kill()
            with pytest.raises(DeviceLost, match="it ended"):
                await world.score("")
            assert await world.initialize(serial, "AskVolume", 1) == "Which level is the volume?"
            assert await world.score("0") == 1.0
            with pytest.raises(DeviceLost, match="emulators alone"):
                await world.initialize("R58M12ABC", "SetVolume", 1)
        finally:
            await world.close()
            await Adb(config).disconnect(other.serial)
            await other.stop()
            await phone.stop()

    asyncio.run(run())


def test_a_set_up_with_another_goal_than_the_task_is_refused(config: AdbConfig, python: str) -> None:
    task = a_suite(python, "SetVolume", instances=1).task("test", 0)

    async def run() -> None:
        phone, serial = await an_emulator(config)
        device = AndroidDevice(serial, AndroidConfig(port=config.port, world_python=python, elements=False))
        try:
            with pytest.raises(TaskError, match="says another goal") as caught:
                await device.reset(replace(task, instruction="Set the volume to 11"))
            assert "world_python" in caught.value.fix
        finally:
            await device.close()
            await phone.stop()

    asyncio.run(run())

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
import pytest

from distrl.config.schema import FaultConfig, LatencyConfig, WildConfig
from distrl.devices.base import Device
from distrl.devices.sim import phone
from distrl.devices.sim.device import FOREVER_S, SimDevice, SimSettings
from distrl.errors import DeviceError, DeviceLost
from distrl.tasks.sim.judge import judge
from distrl.tasks.sim.oracle import Oracle
from distrl.tasks.sim.suites import suite
from distrl.tasks.sim.templates import open_app, tap
from distrl.types import Finish, Move, Press, Swipe, Tap, Task, Unparsed, Wait
from support.faketime import FakeTime, play

T = TypeVar("T")
TAME = WildConfig(popup_rate=0.0, slow_rate=0.0, update_rate=0.0, variants=False)
INSTANT = LatencyConfig(profile="instant")
EMULATOR = LatencyConfig(profile="emulator", time_scale=1.0, stall_rate=0.0, slow_machine_share=0.0)


def a_task(number: int = 0) -> Task:
    return suite("sim-general").task("train", number)


def a_phone(
    *, latency: LatencyConfig = INSTANT, time: FakeTime | None = None, **faults: float | str | int
) -> SimDevice:
    settings = SimSettings(wild=TAME, latency=latency, faults=FaultConfig(**faults))
    time = time or FakeTime()
    return SimDevice("phone-0", settings, sleep=time.jump, clock=time.clock)


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("it suspended")


def test_an_instant_phone_plays_a_whole_episode_without_an_event_loop():
    task, device = a_task(), a_phone()
    at_once(device.reset(task))
    start, oracle = device.state, Oracle(task)
    while device.state.claim is None:
        assert at_once(device.perform(oracle.act(at_once(device.observe())))).valid
    assert judge(task, start, at_once(device.end_state())).success


def test_it_is_a_device():
    device: Device = a_phone()
    assert device.name == "phone-0"


def test_a_step_says_whether_the_screen_changed_and_why_it_was_invalid():
    device = a_phone()
    at_once(device.reset(a_task()))
    icon = next(element for element in at_once(device.observe()) if element.resource_id == "app:settings")
    opened = at_once(device.perform(Tap(*icon.bounds.centre)))
    assert (opened.valid, opened.changed) == (True, True)
    idle = at_once(device.perform(Wait()))
    assert (idle.valid, idle.changed) == (True, False)
    wrong = at_once(device.perform(Unparsed("dance")))
    assert (wrong.valid, wrong.changed) == (False, False)
    assert "dance" in wrong.why


def test_each_state_is_laid_out_once(monkeypatch: pytest.MonkeyPatch):
    shown: list[int] = []
    show = phone.show
    monkeypatch.setattr(phone, "show", lambda state: shown.append(state.tick) or show(state))
    device = a_phone()
    at_once(device.reset(a_task()))
    for _ in range(5):
        at_once(device.observe())
        at_once(device.perform(Press("home")))
    assert shown == [0, 1, 2, 3, 4, 5]


def test_a_snapshot_brings_the_phone_back():
    device = a_phone()
    at_once(device.reset(a_task()))
    snapshot, before = device.state, at_once(device.observe())
    icon = next(element for element in before if element.resource_id == "app:settings")
    at_once(device.perform(Tap(*icon.bounds.centre)))
    assert at_once(device.observe()) != before
    device.state = snapshot
    assert at_once(device.observe()) == before


def test_a_phone_without_a_task_says_what_to_call_first():
    device = a_phone()
    for work in (device.observe(), device.perform(Wait()), device.end_state()):
        with pytest.raises(DeviceError, match="reset"):
            at_once(work)


def test_an_emulator_takes_its_time_and_counts_it_as_work():
    time = FakeTime()
    device = a_phone(latency=EMULATOR, time=time)
    at_once(device.reset(a_task()))
    assert 4.0 <= time.now_s <= 6.0
    at_once(device.perform(Swipe(0.5, 0.6, 0.5, 0.2)))
    at_once(device.observe())
    assert device.busy_s == pytest.approx(time.now_s) == pytest.approx(sum(time.slept))
    idle_from = device.busy_s
    time.now_s += 100.0
    assert device.busy_s == idle_from


def test_ending_an_episode_touches_nothing_and_takes_no_time():
    time = FakeTime()
    device = a_phone(latency=EMULATOR, time=time, crash_rate=1.0)
    at_once(device.reset(a_task()))
    before = time.now_s
    at_once(device.perform(Finish()))
    assert time.now_s == before
    assert at_once(device.end_state()).claim == Finish()


def test_a_crashed_phone_is_lost_for_everything_until_it_is_restarted():
    device = a_phone(fail_device="phone-0", fail_after_steps=2)
    at_once(device.reset(a_task()))
    at_once(device.perform(Wait()))
    with pytest.raises(DeviceLost, match="phone-0 is lost: crash"):
        at_once(device.perform(Wait()))
    for work in (
        device.observe(),
        device.perform(Wait()),
        device.end_state(),
        device.screenshot(),
        device.reset(a_task()),
    ):
        with pytest.raises(DeviceLost):
            at_once(work)
    at_once(device.restart())
    at_once(device.reset(a_task()))
    for _ in range(30):
        at_once(device.perform(Wait()))


def test_a_restart_takes_as_long_as_a_reset():
    time = FakeTime()
    device = a_phone(latency=EMULATOR, time=time)
    at_once(device.restart())
    assert 4.0 <= time.now_s <= 6.0


def test_a_frozen_phone_is_silent_until_the_callers_deadline_and_lost_from_then_on():
    async def scene(time: FakeTime) -> None:
        settings = SimSettings(wild=TAME, latency=INSTANT, faults=FaultConfig(freeze_rate=1.0))
        device = SimDevice("phone-0", settings, sleep=time.sleep, clock=time.clock)
        await device.reset(a_task())
        frozen = asyncio.create_task(device.perform(Wait()))
        await time.advance(24 * 3600.0)
        assert not frozen.done()
        frozen.cancel()
        with pytest.raises(asyncio.CancelledError):
            await frozen
        with pytest.raises(DeviceLost, match="freeze"):
            await device.observe()
        await device.restart()
        await device.reset(a_task())
        assert time.slept == [FOREVER_S]
        assert device.busy_s == 0.0, "a frozen phone is not at work"

    play(scene)


def test_a_disconnected_phone_cannot_be_reached_until_its_outage_is_over():
    time = FakeTime()
    device = a_phone(latency=EMULATOR, time=time, disconnect_rate=1.0)
    at_once(device.reset(a_task()))
    with pytest.raises(DeviceLost, match="disconnect"):
        at_once(device.perform(Wait()))
    with pytest.raises(DeviceLost):
        at_once(device.restart())
    time.now_s += 10.0
    with pytest.raises(DeviceLost):
        at_once(device.observe())
    at_once(device.restart())
    at_once(device.reset(a_task()))


def test_a_closed_phone_holds_nothing():
    device = a_phone()
    at_once(device.reset(a_task()))
    at_once(device.close())
    with pytest.raises(DeviceError):
        at_once(device.observe())


def test_it_numbers_its_contents_from_the_start_of_each_task():
    device, wifi = a_phone(), a_task()
    route = (open_app("settings"), tap("section:network"), tap("wifi"), tap("wifi"), tap("bluetooth"))
    oracle = Oracle(msgspec.structs.replace(wifi, route=(*route, Move(verb="finish", target="complete"))))
    for _ in range(2):
        at_once(device.reset(wifi))
        oracle = Oracle(oracle._task)
        done = [at_once(device.perform(oracle.act(at_once(device.observe())))) for _ in range(6)]
        assert [performed.content for performed in done] == [0, 0, 1, 0, 2, 2]

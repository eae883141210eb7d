"""A simulated phone as a device: what it shows and does, how long it takes, how it is lost and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any, Literal, TypeVar

import pytest
from msgspec.structs import replace

from distrl.cli.episode import random_agent
from distrl.config.schema import NO_PERTURBATIONS, FaultConfig, LatencyConfig, PerturbationConfig, SimConfig
from distrl.devices.base import Device, Fleet, SavesState
from distrl.devices.sim import phone, render
from distrl.devices.sim.conditions import DELAYS
from distrl.devices.sim.device import (
    FOREVER_S,
    SHORTEST_DEADLINE_S,
    SHORTEST_EPISODE_S,
    SimDevice,
    SimSettings,
    capture_of,
    make_devices,
    time_scales,
)
from distrl.devices.sim.layout import elements_of
from distrl.devices.sim.world import start_state
from distrl.errors import CorruptFrame, DeviceError, DeviceLost, TaskError
from distrl.tasks.sim.judge import judge
from distrl.tasks.sim.oracle import Oracle
from distrl.tasks.sim.suites import suite
from distrl.tasks.sim.templates import open_app, tap
from distrl.types import (
    CustomSetup,
    EndState,
    Finish,
    Move,
    Press,
    Showing,
    Swipe,
    Tap,
    Task,
    UiElement,
    Unparsed,
    Wait,
)
from support.faketime import FakeTime, play
from support.sims import starting, with_solution

T = TypeVar("T")
INSTANT = LatencyConfig(profile="instant")
EMULATOR = LatencyConfig(profile="emulator", time_scale=1.0, stall_rate=0.0, slow_machine_share=0.0)


def a_task(number: int = 0) -> Task:
    return suite("sim-general").task("train", number)


def a_phone(
    *, latency: LatencyConfig = INSTANT, time: FakeTime | None = None, **faults: float | str | int
) -> SimDevice:
    settings = SimSettings(perturbations=NO_PERTURBATIONS, latency=latency, faults=FaultConfig(**faults))
    time = time or FakeTime()
    return SimDevice("phone-0", settings, sleep=time.jump, clock=time.clock)


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("it suspended")


def seen(device: SimDevice) -> tuple[UiElement, ...]:
    """What the phone shows, at once."""
    return at_once(device.capture(screenshot=False)).elements


def test_an_instant_phone_plays_a_whole_episode_without_an_event_loop():
    task, device = a_task(), a_phone()
    at_once(device.reset(task))
    start, oracle = device.state, Oracle(task)
    while device.state.claim is None:
        assert at_once(device.perform(oracle.act(seen(device)))).valid
    end = EndState(claim=device.state.claim, device=at_once(device.end_state()))
    assert judge(task, start, end).success


def test_it_is_a_device():
    device: Device = a_phone()
    assert device.name == "phone-0"


def test_a_step_says_whether_the_screen_changed_and_why_it_was_invalid():
    device = a_phone()
    at_once(device.reset(a_task()))
    icon = next(element for element in seen(device) if element.resource_id == "app:settings")
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
        seen(device)
        at_once(device.perform(Press("home")))
    assert shown == [0, 1, 2, 3, 4, 5]


def test_a_snapshot_brings_the_phone_back():
    device = a_phone()
    at_once(device.reset(a_task()))
    snapshot, before = device.state, seen(device)
    icon = next(element for element in before if element.resource_id == "app:settings")
    at_once(device.perform(Tap(*icon.bounds.centre)))
    assert seen(device) != before
    device.state = snapshot
    assert seen(device) == before


def test_a_phone_without_a_task_says_what_to_call_first():
    device = a_phone()
    for work in (device.capture(screenshot=False), device.perform(Wait()), device.end_state()):
        with pytest.raises(DeviceError, match="reset"):
            at_once(work)


def test_an_emulator_takes_its_time_over_gestures_and_pictures_and_none_over_elements():
    time = FakeTime()
    device = a_phone(latency=EMULATOR, time=time)
    at_once(device.reset(a_task()))
    assert 4.0 <= time.now_s <= 6.0
    taken = [time.now_s]
    for work in (
        device.perform(Swipe(0.5, 0.6, 0.5, 0.2)),
        device.capture(screenshot=False),
        device.capture(screenshot=True),
    ):
        at_once(work)
        taken.append(time.now_s)
    assert taken[0] < taken[1] == taken[2] < taken[3]


def test_ending_an_episode_touches_nothing_and_takes_no_time():
    time = FakeTime()
    device = a_phone(latency=EMULATOR, time=time, crash_rate=1.0)
    at_once(device.reset(a_task()))
    before = time.now_s
    at_once(device.perform(Finish()))
    assert time.now_s == before
    assert device.state.claim == Finish()
    assert at_once(device.end_state()).changes == ()


def test_a_crashed_phone_is_lost_for_everything_until_it_is_restarted():
    device = a_phone(fail_device="phone-0", fail_after_steps=2)
    at_once(device.reset(a_task()))
    at_once(device.perform(Wait()))
    with pytest.raises(DeviceLost, match="phone-0 is lost: crash"):
        at_once(device.perform(Wait()))
    for work in (
        device.capture(screenshot=False),
        device.perform(Wait()),
        device.end_state(),
        device.capture(screenshot=True),
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
        settings = SimSettings(perturbations=NO_PERTURBATIONS, latency=INSTANT, faults=FaultConfig(freeze_rate=1.0))
        device = SimDevice("phone-0", settings, sleep=time.sleep, clock=time.clock)
        await device.reset(a_task())
        frozen = asyncio.create_task(device.perform(Wait()))
        await time.advance(24 * 3600.0)
        assert not frozen.done()
        frozen.cancel()
        with pytest.raises(asyncio.CancelledError):
            await frozen
        with pytest.raises(DeviceLost, match="freeze"):
            await device.capture(screenshot=False)
        await device.restart()
        await device.reset(a_task())
        assert time.slept == [FOREVER_S]

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
        seen(device)
    at_once(device.restart())
    at_once(device.reset(a_task()))


def test_a_closed_phone_holds_nothing():
    device = a_phone()
    at_once(device.reset(a_task()))
    at_once(device.close())
    with pytest.raises(DeviceError):
        seen(device)


def test_it_numbers_its_contents_from_the_start_of_each_task():
    device, wifi = a_phone(), a_task()
    route = (open_app("settings"), tap("section:network"), tap("wifi"), tap("wifi"), tap("bluetooth"))
    flips = with_solution(wifi, *route, Move(verb="finish", target="complete"))
    for _ in range(2):
        at_once(device.reset(wifi))
        oracle = Oracle(flips)
        done = [at_once(device.perform(oracle.act(seen(device)))) for _ in range(6)]
        assert [performed.content for performed in done] == [0, 0, 1, 0, 2, 2]


# --- what the phone shows ---------------------------------------------------------------------------------------------


def test_a_capture_holds_elements_size_and_app_and_a_picture_only_where_one_is_asked_for():
    device = a_phone()
    at_once(device.reset(a_task()))
    without, whole = at_once(device.capture(screenshot=False)), at_once(device.capture(screenshot=True))
    assert without.elements == whole.elements == elements_of(device.screen, device.state.focus)
    assert (without.width_px, without.height_px) == (whole.width_px, whole.height_px) == (360, 720)
    assert (without.screenshot, whole.app, without.app) == (b"", "launcher", "launcher")
    assert whole.screenshot == render.encode_jpeg(render.draw(device.state))


def test_a_capture_names_the_app_in_the_foreground():
    device = a_phone()
    at_once(device.reset(a_task()))
    icon = next(element for element in seen(device) if element.resource_id == "app:settings")
    at_once(device.perform(Tap(*icon.bounds.centre)))
    assert at_once(device.capture(screenshot=False)).app == "settings"
    at_once(device.perform(Press("home")))
    assert at_once(device.capture(screenshot=False)).app == "launcher"


@pytest.mark.parametrize("width", [48, 224, 361])
def test_a_picture_is_as_large_as_the_capture_says(width: int):
    device = SimDevice("phone-0", SimSettings(latency=INSTANT, screenshot_width=width))
    at_once(device.reset(a_task()))
    found = at_once(device.capture(screenshot=True))
    assert render.decode(found.screenshot).size == (found.width_px, found.height_px) == (width, 2 * width)


def test_elements_and_picture_are_of_the_same_moment_however_long_the_picture_takes():
    async def scene(time: FakeTime) -> None:
        settings = SimSettings(perturbations=NO_PERTURBATIONS, latency=EMULATOR)
        device = SimDevice("phone-0", settings, sleep=time.sleep, clock=time.clock)
        device.state = before = start_state(a_task())
        after = start_state(starting(a_task(), Showing(app="notes", screen="home")))
        taken = asyncio.create_task(device.capture(screenshot=True))
        await time.advance(0.2)
        assert not taken.done(), "a picture takes 0.3 s"
        device.state = after
        await time.advance(0.2)
        found = await taken
        assert found.app == "notes"
        assert found.elements == capture_of(after).elements != capture_of(before).elements
        assert found.screenshot == render.encode_jpeg(render.draw(after))

    play(scene)


def test_what_a_state_shows_is_what_a_phone_in_it_captures():
    device = a_phone()
    at_once(device.reset(a_task()))
    assert capture_of(device.state) == at_once(device.capture(screenshot=False))
    assert (capture_of(device.state, width_px=100).width_px, capture_of(device.state, width_px=100).height_px) == (
        100,
        200,
    )


# --- saving and loading -----------------------------------------------------------------------------------------------


def wander(device: SimDevice, seed: int, steps: int = 12) -> None:
    agent = random_agent(Random(seed))
    for _ in range(steps):
        action = agent(seen(device))
        at_once(device.perform(Wait() if isinstance(action, Finish) else action))


@pytest.mark.parametrize("number", range(6))
def test_a_phone_goes_back_to_the_state_that_was_saved(number: int):
    device = a_phone()
    assert isinstance(device, SavesState)
    at_once(device.reset(a_task(number)))
    wander(device, seed=1)
    saved, state, shown = at_once(device.save_state()), device.state, seen(device)
    wander(device, seed=2)
    assert device.state != state
    at_once(device.load_state(saved))
    assert device.state == state
    assert (seen(device), at_once(device.save_state())) == (shown, saved)


def test_a_saved_state_counts_its_changes_from_the_start_of_the_task_and_keeps_its_content_number():
    device = a_phone()
    at_once(device.reset(a_task()))
    route = (open_app("settings"), tap("section:network"), tap("wifi"), tap("bluetooth"))
    oracle = Oracle(with_solution(a_task(), *route))
    done = [at_once(device.perform(oracle.act(seen(device)))) for _ in range(3)]
    saved, changes = at_once(device.save_state()), at_once(device.end_state()).changes
    assert len(changes) == 1
    assert at_once(device.perform(oracle.act(seen(device)))).content == 2
    at_once(device.load_state(saved))
    assert at_once(device.end_state()).changes == changes
    assert at_once(device.perform(Wait())).content == done[-1].content == 1


def test_a_state_can_be_loaded_on_another_phone_with_the_same_task():
    first, second = a_phone(), a_phone()
    for device in (first, second):
        at_once(device.reset(a_task(2)))
    wander(first, seed=5)
    at_once(second.load_state(at_once(first.save_state())))
    assert (second.state, at_once(second.end_state())) == (first.state, at_once(first.end_state()))


def test_a_lost_phone_neither_saves_nor_loads():
    device = a_phone(fail_device="phone-0", fail_after_steps=1)
    at_once(device.reset(a_task()))
    saved = at_once(device.save_state())
    with pytest.raises(DeviceLost):
        at_once(device.perform(Wait()))
    for work in (device.save_state(), device.load_state(saved)):
        with pytest.raises(DeviceLost):
            at_once(work)


def test_a_phone_without_a_task_has_no_state_to_save():
    with pytest.raises(DeviceError, match="reset"):
        at_once(a_phone().save_state())


# --- time scales ------------------------------------------------------------------------------------------------------


def test_an_emulator_in_real_time_may_take_as_long_as_its_worst_action_and_a_long_episode():
    times, slow = time_scales(EMULATOR), DELAYS["emulator"]
    assert (times.step_s, times.episode_s, times.backoff_s) == (slow.longest_action_s, slow.long_episode_s, 0.5)
    assert (times.boot_s, times.reset_s, times.restart_s) == (times.step_s, times.step_s, 60.0)


def test_deadlines_go_with_the_pace_of_the_simulation():
    half, full = (time_scales(LatencyConfig(time_scale=scale)) for scale in (0.5, 1.0))
    for name in ("boot_s", "reset_s", "step_s", "episode_s", "backoff_s"):
        assert getattr(half, name) == pytest.approx(getattr(full, name) / 2)


@pytest.mark.parametrize("latency", [INSTANT, LatencyConfig(time_scale=0.01)])
def test_however_fast_phones_are_a_busy_machine_gets_its_time(latency: LatencyConfig):
    times = time_scales(latency)
    assert (times.step_s, times.episode_s) == (SHORTEST_DEADLINE_S, SHORTEST_EPISODE_S)
    assert 0.0 < times.backoff_s < 0.1


def test_a_phone_has_the_time_scales_of_its_latency():
    assert a_phone(latency=EMULATOR).times == time_scales(EMULATOR)
    assert a_phone().times == time_scales(INSTANT)


# --- fleets -----------------------------------------------------------------------------------------------------------

WORKERS = ("worker-0", "worker-1", "worker-2")
CRASHING = SimConfig(
    latency=LatencyConfig(time_scale=0.5, slow_machine_share=0.0, slow_workers=1),
    faults=FaultConfig(crash_rate=1.0, corrupt_rate=1.0),
    screenshot_width=100,
)


def a_fleet(owner: str = "worker-0", *, purpose: Literal["collection", "evaluation"] = "collection") -> Fleet:
    return Fleet(owner=owner, count=3, seed=5, purpose=purpose, workers=WORKERS)


def test_the_phones_of_a_worker_are_named_after_it_and_as_the_settings_say():
    phones = make_devices(CRASHING, a_fleet("worker-1"))
    assert [phone.name for phone in phones] == ["worker-1/phone-0", "worker-1/phone-1", "worker-1/phone-2"]
    assert {phone.times for phone in phones} == {time_scales(CRASHING.latency)}
    for device in phones:
        device.state = start_state(a_task())
        assert at_once(device.capture(screenshot=False)).width_px == 100


def test_the_last_workers_sit_on_slow_machines_where_the_settings_say_so():
    slow = {owner: [one._latency.slow_machine for one in make_devices(CRASHING, a_fleet(owner))] for owner in WORKERS}
    assert slow == {"worker-0": [False] * 3, "worker-1": [False] * 3, "worker-2": [True] * 3}


def test_phones_that_collect_fail_as_the_settings_say():
    async def scene(time: FakeTime) -> None:
        (device, *_) = make_devices(CRASHING, a_fleet())
        device._sleep, device._clock = time.jump, time.clock
        await device.reset(a_task())
        with pytest.raises(CorruptFrame):
            render.decode((await device.capture(screenshot=True)).screenshot)
        with pytest.raises(DeviceLost):
            await device.perform(Wait())

    play(scene)


def test_phones_that_evaluate_take_no_time_and_never_fail():
    for device in make_devices(CRASHING, a_fleet("evaluator", purpose="evaluation")):
        assert device.name.startswith("evaluator/phone-")
        at_once(device.reset(a_task()))
        wander(device, seed=0, steps=20)
        assert render.decode(at_once(device.capture(screenshot=True)).screenshot).size == (100, 200)


def test_phones_that_evaluate_are_perturbed_like_those_that_collect():
    rough = SimConfig(latency=INSTANT, perturbations=PerturbationConfig(popup_rate=1.0, slow_rate=1.0))
    collecting, evaluating = (
        make_devices(rough, a_fleet(purpose=purpose))[0] for purpose in ("collection", "evaluation")
    )
    for device in (collecting, evaluating):
        at_once(device.reset(a_task()))
        wander(device, seed=3)
    assert collecting.state == evaluating.state
    assert collecting.state.perturbations != start_state(a_task()).perturbations


# --- tasks for other devices ------------------------------------------------------------------------------------------


def test_a_task_that_other_devices_play_is_refused_with_the_fix():
    device, task = a_phone(), replace(a_task(), setup=CustomSetup(values={"url": "https://example.org"}))
    with pytest.raises(TaskError, match="set up by CustomSetup") as caught:
        at_once(device.reset(task))
    assert "devices.kind" in caught.value.fix
    with pytest.raises(DeviceError, match="reset"):
        seen(device)

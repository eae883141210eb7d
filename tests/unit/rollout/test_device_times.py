"""Devices have time scales and faults of their own: deadlines, back-off, and what is counted as busy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from distrl.config.load import load_config
from distrl.config.schema import NO_PERTURBATIONS, LatencyConfig
from distrl.devices.base import TimeScales
from distrl.devices.health import Health, limits_of
from distrl.devices.pool import DevicePool
from distrl.devices.sim.device import SimDevice, SimSettings
from distrl.errors import DeviceLost
from distrl.rollout.episode import BusyMeter, EpisodeLimits, EpisodeTools, Played, run_episode
from distrl.rollout.scheduler import TaskFeed
from distrl.rollout.worker import Worker
from distrl.telemetry.events import read_events
from distrl.types import Decision, Ending, Finish, Observation, Press
from support.faketime import FakeTime, settle
from support.faketime import play as play_scene
from support.rollouts import (
    DEAF_S,
    HANGS_S,
    Kept,
    Page,
    Pages,
    Published,
    ScriptedPolicy,
    a_page_task,
    ignore_cancellation,
    make_parts,
    make_tools,
    until,
)

THEIR_OWN = EpisodeLimits(history=6, repeat_penalty=0.01)
"""No limits of the run: the device's own count."""
SHORT = TimeScales(boot_s=0.03, reset_s=0.04, step_s=0.02, backoff_s=0.001)


async def go_back(seen: Observation) -> tuple[Decision, int]:
    return Decision(action=Press("back"), choice=(0,), logp=-1.0, entropy=1.0, value=0.5), 0


async def hang() -> None:
    await asyncio.Event().wait()


def fail_with(error: Exception) -> Callable[[], Awaitable[object]]:
    async def fail() -> None:
        raise error

    return fail


def play(page: Page, limits: EpisodeLimits = THEIR_OWN, tools: EpisodeTools | None = None) -> Played:
    return asyncio.run(run_episode("e1", page, a_page_task(), tools or make_tools(go_back), limits))


# --- deadlines


@pytest.mark.parametrize(
    ("method", "limit"), [("reset", "0.07"), ("capture", "0.02"), ("perform", "0.02"), ("end_state", "0.02")]
)
def test_the_device_says_how_long_its_calls_may_take(method: str, limit: str) -> None:
    page = Page(times=SHORT)
    page.happens[method] = hang
    assert play(page).lost == f"it took over {limit} s to answer"


def test_only_the_first_reset_of_a_device_may_have_to_boot_it() -> None:
    tools, page = make_tools(go_back), Page(times=SHORT)
    assert play(page, tools=tools).lost == ""
    page.happens["reset"] = hang
    assert play(page, tools=tools).lost == "it took over 0.04 s to answer"
    other = Page("page-1", times=SHORT)
    other.happens["reset"] = hang
    assert play(other, tools=tools).lost == "it took over 0.07 s to answer"


def test_a_device_that_failed_to_boot_may_boot_again() -> None:
    tools, page = make_tools(go_back), Page(times=SHORT)
    page.happens["reset"] = hang
    assert [play(page, tools=tools).lost for _ in range(2)] == ["it took over 0.07 s to answer"] * 2


def test_a_limit_of_the_run_goes_before_the_devices_own() -> None:
    page = Page(times=TimeScales(boot_s=0.0, reset_s=0.01, step_s=600.0))
    page.happens["perform"] = hang
    assert play(page, replace(THEIR_OWN, step_deadline_s=0.03)).lost == "it took over 0.03 s to answer"
    page.happens["reset"] = hang
    assert play(page, replace(THEIR_OWN, step_deadline_s=0.03)).lost == "it took over 0.03 s to answer"


@pytest.mark.parametrize(
    ("task_s", "run_s", "device_s", "steps"), [(0.0, 0.0, 9.0, 3), (0.0, 5.0, 9.0, 2), (13.0, 5.0, 9.0, 5)]
)
def test_the_budget_of_an_episode_is_the_tasks_or_the_runs_or_the_devices(
    task_s: float, run_s: float, device_s: float, steps: int
) -> None:
    seconds = iter(range(1000))
    page = Page(ends_after=99, times=replace(SHORT, episode_s=device_s))
    tools = make_tools(go_back, clock=lambda: float(next(seconds)))
    task = replace(a_page_task(), max_s=task_s)
    played = asyncio.run(run_episode("e1", page, task, tools, replace(THEIR_OWN, budget_s=run_s)))
    assert played.trajectory is not None
    assert (played.trajectory.ending, played.lost) == (Ending.TIME_LIMIT, "")
    assert len(played.trajectory.steps) == steps  # a look at the clock, and two around each action


def test_the_pool_takes_back_off_and_restart_deadline_from_each_device() -> None:
    hasty, slow = (
        Page("hasty", times=TimeScales(restart_s=2.0, backoff_s=0.5)),
        Page("slow", times=TimeScales(restart_s=300.0, backoff_s=20.0)),
    )
    for page in (hasty, slow):
        page.happens["restart"] = hang

    async def scene(time: FakeTime) -> None:
        pool = DevicePool([hasty, slow], sleep=time.sleep, clock=time.clock)
        for _ in range(2):
            pool.release(await pool.lease(1.0), lost="gone")
        await settle()

        def waits() -> dict[str, float | None]:
            return {status.name: status.deadline_s for status in pool.status()}

        assert waits() == {"hasty": 0.5, "slow": 20.0}
        await time.advance(1.0)
        assert waits() == {"hasty": 1.5, "slow": 19.0}, "one restarts already, the other one waits"
        await time.advance(1.5)
        assert waits()["hasty"] == 1.0, "its restart took over 2 s, and the next back-off is twice as long"
        await time.advance(18.0)
        assert waits()["slow"] == pytest.approx(300.0 - 0.5)
        await pool.close()

    play_scene(scene)
    assert limits_of(slow).longest_backoff_s == 60 * 20.0
    assert limits_of(slow).quarantine_s == 240 * 20.0


# --- faults


@pytest.mark.parametrize(
    "error", [ConnectionResetError("reset by peer"), BrokenPipeError("broken pipe"), OSError(5, "Input/output error")]
)
@pytest.mark.parametrize("method", ["capture", "perform", "end_state"])
def test_an_os_error_of_a_device_ends_the_episode_as_lost(error: OSError, method: str) -> None:
    page, calls = Page(ends_after=3), iter(range(100))

    async def fail_later() -> None:
        if method == "end_state" or next(calls) == 2:
            raise error

    page.happens[method] = fail_later
    played = play(page)
    assert played.lost.startswith("page-0 is lost: ")
    assert str(error) in played.lost
    assert played.trajectory is not None
    assert played.trajectory.ending is Ending.DEVICE_LOST
    assert played.trajectory.last is not None, "the value of what was seen last is bootstrapped"


@pytest.mark.parametrize("error", [DeviceLost("gone"), TimeoutError("no answer"), BrokenPipeError("broken pipe")])
def test_the_episode_and_the_pool_take_the_same_errors_for_faults_of_a_device(error: Exception) -> None:
    page = Page()
    page.happens["perform"] = fail_with(error)
    assert str(error) in play(page).lost

    async def scene(time: FakeTime) -> None:
        pool = DevicePool([page], sleep=time.sleep, clock=time.clock)
        with pytest.raises(type(error)):
            async with pool.leased(1.0):
                raise error
        page.happens["restart"] = fail_with(error)
        await time.advance(page.times.backoff_s)
        (status,) = pool.status()
        assert (status.losses, status.failures) == (1, 2)
        assert str(error) in status.waiting
        await pool.close()

    play_scene(scene)


@pytest.mark.parametrize("error", [FileNotFoundError("weights"), TimeoutError("a lock"), DeviceLost("nonsense")])
def test_what_the_policy_raises_is_a_bug_and_no_lost_device(error: Exception) -> None:
    async def fail(seen: Observation) -> tuple[Decision, int]:
        raise error

    with pytest.raises(type(error)):
        play(Page(), tools=make_tools(fail))


def test_a_device_with_a_broken_pipe_does_not_kill_the_worker_and_comes_back(tmp_path: Path) -> None:
    bad, good = Page("bad"), Page("good")
    resets = iter(range(100))

    async def break_twice() -> None:
        if next(resets) in (1, 2):
            raise BrokenPipeError("broken pipe")

    bad.happens["reset"] = break_twice
    parts = make_parts(tmp_path, ScriptedPolicy(), Published(), [bad, good])
    parts = replace(parts, feed=TaskFeed(Pages(), "train", seed="test"))

    async def scene() -> Worker:
        worker = Worker(parts)
        working = asyncio.create_task(worker.run())
        async with asyncio.timeout(HANGS_S):
            await until(lambda: working.done() or bad.calls.count("end_state") >= 3)
            worker.stop()
            await working
        return worker

    worker = asyncio.run(scene())
    assert worker.counts.losses == bad.calls.count("restart") == 2
    lost = [event for event in read_events(tmp_path / "worker-0.jsonl") if event["event"] == "device_lost"]
    assert [(event["device"], event["why"]) for event in lost] == [("bad", "bad is lost: broken pipe")] * 2
    assert isinstance(parts.sink, Kept)
    assert {one.device for one in parts.sink.trajectories} == {"bad", "good"}


def test_a_device_whose_restart_raises_an_os_error_is_tried_again() -> None:
    page, tries = Page(times=TimeScales(backoff_s=1.0)), iter(range(9))

    async def fail_once() -> None:
        if next(tries) == 0:
            raise ConnectionRefusedError("refused")

    page.happens["restart"] = fail_once

    async def scene(time: FakeTime) -> None:
        pool = DevicePool([page], sleep=time.sleep, clock=time.clock)
        pool.release(await pool.lease(1.0), lost="gone")
        await time.advance(1.0)
        (status,) = pool.status()
        assert (status.health, status.deadline_s) == (Health.RESTARTING, 2.0)
        assert "refused" in status.waiting
        await time.advance(2.0)
        assert pool.status()[0].health is Health.HEALTHY
        await pool.close()

    play_scene(scene)


# --- busy time


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_overlapping_calls_are_summed_and_those_under_way_are_counted() -> None:
    clock = Clock()
    meter = BusyMeter(clock)
    clock.now_s += 5.0
    assert meter.busy_s() == 0.0, "nothing was asked of any device"
    with meter:
        clock.now_s += 2.0
        assert meter.busy_s() == 2.0, "a call under way counts as far as it got"
        with meter:
            clock.now_s += 3.0
            assert meter.busy_s() == 8.0
            assert meter.busy_s() == 8.0, "asking changes nothing"
        clock.now_s += 1.0
        assert meter.busy_s() == 9.0
    clock.now_s += 50.0
    assert meter.busy_s() == 9.0


def test_the_time_that_devices_could_have_worked_begins_with_the_first_call_and_counts_each_of_them() -> None:
    clock = Clock()
    meter = BusyMeter(clock, num_devices=3)
    clock.now_s += 5.0
    assert meter.device_s() == 0.0, "the first weights are still awaited"
    with meter:
        clock.now_s += 2.0
        assert meter.device_s() == 6.0
    clock.now_s += 4.0
    with meter:
        assert meter.device_s() == 18.0, "also while nobody asked anything of them"
    assert meter.busy_s() == 2.0


def test_a_worker_counts_the_devices_that_it_really_has(tmp_path: Path) -> None:
    """Not those that the settings ask for: a factory of devices may make fewer or more."""
    ticks, settings = iter(range(10_000)), load_config(None, {"devices.per_worker": 64})
    parts = make_parts(tmp_path, ScriptedPolicy(), Published(), [Page(f"page-{n}") for n in range(3)], settings)
    clock = lambda: float(next(ticks))  # noqa: E731
    worker = Worker(replace(parts, tools=replace(parts.tools, clock=clock)))
    with worker.meter:  # which looks at the clock as it begins and as it ends
        pass
    assert worker.meter.device_s() == 3 * 2.0


def test_a_call_that_fails_is_over_all_the_same() -> None:
    clock = Clock()
    meter = BusyMeter(clock)

    def fail() -> None:
        with meter:
            clock.now_s += 2.0
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    clock.now_s += 10.0
    assert meter.busy_s() == 2.0


def test_the_utilisation_of_a_worker_is_the_time_that_its_phones_take(tmp_path: Path) -> None:
    """Two phones by a clock that only they move: whatever passes is device time of one phone or of both."""
    time = FakeTime()
    settings = SimSettings(
        perturbations=NO_PERTURBATIONS,
        latency=LatencyConfig(profile="emulator", time_scale=1.0, stall_rate=0.0, slow_machine_share=0.0),
    )
    phones = [SimDevice(f"p{number}", settings, sleep=time.sleep, clock=time.clock) for number in range(2)]
    parts = make_parts(tmp_path, ScriptedPolicy(), Published(), phones)
    parts = replace(parts, tools=replace(parts.tools, clock=time.clock), limits=replace(parts.limits, budget_s=1e9))

    async def scene() -> None:
        worker = Worker(parts)
        working = asyncio.create_task(worker.run())
        await settle(60)
        started_s, before_s = time.now_s, worker.meter.busy_s()
        for _ in range(400):
            await time.advance(0.25)
            await settle(20)
        passed_s, busy_s = time.now_s - started_s, worker.meter.busy_s() - before_s
        assert passed_s == pytest.approx(100.0)
        assert busy_s <= 2 * passed_s
        assert busy_s / (2 * passed_s) > 0.9, "the policy takes no time, so the phones are always at work"
        worker.stop()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    asyncio.run(scene())


def test_a_policy_that_thinks_long_leaves_the_device_idle() -> None:
    clock = Clock()
    meter = BusyMeter(clock)
    page = Page(ends_after=4)

    async def think(seen: Observation) -> tuple[Decision, int]:
        clock.now_s += 7.0
        return await go_back(seen)

    async def work() -> None:
        clock.now_s += 1.0

    page.happens["perform"] = work
    played = play(page, tools=replace(make_tools(think, clock=clock), meter=meter))
    assert played.trajectory is not None
    assert meter.busy_s() == 4.0
    assert played.trajectory.wall_s == 4 * 8.0
    assert [step.device_s for step in played.trajectory.steps] == [1.0] * 4


def test_an_episode_that_the_device_ends_has_nothing_after_it() -> None:
    played = play(Page(ends_after=2, reward=3.0))
    found = played.trajectory
    assert found is not None
    assert (found.ending, found.last, found.last_value, found.end.reward) == (Ending.ENVIRONMENT, None, 0.0, 3.25)
    assert found.end.device is not None
    assert [step.reward for step in found.steps] == [0.0, 0.0], "the outcome is the judge's to give"
    assert [step.device_reward for step in found.steps] == [0.25, 3.0]
    assert found.steps[1].observation.app == "browser"


def test_a_claim_in_the_step_that_the_device_ends_counts_as_a_claim() -> None:
    async def finish(seen: Observation) -> tuple[Decision, int]:
        return replace((await go_back(seen))[0], action=Finish()), 0

    found = play(Page(ends_after=1), tools=make_tools(finish)).trajectory
    assert found is not None
    assert (found.ending, found.end.claim) == (Ending.FINISHED, Finish())


@pytest.mark.parametrize("method", ["reset", "capture", "perform", "end_state"])
def test_a_device_that_does_not_heed_its_cancellation_is_lost_at_its_deadline(method: str) -> None:
    page = Page(times=SHORT)
    page.happens[method] = ignore_cancellation
    began_s = time.monotonic()
    assert play(page).lost.startswith("it took over")
    assert time.monotonic() - began_s < 0.5 * DEAF_S


def test_a_worker_ends_though_a_device_does_not_heed_its_cancellation(tmp_path: Path) -> None:
    async def scene() -> None:
        stuck, well = Page("stuck"), Page("well")
        stuck.happens["perform"] = ignore_cancellation
        parts = make_parts(tmp_path, ScriptedPolicy(), Published(), [stuck, well])
        worker = Worker(replace(parts, feed=TaskFeed(Pages(), "train", seed="test")))
        working = asyncio.create_task(worker.run())
        async with asyncio.timeout(0.5 * DEAF_S):
            await until(lambda: "perform" in stuck.calls and worker.counts.episodes >= 3)
            worker.stop()
            await working
        assert "close" in stuck.calls

    asyncio.run(scene())

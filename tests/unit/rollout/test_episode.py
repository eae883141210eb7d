"""One attempt at one task: what is recorded, and what is kept when something cuts it short."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest
from msgspec.structs import replace

from distrl.config.schema import FaultConfig
from distrl.devices.sim.device import SimDevice
from distrl.errors import DeviceError, DeviceLost, LossCause
from distrl.rollout.batching import all_or_first_error
from distrl.rollout.episode import EpisodeLimits, EpisodeTools, Played, run_episode
from distrl.rollout.observing import target_of
from distrl.tasks.sim.oracle import play_oracle
from distrl.types import (
    Action,
    Bounds,
    Decision,
    Ending,
    Finish,
    Observation,
    Press,
    Swipe,
    Tap,
    Task,
    TypeText,
    UiElement,
)
from support.rollouts import (
    LIMITS,
    VALUE,
    OddPhone,
    Published,
    ScriptedPolicy,
    a_phone,
    a_task,
    make_batcher,
    make_tools,
)
from support.rollouts import play as play_judged


def decision(action: Action) -> Decision:
    return Decision(action=action, choice=(0,), logp=-1.0, entropy=1.0, value=VALUE)


async def go_back(seen: Observation) -> tuple[Decision, int]:
    return decision(Press("back")), 0


def play(device: SimDevice, task: Task, tools: EpisodeTools | None = None, limits: EpisodeLimits = LIMITS) -> Played:
    return asyncio.run(play_judged("e1", device, task, tools or make_tools(go_back), limits))


def by_oracle(task: Task) -> EpisodeTools:
    """Tools whose policy knows the way."""
    route: Iterator[Action] = iter(play_oracle(task).actions)

    async def decide(seen: Observation) -> tuple[Decision, int]:
        return decision(next(route, Press("back"))), 0

    return make_tools(decide)


async def break_down() -> None:
    raise DeviceLost("gone")


def test_an_episode_that_succeeds_earns_one_at_its_last_step_and_has_nothing_after_it() -> None:
    task = a_task(3)
    played = play(a_phone(), task, by_oracle(task))
    found = played.trajectory
    assert found is not None
    assert (found.ending, found.verdict.success, found.last, found.last_value) == (Ending.FINISHED, True, None, 0.0)
    assert [step.reward for step in found.steps] == [0.0] * (len(found.steps) - 1) + [1.0]
    assert found.end.claim is not None
    assert (found.id, found.device, played.lost) == ("e1", "phone-0", "")


def test_an_observation_holds_the_recent_actions_and_a_no_op_step_costs_a_little() -> None:
    found = play(a_phone(), a_task(max_steps=9), limits=replace(LIMITS, history=3)).trajectory
    assert found is not None
    assert [len(step.observation.recent) for step in found.steps] == [0, 1, 2, 3, 3, 3, 3, 3, 3]
    noop_steps = [step for step in found.steps if not (step.valid and step.changed)]
    assert noop_steps  # there is no way back from the home screen
    assert {step.reward for step in noop_steps} == {-LIMITS.repeat_penalty}


def test_an_episode_out_of_steps_is_cut_off_with_what_was_seen_last() -> None:
    found = play(a_phone(), a_task(max_steps=4)).trajectory
    assert found is not None
    assert (found.ending, len(found.steps), found.last_value) == (Ending.STEP_LIMIT, 4, VALUE)
    assert found.last is not None
    assert len(found.last.recent) == 4


def test_an_episode_over_its_budget_is_cut_off_bootstrapped_and_kept() -> None:
    seconds = count()
    tools = make_tools(go_back, clock=lambda: float(next(seconds)))
    played = play(a_phone(), a_task(), tools, replace(LIMITS, budget_s=8.0))
    found = played.trajectory
    assert found is not None
    assert (found.ending, played.lost) == (Ending.TIME_LIMIT, "")
    assert 0 < len(found.steps) < a_task().max_steps
    assert found.last is not None
    assert found.last_value == VALUE


def test_an_episode_ends_after_its_step_when_whoever_runs_it_wants_to_end() -> None:
    cuts = iter([False, False, True])
    found = play(a_phone(), a_task(), replace(make_tools(go_back), stopping=lambda: next(cuts))).trajectory
    assert found is not None
    assert (found.ending, len(found.steps), found.last_value) == (Ending.TIME_LIMIT, 2, VALUE)


def test_an_episode_over_its_budget_before_the_first_step_leaves_nothing() -> None:
    seconds = count()
    tools = make_tools(go_back, clock=lambda: float(next(seconds)))
    assert play(a_phone(), a_task(), tools, replace(LIMITS, budget_s=0.5)) == Played(trajectory=None)


def test_a_frozen_device_counts_as_lost_by_its_deadline() -> None:
    played = play(a_phone(faults=FaultConfig(freeze_rate=1.0)), a_task(), limits=replace(LIMITS, step_deadline_s=0.02))
    assert played == Played(trajectory=None, lost="it took over 0.02 s to answer", cause=LossCause.LATE)


def test_a_device_lost_in_the_middle_leaves_the_steps_before_it() -> None:
    faults = FaultConfig(fail_device="phone-0", fail_after_steps=3)
    played = play(a_phone(faults=faults), a_task())
    found = played.trajectory
    assert found is not None
    assert "crash" in played.lost
    assert (found.ending, len(found.steps), found.verdict.success) == (Ending.DEVICE_LOST, 2, False)
    # What follows the last step is what was on the screen when the third action was tried.
    assert found.last is not None
    assert (len(found.last.recent), found.last_value) == (2, VALUE)


def test_a_step_whose_result_nobody_saw_is_not_kept() -> None:
    played = play(OddPhone("capture", 4, break_down), a_task())
    found = played.trajectory
    assert found is not None
    assert (played.lost, found.ending) == ("gone", Ending.DEVICE_LOST)
    # Three steps were taken; the fourth look failed, so the value of what follows the third is not known.
    assert len(found.steps) == 2
    assert found.last is not None
    assert len(found.last.recent) == 2


def test_a_device_lost_before_it_could_be_judged_is_no_bug_of_the_worker() -> None:
    task = a_task(3)
    played = play(OddPhone("end_state", 1, break_down), task, by_oracle(task))
    found = played.trajectory
    assert found is not None
    assert (played.lost, found.ending, found.verdict.success) == ("gone", Ending.DEVICE_LOST, False)
    assert not any(isinstance(step.decision.action, Finish) for step in found.steps)


def test_a_device_that_refuses_counts_as_lost_too() -> None:
    async def refuse() -> None:
        raise DeviceError("no picture")

    played = play(OddPhone("capture", 1, refuse), a_task(), make_tools(go_back))
    assert played == Played(trajectory=None, lost="no picture")


def test_pictures_are_kept_where_someone_keeps_them() -> None:
    kept: list[bytes] = []

    def keep(picture: bytes) -> str:
        kept.append(picture)
        return f"frame {len(kept)}"

    found = play(a_phone(), a_task(max_steps=2), replace(make_tools(go_back), keep_frame=keep)).trajectory
    assert found is not None
    assert [step.observation.screenshot for step in found.steps] == ["frame 1", "frame 2"]
    assert found.last is not None
    assert found.last.screenshot == "frame 3"


def test_a_bug_in_the_policy_raises() -> None:
    async def fail(seen: Observation) -> tuple[Decision, int]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        play(a_phone(), a_task(), make_tools(fail))


def test_a_device_in_the_middle_of_something_can_be_hurried() -> None:
    async def scene() -> Played:
        stuck, cutting = asyncio.Event(), False

        async def hang() -> None:
            stuck.set()
            await asyncio.Event().wait()

        tools = replace(make_tools(go_back), stopping=lambda: cutting)
        playing = asyncio.create_task(run_episode("e1", OddPhone("perform", 3, hang), a_task(), tools, LIMITS))
        await stuck.wait()
        cutting = True
        for deadline in tools.deadlines:
            deadline.reschedule(0.0)
        return await playing

    played = asyncio.run(scene())
    assert played.trajectory is not None
    assert (played.trajectory.ending, played.lost, len(played.trajectory.steps)) == (Ending.TIME_LIMIT, "", 2)
    assert played.trajectory.last is not None


def test_new_weights_between_two_decisions_lose_no_episode_and_each_step_names_who_acted() -> None:
    weights = Published(0)

    def act(seen: Observation) -> Press:
        weights.newest = len(seen.recent) // 2  # a new version with every other step
        return Press("back")

    async def scene() -> list[Played]:
        batcher = make_batcher(ScriptedPolicy(act), weights)
        played: list[Played] = []
        tools = make_tools(batcher.decide)

        async def one(number: int) -> None:
            played.append(await run_episode(f"e{number}", a_phone(f"p{number}"), a_task(max_steps=8), tools, LIMITS))

        deciding = asyncio.create_task(batcher.run())
        await all_or_first_error([asyncio.create_task(one(number)) for number in range(5)], deciding)
        deciding.cancel()
        return played

    played = asyncio.run(scene())
    assert len(played) == 5
    for trajectory in (one.trajectory for one in played):
        assert trajectory is not None
        versions = [step.version for step in trajectory.steps]
        assert versions == [0, 0, 0, 1, 1, 2, 2, 3]
        assert trajectory.version == 0


@pytest.mark.parametrize(
    ("action", "named"),
    [
        (Tap(0.5, 0.5), "Save"),
        (Tap(0.9, 0.95), ""),
        (TypeText("tea"), "tea"),
        (Swipe(0.5, 0.5, 0.5, 0.1), ""),
    ],
)
def test_a_policy_remembers_what_it_touched(action: Tap | TypeText | Swipe, named: str) -> None:
    card = UiElement(bounds=Bounds(0.0, 0.0, 1.0, 0.9), text="A card")
    button = UiElement(bounds=Bounds(0.0, 0.4, 1.0, 0.6), text="Save", clickable=True)
    assert target_of(action, (card, button)) == named

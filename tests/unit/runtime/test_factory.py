"""From settings to parts: which machines are slow, how long an episode may take, who plays how much of a round."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
import torch
from msgspec.structs import replace

from distrl.config.load import load_config
from distrl.config.schema import Config
from distrl.devices.android.device import AndroidDevice
from distrl.devices.base import Device, TimeScales
from distrl.devices.sim.conditions import EMULATOR, SLOW_FACTOR
from distrl.rollout.outbox import SPOOL_DEADLINE_S, STORE_DEADLINE_S
from distrl.rollout.rounds import EqualShares, NoRounds, Rounds, SharedRound
from distrl.runtime.factory import (
    claim_lifetime_s,
    episode_limits,
    make_devices,
    make_fitting,
    make_following,
    make_rounds,
    prepare_torch,
)
from distrl.tasks.base import find_suite
from distrl.types import Split, Task, Value
from support.roles import a_context
from support.rollouts import Page, Pages, a_page_task
from support.strays import strays
from support.trajectories import make_trajectory

FLEET: dict[str, Value] = {"rollout.workers": 3, "devices.per_worker": 2, "devices.sim.latency.slow_machine_share": 0.0}


def config(**changes: Value) -> Config:
    return load_config(None, {**FLEET, **{key.replace("__", "."): value for key, value in changes.items()}})


@pytest.mark.parametrize(("num_slow", "slow"), [(0, [0, 0, 0]), (1, [0, 0, 2]), (2, [0, 2, 2]), (9, [2, 2, 2])])
def test_the_last_workers_sit_on_slow_machines_with_all_their_phones(num_slow: int, slow: list[int]) -> None:
    settings = config(devices__sim__latency__slow_workers=num_slow)
    fleet = [make_devices(settings, f"worker-{number}") for number in range(3)]
    assert [sum(device._latency.slow_machine for device in devices) for devices in fleet] == slow


def rounds_of(folder: Path, worker: str, **changes: Value) -> Rounds:
    settings = config(learner__round_episodes=8, **changes)
    context = a_context(worker, folder, settings)
    context.transport.episodes.add(make_trajectory("by-another", version=0), {})  # by worker w0
    made = make_rounds(context, make_devices(settings, worker), find_suite(settings.tasks))
    granted = len(made.claim(0, 100))
    assert granted == {NoRounds: 100, EqualShares: 3, SharedRound: 7}[type(made)]
    return made


def test_the_mode_decides_who_plays_how_much(tmp_path: Path) -> None:
    assert isinstance(rounds_of(tmp_path, "worker-0"), NoRounds)
    assert isinstance(rounds_of(tmp_path, "worker-0", learner__mode="sync"), SharedRound)
    assert isinstance(rounds_of(tmp_path, "worker-0", learner__mode="sync", rollout__lockstep=True), EqualShares)
    assert isinstance(rounds_of(tmp_path, "worker-0", rollout__lockstep=True), NoRounds)


class Patient(Pages):
    """A suite in which one task may take long."""

    def task(self, split: Split, index: int) -> Task:
        return replace(a_page_task(index), max_s=5000.0 if index == 7 else 0.0)


def test_a_claim_lives_as_long_as_the_longest_attempt_that_its_suite_and_its_devices_allow() -> None:
    usual = claim_lifetime_s(config(), [Page()], Pages())
    waits_s = 2 * 2 * config().judge.deadline_s + 2 * (2 * STORE_DEADLINE_S + SPOOL_DEADLINE_S)
    assert usual > Page().times.episode_s + waits_s
    assert claim_lifetime_s(config(), [Page()], Patient()) == usual + 5000.0 - Page().times.episode_s
    slow_to_boot = Page(times=TimeScales(boot_s=3600.0))
    assert claim_lifetime_s(config(), [Page(), slow_to_boot], Pages()) > 3600.0 + waits_s


def test_a_claim_lives_through_the_verdicts_of_all_episodes_that_its_worker_has_pending() -> None:
    pages = [Page(f"page-{number}") for number in range(72)]
    one, fleet = (claim_lifetime_s(config(), devices, Pages()) for devices in (pages[:1], pages))
    deadline_s = config().judge.deadline_s
    assert fleet - one == (6 - 2) * 2 * deadline_s, "16 at once: 17 are pending with one device, and 88 with 72"
    plain = claim_lifetime_s(config(data__hindsight=False), pages, Pages())
    assert fleet - plain == 6 * deadline_s


def limits(**changes: Value) -> tuple[float, float]:
    """Budget of an episode and deadline of a step, as an episode on the first phone has them."""
    settings = load_config(None, {key.replace("__", "."): value for key, value in changes.items()})
    own, times = episode_limits(settings), make_devices(settings, "worker-0")[0].times
    return own.budget_s or times.episode_s, own.step_deadline_s or times.step_s


def test_the_limits_of_an_episode_are_those_of_real_devices_at_the_pace_of_the_phones() -> None:
    assert limits(devices__sim__latency__time_scale=1.0) == (150.0, 124.0)
    assert limits() == pytest.approx((0.4 * 150.0, 0.4 * 124.0))


@pytest.mark.parametrize("time_scale", [0.4, 1.0, 3.0])
def test_a_slow_phone_that_stalls_as_long_as_it_may_is_waited_for(time_scale: float) -> None:
    budget_s, deadline_s = limits(devices__sim__latency__time_scale=time_scale)
    assert deadline_s > time_scale * SLOW_FACTOR * 60.0
    assert budget_s > deadline_s > time_scale * SLOW_FACTOR * EMULATOR.reset_s[1]


@pytest.mark.parametrize(
    "changes", [{"devices__sim__latency__profile": "instant"}, {"devices__sim__latency__time_scale": 0.01}]
)
def test_phones_that_take_hardly_any_time_leave_some_for_decisions(changes: dict[str, Value]) -> None:
    assert limits(**changes) == (30.0, 10.0)


def test_limits_that_are_given_are_taken_as_they_are() -> None:
    given = limits(rollout__episode_budget_s=7.0, rollout__step_deadline_s=3.0, devices__sim__latency__time_scale=2.0)
    assert given == (7.0, 3.0)


def found_by_hindsight(**flips: Value) -> list[list[str]]:
    """The templates that hindsight names for a few failures, each of which did another task."""
    settings = config(tasks__suite="sim-start", **flips)
    fitting = make_fitting(settings, find_suite(settings.tasks))
    assert fitting is not None
    return [[task.template for task in fitting(episode)] for episode in strays("sim-start", 8)]


def test_hindsight_errs_at_least_as_often_as_the_verdicts_that_the_learner_sees() -> None:
    exact, wrong = found_by_hindsight(), found_by_hindsight(data__judge_flip=1.0)
    assert exact != wrong
    assert found_by_hindsight(data__outcome_flip=1.0) == wrong
    assert found_by_hindsight(data__outcome_flip=0.2, data__judge_flip=1.0) == wrong


def test_no_role_learns_through_attention_that_makes_nan_of_finite_numbers() -> None:
    torch.backends.cuda.enable_cudnn_sdp(True)
    try:
        prepare_torch()
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.set_flush_denormal(False)  # which other tests in this process need


@pytest.mark.parametrize(
    ("changes", "follows"),
    [
        ({}, True),
        ({"devices.follow_s": 0}, False),
        ({"devices.android.serials": '["R58M12ABC"]'}, False),
        ({"devices.android.emulator.avds": '["Pixel"]'}, False),
    ],
)
def test_devices_that_come_are_looked_for_where_none_is_named(
    tmp_path: Path, changes: dict[str, Value], follows: bool
) -> None:
    config = load_config(None, {"devices.kind": "android", "rollout.workers": 1, **changes})
    shared = [cast(Device, AndroidDevice("R58M12ABC", config.devices.android))]
    assert (make_following(a_context("worker-0", tmp_path, config), shared) is not None) == follows

"""What roles are made of follows from the settings."""

from __future__ import annotations

import pytest

from distrl.config.load import load_config
from distrl.devices.sim.latency import RESET_S, SLOW_FACTOR, STALL_S
from distrl.runtime.assembly import episode_limits
from distrl.types import Value


def limits(**changes: Value) -> tuple[float, float]:
    """Budget of an episode and deadline of a step."""
    found = episode_limits(load_config(None, {key.replace("__", "."): value for key, value in changes.items()}))
    return found.budget_s, found.step_deadline_s


def test_the_limits_of_an_episode_are_those_of_real_devices_at_the_pace_of_the_phones() -> None:
    assert limits(devices__latency__time_scale=1.0) == (150.0, 124.0)
    assert limits() == pytest.approx((0.4 * 150.0, 0.4 * 124.0))


@pytest.mark.parametrize("time_scale", [0.4, 1.0, 3.0])
def test_a_slow_phone_that_stalls_as_long_as_it_may_is_waited_for(time_scale: float) -> None:
    budget_s, deadline_s = limits(devices__latency__time_scale=time_scale)
    assert deadline_s > time_scale * SLOW_FACTOR * STALL_S[1]
    assert budget_s > deadline_s > time_scale * SLOW_FACTOR * RESET_S


@pytest.mark.parametrize("changes", [{"devices__latency__profile": "instant"}, {"devices__latency__time_scale": 0.01}])
def test_phones_that_take_hardly_any_time_leave_some_for_decisions(changes: dict[str, Value]) -> None:
    assert limits(**changes) == (30.0, 10.0)


def test_limits_that_are_given_are_taken_as_they_are() -> None:
    given = limits(rollout__episode_budget_s=7.0, rollout__step_deadline_s=3.0, devices__latency__time_scale=2.0)
    assert given == (7.0, 3.0)

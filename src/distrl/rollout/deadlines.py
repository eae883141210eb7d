"""How long things may last at most, from the limits of a run, the time scales of its devices and its tasks' own limits.

`run_episode` keeps to these limits; claims, lock-step and evaluations wait as long as they allow. All functions are
pure. A policy has no deadline of its own, so `DECISION_S` stands for one: a slower one makes these figures too short.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from distrl.config.schema import Config
from distrl.devices.base import TimeScales
from distrl.rollout.episode import SCREENSHOT_TRIES, EpisodeLimits

DECISION_S = 30.0
"""What one decision may take, the wait for its batch included."""
LEASE_DEADLINE_S = 1.0
"""How long an attempt waits for a device. Short, so that a worker that is told to stop does not wait for one that is
long in coming back."""


def longest_attempt_s(
    limits: EpisodeLimits,
    times: Iterable[TimeScales],
    *,
    max_s: Iterable[float] = (),
    judge_s: float,
    store_s: float = 0.0,
) -> float:
    """How long an attempt may last from its lease until it is judged, and stored where `store_s` is given.

    `times` are those of the devices, one at least; `max_s` the tasks' own limits, 0 where a task has none.
    """
    tasks_s = max(max_s, default=0.0)
    episode_s = max(_episode_s(limits, scales, tasks_s) for scales in times)
    return LEASE_DEADLINE_S + episode_s + judge_s + store_s


def verdicts_s(num_pending: int, *, at_once: int, deadline_s: float, hindsight: bool) -> float:
    """How long so many verdicts may take, `at_once` at a time, from a judge that misses each deadline; hindsight has one more."""
    return math.ceil(num_pending / at_once) * deadline_s * (2 if hindsight else 1)


def verdicts_of_worker_s(config: Config, num_devices: int) -> float:
    """The same for all that a worker may have pending: those that are being judged, and one more of each of its devices."""
    judge, hindsight = config.judge, config.data.hindsight
    num_pending = judge.at_once + num_devices
    return verdicts_s(num_pending, at_once=judge.at_once, deadline_s=judge.deadline_s, hindsight=hindsight)


def longest_turn_s(limits: EpisodeLimits, times: Iterable[TimeScales]) -> float:
    """How long an attempt may take until it asks for its first decision, from one to the next, or to its end."""
    return LEASE_DEADLINE_S + max(
        max(_start_s(limits, scales), _step_s(limits, scales) + _observe_s(limits, scales)) + _step_s(limits, scales)
        for scales in times
    )


def _episode_s(limits: EpisodeLimits, times: TimeScales, tasks_s: float) -> float:
    """The budget is looked at after each capture, so one more step may begin just before it is over.

    A device may also take longer than the budget to boot and to reset. Its end state follows in either case, and the
    value of what was seen last.
    """
    budget_s = max(tasks_s, limits.budget_s or times.episode_s)
    last_step_s = DECISION_S + _step_s(limits, times) + _observe_s(limits, times)
    return max(_start_s(limits, times), budget_s + last_step_s) + _step_s(limits, times) + DECISION_S


def _start_s(limits: EpisodeLimits, times: TimeScales) -> float:
    """Until the first screen is there."""
    return times.boot_s + max(_step_s(limits, times), times.reset_s) + _observe_s(limits, times)


def _observe_s(limits: EpisodeLimits, times: TimeScales) -> float:
    return SCREENSHOT_TRIES * _step_s(limits, times)


def _step_s(limits: EpisodeLimits, times: TimeScales) -> float:
    return limits.step_deadline_s or times.step_s

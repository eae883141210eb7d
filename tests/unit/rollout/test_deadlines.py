"""How long an attempt may last at most: no attempt outlives what is foreseen, however slow its device."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from distrl.devices.base import TimeScales
from distrl.rollout.deadlines import DECISION_S, LEASE_DEADLINE_S, longest_attempt_s, longest_turn_s, verdicts_s
from distrl.rollout.episode import EpisodeLimits, run_episode
from distrl.types import Decision, Observation, Press
from support.rollouts import Page, a_page_task, make_tools

LIMITS = EpisodeLimits(history=6, repeat_penalty=0.01)
TIMES = TimeScales(boot_s=100.0, reset_s=40.0, step_s=10.0, episode_s=300.0)
SLOW_BOOT = replace(TIMES, boot_s=900.0)


class Slowest:
    """An attempt in which everything takes as long as it may, by a clock of its own."""

    def __init__(self, times: TimeScales, limits: EpisodeLimits, task_s: float = 0.0) -> None:
        self.now_s, self.asked_s = 0.0, [0.0]
        self._page = Page(ends_after=9999, times=times)
        step_s = limits.step_deadline_s or times.step_s
        each = {"reset": times.boot_s + max(step_s, times.reset_s), "capture": 2 * step_s, "perform": step_s}
        for method, takes_s in {**each, "end_state": step_s}.items():
            self._page.happens[method] = self._taking(takes_s)
        self._limits, self._task = limits, replace(a_page_task(max_steps=9999), max_s=task_s)

    def _taking(self, takes_s: float):  # type: ignore[no-untyped-def]
        async def work() -> None:
            self.now_s += takes_s

        return work

    async def _decide(self, seen: Observation) -> tuple[Decision, int]:
        self.asked_s.append(self.now_s - DECISION_S * (len(self.asked_s) - 1))
        self.now_s += DECISION_S
        return Decision(action=Press("back"), choice=(0,), logp=-1.0, entropy=1.0, value=0.5), 0

    def play(self) -> float:
        tools = make_tools(self._decide, clock=lambda: self.now_s)
        asyncio.run(run_episode("e1", self._page, self._task, tools, self._limits))
        return self.now_s


@pytest.mark.parametrize("times", [TIMES, SLOW_BOOT, replace(TIMES, reset_s=1.0), replace(TIMES, step_s=90.0)])
@pytest.mark.parametrize("limits", [LIMITS, replace(LIMITS, budget_s=50.0), replace(LIMITS, step_deadline_s=3.0)])
@pytest.mark.parametrize("task_s", [0.0, 20.0, 5000.0])
def test_no_attempt_lasts_longer_than_foreseen(times: TimeScales, limits: EpisodeLimits, task_s: float) -> None:
    foreseen_s = longest_attempt_s(limits, [times], max_s=[task_s], judge_s=0.0)
    slowest = Slowest(times, limits, task_s)
    assert slowest.play() <= foreseen_s - LEASE_DEADLINE_S
    turns_s = [later - earlier for earlier, later in zip(slowest.asked_s, slowest.asked_s[1:], strict=False)]
    assert max(turns_s, default=0.0) <= longest_turn_s(limits, [times]) - LEASE_DEADLINE_S


def test_a_tasks_own_limit_goes_before_the_devices_and_the_runs() -> None:
    usual_s = longest_attempt_s(LIMITS, [TIMES], judge_s=0.0)
    assert longest_attempt_s(LIMITS, [TIMES], max_s=[0.0, 1300.0, 20.0], judge_s=0.0) == usual_s + 1000.0
    bounded = replace(LIMITS, budget_s=50.0)
    assert longest_attempt_s(bounded, [TIMES], max_s=[1300.0], judge_s=0.0) == usual_s + 1000.0


def test_the_slowest_device_counts_and_boot_and_reset_are_part_of_an_attempt_and_of_its_first_turn() -> None:
    assert longest_attempt_s(LIMITS, [TIMES, SLOW_BOOT], judge_s=0.0) > 900.0 + 40.0
    assert longest_turn_s(LIMITS, [TIMES, SLOW_BOOT]) > 900.0 + 40.0
    assert longest_turn_s(LIMITS, [replace(TIMES, reset_s=400.0)]) == longest_turn_s(LIMITS, [TIMES]) + 360.0


def test_verdict_and_store_come_on_top() -> None:
    alone_s = longest_attempt_s(LIMITS, [TIMES], judge_s=0.0)
    assert longest_attempt_s(LIMITS, [TIMES], judge_s=60.0, store_s=7.0) == alone_s + 67.0


@pytest.mark.parametrize(("num_pending", "rounds"), [(0, 0), (1, 1), (16, 1), (17, 2), (88, 6)])
def test_verdicts_come_a_few_at_a_time_and_hindsight_has_a_deadline_of_its_own(num_pending: int, rounds: int) -> None:
    assert verdicts_s(num_pending, at_once=16, deadline_s=60.0, hindsight=False) == 60.0 * rounds
    assert verdicts_s(num_pending, at_once=16, deadline_s=60.0, hindsight=True) == 120.0 * rounds

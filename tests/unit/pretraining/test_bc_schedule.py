"""The schedule of a stream: learning rates, reports, and where it ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from distrl.config.schema import WarmStartConfig
from distrl.pretraining.cloning import (
    FINAL_RATE,
    REPORT_EVERY,
    WARMUP_SHARE,
    ScheduleState,
    bc_optimizer_steps,
    lr_factor,
    run_schedule,
)
from support.faketime import FakeTime


class Line:
    """One weight that is pulled down by a constant gradient; remembers the learning rate of each step."""

    def __init__(self) -> None:
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.steps = bc_optimizer_steps(torch.optim.AdamW([self.weight], lr=1.0, fused=True), [self.weight])
        self.rates: list[float] = []

    def step(self) -> None:
        self.rates.append(self.steps.optimizer.param_groups[0]["lr"])
        self.steps.step(self.weight.sum())


def followed(
    config: WarmStartConfig, *, samples: int = 4, seconds: float = 1.0
) -> tuple[Line, list[tuple[ScheduleState, list[int]]]]:
    line, time = Line(), FakeTime()

    def learn(batch: int) -> tuple[int, int]:
        line.step()
        time.now_s += seconds
        return samples, batch

    return line, list(run_schedule(line.steps, config, learn, time.clock))


@given(st.floats(0.0, 1.0))
def test_a_factor_lies_between_almost_nothing_and_one(share: float) -> None:
    assert 0.0 < lr_factor(share) <= 1.0


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_the_factor_rises_in_the_warm_up_and_falls_after_it(one: float, other: float) -> None:
    low, high = sorted((one, other))
    if high <= WARMUP_SHARE:
        assert lr_factor(low) <= lr_factor(high)
    if low >= WARMUP_SHARE:
        assert lr_factor(low) >= lr_factor(high)


def test_the_factor_past_the_end_stays_at_its_last_value() -> None:
    assert lr_factor(1.0) == lr_factor(1.5) == pytest.approx(FINAL_RATE)


def test_every_batch_has_the_rate_of_its_place_in_the_stream() -> None:
    config = WarmStartConfig(samples=400, learning_rate=0.5)
    line, reports = followed(config)
    assert len(line.rates) == 100
    assert line.rates == [0.5 * lr_factor(number / 100) for number in range(100)]
    assert reports[-1][0].share == 1.0


def test_reports_come_every_few_batches_and_at_the_end_and_hold_every_batch_once() -> None:
    _, reports = followed(WarmStartConfig(samples=4 * (2 * REPORT_EVERY + 3)))
    assert [len(results) for _, results in reports] == [REPORT_EVERY, REPORT_EVERY, 3]
    assert [batch for _, results in reports for batch in results] == list(range(2 * REPORT_EVERY + 3))
    assert [state.batches for state, _ in reports] == [REPORT_EVERY, 2 * REPORT_EVERY, 2 * REPORT_EVERY + 3]


def test_time_ends_a_stream_that_is_short_of_samples() -> None:
    line, reports = followed(WarmStartConfig(samples=10**6, minutes=1.0), seconds=7.0)
    last = reports[-1][0]
    assert (last.batches, last.elapsed_s, last.share) == (9, 63.0, 1.0)
    assert len(line.rates) == 9


def test_without_a_time_limit_only_samples_count() -> None:
    _, reports = followed(WarmStartConfig(samples=8, minutes=0.0), seconds=10_000.0)
    assert reports[-1][0].batches == 2


def test_one_batch_that_holds_everything_is_a_whole_stream() -> None:
    _, reports = followed(WarmStartConfig(samples=3), samples=3)
    assert [(state.samples, results) for state, results in reports] == [(3, [0])]


def test_a_clock_that_stands_still_divides_nothing_by_zero() -> None:
    _, reports = followed(WarmStartConfig(samples=8, minutes=5.0), seconds=0.0)
    assert all(state.elapsed_s > 0.0 for state, _ in reports)


def test_an_error_of_a_batch_ends_the_stream_with_it() -> None:
    line = Line()

    def failing(batch: int) -> tuple[int, int]:
        raise ValueError("no data")

    stream: Callable[[], object] = lambda: list(run_schedule(line.steps, WarmStartConfig(samples=8), failing))  # noqa: E731
    with pytest.raises(ValueError, match="no data"):
        stream()

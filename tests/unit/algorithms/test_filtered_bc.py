from __future__ import annotations

import msgspec
import pytest

from distrl.algorithms.base import Lesson, Loss
from distrl.algorithms.filtered_bc import FilteredBC
from distrl.config.schema import AlgorithmConfig
from support.lessons import Drawn, gradient, make_lesson

SUCCESS = Drawn(reward=[0.0, 1.0], value=[0.3, 0.6], success=True)
FAILURE = Drawn(reward=[0.0, 0.0, 0.0], value=[0.2, 0.2, 0.2])


def learn(lesson: Lesson) -> Loss:
    loss = FilteredBC(AlgorithmConfig(name="filtered_bc", value_weight=0.5)).loss(lesson, updates=0)
    loss.total.backward()  # type: ignore[no-untyped-call]
    return loss


def test_every_step_of_a_success_is_imitated_alike_and_failures_are_left_alone() -> None:
    lesson = make_lesson(SUCCESS, FAILURE)
    learn(lesson)
    assert gradient(lesson.logp_BT)[0].tolist() == pytest.approx([-0.5, -0.5, 0.0])
    assert not gradient(lesson.logp_BT)[1].any()


def test_the_critic_learns_the_outcome_of_successes_and_failures() -> None:
    lesson = make_lesson(SUCCESS, FAILURE)
    learn(lesson)
    expected = [[0.5 * (value - 1.0) / 5 for value in (0.3, 0.6)] + [0.0], [0.5 * 0.2 / 5] * 3]
    for got, wanted in zip(gradient(lesson.value_logit_BT).tolist(), expected, strict=True):
        assert got == pytest.approx(wanted, abs=1e-6)


def test_a_lesson_of_failures_alone_imitates_nothing_and_is_finite() -> None:
    lesson = make_lesson(FAILURE)
    loss = learn(lesson)
    assert loss.metrics["policy"] == 0.0
    assert not gradient(lesson.logp_BT).any()


def test_surprise_is_what_the_critic_missed_of_the_outcome() -> None:
    loss = learn(make_lesson(SUCCESS, FAILURE))
    assert loss.td_BT[0].tolist() == pytest.approx([0.7, 0.4, 0.0], abs=1e-6)
    assert loss.td_BT[1].tolist() == pytest.approx([-0.2] * 3, abs=1e-6)


def test_cut_steps_are_not_imitated_and_still_teach_the_critic() -> None:
    lesson = make_lesson(msgspec.structs.replace(SUCCESS, cut=[True, False]))
    learn(lesson)
    assert gradient(lesson.logp_BT)[0].tolist() == [0.0, -1.0]
    assert gradient(lesson.value_logit_BT).all()


def test_examples_are_imitated_and_leave_the_critic_alone() -> None:
    lesson = make_lesson(msgspec.structs.replace(SUCCESS, example=True), FAILURE)
    learn(lesson)
    assert gradient(lesson.logp_BT)[0].tolist() == pytest.approx([-0.5, -0.5, 0.0])
    assert not gradient(lesson.value_logit_BT)[0].any()
    assert gradient(lesson.value_logit_BT)[1].all()

"""DigiRL on numbers worked out by hand: two advantages, two filters, two critics."""

from __future__ import annotations

from math import log

import msgspec
import pytest
import torch
from torch import Tensor

from distrl.algorithms.base import Lesson, Loss
from distrl.algorithms.digirl import DigiRL, largest
from distrl.algorithms.instruction_critic import rows_of
from distrl.algorithms.targets import Course, doubly_robust
from distrl.config.schema import AlgorithmConfig
from support.lessons import Drawn, gradient, make_lesson

PLAIN = AlgorithmConfig(name="digirl", value_weight=0.5, critic_warmup_updates=0)
SUCCESS = Drawn(reward=[0.0, -0.01, 1.0], value=[0.4, 0.3, 0.6], success=True, instruction="open the clock")
"""Rises of -.1, .29 and (.4, which counts for nothing at the end). Half and half: .175, .645, 1."""
FAILURE = Drawn(reward=[0.0, 0.0], value=[0.2, 0.8], instruction="buy a lamp")
"""The critic liked the first step: .5 x .6 = .3. The last one gets the outcome, 0."""


def with_settings(**changes: object) -> AlgorithmConfig:
    return msgspec.convert({**msgspec.to_builtins(PLAIN), **changes}, AlgorithmConfig)


def learn(lesson: Lesson, algorithm: DigiRL | None = None, *, updates: int = 0) -> Loss:
    loss = (algorithm or DigiRL(PLAIN, seed=0)).loss(lesson, updates=updates)
    loss.total.backward()  # type: ignore[no-untyped-call]
    return loss


def promising(algorithm: DigiRL, **chances: float) -> DigiRL:
    """The algorithm, with an instruction critic that has learnt these chances by heart."""
    descent = torch.optim.Adam(algorithm.critic.parameters(), lr=0.1)
    wanted = torch.tensor(list(chances.values()))
    for _ in range(40):
        descent.zero_grad()
        wrong = (algorithm.critic(list(chances)) - torch.logit(wanted)).pow(2).sum()
        wrong.backward()  # type: ignore[no-untyped-call]
        descent.step()
    algorithm.critic.zero_grad()
    return algorithm


def taught(lesson: Lesson) -> list[list[bool]]:
    return (gradient(lesson.logp_BT) < 0).tolist()


# --- the step advantage ---------------------------------------------------------------------------------------------


def course(*rows: Drawn) -> tuple[Course, Tensor]:
    lesson = make_lesson(*rows)
    return lesson.course, lesson.success_B


def test_the_step_advantage_blends_the_outcome_with_what_the_critic_gained() -> None:
    advantage = doubly_robust(*course(SUCCESS, FAILURE), decay=0.5)
    assert advantage[0].tolist() == pytest.approx([0.25 - 0.75 * 0.1, 0.5 + 0.5 * 0.29, 1.0], abs=1e-5)
    assert advantage[1].tolist() == pytest.approx([0.5 * 0.6, 0.0, 0.0], abs=1e-5)


def test_without_decay_every_step_has_the_outcome_and_with_full_decay_all_but_the_last_have_the_critic() -> None:
    assert doubly_robust(*course(SUCCESS, FAILURE), decay=1.0).tolist() == [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    critic = doubly_robust(*course(SUCCESS, FAILURE), decay=0.0)
    assert critic[0].tolist() == pytest.approx([-0.1, 0.29, 1.0], abs=1e-5)
    assert critic[1].tolist() == pytest.approx([0.6, 0.0, 0.0], abs=1e-5)


# --- the filters ----------------------------------------------------------------------------------------------------


def test_only_steps_above_the_floor_are_imitated_and_all_alike() -> None:
    lesson = make_lesson(SUCCESS)
    learn(lesson, DigiRL(with_settings(digirl={"step_floor": 0.2}), seed=0))
    assert gradient(lesson.logp_BT)[0].tolist() == pytest.approx([0.0, -0.5, -0.5])


def test_the_floor_itself_is_not_above_the_floor() -> None:
    lesson = make_lesson(SUCCESS)
    learn(lesson, DigiRL(with_settings(digirl={"step_floor": 1.0}), seed=0))
    assert not gradient(lesson.logp_BT).any()


def test_failures_are_left_out_even_where_the_step_critic_likes_them_and_nothing_else_is_there() -> None:
    lesson = make_lesson(FAILURE)
    loss = learn(lesson)
    assert float(doubly_robust(lesson.course, lesson.success_B, decay=0.5)[0, 0]) > PLAIN.digirl.step_floor
    assert not gradient(lesson.logp_BT).any()
    assert loss.metrics["policy"] == loss.metrics["taught"] == 0.0


def test_the_curriculum_takes_the_successes_that_surprise_most() -> None:
    algorithm = DigiRL(with_settings(digirl={"top_share": 0.25}), seed=0)
    promising(algorithm, easy=0.9, middling=0.5, hard=0.1, hopeless=0.02)
    good = Drawn(reward=[0.0, 1.0], value=[0.5, 0.5], success=True)
    rows = [msgspec.structs.replace(good, instruction=name) for name in ("easy", "middling", "hard")]
    lesson = make_lesson(*rows, Drawn(reward=[0.0, 0.0], value=[0.5, 0.5], instruction="hopeless"))
    learn(lesson, algorithm)
    assert taught(lesson) == [[False, False], [False, False], [True, True], [False, False]]


def test_the_largest_are_counted_upwards_and_ties_stay_together() -> None:
    values = torch.tensor([0.1, 0.5, 0.3, 0.5, -0.2])
    assert largest(values, 0.2).tolist() == [False, True, False, True, False]
    assert largest(values, 0.5).tolist() == [False, True, True, True, False]
    assert largest(values, 1.0).all()
    assert not largest(values, 0.0).any()


# --- the critics ----------------------------------------------------------------------------------------------------


def test_the_step_critic_learns_the_outcome() -> None:
    lesson = make_lesson(SUCCESS, FAILURE)
    learn(lesson)
    expected = [[0.5 * (value - 1.0) / 5 for value in SUCCESS.value], [0.5 * value / 5 for value in FAILURE.value]]
    got = gradient(lesson.value_logit_BT)
    assert got[0].tolist() == pytest.approx(expected[0], abs=1e-6)
    assert got[1, :2].tolist() == pytest.approx(expected[1], abs=1e-6)


def test_the_instruction_critic_learns_which_instructions_succeed() -> None:
    algorithm = DigiRL(PLAIN, seed=0)
    descent = torch.optim.Adam(algorithm.critic.parameters(), lr=0.05)
    for _ in range(30):
        descent.zero_grad()
        learn(make_lesson(SUCCESS, FAILURE), algorithm)
        descent.step()
    chances = torch.sigmoid(algorithm.critic([SUCCESS.instruction, FAILURE.instruction]))
    assert chances[0] > 0.9
    assert chances[1] < 0.1


def test_the_instruction_critic_reads_words_and_neither_case_nor_punctuation() -> None:
    assert rows_of("Open the Clock!") == rows_of("open the clock")
    assert len({rows_of(text) for text in ("open the clock", "open the shop", "", "clock")}) == 4
    assert DigiRL(PLAIN, seed=0).critic(["", "open the clock", "open"]).tolist() == [0.0] * 3


def test_the_policy_term_reaches_neither_critic() -> None:
    algorithm, lesson = DigiRL(with_settings(value_weight=0.0), seed=0), make_lesson(SUCCESS)
    learn(lesson, algorithm)
    assert gradient(lesson.logp_BT).any()
    assert not gradient(lesson.value_logit_BT).any()
    assert not any(gradient(weights).any() for weights in algorithm.critic.parameters())


def test_while_the_critics_warm_up_nothing_is_imitated() -> None:
    algorithm, lesson = DigiRL(with_settings(critic_warmup_updates=3), seed=0), make_lesson(SUCCESS)
    learn(lesson, algorithm, updates=2)
    assert not gradient(lesson.logp_BT).any()
    assert gradient(lesson.value_logit_BT).any()
    assert any(gradient(weights).any() for weights in algorithm.critic.parameters())


def test_the_loss_is_the_sum_of_its_terms_worked_out_by_hand() -> None:
    loss = learn(make_lesson(SUCCESS, FAILURE))
    policy = -log(0.4)
    value = -(log(0.4) + log(0.3) + log(0.6) + log(0.8) + log(0.2)) / 5
    assert loss.metrics["policy"] == pytest.approx(policy, rel=1e-5)
    assert loss.metrics["value"] == pytest.approx(value, rel=1e-5)
    assert loss.metrics["instruction"] == pytest.approx(log(2), rel=1e-5), "at first it knows nothing"
    assert loss.metrics["taught"] == pytest.approx(3 / 5)
    assert loss.metrics["total"] == pytest.approx(policy + 0.5 * (value + log(2)), rel=1e-5)


# --- who teaches and who tells --------------------------------------------------------------------------------------


def test_steps_that_do_not_teach_are_not_imitated_and_still_tell() -> None:
    lesson = make_lesson(msgspec.structs.replace(SUCCESS, teaches=[True, False, True]))
    learn(lesson)
    assert taught(lesson) == [[True, False, True]]
    assert gradient(lesson.value_logit_BT)[0].all()


def test_an_episode_that_does_not_tell_teaches_and_trains_neither_critic() -> None:
    algorithm, lesson = DigiRL(PLAIN, seed=0), make_lesson(msgspec.structs.replace(SUCCESS, tells=[False] * 3))
    learn(lesson, algorithm)
    assert taught(lesson) == [[True, True, True]]
    assert not gradient(lesson.value_logit_BT).any()
    assert not any(gradient(weights).any() for weights in algorithm.critic.parameters())


def test_an_example_is_imitated_whatever_the_critics_think_and_takes_no_attempts_place() -> None:
    example = msgspec.structs.replace(SUCCESS, value=[0.9, 0.1, 0.1], example=True)
    lesson = make_lesson(example, SUCCESS, FAILURE, FAILURE)
    learn(lesson)
    assert taught(lesson)[:2] == [[True, True, True], [True, True, True]]


def test_the_seed_decides_the_critic_and_leaves_other_randomness_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    words = [DigiRL(PLAIN, seed=seed).critic.state_dict()["_words.weight"] for seed in (1, 1, 2)]
    assert torch.rand(1) == expected
    assert torch.equal(words[0], words[1])
    assert not torch.equal(words[0], words[2])

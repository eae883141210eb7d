"""Every value of A-RIDE's switches, on numbers worked out by hand; and the loss of the defaults, term by term."""

from __future__ import annotations

from math import log

import msgspec
import pytest
from torch import Tensor

from distrl.algorithms.aride import ARide
from distrl.algorithms.base import Lesson, Loss
from distrl.config.schema import AlgorithmConfig
from support.lessons import Drawn, gradient, make_lesson

PLAIN = AlgorithmConfig(
    gamma=0.9,
    trace=1.0,
    rho_max=1.0,
    advantage="signed",
    learn_from="all",
    importance="full",
    scale_advantages=False,
    value_weight=1.0,
    entropy_weight=0.0,
    invalid_weight=0.0,
    critic_warmup_updates=0,
)
STALE = Drawn(reward=[0.0, 0.0, 1.0], value=[0.2, 0.4, 0.6], ratio=[0.5, 0.25, 2.0])
"""td is .16 .14 .4. Weighed by the ratios, what lies ahead is worth .13625 .125 .4; taken as it is, .61 .5 .4."""


def with_settings(**changes: object) -> AlgorithmConfig:
    return msgspec.convert({**msgspec.to_builtins(PLAIN), **changes}, AlgorithmConfig)


def learn(lesson: Lesson, config: AlgorithmConfig) -> Loss:
    """The loss, after its gradient has reached the leaves of the lesson."""
    loss = ARide(config).loss(lesson, updates=0)
    loss.total.backward()  # type: ignore[no-untyped-call]
    return loss


def credit(lesson: Lesson) -> Tensor:
    """What each log-probability was multiplied with, from its gradient."""
    return -gradient(lesson.logp_BT) * lesson.mask_BT.sum()


def critic_targets(lesson: Lesson) -> Tensor:
    """What the critic was drawn to, from its gradient: V - v, over the number of steps."""
    return lesson.value_logit_BT.detach().sigmoid() - gradient(lesson.value_logit_BT) * lesson.mask_BT.sum()


# --- importance -----------------------------------------------------------------------------------------------------

CORRECTED, AS_THEY_ARE = [0.33625, 0.525, 1.0], [0.81, 0.9, 1.0]


def test_full_importance_corrects_the_targets_and_the_policy_term() -> None:
    lesson = make_lesson(STALE)
    learn(lesson, with_settings(importance="full"))
    assert critic_targets(lesson)[0].tolist() == pytest.approx(CORRECTED, abs=1e-5)
    assert credit(lesson)[0].tolist() == pytest.approx([0.5 * 0.2725, 0.25 * 0.5, 1.0 * 0.4], abs=1e-5)


def test_importance_of_targets_corrects_the_targets_and_leaves_the_policy_term_as_it_is() -> None:
    lesson = make_lesson(STALE)
    learn(lesson, with_settings(importance="targets"))
    assert critic_targets(lesson)[0].tolist() == pytest.approx(CORRECTED, abs=1e-5)
    assert credit(lesson)[0].tolist() == pytest.approx([0.2725, 0.5, 0.4], abs=1e-5)


def test_no_importance_corrects_neither() -> None:
    lesson = make_lesson(STALE)
    learn(lesson, with_settings(importance="none"))
    assert critic_targets(lesson)[0].tolist() == pytest.approx(AS_THEY_ARE, abs=1e-5)
    assert credit(lesson)[0].tolist() == pytest.approx([0.61, 0.5, 0.4], abs=1e-5)


@pytest.mark.parametrize("importance", ["none", "targets", "full"])
def test_the_sampler_hears_the_true_ratios_wherever_they_are_used(importance: str) -> None:
    loss = learn(make_lesson(STALE), with_settings(importance=importance))
    assert loss.ratio_BT[0].tolist() == pytest.approx([0.5, 0.25, 2.0], abs=1e-5)


# --- what is pushed down --------------------------------------------------------------------------------------------

PUSHING = {"invalid_weight": 1.0, "advantage": "binary", "advantage_floor": 100.0}
"""Nothing is good enough to be raised, so what moves was pushed down."""
FAILED = Drawn(reward=[0.0] * 4, value=[0.5] * 4, changed=[True, False, True, False])
CLAIMED = Drawn(reward=[0.0] * 3, value=[0.5] * 3, false_claim=True)
ACHIEVED = Drawn(reward=[0.0] * 4, value=[0.5] * 4, changed=[True, False, True, False], success=True)
REFUSED = Drawn(reward=[0.0] * 2, value=[0.5] * 2, valid=[False, True], success=True)
ALL_SORTS = (FAILED, CLAIMED, ACHIEVED, REFUSED)


def pushed(which: str) -> list[list[bool]]:
    """Which steps of `ALL_SORTS` become less likely; the others must stay as they are."""
    lesson = make_lesson(*ALL_SORTS)
    learn(lesson, with_settings(push_down=which, **PUSHING))
    moved = gradient(lesson.logp_BT)
    assert (moved >= 0).all()
    return [(moved[row, : len(drawn.reward)] > 0).tolist() for row, drawn in enumerate(ALL_SORTS)]


def test_only_what_the_device_refused_is_pushed_down_with_invalid() -> None:
    assert pushed("invalid") == [[False] * 4, [False] * 3, [False] * 4, [True, False]]


def test_a_failures_steps_without_effect_and_false_claims_are_pushed_down_too_with_certain() -> None:
    failed, claimed, achieved, refused = pushed("certain")
    assert failed == [False, True, False, False], "its last step may be a claim, which changes no screen"
    assert claimed == [False, False, True]
    assert achieved == [False] * 4, "a success may have had its reasons"
    assert refused == [True, False]


def test_a_step_that_is_bad_in_two_ways_counts_once() -> None:
    twice = Drawn(reward=[0.0] * 2, value=[0.5] * 2, chance=[0.3, 0.6], valid=[False, True], changed=[False, True])
    loss = learn(make_lesson(twice), with_settings(push_down="certain", **PUSHING))
    assert loss.metrics["invalid"] == pytest.approx(-log(0.7), rel=1e-3)


def test_the_term_is_the_mean_over_all_that_is_bad() -> None:
    failed = msgspec.structs.replace(FAILED, chance=[0.9, 0.2, 0.9, 0.9])
    claimed = msgspec.structs.replace(CLAIMED, chance=[0.9, 0.9, 0.6])
    loss = learn(make_lesson(failed, claimed), with_settings(push_down="certain", **PUSHING))
    assert loss.metrics["invalid"] == pytest.approx(-(log(0.8) + log(0.4)) / 2, rel=1e-3)


# --- whom to learn from ---------------------------------------------------------------------------------------------

MIXED = Drawn(reward=[0.0, 0.0], value=[0.3, 0.5], ratio=[1.0, 1.0], bootstrap=1.0)
"""Cut off where things looked well, so the first step's advantage is .9 x .9 - .3 = .51 and the second's .4."""
LET_DOWN = Drawn(reward=[0.0, 0.0], value=[0.6, 0.8], ratio=[1.0, 1.0])
"""Advantages of -.6 and -.8."""


def test_learning_from_all_raises_and_lowers_the_steps_of_failures() -> None:
    lesson = make_lesson(MIXED, LET_DOWN)
    learn(lesson, with_settings(learn_from="all"))
    assert credit(lesson).flatten().tolist() == pytest.approx([0.51, 0.4, -0.6, -0.8], abs=1e-5)


def test_learning_from_successes_only_lowers_the_steps_of_failures_and_takes_successes_as_they_are() -> None:
    lucky, unlucky = (msgspec.structs.replace(row, success=True) for row in (MIXED, LET_DOWN))
    lesson = make_lesson(MIXED, LET_DOWN, lucky, unlucky)
    learn(lesson, with_settings(learn_from="successes"))
    failures, successes = [0.0, 0.0, -0.6, -0.8], [0.51, 0.4, -0.6, -0.8]
    assert credit(lesson).flatten().tolist() == pytest.approx(failures + successes, abs=1e-5)


def test_whom_the_policy_learns_from_makes_no_difference_to_the_critic() -> None:
    one, other = make_lesson(MIXED, LET_DOWN), make_lesson(MIXED, LET_DOWN)
    learn(one, with_settings(learn_from="all"))
    learn(other, with_settings(learn_from="successes"))
    assert gradient(one.value_logit_BT).tolist() == gradient(other.value_logit_BT).tolist()


# --- the defaults ---------------------------------------------------------------------------------------------------

SUCCESS = Drawn(
    reward=[0.0, 0.0, 1.0],
    value=[0.8, 0.4, 0.5],
    ratio=[0.5, 0.2, 2.0],
    chance=[0.4, 0.5, 0.8],
    entropy=[1.0, 0.5, 0.6],
    weight=1.5,
    success=True,
)
"""v_2 = 1, v_1 = .4 + .2 x .075 + .9025 x .2 x .5 = .50525, v_0 = .8 + .5 x -.42 + .9025 x .5 x .10525 = .637494.

Advantages: .95 x .50525 - .8 = -.32, which is below the floor; .95 - .4 = .55; .5.
"""
FAILURE = Drawn(
    reward=[-0.01, 0.0],
    value=[0.4, 0.05],
    chance=[0.3, 0.6],
    entropy=[0.7, 0.2],
    valid=[False, True],
    changed=[False, True],
    weight=0.5,
    false_claim=True,
)
"""v_1 = 0 and v_0 = -.007625, which is clipped to 0. The second advantage, -.05, is above the floor: a failure's all the same."""


def test_the_loss_of_the_defaults_is_the_sum_of_its_terms_worked_out_by_hand() -> None:
    loss = learn(make_lesson(SUCCESS, FAILURE), AlgorithmConfig(critic_warmup_updates=0))
    policy = -1.5 * (log(0.5) + log(0.8)) / 5
    wrong_by = [
        -0.637494 * log(0.8) - 0.362506 * log(0.2),
        -0.50525 * log(0.4) - 0.49475 * log(0.6),
        -log(0.5),
        -log(0.6),
        -log(0.95),
    ]
    critic, entropy, invalid = sum(wrong_by) / 5, 3.0 / 5, -log(0.7)
    assert loss.metrics["policy"] == pytest.approx(policy, rel=1e-4)
    assert loss.metrics["value"] == pytest.approx(critic, rel=1e-4)
    assert loss.metrics["entropy"] == pytest.approx(entropy, rel=1e-4)
    assert loss.metrics["invalid"] == pytest.approx(invalid, rel=1e-3)
    total = policy + 0.5 * critic + 0.05 * invalid
    assert float(loss.total.detach()) == pytest.approx(total, rel=1e-4)


# --- cut steps and examples -----------------------------------------------------------------------------------------

HOPELESS = Drawn(reward=[0.0, 0.0, 1.0], value=[0.99, 0.99, 0.99], ratio=[0.1, 0.1, 0.1], success=True)
"""Every advantage is at or below 0.01: a critic that knows nothing of what is shown says nothing for it."""


@pytest.mark.parametrize("advantage", ["signed", "positive", "binary"])
@pytest.mark.parametrize("importance", ["none", "targets", "full"])
def test_examples_are_imitated_whole_whatever_the_critic_thinks(advantage: str, importance: str) -> None:
    lesson = make_lesson(msgspec.structs.replace(HOPELESS, example=True, ratio=()))
    learn(lesson, with_settings(advantage=advantage, importance=importance, advantage_floor=0.5))
    assert credit(lesson)[0].tolist() == pytest.approx([1.0] * 3)
    assert not gradient(lesson.value_logit_BT).any()


def test_examples_leave_the_scale_of_advantages_alone() -> None:
    shown = Drawn(reward=[0.0, 0.0, 50.0], value=[0.5, 0.5, 0.5], success=True, example=True)
    alone, beside = make_lesson(STALE), make_lesson(STALE, shown)
    for lesson in (alone, beside):
        learn(lesson, with_settings(scale_advantages=True))
    assert credit(beside)[0].tolist() == pytest.approx(credit(alone)[0].tolist(), rel=1e-5)


def test_cut_steps_are_neither_raised_nor_lowered_and_the_targets_stay_as_they_are() -> None:
    whole, cut = make_lesson(STALE), make_lesson(msgspec.structs.replace(STALE, cut=[False, True, False]))
    for lesson in (whole, cut):
        learn(lesson, PLAIN)
    assert gradient(cut.logp_BT)[0, 1] == 0.0
    for step in (0, 2):
        assert float(gradient(cut.logp_BT)[0, step] * 2) == pytest.approx(float(gradient(whole.logp_BT)[0, step] * 3))
    assert critic_targets(cut).tolist() == critic_targets(whole).tolist()

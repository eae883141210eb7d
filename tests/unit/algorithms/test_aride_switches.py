"""Every value of A-RIDE's switches, on numbers worked out by hand; and the loss of the defaults, term by term."""

from __future__ import annotations

from math import log

import msgspec
import pytest
from torch import Tensor

from distrl.algorithms.aride import ARide
from distrl.algorithms.base import AlgorithmContext, Loss
from distrl.algorithms.batch import TrainBatch
from distrl.config.kinds import ARideConfig
from support.batches import Drawn, gradient, train_batch

PLAIN = ARideConfig(
    gamma=0.9,
    lambda_=1.0,
    rho_max=1.0,
    advantage="signed",
    positive_only=False,
    importance="full",
    scale_advantages=False,
    value_weight=1.0,
    entropy_weight=0.0,
    invalid_weight=0.0,
    critic_warmup_updates=0,
)
STALE = Drawn(reward=[0.0, 0.0, 1.0], value=[0.2, 0.4, 0.6], ratio=[0.5, 0.25, 2.0])
"""td is .16 .14 .4. Weighed by the ratios, what lies ahead is worth .13625 .125 .4; taken as it is, .61 .5 .4."""


def with_settings(**changes: object) -> ARideConfig:
    return msgspec.convert({**msgspec.to_builtins(PLAIN), **changes}, ARideConfig)


def learn(batch: TrainBatch, config: ARideConfig) -> Loss:
    """The loss, after its gradient has reached the leaves of the batch."""
    loss = ARide(config, AlgorithmContext()).loss(batch, updates=0)
    loss.total.backward()  # type: ignore[no-untyped-call]
    return loss


def credit(batch: TrainBatch) -> Tensor:
    """What each log-probability was multiplied with, from its gradient."""
    return -gradient(batch.logp_BT) * batch.mask_BT.sum()


def critic_targets(batch: TrainBatch) -> Tensor:
    """What the critic was drawn to, from its gradient: V - v, over the number of steps."""
    return batch.value_logit_BT.detach().sigmoid() - gradient(batch.value_logit_BT) * batch.mask_BT.sum()


# --- importance -----------------------------------------------------------------------------------------------------

CORRECTED, AS_THEY_ARE = [0.33625, 0.525, 1.0], [0.81, 0.9, 1.0]


def test_full_importance_corrects_the_targets_and_the_policy_term() -> None:
    batch = train_batch(STALE)
    learn(batch, with_settings(importance="full"))
    assert critic_targets(batch)[0].tolist() == pytest.approx(CORRECTED, abs=1e-5)
    assert credit(batch)[0].tolist() == pytest.approx([0.5 * 0.2725, 0.25 * 0.5, 1.0 * 0.4], abs=1e-5)


def test_importance_of_targets_corrects_the_targets_and_leaves_the_policy_term_as_it_is() -> None:
    batch = train_batch(STALE)
    learn(batch, with_settings(importance="targets"))
    assert critic_targets(batch)[0].tolist() == pytest.approx(CORRECTED, abs=1e-5)
    assert credit(batch)[0].tolist() == pytest.approx([0.2725, 0.5, 0.4], abs=1e-5)


def test_no_importance_corrects_neither() -> None:
    batch = train_batch(STALE)
    learn(batch, with_settings(importance="none"))
    assert critic_targets(batch)[0].tolist() == pytest.approx(AS_THEY_ARE, abs=1e-5)
    assert credit(batch)[0].tolist() == pytest.approx([0.61, 0.5, 0.4], abs=1e-5)


@pytest.mark.parametrize("importance", ["none", "targets", "full"])
def test_the_sampler_hears_the_true_ratios_wherever_they_are_used(importance: str) -> None:
    loss = learn(train_batch(STALE), with_settings(importance=importance))
    assert loss.ratio_BT[0].tolist() == pytest.approx([0.5, 0.25, 2.0], abs=1e-5)


# --- unlikelihood --------------------------------------------------------------------------------------------------

UNLIKELIHOOD = {"invalid_weight": 1.0, "advantage": "binary", "advantage_floor": 100.0}
"""Nothing is good enough to be raised, so what moves was pushed down."""
FAILED = Drawn(reward=[0.0] * 4, value=[0.5] * 4, changed=[True, False, True, False])
CLAIMED = Drawn(reward=[0.0] * 3, value=[0.5] * 3, false_claim=True)
ACHIEVED = Drawn(reward=[0.0] * 4, value=[0.5] * 4, changed=[True, False, True, False], success=True)
REFUSED = Drawn(reward=[0.0] * 2, value=[0.5] * 2, valid=[False, True], success=True)
ALL_SORTS = (FAILED, CLAIMED, ACHIEVED, REFUSED)


def pushed(which: str) -> list[list[bool]]:
    """Which steps of `ALL_SORTS` become less likely; the others must stay as they are."""
    batch = train_batch(*ALL_SORTS)
    learn(batch, with_settings(unlikelihood=which, **UNLIKELIHOOD))
    moved = gradient(batch.logp_BT)
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
    loss = learn(train_batch(twice), with_settings(unlikelihood="certain", **UNLIKELIHOOD))
    assert loss.losses["invalid"] == pytest.approx(-log(0.7), rel=1e-3)


def test_the_term_is_the_mean_over_all_that_is_bad() -> None:
    failed = msgspec.structs.replace(FAILED, chance=[0.9, 0.2, 0.9, 0.9])
    claimed = msgspec.structs.replace(CLAIMED, chance=[0.9, 0.9, 0.6])
    loss = learn(train_batch(failed, claimed), with_settings(unlikelihood="certain", **UNLIKELIHOOD))
    assert loss.losses["invalid"] == pytest.approx(-(log(0.8) + log(0.4)) / 2, rel=1e-3)


# --- whom to learn from ---------------------------------------------------------------------------------------------

MIXED = Drawn(reward=[0.0, 0.0], value=[0.3, 0.5], ratio=[1.0, 1.0], bootstrap=1.0)
"""Cut off where things looked well, so the first step's advantage is .9 x .9 - .3 = .51 and the second's .4."""
LET_DOWN = Drawn(reward=[0.0, 0.0], value=[0.6, 0.8], ratio=[1.0, 1.0])
"""Advantages of -.6 and -.8."""


def test_learning_from_all_raises_and_lowers_the_steps_of_failures() -> None:
    batch = train_batch(MIXED, LET_DOWN)
    learn(batch, with_settings(positive_only=False))
    assert credit(batch).flatten().tolist() == pytest.approx([0.51, 0.4, -0.6, -0.8], abs=1e-5)


def test_learning_from_successes_only_lowers_the_steps_of_failures_and_takes_successes_as_they_are() -> None:
    lucky, unlucky = (msgspec.structs.replace(row, success=True) for row in (MIXED, LET_DOWN))
    batch = train_batch(MIXED, LET_DOWN, lucky, unlucky)
    learn(batch, with_settings(positive_only=True))
    failures, successes = [0.0, 0.0, -0.6, -0.8], [0.51, 0.4, -0.6, -0.8]
    assert credit(batch).flatten().tolist() == pytest.approx(failures + successes, abs=1e-5)


def test_whom_the_policy_learns_from_makes_no_difference_to_the_critic() -> None:
    one, other = train_batch(MIXED, LET_DOWN), train_batch(MIXED, LET_DOWN)
    learn(one, with_settings(positive_only=False))
    learn(other, with_settings(positive_only=True))
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
    loss = learn(train_batch(SUCCESS, FAILURE), ARideConfig(critic_warmup_updates=0))
    policy = -1.5 * (log(0.5) + log(0.8)) / 5
    wrong_by = [
        -0.637494 * log(0.8) - 0.362506 * log(0.2),
        -0.50525 * log(0.4) - 0.49475 * log(0.6),
        -log(0.5),
        -log(0.6),
        -log(0.95),
    ]
    critic, entropy, invalid = sum(wrong_by) / 5, 3.0 / 5, -log(0.7)
    assert loss.losses["policy"] == pytest.approx(policy, rel=1e-4)
    assert loss.losses["value"] == pytest.approx(critic, rel=1e-4)
    assert loss.metrics["entropy"] == pytest.approx(entropy, rel=1e-4)
    assert loss.losses["invalid"] == pytest.approx(invalid, rel=1e-3)
    total = policy + 0.5 * critic + 0.05 * invalid
    assert float(loss.total.detach()) == pytest.approx(total, rel=1e-4)


# --- no-op steps and examples--------------------------------------------------------------------------------------

HOPELESS = Drawn(reward=[0.0, 0.0, 1.0], value=[0.99, 0.99, 0.99], ratio=[0.1, 0.1, 0.1], success=True)
"""Every advantage is at or below 0.01: a critic that knows nothing of what is shown says nothing for it."""


@pytest.mark.parametrize("advantage", ["signed", "positive", "binary"])
@pytest.mark.parametrize("importance", ["none", "targets", "full"])
def test_examples_are_imitated_whole_whatever_the_critic_thinks(advantage: str, importance: str) -> None:
    batch = train_batch(msgspec.structs.replace(HOPELESS, example=True, ratio=()))
    learn(batch, with_settings(advantage=advantage, importance=importance, advantage_floor=0.5))
    assert credit(batch)[0].tolist() == pytest.approx([1.0] * 3)
    assert not gradient(batch.value_logit_BT).any()


def test_examples_leave_the_scale_of_advantages_alone() -> None:
    shown = Drawn(reward=[0.0, 0.0, 50.0], value=[0.5, 0.5, 0.5], success=True, example=True)
    alone, beside = train_batch(STALE), train_batch(STALE, shown)
    for batch in (alone, beside):
        learn(batch, with_settings(scale_advantages=True))
    assert credit(beside)[0].tolist() == pytest.approx(credit(alone)[0].tolist(), rel=1e-5)


def test_no_op_steps_are_neither_raised_nor_lowered_and_the_targets_stay_as_they_are() -> None:
    whole, filtered = train_batch(STALE), train_batch(msgspec.structs.replace(STALE, noop=[False, True, False]))
    for batch in (whole, filtered):
        learn(batch, PLAIN)
    assert gradient(filtered.logp_BT)[0, 1] == 0.0
    for step in (0, 2):
        assert float(gradient(filtered.logp_BT)[0, step] * 2) == pytest.approx(
            float(gradient(whole.logp_BT)[0, step] * 3)
        )
    assert critic_targets(filtered).tolist() == critic_targets(whole).tolist()

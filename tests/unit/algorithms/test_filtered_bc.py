from __future__ import annotations

import msgspec
import pytest

from distrl.algorithms.base import AlgorithmContext, Loss
from distrl.algorithms.batch import TrainBatch
from distrl.algorithms.filtered_bc import FilteredBC
from distrl.config.kinds import FilteredBCConfig
from support.batches import Drawn, gradient, train_batch

SUCCESS = Drawn(reward=[0.0, 1.0], value=[0.3, 0.6], success=True)
FAILURE = Drawn(reward=[0.0, 0.0, 0.0], value=[0.2, 0.2, 0.2])


def learn(batch: TrainBatch) -> Loss:
    loss = FilteredBC(FilteredBCConfig(value_weight=0.5), AlgorithmContext()).loss(batch, updates=0)
    loss.total.backward()  # type: ignore[no-untyped-call]
    return loss


def test_every_step_of_a_success_is_imitated_alike_and_failures_are_left_alone() -> None:
    batch = train_batch(SUCCESS, FAILURE)
    learn(batch)
    assert gradient(batch.logp_BT)[0].tolist() == pytest.approx([-0.5, -0.5, 0.0])
    assert not gradient(batch.logp_BT)[1].any()


def test_the_critic_learns_the_outcome_of_successes_and_failures() -> None:
    batch = train_batch(SUCCESS, FAILURE)
    learn(batch)
    expected = [[0.5 * (value - 1.0) / 5 for value in (0.3, 0.6)] + [0.0], [0.5 * 0.2 / 5] * 3]
    for got, wanted in zip(gradient(batch.value_logit_BT).tolist(), expected, strict=True):
        assert got == pytest.approx(wanted, abs=1e-6)


def test_a_batch_of_failures_alone_imitates_nothing_and_is_finite() -> None:
    batch = train_batch(FAILURE)
    loss = learn(batch)
    assert loss.losses["policy"] == 0.0
    assert not gradient(batch.logp_BT).any()


def test_surprise_is_what_the_critic_missed_of_the_outcome() -> None:
    loss = learn(train_batch(SUCCESS, FAILURE))
    assert loss.td_BT[0].tolist() == pytest.approx([0.7, 0.4, 0.0], abs=1e-6)
    assert loss.td_BT[1].tolist() == pytest.approx([-0.2] * 3, abs=1e-6)


def test_no_op_steps_are_not_imitated_and_still_train_the_critic() -> None:
    batch = train_batch(msgspec.structs.replace(SUCCESS, noop=[True, False]))
    learn(batch)
    assert gradient(batch.logp_BT)[0].tolist() == [0.0, -1.0]
    assert gradient(batch.value_logit_BT).all()


def test_examples_are_imitated_and_leave_the_critic_alone() -> None:
    batch = train_batch(msgspec.structs.replace(SUCCESS, example=True), FAILURE)
    learn(batch)
    assert gradient(batch.logp_BT)[0].tolist() == pytest.approx([-0.5, -0.5, 0.0])
    assert not gradient(batch.value_logit_BT)[0].any()
    assert gradient(batch.value_logit_BT)[1].all()

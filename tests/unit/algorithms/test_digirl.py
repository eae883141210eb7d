"""DigiRL on numbers worked out by hand: two advantages, two filters, two critics."""

from __future__ import annotations

from math import log

import msgspec
import pytest
import torch
from torch import Tensor

from distrl.algorithms.base import AlgorithmContext, Loss
from distrl.algorithms.batch import TrainBatch
from distrl.algorithms.digirl import DigiRL, largest, rows_of
from distrl.algorithms.targets import ReturnInputs, doubly_robust
from distrl.config.kinds import DigiRLConfig
from support.batches import Drawn, gradient, train_batch

PLAIN = DigiRLConfig(value_weight=0.5, critic_warmup_updates=0)
SUCCESS = Drawn(reward=[0.0, -0.01, 1.0], value=[0.4, 0.3, 0.6], success=True, instruction="open the clock")
"""Rises of -.1, .29 and (.4, which counts for nothing at the end). Half and half: .175, .645, 1."""
FAILURE = Drawn(reward=[0.0, 0.0], value=[0.2, 0.8], instruction="buy a lamp")
"""The critic liked the first step: .5 x .6 = .3. The last one gets the outcome, 0."""


def with_settings(**changes: object) -> DigiRLConfig:
    return msgspec.convert({**msgspec.to_builtins(PLAIN), **changes}, DigiRLConfig)


def learn(batch: TrainBatch, algorithm: DigiRL | None = None, *, updates: int = 0) -> Loss:
    loss = (algorithm or DigiRL(PLAIN, AlgorithmContext(seed=0))).loss(batch, updates=updates)
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


def imitated(batch: TrainBatch) -> list[list[bool]]:
    return (gradient(batch.logp_BT) < 0).tolist()


# --- the step advantage ---------------------------------------------------------------------------------------------


def inputs(*rows: Drawn) -> tuple[ReturnInputs, Tensor]:
    batch = train_batch(*rows)
    return batch.return_inputs, batch.success_B


def test_the_step_advantage_blends_the_outcome_with_what_the_critic_gained() -> None:
    advantage = doubly_robust(*inputs(SUCCESS, FAILURE), decay=0.5)
    assert advantage[0].tolist() == pytest.approx([0.25 - 0.75 * 0.1, 0.5 + 0.5 * 0.29, 1.0], abs=1e-5)
    assert advantage[1].tolist() == pytest.approx([0.5 * 0.6, 0.0, 0.0], abs=1e-5)


def test_without_decay_every_step_has_the_outcome_and_with_full_decay_all_but_the_last_have_the_critic() -> None:
    assert doubly_robust(*inputs(SUCCESS, FAILURE), decay=1.0).tolist() == [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    critic = doubly_robust(*inputs(SUCCESS, FAILURE), decay=0.0)
    assert critic[0].tolist() == pytest.approx([-0.1, 0.29, 1.0], abs=1e-5)
    assert critic[1].tolist() == pytest.approx([0.6, 0.0, 0.0], abs=1e-5)


# --- the filters ----------------------------------------------------------------------------------------------------


def test_only_steps_above_the_floor_are_imitated_and_all_alike() -> None:
    batch = train_batch(SUCCESS)
    learn(batch, DigiRL(with_settings(step_floor=0.2), AlgorithmContext(seed=0)))
    assert gradient(batch.logp_BT)[0].tolist() == pytest.approx([0.0, -0.5, -0.5])


def test_the_floor_itself_is_not_above_the_floor() -> None:
    batch = train_batch(SUCCESS)
    learn(batch, DigiRL(with_settings(step_floor=1.0), AlgorithmContext(seed=0)))
    assert not gradient(batch.logp_BT).any()


def test_failures_are_not_imitated_even_where_the_step_critic_likes_them_and_nothing_else_is_there() -> None:
    batch = train_batch(FAILURE)
    loss = learn(batch)
    assert float(doubly_robust(batch.return_inputs, batch.success_B, decay=0.5)[0, 0]) > PLAIN.step_floor
    assert not gradient(batch.logp_BT).any()
    assert loss.losses["policy"] == loss.metrics["imitated_share"] == 0.0


def test_the_curriculum_takes_the_successes_that_surprise_most() -> None:
    algorithm = DigiRL(with_settings(top_share=0.25), AlgorithmContext(seed=0))
    promising(algorithm, easy=0.9, middling=0.5, hard=0.1, hopeless=0.02)
    good = Drawn(reward=[0.0, 1.0], value=[0.5, 0.5], success=True)
    rows = [msgspec.structs.replace(good, instruction=name) for name in ("easy", "middling", "hard")]
    batch = train_batch(*rows, Drawn(reward=[0.0, 0.0], value=[0.5, 0.5], instruction="hopeless"))
    learn(batch, algorithm)
    assert imitated(batch) == [[False, False], [False, False], [True, True], [False, False]]


def test_the_largest_are_counted_upwards_and_ties_stay_together() -> None:
    values = torch.tensor([0.1, 0.5, 0.3, 0.5, -0.2])
    assert largest(values, 0.2).tolist() == [False, True, False, True, False]
    assert largest(values, 0.5).tolist() == [False, True, True, True, False]
    assert largest(values, 1.0).all()
    assert not largest(values, 0.0).any()


# --- the critics ----------------------------------------------------------------------------------------------------


def test_the_step_critic_learns_the_outcome() -> None:
    batch = train_batch(SUCCESS, FAILURE)
    learn(batch)
    expected = [[0.5 * (value - 1.0) / 5 for value in SUCCESS.value], [0.5 * value / 5 for value in FAILURE.value]]
    got = gradient(batch.value_logit_BT)
    assert got[0].tolist() == pytest.approx(expected[0], abs=1e-6)
    assert got[1, :2].tolist() == pytest.approx(expected[1], abs=1e-6)


def test_the_instruction_critic_learns_which_instructions_succeed() -> None:
    algorithm = DigiRL(PLAIN, AlgorithmContext(seed=0))
    descent = torch.optim.Adam(algorithm.critic.parameters(), lr=0.05)
    for _ in range(30):
        descent.zero_grad()
        learn(train_batch(SUCCESS, FAILURE), algorithm)
        descent.step()
    chances = torch.sigmoid(algorithm.critic([SUCCESS.instruction, FAILURE.instruction]))
    assert chances[0] > 0.9
    assert chances[1] < 0.1


def test_the_instruction_critic_reads_words_and_neither_case_nor_punctuation() -> None:
    assert rows_of("Open the Clock!") == rows_of("open the clock")
    assert len({rows_of(text) for text in ("open the clock", "open the shop", "", "clock")}) == 4
    assert DigiRL(PLAIN, AlgorithmContext(seed=0)).critic(["", "open the clock", "open"]).tolist() == [0.0] * 3


def test_the_policy_term_reaches_neither_critic() -> None:
    algorithm, batch = DigiRL(with_settings(value_weight=0.0), AlgorithmContext(seed=0)), train_batch(SUCCESS)
    learn(batch, algorithm)
    assert gradient(batch.logp_BT).any()
    assert not gradient(batch.value_logit_BT).any()
    assert not any(gradient(weights).any() for weights in algorithm.critic.parameters())


def test_while_the_critics_warm_up_nothing_is_imitated() -> None:
    algorithm, batch = DigiRL(with_settings(critic_warmup_updates=3), AlgorithmContext(seed=0)), train_batch(SUCCESS)
    learn(batch, algorithm, updates=2)
    assert not gradient(batch.logp_BT).any()
    assert gradient(batch.value_logit_BT).any()
    assert any(gradient(weights).any() for weights in algorithm.critic.parameters())


def test_the_loss_is_the_sum_of_its_terms_worked_out_by_hand() -> None:
    loss = learn(train_batch(SUCCESS, FAILURE))
    policy = -log(0.4)
    value = -(log(0.4) + log(0.3) + log(0.6) + log(0.8) + log(0.2)) / 5
    assert loss.losses["policy"] == pytest.approx(policy, rel=1e-5)
    assert loss.losses["value"] == pytest.approx(value, rel=1e-5)
    assert loss.losses["instruction"] == pytest.approx(log(2), rel=1e-5), "at first it knows nothing"
    assert loss.metrics["imitated_share"] == pytest.approx(3 / 5)
    assert loss.losses["total"] == pytest.approx(policy + 0.5 * (value + log(2)), rel=1e-5)


# --- masks --------------------------------------------------------------------------------------------------------


def test_steps_outside_the_policy_mask_are_not_imitated_and_still_train_the_critic() -> None:
    batch = train_batch(msgspec.structs.replace(SUCCESS, policy_mask=[True, False, True]))
    learn(batch)
    assert imitated(batch) == [[True, False, True]]
    assert gradient(batch.value_logit_BT)[0].all()


def test_an_episode_outside_the_value_mask_is_imitated_and_trains_neither_critic() -> None:
    algorithm, batch = (
        DigiRL(PLAIN, AlgorithmContext(seed=0)),
        train_batch(msgspec.structs.replace(SUCCESS, value_mask=[False] * 3)),
    )
    learn(batch, algorithm)
    assert imitated(batch) == [[True, True, True]]
    assert not gradient(batch.value_logit_BT).any()
    assert not any(gradient(weights).any() for weights in algorithm.critic.parameters())


def test_an_example_is_imitated_whatever_the_critics_think_and_takes_no_attempts_place() -> None:
    example = msgspec.structs.replace(SUCCESS, value=[0.9, 0.1, 0.1], example=True)
    batch = train_batch(example, SUCCESS, FAILURE, FAILURE)
    learn(batch)
    assert imitated(batch)[:2] == [[True, True, True], [True, True, True]]


def test_the_seed_decides_the_critic_and_leaves_other_randomness_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    words = [DigiRL(PLAIN, AlgorithmContext(seed=seed)).critic.state_dict()["_words.weight"] for seed in (1, 1, 2)]
    assert torch.rand(1) == expected
    assert torch.equal(words[0], words[1])
    assert not torch.equal(words[0], words[2])

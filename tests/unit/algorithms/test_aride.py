"""A-RIDE term by term. The first section holds one test for each thing that the published reference code gets wrong."""

from __future__ import annotations

import msgspec
import pytest
import torch
from torch import Tensor

from distrl.algorithms.aride import ARide, unlikelihood
from distrl.algorithms.base import AlgorithmContext, Loss
from distrl.algorithms.batch import TrainBatch
from distrl.algorithms.targets import ReturnInputs, Targets, retrace
from distrl.config.kinds import ARideConfig
from support.batches import Drawn, gradient, train_batch

BARE = ARideConfig(
    gamma=0.9,
    lambda_=1.0,
    rho_max=1.0,
    advantage="signed",
    positive_only=False,
    importance="full",
    scale_advantages=False,
    value_weight=0.5,
    entropy_weight=0.0,
    invalid_weight=0.0,
    critic_warmup_updates=0,
)
"""The policy term and the critic, by the letter of the paper."""
OFF_POLICY = Drawn(reward=[0.0, 0.0, 1.0], value=[0.2, 0.4, 0.6], ratio=[0.5, 2.0, 1.0])
"""The first vector of the page: advantages .61 .5 .4, targets .505 .9 1."""
ADVANTAGES = [0.61, 0.5, 0.4]
DISAPPOINTING = Drawn(reward=[0.0, 0.0], value=[0.6, 0.8], ratio=[1.0, 1.0])
"""A failure that the critic did not expect: advantages below 0."""


def with_settings(**changes: object) -> ARideConfig:
    return msgspec.convert({**msgspec.to_builtins(BARE), **changes}, ARideConfig)


def learn(batch: TrainBatch, config: ARideConfig = BARE, *, updates: int = 0) -> Loss:
    """The loss, after its gradient has reached the leaves of the batch."""
    loss = ARide(config, AlgorithmContext()).loss(batch, updates=updates)
    loss.total.backward()  # type: ignore[no-untyped-call]
    return loss


def credit(batch: TrainBatch) -> Tensor:
    """What each log-probability was multiplied with, from its gradient."""
    num_steps = batch.mask_BT.sum()
    return -gradient(batch.logp_BT) * num_steps


def targets_of(batch: TrainBatch) -> Targets:
    inputs = ReturnInputs(
        value_BT=torch.sigmoid(batch.value_logit_BT.detach()),
        reward_BT=batch.reward_BT,
        ratio_BT=batch.ratio_BT,
        bootstrap_B=batch.bootstrap_B,
        mask_BT=batch.mask_BT,
    )
    return retrace(inputs, gamma=BARE.gamma, lambda_=BARE.lambda_, rho_max=BARE.rho_max)


# --- what the reference code gets wrong -----------------------------------------------------------------------------


def test_the_retrace_targets_train_the_critic() -> None:
    batch = train_batch(OFF_POLICY)
    learn(batch)
    toward_target = (torch.tensor([0.2, 0.4, 0.6]) - torch.tensor([0.505, 0.9, 1.0])) / 3
    assert gradient(batch.value_logit_BT)[0].tolist() == pytest.approx((0.5 * toward_target).tolist(), abs=1e-6)


def test_each_step_is_credited_with_its_own_reward_and_not_with_the_return() -> None:
    loss = learn(train_batch(OFF_POLICY))
    assert loss.td_BT[0].tolist() == pytest.approx([0.16, 0.14, 0.4], abs=1e-6)


def test_the_entropy_bonus_rewards_the_entropy_itself() -> None:
    batch = train_batch(OFF_POLICY)
    loss = learn(batch, with_settings(entropy_weight=0.3))
    assert gradient(batch.entropy_BT)[0].tolist() == pytest.approx([-0.1] * 3)
    assert loss.metrics["entropy"] == pytest.approx(1.0)


def test_switching_the_entropy_on_leaves_the_policy_term_with_its_importance_weight() -> None:
    without, with_bonus = train_batch(OFF_POLICY), train_batch(OFF_POLICY)
    learn(without)
    learn(with_bonus, with_settings(entropy_weight=0.3))
    assert gradient(with_bonus.logp_BT).tolist() == gradient(without.logp_BT).tolist()
    clipped = torch.tensor([0.5, 1.0, 1.0])
    expected = clipped * torch.tensor(ADVANTAGES)
    assert credit(with_bonus)[0].tolist() == pytest.approx(expected.tolist(), abs=1e-5)


def test_invalid_actions_become_less_likely_and_valid_ones_stay() -> None:
    nothing_to_gain = Drawn(reward=[0.0] * 3, value=[0.5] * 3, chance=[0.2, 0.6, 0.9], valid=[True, False, False])
    config = with_settings(invalid_weight=1.0, advantage="binary", advantage_floor=100.0)
    batch = train_batch(nothing_to_gain)
    learn(batch, config)
    valid, unlikely, likely = gradient(batch.logp_BT)[0].tolist()
    assert valid == 0.0
    assert 0.0 < unlikely < likely


def test_the_invalid_term_is_minus_log_of_the_chance_of_anything_else_over_invalid_steps_alone() -> None:
    chances = [0.2, 0.6, 0.9]
    batch = train_batch(Drawn(reward=[0.0] * 3, value=[0.5] * 3, chance=chances, valid=[True, False, False]))
    expected = -(torch.log(torch.tensor(0.4)) + torch.log(torch.tensor(0.1))) / 2
    assert float(unlikelihood(batch, ~batch.valid_BT & batch.mask_BT).detach()) == pytest.approx(
        float(expected), rel=0.01
    )


@pytest.mark.parametrize("chance", [0.99, 0.99995, 1.0])
def test_the_unlikelihood_of_an_almost_certain_invalid_action_has_a_finite_gradient(chance: float) -> None:
    batch = train_batch(Drawn(reward=[0.0], value=[0.5], chance=[chance], valid=[False]))
    unlikelihood(batch, ~batch.valid_BT & batch.mask_BT).backward()  # type: ignore[no-untyped-call]
    pushed = float(gradient(batch.logp_BT)[0, 0])
    assert 1.0 < pushed < 1e6


def test_a_batch_without_invalid_steps_has_no_invalid_term() -> None:
    batch = train_batch(OFF_POLICY, DISAPPOINTING)
    assert float(unlikelihood(batch, ~batch.valid_BT & batch.mask_BT).detach()) == 0.0


# --- the policy term ------------------------------------------------------------------------------------------------


def test_signed_advantages_push_both_ways() -> None:
    batch = train_batch(OFF_POLICY, DISAPPOINTING)
    learn(batch)
    expected = (batch.ratio_BT.clamp(max=1.0) * targets_of(batch).advantage_BT).flatten()
    assert credit(batch).flatten().tolist() == pytest.approx(expected.tolist(), abs=1e-5)
    assert (credit(batch)[1, :2] < 0).all()


def test_positive_advantages_leave_disappointing_steps_alone() -> None:
    batch = train_batch(OFF_POLICY, DISAPPOINTING)
    learn(batch, with_settings(advantage="positive"))
    assert credit(batch)[1].tolist() == [0.0] * 3
    expected = torch.tensor([0.5, 1.0, 1.0]) * torch.tensor(ADVANTAGES)
    assert credit(batch)[0].tolist() == pytest.approx(expected.tolist(), abs=1e-5)


def test_binary_advantages_imitate_what_is_above_the_floor_and_nothing_else() -> None:
    on_policy = Drawn(reward=[0.0, 0.0, 1.0], value=[0.2, 0.4, 0.6], ratio=[1.0] * 3)
    batch = train_batch(on_policy, DISAPPOINTING)
    advantages = targets_of(batch).advantage_BT[0]
    floor = float(advantages[1:].mean())
    learn(batch, with_settings(advantage="binary", advantage_floor=floor))
    assert credit(batch)[0].tolist() == pytest.approx((advantages > floor).float().tolist(), abs=1e-6)
    assert credit(batch)[1].tolist() == [0.0] * 3


def test_scaled_advantages_have_a_root_mean_square_of_one_over_the_real_steps() -> None:
    batch = train_batch(
        Drawn(reward=[0.0, 0.0, 0.0, 1.0], value=[0.1, 0.3, 0.2, 0.4]), Drawn(reward=[0.0], value=[0.3])
    )
    learn(batch, with_settings(scale_advantages=True))
    found = credit(batch)
    assert float((found**2).sum() / batch.mask_BT.sum()) == pytest.approx(1.0, abs=1e-5)
    plain = targets_of(batch).advantage_BT
    assert float(found[0, 0] / found[1, 0]) == pytest.approx(float(plain[0, 0] / plain[1, 0]), rel=1e-5)


def test_the_weight_of_prioritised_sampling_multiplies_the_policy_term_of_its_trajectory() -> None:
    plain = train_batch(OFF_POLICY, DISAPPOINTING)
    weighed = train_batch(msgspec.structs.replace(OFF_POLICY, weight=3.0), DISAPPOINTING)
    learn(plain)
    learn(weighed)
    assert gradient(weighed.logp_BT)[0].tolist() == pytest.approx((3 * gradient(plain.logp_BT)[0]).tolist())
    assert gradient(weighed.logp_BT)[1].tolist() == gradient(plain.logp_BT)[1].tolist()


def test_advantages_carry_no_gradient_into_the_critic() -> None:
    batch = train_batch(OFF_POLICY)
    learn(batch, with_settings(value_weight=0.0))
    assert not gradient(batch.value_logit_BT).any()
    assert gradient(batch.logp_BT).any()


def test_the_ratio_carries_no_gradient() -> None:
    batch = train_batch(OFF_POLICY)
    assert not batch.ratio_BT.requires_grad
    assert batch.ratio_BT[0].tolist() == pytest.approx([0.5, 2.0, 1.0])


def test_the_ratio_is_clipped_at_rho_max() -> None:
    batch = train_batch(Drawn(reward=[1.0], value=[0.5], ratio=[50.0]))
    learn(batch, with_settings(rho_max=2.0))
    assert float(credit(batch)) == pytest.approx(2.0 * 0.5)


def test_learning_from_successes_raises_nothing_that_a_failure_did() -> None:
    lucky = msgspec.structs.replace(OFF_POLICY, success=True)
    batch, everything = train_batch(OFF_POLICY, lucky, DISAPPOINTING), train_batch(OFF_POLICY, lucky, DISAPPOINTING)
    learn(batch, with_settings(positive_only=True))
    learn(everything)
    assert (credit(everything)[0] > 0).all()
    assert credit(batch)[0].tolist() == [0.0] * 3
    assert credit(batch)[1:].tolist() == credit(everything)[1:].tolist()


def test_without_importance_every_trajectory_is_taken_as_if_the_present_policy_had_acted() -> None:
    on_policy = msgspec.structs.replace(OFF_POLICY, ratio=())
    batch, expected = train_batch(OFF_POLICY, DISAPPOINTING), train_batch(on_policy, DISAPPOINTING)
    learn(batch, with_settings(importance="none"))
    learn(expected)
    assert torch.allclose(credit(batch), credit(expected), atol=1e-6)
    assert torch.allclose(gradient(batch.value_logit_BT), gradient(expected.value_logit_BT), atol=1e-6)


# --- the critic -----------------------------------------------------------------------------------------------------


def test_targets_beyond_zero_and_one_are_clipped_for_the_critic() -> None:
    batch = train_batch(Drawn(reward=[3.0], value=[0.5]), Drawn(reward=[-2.0], value=[0.5]))
    learn(batch)
    assert gradient(batch.value_logit_BT).flatten().tolist() == pytest.approx([-0.125, 0.125])


def test_a_cut_off_episode_is_bootstrapped_and_a_finished_one_is_not() -> None:
    cut = Drawn(reward=[0.0], value=[0.5], bootstrap=0.8)
    loss = learn(train_batch(cut, msgspec.structs.replace(cut, bootstrap=0.0)))
    assert loss.td_BT.flatten().tolist() == pytest.approx([0.9 * 0.8 - 0.5, -0.5])


def test_while_the_critic_warms_up_nothing_but_the_critic_learns() -> None:
    config = with_settings(critic_warmup_updates=10, entropy_weight=0.1, invalid_weight=0.1)
    warming, warm = train_batch(OFF_POLICY), train_batch(OFF_POLICY)
    learn(warming, config, updates=9)
    learn(warm, config, updates=10)
    assert not gradient(warming.logp_BT).any()
    assert not gradient(warming.entropy_BT).any()
    assert gradient(warming.value_logit_BT).tolist() == gradient(warm.value_logit_BT).tolist()
    assert gradient(warm.logp_BT).any()
    assert gradient(warm.entropy_BT).any()


# --- the batch ------------------------------------------------------------------------------------------------------


def test_padding_gets_no_gradient_and_changes_nothing() -> None:
    config = with_settings(entropy_weight=0.1, invalid_weight=0.1)
    short, long = Drawn(reward=[1.0], value=[0.3], valid=[False]), Drawn(reward=[0.0] * 4, value=[0.4] * 4)
    batch, alone = train_batch(short, long), train_batch(short)
    learn(batch, config)
    learn(alone, config)
    for leaf in (batch.logp_BT, batch.entropy_BT, batch.value_logit_BT):
        assert not gradient(leaf)[0, 1:].any()
        assert torch.isfinite(gradient(leaf)).all()
    # One step of five instead of one step of one.
    assert float(gradient(batch.value_logit_BT)[0, 0]) * 5 == pytest.approx(float(gradient(alone.value_logit_BT)))


def test_what_the_sampler_hears_carries_no_gradient() -> None:
    loss = learn(train_batch(OFF_POLICY, DISAPPOINTING))
    assert not any(signal.requires_grad for signal in (loss.td_BT, loss.ratio_BT, loss.entropy_BT))
    assert all(isinstance(value, float) for value in loss.metrics.values())

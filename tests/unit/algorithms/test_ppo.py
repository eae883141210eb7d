"""PPO with decoupled clipping, term by term."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from distrl.algorithms.base import AlgorithmContext, Loss
from distrl.algorithms.batch import TrainBatch
from distrl.algorithms.ppo import PPO, clipped_gain, normalised
from distrl.algorithms.targets import lambda_returns
from distrl.config.kinds import PPOConfig
from support.batches import Drawn, gradient, train_batch

PLAIN = PPOConfig(
    gamma=0.9,
    lambda_=0.5,
    rho_max=2.0,
    value_weight=0.5,
    entropy_weight=0.0,
    critic_warmup_updates=0,
)
SUCCESS = Drawn(reward=[0.0, 0.0, 1.0], value=[0.2, 0.4, 0.6], success=True)
"""td .16 .14 .4; backwards: .4, .14 + .45 x .4 = .32, .16 + .45 x .32 = .304."""
GAE = [0.304, 0.32, 0.4]
FAILURE = Drawn(reward=[0.0, 0.0], value=[0.6, 0.8])
"""td .12 -.8; .12 - .45 x .8 = -.24."""


def with_settings(**changes: object) -> PPOConfig:
    return msgspec.convert({**msgspec.to_builtins(PLAIN), **changes}, PPOConfig)


def learn(batch: TrainBatch, config: PPOConfig = PLAIN, *, updates: int = 0) -> Loss:
    loss = PPO(config, AlgorithmContext()).loss(batch, updates=updates)
    loss.total.backward()  # type: ignore[no-untyped-call]
    return loss


def slope(drawn: Drawn, advantage: Sequence[float], config: PPOConfig = PLAIN) -> list[float]:
    """What a small rise of each log-probability gains, per unit of its advantage."""
    batch = train_batch(drawn)
    clipped_gain(batch, torch.tensor([list(advantage)]), config).sum().backward()  # type: ignore[no-untyped-call]
    return list(gradient(batch.logp_BT)[0].tolist())


# --- advantages -----------------------------------------------------------------------------------------------------


def test_advantages_are_generalised_estimates_and_targets_lambda_returns_whoever_acted() -> None:
    stale = msgspec.structs.replace(SUCCESS, ratio=[0.1, 3.0, 0.5])
    for drawn in (SUCCESS, stale):
        targets = lambda_returns(train_batch(drawn, FAILURE).return_inputs, gamma=0.9, lambda_=0.5)
        assert targets.advantage_BT[0].tolist() == pytest.approx(GAE, abs=1e-5)
        assert targets.advantage_BT[1].tolist() == pytest.approx([-0.24, -0.8, 0.0], abs=1e-5)
        assert targets.value_BT[0].tolist() == pytest.approx([0.504, 0.72, 1.0], abs=1e-5)


def test_advantages_are_normalised_over_the_steps_in_the_policy_mask() -> None:
    values = torch.tensor([[1.0, 3.0, 50.0]])
    mask = torch.tensor([[True, True, False]])
    assert normalised(values, mask)[0, :2].tolist() == pytest.approx([-1.0, 1.0])
    assert not normalised(torch.ones(1, 3), mask).any()


# --- clipping -------------------------------------------------------------------------------------------------------

STEPS = Drawn(reward=[0.0] * 4, value=[0.5] * 4, strayed=[1.1, 1.3, 0.9, 0.7], ratio=[1.1, 1.3, 0.9, 0.7])
"""Present policy 10 and 30 % above and below the proximal one, which is the one that acted."""


def test_the_gradient_stops_where_the_policy_has_moved_far_enough_the_right_way() -> None:
    assert slope(STEPS, [1.0] * 4) == pytest.approx([1.1, 0.0, 0.9, 0.7])
    assert slope(STEPS, [-1.0] * 4) == pytest.approx([-1.1, -1.3, -0.9, 0.0])


def test_the_clip_decides_how_far_that_is() -> None:
    wide = with_settings(clip=0.5)
    assert slope(STEPS, [1.0] * 4, wide) == pytest.approx([1.1, 1.3, 0.9, 0.7])


def test_the_age_of_the_data_is_corrected_up_to_the_limit_and_apart_from_the_clip() -> None:
    old = Drawn(reward=[0.0] * 3, value=[0.5] * 3, strayed=[1.1] * 3, ratio=[1.1 * 0.5, 1.1 * 1.5, 1.1 * 7.0])
    assert slope(old, [1.0] * 3) == pytest.approx([1.1 * 0.5, 1.1 * 1.5, 1.1 * 2.0], rel=1e-5)


def test_without_importance_the_age_of_the_data_counts_for_nothing() -> None:
    old = Drawn(reward=[0.0] * 2, value=[0.5] * 2, strayed=[1.1] * 2, ratio=[1.1 * 0.5, 1.1 * 1.5])
    assert slope(old, [1.0] * 2, with_settings(importance="none")) == pytest.approx([1.1, 1.1], rel=1e-5)


TRUST_REGION = with_settings(rho_max=10.0, clip=0.9, trust_region=0.2)


@pytest.mark.parametrize("size", [0.1, 1.0, 3.0])
def test_a_step_outside_the_trust_region_around_who_acted_is_driven_no_further(size: float) -> None:
    far = Drawn(reward=[0.0] * 6, value=[0.5] * 6, ratio=[1.19, 1.21, 1.5, 0.84, 0.82, 0.5])
    up, down = slope(far, [size] * 6, TRUST_REGION), slope(far, [-size] * 6, TRUST_REGION)
    assert up == pytest.approx([1.19 * size, 0.0, 0.0, 0.84 * size, 0.82 * size, 0.5 * size], rel=1e-5)
    assert down == pytest.approx([-1.19 * size, -1.21 * size, -1.5 * size, -0.84 * size, 0.0, 0.0], rel=1e-5)


def test_how_far_is_counted_from_who_acted_and_not_from_the_proximal_policy() -> None:
    near = Drawn(reward=[0.0] * 2, value=[0.5] * 2, strayed=[0.8, 1.25], ratio=[1.1, 1.3])
    assert slope(near, [1.0] * 2, TRUST_REGION) == pytest.approx([1.1, 0.0], rel=1e-5)


def test_a_wider_trust_region_lets_a_step_go_on_and_none_lets_all() -> None:
    far = Drawn(reward=[0.0] * 2, value=[0.5] * 2, ratio=[1.4, 4.0])
    for radius, expected in ((0.5, [1.4, 0.0]), (0.0, [1.4, 4.0])):
        config = with_settings(rho_max=10.0, trust_region=radius)
        assert slope(far, [1.0] * 2, config) == pytest.approx(expected, rel=1e-5)


def test_the_trust_region_is_in_the_loss() -> None:
    far = msgspec.structs.replace(SUCCESS, ratio=[4.0, 1.0, 4.0])
    free, held = train_batch(far), train_batch(far)
    assert learn(free).metrics["trust_region_share"] == 1.0
    assert learn(held, with_settings(trust_region=0.2)).metrics["trust_region_share"] == pytest.approx(2 / 3)
    # Beside the rise of the last step, which is outside the trust region, the first two have advantages below the mean.
    assert gradient(held.logp_BT)[0].tolist() == pytest.approx([*gradient(free.logp_BT)[0, :2].tolist(), 0.0])
    assert gradient(free.logp_BT)[0, 2] != 0.0


def test_without_importance_nobody_asks_how_far_from_who_acted_a_step_is() -> None:
    far = Drawn(reward=[0.0] * 2, value=[0.5] * 2, ratio=[3.0, 1 / 3])
    careless = with_settings(importance="none", trust_region=0.2)
    assert slope(far, [1.0, -1.0], careless) == pytest.approx([1.0, -1.0])


def test_the_weight_of_prioritised_sampling_multiplies_an_episode() -> None:
    assert slope(msgspec.structs.replace(STEPS, weight=0.5), [1.0] * 4) == pytest.approx([0.55, 0.0, 0.45, 0.35])


@given(
    advantage=st.lists(st.floats(-3, 3), min_size=3, max_size=3),
    ratio=st.lists(st.floats(0.1, 5), min_size=3, max_size=3),
    clip=st.floats(0.01, 0.9),
)
def test_where_the_present_policy_is_the_proximal_one_it_is_the_plain_policy_gradient(
    advantage: list[float], ratio: list[float], clip: float
) -> None:
    drawn = Drawn(reward=[0.0] * 3, value=[0.5] * 3, ratio=ratio)
    expected = [min(r, PLAIN.rho_max) * a for r, a in zip(ratio, advantage, strict=True)]
    assert slope(drawn, advantage, with_settings(clip=clip)) == pytest.approx(expected, rel=1e-4, abs=1e-6)


# --- the loss -------------------------------------------------------------------------------------------------------


def credit(batch: TrainBatch) -> Tensor:
    return -gradient(batch.logp_BT) * batch.policy_mask_BT.sum()


def test_better_than_usual_is_raised_and_worse_lowered_by_normalised_advantages() -> None:
    batch = train_batch(SUCCESS, FAILURE)
    learn(batch)
    raw = torch.tensor([*GAE, -0.24, -0.8])
    expected = (raw - raw.mean()) / raw.std(unbiased=False)
    assert credit(batch)[batch.mask_BT].tolist() == pytest.approx(expected.tolist(), abs=1e-4)
    assert not gradient(batch.logp_BT)[~batch.mask_BT].any()


def test_the_loss_is_the_sum_of_its_terms_worked_out_by_hand() -> None:
    config = with_settings(entropy_weight=0.1)
    loss = learn(train_batch(msgspec.structs.replace(SUCCESS, entropy=[0.5, 1.0, 1.5])), config)
    value = -sum(
        target * log(now) + (1 - target) * log(1 - now)
        for target, now in zip([0.504, 0.72, 1.0], SUCCESS.value, strict=True)
    )
    assert loss.losses["policy"] == pytest.approx(0.0, abs=1e-5), "at ratio 1 normalised advantages add up to nothing"
    assert loss.losses["value"] == pytest.approx(value / 3, rel=1e-4)
    assert loss.metrics["entropy"] == pytest.approx(1.0)
    assert loss.losses["total"] == pytest.approx(0.5 * value / 3 - 0.1, rel=1e-4)


def test_the_entropy_bonus_raises_entropy_and_nothing_but_the_critics_loss_reaches_the_critic() -> None:
    batch = train_batch(SUCCESS, FAILURE)
    learn(batch, with_settings(entropy_weight=0.1, value_weight=0.0))
    assert (gradient(batch.entropy_BT)[batch.mask_BT] < 0).all()
    assert not gradient(batch.value_logit_BT).any()


def test_while_the_critic_warms_up_the_policy_is_left_alone() -> None:
    batch = train_batch(SUCCESS, FAILURE)
    learn(batch, with_settings(critic_warmup_updates=2, entropy_weight=0.1), updates=1)
    assert not gradient(batch.logp_BT).any()
    assert not gradient(batch.entropy_BT).any()
    assert gradient(batch.value_logit_BT).any()


def test_what_nobody_sampled_moves_no_policy_gradient() -> None:
    batch = train_batch(msgspec.structs.replace(SUCCESS, example=True), SUCCESS, FAILURE)
    learn(batch)
    assert not gradient(batch.logp_BT)[0].any()
    assert gradient(batch.logp_BT)[1].any()


def test_only_steps_in_the_policy_mask_move_the_policy_and_only_those_in_the_value_mask_the_critic() -> None:
    marked = msgspec.structs.replace(SUCCESS, policy_mask=[True, False, True], value_mask=[False, True, True])
    batch = train_batch(marked, FAILURE)
    learn(batch)
    assert (gradient(batch.logp_BT)[0] != 0).tolist() == [True, False, True]
    assert (gradient(batch.value_logit_BT)[0] != 0).tolist() == [False, True, True]

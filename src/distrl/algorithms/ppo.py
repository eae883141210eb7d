"""PPO with decoupled clipping (arXiv 2110.00641; for asynchronous training, arXiv 2505.24298).

    L = - mean( w_tau m_t min(prox/mu, rho_max) min( ratio_t A_t, clip(ratio_t, 1 - eps, 1 + eps) A_t ) )
        + k_v  mean( cross-entropy( V(s_t), clip(v_t, 0, 1) ) )
        - beta mean( H(pi(.|s_t)) )

Three policies: mu acted, prox is the policy of a few updates ago, pi is trained. ratio_t = pi(a_t|s_t) / prox(a_t|s_t)
keeps the steps small however old the data is, prox/mu corrects for its age. m_t is the trust-region mask: 0 where pi/mu
has left the trust region around mu and A_t would drive it further out, since A_t says little about a policy far from mu. A_t is the
generalised advantage estimate, with mean 0 and deviation 1 over the batch, v_t the lambda return.
docs/algorithms/ppo.md says what differs and why.
"""

from __future__ import annotations

from math import log, log1p

import torch
from torch import Tensor

from distrl.algorithms.base import Algorithm, AlgorithmContext, Loss, loss_of, value_loss
from distrl.algorithms.batch import TrainBatch, mean_over
from distrl.algorithms.targets import lambda_returns
from distrl.config.schema import PPOConfig, ProximalConfig

SMALLEST_DEVIATION = 1e-6


class PPO(Algorithm):
    """Clipped policy gradient with a critic."""

    def __init__(self, settings: PPOConfig, context: AlgorithmContext) -> None:
        super().__init__(settings, context)
        self._config, self.gamma, self.rho_max = settings, settings.gamma, settings.rho_max
        self.proximal_every_updates = settings.every_updates

    def loss(self, batch: TrainBatch, *, updates: int) -> Loss:
        """The clipped surrogate, the critic's loss and the entropy bonus; the policy waits until the critic is warm."""
        config = self._config
        targets = lambda_returns(batch.return_inputs, gamma=config.gamma, lambda_=config.lambda_)
        advantage_BT = normalised(targets.advantage_BT, batch.attempts_BT)
        policy = -mean_over(clipped_gain(batch, advantage_BT, config), batch.attempts_BT)
        value = value_loss(batch.value_logit_BT, targets.value_BT, batch.value_mask_BT)
        entropy = mean_over(batch.entropy_BT, batch.mask_BT)
        acting = policy - config.entropy_weight * entropy
        warm = updates >= config.critic_warmup_updates
        return loss_of(
            batch,
            targets.td_BT,
            total=config.value_weight * value + (acting if warm else 0.0),
            losses={"policy": policy, "value": value},
            metrics={
                "entropy": entropy,
                "trust_region_share": mean_over(
                    trust_region_mask(batch, advantage_BT, config).float(), batch.attempts_BT
                ),
            },
        )


def clipped_gain(batch: TrainBatch, advantage_BT: Tensor, config: ProximalConfig) -> Tensor:
    """What is gained on each step by moving away from the proximal policy, no further than the clip allows."""
    ratio_BT, clip = (batch.logp_BT - batch.proximal_logp_BT).exp(), config.clip
    clipped_BT = ratio_BT.clamp(1.0 - clip, 1.0 + clip)
    gain_BT = (ratio_BT * advantage_BT).minimum(clipped_BT * advantage_BT)
    return (
        batch.weight_B[:, None]
        * behaviour_weight(batch, config)
        * trust_region_mask(batch, advantage_BT, config)
        * gain_BT
    )


def behaviour_weight(batch: TrainBatch, config: ProximalConfig) -> Tensor:
    """The behaviour importance weight prox/mu, which corrects for the age of the data; 1 with `importance` "none"."""
    if config.importance == "none":
        return torch.ones_like(batch.proximal_logp_BT)
    return (batch.proximal_logp_BT - batch.behaviour_logp_BT).clamp(max=log(config.rho_max)).exp()


def trust_region_mask(batch: TrainBatch, advantage_BT: Tensor, config: ProximalConfig) -> Tensor:
    """The trust region around the policy that acted: False for steps outside of it that would be driven further out."""
    moved_BT, radius = (batch.logp_BT - batch.behaviour_logp_BT).detach(), config.trust_region
    if config.importance == "none" or not radius:
        return torch.ones_like(moved_BT, dtype=torch.bool)
    return moved_BT * advantage_BT.sign() <= log1p(radius)


def normalised(x_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Shifted and scaled to mean 0 and deviation 1 over the steps in `mask_BT`; 0 where they do not differ."""
    apart_BT = x_BT - mean_over(x_BT, mask_BT)
    return apart_BT / mean_over(apart_BT**2, mask_BT).sqrt().clamp(min=SMALLEST_DEVIATION)

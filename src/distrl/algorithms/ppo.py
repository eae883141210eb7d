"""PPO with decoupled clipping (arXiv 2110.00641; for asynchronous training, arXiv 2505.24298).

    L = - mean( w_tau near_t min(prox/mu, rho_max) min( ratio_t A_t, clip(ratio_t, 1 - eps, 1 + eps) A_t ) )
        + k_v  mean( cross-entropy( V(s_t), clip(v_t, 0, 1) ) )
        - beta mean( H(pi(.|s_t)) )

Three policies: mu acted, prox is the policy of a few updates ago, pi is trained. ratio_t = pi(a_t|s_t) / prox(a_t|s_t)
keeps the steps small however old the data is, prox/mu corrects for its age. near_t is 0 where pi/mu is beyond its reach
and A_t would drive it further: what an action was worth to mu says little about a policy far from mu. A_t is the
generalised advantage estimate, with mean 0 and deviation 1 over the lesson, v_t the lambda return.
docs/algorithms/ppo.md says what differs and why.
"""

from __future__ import annotations

from math import log, log1p

import torch
from torch import Tensor

from distrl.algorithms.base import NO_CRITIC, Lesson, Loss, loss_of, mean_over
from distrl.algorithms.losses import value_loss
from distrl.algorithms.targets import lambda_returns
from distrl.config.schema import AlgorithmConfig

SMALLEST_DEVIATION = 1e-6


class PPO:
    """Clipped policy gradient with a critic."""

    critic = NO_CRITIC

    def __init__(self, config: AlgorithmConfig) -> None:
        self._config = config

    @property
    def proximal_every_updates(self) -> int:
        return self._config.proximal.every_updates

    def loss(self, lesson: Lesson, *, updates: int) -> Loss:
        config = self._config
        targets = lambda_returns(lesson.course, gamma=config.gamma, trace=config.trace)
        advantage_BT = normalised(targets.advantage_BT, lesson.attempts_BT)
        policy = -mean_over(clipped_gain(lesson, advantage_BT, config), lesson.attempts_BT)
        value = value_loss(lesson.value_logit_BT, targets.value_BT, lesson.tells_BT)
        entropy = mean_over(lesson.entropy_BT, lesson.mask_BT)
        acting = policy - config.entropy_weight * entropy
        warm = updates >= config.critic_warmup_updates
        return loss_of(
            lesson,
            targets.td_BT,
            policy=policy,
            value=value,
            entropy=entropy,
            near=mean_over(within_reach(lesson, advantage_BT, config).float(), lesson.attempts_BT),
            total=config.value_weight * value + (acting if warm else 0.0),
        )


def clipped_gain(lesson: Lesson, advantage_BT: Tensor, config: AlgorithmConfig) -> Tensor:
    """What is gained on each step by moving away from the proximal policy, no further than the clip allows."""
    ratio_BT, clip = (lesson.logp_BT - lesson.proximal_logp_BT).exp(), config.proximal.clip
    clipped_BT = ratio_BT.clamp(1.0 - clip, 1.0 + clip)
    gain_BT = (ratio_BT * advantage_BT).minimum(clipped_BT * advantage_BT)
    return lesson.weight_B[:, None] * age(lesson, config) * within_reach(lesson, advantage_BT, config) * gain_BT


def age(lesson: Lesson, config: AlgorithmConfig) -> Tensor:
    """The ratio that corrects for the age of the data; 1 with `importance` "none"."""
    if config.importance == "none":
        return torch.ones_like(lesson.proximal_logp_BT)
    return (lesson.proximal_logp_BT - lesson.behaviour_logp_BT).clamp(max=log(config.rho_max)).exp()


def within_reach(lesson: Lesson, advantage_BT: Tensor, config: AlgorithmConfig) -> Tensor:
    """False for steps that are further from the policy that acted than they may be, and would go further still."""
    gone_BT, reach = (lesson.logp_BT - lesson.behaviour_logp_BT).detach(), config.proximal.reach
    if config.importance == "none" or not reach:
        return torch.ones_like(gone_BT, dtype=torch.bool)
    return gone_BT * advantage_BT.sign() <= log1p(reach)


def normalised(x_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Shifted and scaled to mean 0 and deviation 1 over the steps in `mask_BT`; 0 where they do not differ."""
    apart_BT = x_BT - mean_over(x_BT, mask_BT)
    return apart_BT / mean_over(apart_BT**2, mask_BT).sqrt().clamp(min=SMALLEST_DEVIATION)

"""GRPO (arXiv 2402.03300) over groups of episodes of one task, with the decoupled clipping of `ppo`.

    L = - mean( w_tau near_t min(prox/mu, rho_max) min( ratio_t A, clip(ratio_t, 1 - eps, 1 + eps) A ) )
        - beta mean( H(pi(.|s_t)) )
        + k_v  mean( cross-entropy( V(s_t), R ) )

    A = (R - mean of the group) / (deviation of the group + eps_0), the same for every step of an episode

R is the outcome, 0 or 1. The group is what has arrived of the latest attempts at the task. An episode whose group has
no spread is left out of the first two means. The critic gives no advantage: it can feed the sampler's priorities.
docs/algorithms/grpo.md says what differs from the paper and why.
"""

from __future__ import annotations

from torch import Tensor

from distrl.algorithms.base import NO_CRITIC, Lesson, Loss, loss_of, mean_over
from distrl.algorithms.losses import outcome_loss
from distrl.algorithms.ppo import clipped_gain, within_reach
from distrl.config.schema import AlgorithmConfig

EPS = 1e-4


class GRPO:
    """Clipped policy gradient; the other attempts at a task stand in for a critic."""

    critic = NO_CRITIC

    def __init__(self, config: AlgorithmConfig) -> None:
        self._config = config

    @property
    def proximal_every_updates(self) -> int:
        return self._config.proximal.every_updates

    def loss(self, lesson: Lesson, *, updates: int) -> Loss:
        config = self._config
        compared_BT = (lesson.group_std_B > 0)[:, None] & lesson.mask_BT
        advantage_BT = group_advantage(lesson)[:, None]
        gain_BT = clipped_gain(lesson, advantage_BT, config)
        policy = -mean_over(gain_BT, compared_BT & lesson.attempts_BT)
        bonus = config.entropy_weight * mean_over(lesson.entropy_BT, compared_BT)
        value, missed_BT = outcome_loss(lesson)
        return loss_of(
            lesson,
            missed_BT,
            policy=policy,
            value=value,
            entropy=mean_over(lesson.entropy_BT, lesson.mask_BT),
            compared=mean_over(compared_BT.float(), lesson.mask_BT),
            near=mean_over(within_reach(lesson, advantage_BT, config).float(), compared_BT & lesson.attempts_BT),
            total=policy - bonus + config.value_weight * value,
        )


def group_advantage(lesson: Lesson) -> Tensor:
    """How much better each episode went than its group, in deviations; means nothing where the group has no spread."""
    return (lesson.success_B - lesson.group_mean_B) / (lesson.group_std_B + EPS)

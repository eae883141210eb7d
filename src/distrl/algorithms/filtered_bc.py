"""Filtered behaviour cloning: maximum likelihood on the steps of successful episodes, and on nothing else.

    L = - mean over steps of successes ( log pi(a_t|s_t) )  + k_v cross-entropy( V(s_t), outcome )

The baseline that online imitation has to beat (as in DigiRL, arXiv 2406.11896). The critic bootstraps
nothing; it feeds the sampler's priorities where `replay.td_weight` is above 0.
"""

from __future__ import annotations

from distrl.algorithms.base import NO_CRITIC, Lesson, Loss, loss_of, mean_over
from distrl.algorithms.losses import outcome_loss
from distrl.config.schema import AlgorithmConfig


class FilteredBC:
    """Imitates successes."""

    critic = NO_CRITIC
    proximal_every_updates = 0

    def __init__(self, config: AlgorithmConfig) -> None:
        self._config = config

    def loss(self, lesson: Lesson, *, updates: int) -> Loss:
        worth_BT = lesson.teaches_BT & (lesson.success_B[:, None] > 0)
        policy = -mean_over(lesson.logp_BT, worth_BT)
        value, missed_BT = outcome_loss(lesson)
        entropy = mean_over(lesson.entropy_BT, lesson.mask_BT)
        total = policy + self._config.value_weight * value
        return loss_of(lesson, missed_BT, policy=policy, value=value, entropy=entropy, total=total)

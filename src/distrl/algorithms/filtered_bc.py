"""Filtered behaviour cloning: maximum likelihood on the steps of successful episodes, and on nothing else.

    L = - mean over steps of successes ( log pi(a_t|s_t) )  + k_v cross-entropy( V(s_t), outcome )

The baseline that online imitation has to beat (as in DigiRL, arXiv 2406.11896). The critic only feeds the sampler's
priorities and bootstraps nothing.
"""

from __future__ import annotations

import torch

from distrl.algorithms.aride import value_loss
from distrl.algorithms.base import Lesson, Loss, mean_over
from distrl.config.schema import AlgorithmConfig


class FilteredBC:
    """Imitates successes."""

    def __init__(self, config: AlgorithmConfig) -> None:
        self._config = config

    def loss(self, lesson: Lesson, *, updates: int) -> Loss:
        worth_BT = lesson.teaches_BT & (lesson.success_B[:, None] > 0)
        policy = -mean_over(lesson.logp_BT, worth_BT)
        outcome_BT = lesson.success_B[:, None].expand_as(lesson.logp_BT)
        critic = value_loss(lesson.value_logit_BT, outcome_BT, lesson.tells_BT)
        total = policy + self._config.value_weight * critic
        td_BT = (outcome_BT - torch.sigmoid(lesson.value_logit_BT.detach())) * lesson.mask_BT
        named = {
            "policy": policy,
            "value": critic,
            "entropy": mean_over(lesson.entropy_BT, lesson.mask_BT),
            "total": total,
        }
        return Loss(
            total=total,
            metrics={name: float(value.detach()) for name, value in named.items()},
            td_BT=td_BT,
            ratio_BT=lesson.ratio_BT,
            entropy_BT=lesson.entropy_BT.detach(),
        )

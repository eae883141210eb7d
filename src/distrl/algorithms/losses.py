"""What a critic of the probability of success is taught, by several algorithms alike."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from distrl.algorithms.base import Lesson, mean_over


def value_loss(value_logit_BT: Tensor, target_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Cross-entropy on the probability of success; targets are clipped to [0, 1]."""
    loss_BT = F.binary_cross_entropy_with_logits(value_logit_BT, target_BT.clamp(0.0, 1.0), reduction="none")
    return mean_over(loss_BT, mask_BT)


def outcome_loss(lesson: Lesson) -> tuple[Tensor, Tensor]:
    """The loss of a critic that learns the outcome as it is, and what it has missed of it on each step."""
    outcome_BT = lesson.success_B[:, None].expand_as(lesson.value_logit_BT)
    missed_BT = (outcome_BT - torch.sigmoid(lesson.value_logit_BT.detach())) * lesson.mask_BT
    return value_loss(lesson.value_logit_BT, outcome_BT, lesson.tells_BT), missed_BT

"""Imitation of surprising successes: each counts by how much better it went than its template usually does.

    L = - mean( w log pi(a_t|s_t) over steps of successes )  - beta mean( H )  + cross-entropy( V(s_t), R )

w = max(1 - b, 0.2), where b is how often tasks of this template have succeeded lately. A priority is w for a success, so
that hard templates are drawn more often, and small for a failure, which only moves b.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from zlib import crc32

import msgspec
import torch
from torch import Tensor, nn

from distrl.algorithms.base import Algorithm, AlgorithmContext, Loss, loss_of, outcome_loss
from distrl.algorithms.batch import Episode, TrainBatch, mean_over
from distrl.experience.replay import Sample

SLOTS, LEAST, FAILURE = 64, 0.2, 0.05


class ImitationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[algorithm.options]` of the algorithm."""

    entropy_weight: Annotated[float, msgspec.Meta(ge=0.0)] = 0.01
    """Weight of the entropy bonus."""
    baseline_rate: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 0.05
    """How far a batch moves the baseline towards its own outcomes."""


class Baselines(nn.Module):
    """Success lately by template, in hashed slots: a buffer of the critic, so that checkpoints hold it."""

    success_K: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("success_K", torch.zeros(SLOTS))

    def forward(self, templates: Sequence[str]) -> Tensor:
        """The baseline of each template."""
        return self.success_K[[_slot(template) for template in templates]]

    def update(self, batch: TrainBatch, rate: float) -> None:
        """Move towards the outcomes of a batch; `weight_B` makes up for what is drawn more often (`replay.beta = 1`)."""
        for template in set(batch.templates):
            here_B = torch.tensor([one == template for one in batch.templates]).to(batch.weight_B) * batch.known_B
            seen = (here_B * batch.weight_B * batch.success_B).sum() / (here_B * batch.weight_B).sum().clamp(min=1e-6)
            self.success_K[_slot(template)] += rate * here_B.any() * (seen - self.success_K[_slot(template)])


class SurprisingSuccesses(Algorithm):
    """Imitates successes, the unlikely ones most."""

    Settings = ImitationSettings

    def __init__(self, settings: ImitationSettings, context: AlgorithmContext) -> None:
        super().__init__(settings, context)
        self.critic: Baselines = Baselines()

    def loss(self, batch: TrainBatch, *, updates: int) -> Loss:
        """What to descend; `metrics` are written as `learner/<name>`."""
        self.critic.update(batch, self.settings.baseline_rate)
        baseline_B = self.critic(batch.templates)
        worth_B = (1.0 - baseline_B).clamp(min=LEAST) * batch.success_B
        policy = -mean_over(worth_B[:, None] * batch.logp_BT, batch.policy_mask_BT & (batch.success_B > 0)[:, None])
        entropy = mean_over(batch.entropy_BT, batch.mask_BT)
        value, missed_BT = outcome_loss(batch)
        return loss_of(
            batch,
            missed_BT,
            total=policy - self.settings.entropy_weight * entropy + value,
            losses={"policy": policy, "value": value},
            metrics={"entropy": entropy, "baseline": baseline_B.mean()},
        )

    def priorities(self, loss: Loss, samples: Sequence[Sample[Episode]]) -> list[float]:
        """What each episode's priority should be from now on."""
        baseline_B = self.critic([sample.item.template for sample in samples]).tolist()
        return [
            max(1.0 - baseline, LEAST) if sample.item.success else FAILURE
            for sample, baseline in zip(samples, baseline_B, strict=True)
        ]


def _slot(template: str) -> int:
    return crc32(template.encode()) % SLOTS

"""Gradient steps that make a policy's given choices likelier; those along what is no number are left out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from distrl.config.schema import WarmStartConfig
from distrl.errors import RoleCrashed
from distrl.learner.finite_steps import FiniteSteps
from distrl.learner.room import learning_memory
from distrl.policies.base import Policy

Example = tuple[Any, tuple[int, ...]]
"""An encoded observation and the choice to learn."""
CLIP = 1.0
"""Largest norm of a gradient."""


class Descent:
    """Maximum likelihood on examples, a batch at a time."""

    def __init__(self, policy: Policy[Any], config: WarmStartConfig) -> None:
        self._policy, weights = policy, list(policy.network.parameters())
        self.optimizer = torch.optim.AdamW(weights, lr=config.learning_rate, weight_decay=0.01, fused=True)
        self.steps = cloning_steps(self.optimizer, weights)

    def step(self, part: list[Example]) -> Tensor:
        """One gradient step, if it leads anywhere; the log-probabilities before it, on the policy's device."""
        if not part:
            raise RoleCrashed(
                "the policy can say nothing of what was demonstrated",
                expected="tasks whose steps are in its grammar",
                fix="another --tasks.suite, or --warm_start.demonstrations 0",
            )
        policy = self._policy
        with learning_memory(policy, "warm_start.batch", len(part)):
            scores = policy.score([policy.augment(encoded) for encoded, _ in part], [choice for _, choice in part])
            self.steps.take(-scores.logp_N.mean())
        return scores.logp_N.detach()


def cloning_steps(optimizer: torch.optim.AdamW, weights: list[nn.Parameter]) -> FiniteSteps:
    """Steps of a warm start."""
    fix = "lower warm_start.learning_rate"
    return FiniteSteps(optimizer, [weights], clip=CLIP, what="batches of the warm start", fix=fix)

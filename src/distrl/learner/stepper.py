"""One step downhill after the other: the optimizer, the learning rate and the limits of a gradient."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from distrl.config.schema import LearnerConfig, RunConfig
from distrl.learner.finite_steps import FiniteSteps


class Stepper:
    """Trains the policy and what an algorithm has beside it."""

    def __init__(self, policy: nn.Module, critic: nn.Module, learning: LearnerConfig) -> None:
        # Where the policy computes: what an algorithm trains beside it need not hold the GPU up.
        here = next((weights.device for weights in policy.parameters()), torch.device("cpu"))
        self._learning = learning
        # Each on its own: a critic that is far off must not shorten the policy's step.
        trained = [list(part.parameters()) for part in (policy, critic.to(here))]
        weights = [weights for part in trained for weights in part]
        self.optimizer = torch.optim.AdamW(weights, lr=learning.learning_rate, weight_decay=0.01, fused=True)
        fix = "lower learner.learning_rate, then go on with --resume"
        self.steps = FiniteSteps(self.optimizer, trained, clip=learning.gradient_clip, what="updates", fix=fix)

    def rate(self, updates: int, *, spent: float = 0.0) -> float:
        """The learning rate after so many updates, when this share of the run's budget is spent."""
        learning = self._learning
        risen = min(1.0, (updates + 1) / max(1, learning.rise_updates))
        left = min(1.0, (1.0 - spent) / learning.fall_share) if learning.fall_share else 1.0
        return learning.learning_rate * risen * left

    def step(self, loss: Tensor, *, updates: int, spent: float = 0.0) -> float | None:
        """Go down `loss` once, at the rate of this moment; the norm of the policy's gradient, None if it was left out."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(updates, spent=spent)
        norm, before = self.steps.take(loss), self.steps.left_out
        self.steps.look()
        return float(norm) if self.steps.left_out == before else None


def share_spent(run: RunConfig, *, collected_s: float, episodes: int) -> float:
    """How much of its budget a run has spent, by whichever limit is nearer; 0 where it has none."""
    by_time = collected_s / (60 * run.minutes) if run.minutes else 0.0
    by_episodes = episodes / run.episodes if run.episodes else 0.0
    return min(1.0, max(by_time, by_episodes))

"""One step downhill after the other: the optimizer, the learning rate and the limits of a gradient."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from distrl.config.schema import LearnerConfig
from distrl.errors import RoleCrashed


class Descent:
    """Trains the policy and what an algorithm has beside it."""

    def __init__(self, policy: nn.Module, critic: nn.Module, learning: LearnerConfig) -> None:
        # Where the policy computes: what an algorithm trains beside it need not hold the GPU up.
        here = next((weights.device for weights in policy.parameters()), torch.device("cpu"))
        self._trained, self._learning = (policy, critic.to(here)), learning
        weights = [weights for part in self._trained for weights in part.parameters()]
        self.optimizer = torch.optim.AdamW(weights, lr=learning.learning_rate, weight_decay=0.01, fused=True)

    def rate(self, updates: int) -> float:
        """The learning rate after so many updates."""
        return self._learning.learning_rate * min(1.0, (updates + 1) / max(1, self._learning.rise_updates))

    def step(self, loss: Tensor, *, updates: int) -> float:
        """Go down `loss` once, after so many updates; the norm of the policy's gradient."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        # Each on its own: a critic that is far off must not shorten the policy's step.
        clip, clip_to = torch.nn.utils.clip_grad_norm_, self._learning.gradient_clip
        norm, critic_norm = (clip(list(part.parameters()), clip_to) for part in self._trained)
        if not torch.isfinite(norm + critic_norm):
            # Before the step: weights that are not numbers must never reach a checkpoint or a worker.
            raise RoleCrashed(
                f"the gradient of update {updates} is not finite",
                expected="numbers",
                fix="lower learner.learning_rate, then go on with --resume",
            )
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(updates)
        self.optimizer.step()
        return float(norm)

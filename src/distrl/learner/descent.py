"""Gradient steps that make a policy's given choices likelier, and what happens where a gradient is no number.

Such a step is not taken: it would make every weight NaN. Whether it is one is decided on the device, so that nobody waits
for it, and counted when somebody looks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from distrl.config.schema import WarmStartConfig
from distrl.errors import RoleCrashed
from distrl.policies.base import Policy

Example = tuple[Any, tuple[int, ...]]
"""An encoded observation and the choice to learn."""
CLIP = 1.0
"""Largest norm of a gradient."""
MOST_IN_A_ROW = 20
"""Steps left out after which something is wrong for good; fewer where none was ever taken."""


class Descent:
    """Maximum likelihood on examples, a batch at a time."""

    def __init__(self, policy: Policy[Any], config: WarmStartConfig) -> None:
        self._policy, self._weights = policy, list(policy.network.parameters())
        self.optimizer = torch.optim.AdamW(self._weights, lr=config.learning_rate, weight_decay=0.01, fused=True)
        self.left_out = 0
        """Steps that were not taken, as of the last look."""
        self._taken = 0
        self._bad: list[Tensor] = []

    def step(self, part: list[Example]) -> Tensor:
        """One gradient step; the log-probabilities before it, on the policy's device."""
        if not part:
            raise RoleCrashed(
                "the policy can say nothing of what was demonstrated",
                expected="tasks whose steps are in its grammar",
                fix="another --tasks.suite, or --warm_start.demonstrations 0",
            )
        policy = self._policy
        scores = policy.score([policy.augment(encoded) for encoded, _ in part], [choice for _, choice in part])
        self.optimizer.zero_grad(set_to_none=True)
        (-scores.logp_N.mean()).backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self._weights, CLIP)
        bad = (~norm.isfinite()).float()
        # What torch's own gradient scaler tells a fused optimizer: leave everything as it is.
        self.optimizer.found_inf = bad  # type: ignore[attr-defined]
        self.optimizer.step()
        self._bad.append(bad.to(self._weights[0].device, non_blocking=True))
        return scores.logp_N.detach()

    def look(self) -> None:
        """Count the steps that were not taken; `RoleCrashed` where none of many was taken since the last look."""
        seen, self._bad = self._bad, []
        bad = int(torch.stack(seen).sum()) if seen else 0
        self.left_out, self._taken = self.left_out + bad, self._taken + len(seen) - bad
        if seen and bad == len(seen) and (bad >= MOST_IN_A_ROW or not self._taken):
            raise RoleCrashed(
                f"the gradients of the last {bad} batches of the warm start are no numbers",
                expected="numbers",
                fix="lower warm_start.learning_rate",
            )

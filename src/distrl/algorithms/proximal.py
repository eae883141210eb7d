"""The proximal policy of decoupled clipping: the policy of a few updates ago, which the present one is held near.

Only trainable weights are copied, so a large frozen model is not held twice. A learner that is killed makes the copy
anew from the weights that it goes on with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from distrl.policies.base import Policy
from distrl.policies.weights import standing_in


class Proximal:
    """A copy of a policy's weights, and what they think of given choices."""

    def __init__(self, policy: Policy[Any], *, every_updates: int) -> None:
        self._policy, self._every_updates = policy, every_updates
        self._weights: list[Tensor] = []
        self._same = True

    def keep_up(self, updates: int) -> None:
        """To be called before each update: copies the present weights when it is time to, or for the first time."""
        if not self._every_updates:
            return
        self._same = not self._weights or updates % self._every_updates == 0
        if self._same:
            self._weights = [weights.detach().clone() for weights in self._trained()]

    @torch.no_grad()
    def logp(self, encoded: Sequence[Any], choices: Sequence[tuple[int, ...]]) -> Tensor | None:
        """Log-probabilities of the choices; None where the present policy is the proximal one."""
        if self._same:
            return None
        with standing_in(self._trained(), self._weights):
            return self._policy.score(encoded, choices).logp_N

    def _trained(self) -> list[torch.nn.Parameter]:
        return [weights for weights in self._policy.network.parameters() if weights.requires_grad]

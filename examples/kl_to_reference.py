"""An algorithm of your own that scores a batch twice: REINFORCE that is held near the policy it began with.

    L = - mean( min(pi/mu, 1) (R - V(s_t)) log pi(a_t|s_t) )  + k mean( KL(pi || ref) )  + cross-entropy( V(s_t), R )

    cd examples && distrl train --algorithm.kind kl_to_reference:HeldBack --algorithm.options.kl_weight 0.1

ref is the policy before the first update, frozen. KL is estimated by ref/pi - log(ref/pi) - 1 on the actions taken, which mu chose, so
each counts by the clipped ratio pi/mu.
"""

from __future__ import annotations

from typing import Any

import msgspec

from distrl.algorithms.base import Algorithm, Loss, loss_of, outcome_loss
from distrl.algorithms.batch import ReferencePolicy, TrainBatch, mean_over
from distrl.policies.base import Policy


class HeldBackSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[algorithm.options]` of the algorithm."""

    kl_weight: float = 0.05
    """Weight of the KL divergence from the reference."""


class HeldBack(Algorithm):
    """Policy gradient with a KL penalty."""

    Settings = HeldBackSettings

    def bind(self, policy: Policy[Any]) -> None:
        """Freeze a copy; in `self.critic`, so that checkpoints hold it."""
        self.critic: ReferencePolicy = ReferencePolicy(policy)

    def loss(self, batch: TrainBatch, *, updates: int) -> Loss:
        """The gain, the penalty and the critic's loss."""
        value, advantage_BT = outcome_loss(batch)  # advantage: 0 where the outcome is unknown
        weight_BT = batch.ratio_BT.clamp(max=1.0)
        policy = -mean_over(weight_BT * advantage_BT * batch.logp_BT, batch.attempts_BT)
        apart_BT = self.critic.score(batch).logp_BT - batch.logp_BT
        kl = mean_over(weight_BT * (apart_BT.exp() - apart_BT - 1.0), batch.attempts_BT)
        total = policy + self.settings.kl_weight * kl + value
        return loss_of(batch, advantage_BT, total=total, losses={"policy": policy, "value": value}, metrics={"kl": kl})

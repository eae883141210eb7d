"""An algorithm of your own: REINFORCE with the critic as baseline, corrected for stale episodes.

    L = - mean( min(pi/mu, 1) (R - V(s_t)) log pi(a_t|s_t) )  - beta mean( H )  + cross-entropy( V(s_t), R )

    cd examples && distrl train --algorithm.kind custom_algorithm:Reinforce --algorithm.options.entropy_weight 0.01

R is 1 for a success and 0 otherwise. mu is the policy that acted: episodes are a few versions old, and without the clipped ratio
the loss would push failures down that the present policy would not repeat. Suffixes are shapes: B episodes, T steps.
"""

from __future__ import annotations

import msgspec

from distrl.algorithms.base import Algorithm, Loss, loss_of, outcome_loss
from distrl.algorithms.batch import TrainBatch, mean_over


class ReinforceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[algorithm.options]` of the algorithm."""

    entropy_weight: float = 0.01
    """Weight of the entropy bonus."""


class Reinforce(Algorithm):
    """Raises what went better than expected, lowers what went worse."""

    Settings = ReinforceSettings

    def loss(self, batch: TrainBatch, *, updates: int) -> Loss:
        """What to descend; terms are logged as `learner/loss/<name>`, metrics as `learner/<name>`."""
        value, advantage_BT = outcome_loss(batch)  # advantage: the outcome minus the critic's guess
        weight_BT = batch.ratio_BT.clamp(max=1.0) * advantage_BT
        policy = -mean_over(weight_BT * batch.logp_BT, batch.policy_mask_BT & batch.known_B[:, None])
        entropy = mean_over(batch.entropy_BT, batch.mask_BT)
        return loss_of(
            batch,
            advantage_BT,
            total=policy - self.settings.entropy_weight * entropy + value,
            losses={"policy": policy, "value": value},
            metrics={"entropy": entropy},
        )

"""Filtered behaviour cloning: maximum likelihood on the steps of successful episodes, and on nothing else.

    L = - mean over steps of successes ( log pi(a_t|s_t) )  + k_v cross-entropy( V(s_t), outcome )

The baseline that online imitation has to beat (as in DigiRL, arXiv 2406.11896). The critic bootstraps
nothing; it feeds the sampler's priorities where `replay.td_weight` is above 0.
"""

from __future__ import annotations

from distrl.algorithms.base import Algorithm, AlgorithmContext, Loss, loss_of, outcome_loss
from distrl.algorithms.batch import TrainBatch, mean_over
from distrl.config.schema import FilteredBCConfig


class FilteredBC(Algorithm):
    """Imitates successes."""

    def __init__(self, settings: FilteredBCConfig, context: AlgorithmContext) -> None:
        super().__init__(settings, context)
        self._config, self.gamma = settings, settings.gamma

    def loss(self, batch: TrainBatch, *, updates: int) -> Loss:
        """Maximum likelihood on successes, and a critic of the outcome."""
        worth_BT = batch.policy_mask_BT & (batch.success_B[:, None] > 0)
        policy = -mean_over(batch.logp_BT, worth_BT)
        value, missed_BT = outcome_loss(batch)
        entropy = mean_over(batch.entropy_BT, batch.mask_BT)
        total = policy + self._config.value_weight * value
        return loss_of(
            batch, missed_BT, total=total, losses={"policy": policy, "value": value}, metrics={"entropy": entropy}
        )

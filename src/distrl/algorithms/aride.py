"""A-RIDE, the off-policy actor-critic of DistRL (arXiv 2410.14803), for trajectories that arrive late and stale.

    L = - mean( credit_t min(rho_t, rho_max)^[importance = full] w_tau log pi(a_t|s_t) )
        + k_v   mean( cross-entropy( V(s_t), clip(v_t, 0, 1) ) )         gradient reaches the critic
        - beta  mean( H(pi(.|s_t)) )                                     exact entropy
        + k_inv mean over bad steps of ( -log(1 - pi(a_t|s_t)) )

v_t and A_t are Retrace targets over the whole trajectory (`targets.retrace`), credit_t is made of A_t, and neither
credit nor rho carries gradient. By default credit_t is 1[success] 1[A_t > advantage_floor] and rho corrects the
targets alone: imitation of successes, filtered by the advantage. The paper's form is credit_t = A_t with every switch
as in configs/aride-published.toml. docs/algorithms/aride.md says what differs and why.
"""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor

from distrl.algorithms.base import Algorithm, AlgorithmContext, Loss, loss_of, value_loss
from distrl.algorithms.batch import TrainBatch, mean_over
from distrl.algorithms.targets import Targets, retrace
from distrl.config.schema import ARideConfig

ALMOST_ONE = 1.0 - 1e-4
"""Shrinks the probability in the invalid-action term, so that its gradient stays finite and never vanishes."""


class ARide(Algorithm):
    """The algorithm with its switches set."""

    def __init__(self, settings: ARideConfig, context: AlgorithmContext) -> None:
        super().__init__(settings, context)
        self._config, self.gamma, self.rho_max = settings, settings.gamma, settings.rho_max

    def loss(self, batch: TrainBatch, *, updates: int) -> Loss:
        """Policy, value, entropy and unlikelihood terms; the policy waits until the critic is warm."""
        config = self._config
        targets = self._targets(batch)
        policy = self._policy_loss(batch, targets)
        critic = value_loss(batch.value_logit_BT, targets.value_BT, batch.value_mask_BT)
        entropy = mean_over(batch.entropy_BT, batch.mask_BT)
        invalid = unlikelihood(batch, self._bad(batch))
        acting = policy - config.entropy_weight * entropy + config.invalid_weight * invalid
        warm = updates >= config.critic_warmup_updates
        total = config.value_weight * critic + (acting if warm else 0.0)
        return loss_of(
            batch,
            targets.td_BT,
            total=total,
            losses={"policy": policy, "value": critic, "invalid": invalid},
            metrics={"entropy": entropy},
        )

    def _targets(self, batch: TrainBatch) -> Targets:
        config = self._config
        ratio_BT = self._ratio(batch, used=config.importance != "none")
        inputs = msgspec.structs.replace(batch.return_inputs, ratio_BT=ratio_BT)
        return retrace(inputs, gamma=config.gamma, lambda_=config.lambda_, rho_max=config.rho_max)

    def _bad(self, batch: TrainBatch) -> Tensor:
        """Steps that are bad for certain: what the device refused and, where asked, no-ops and false claims of failures."""
        bad_BT = ~batch.valid_BT
        if self._config.unlikelihood == "certain":
            bad_BT = (
                bad_BT
                | (~batch.changed_BT & ((batch.success_B == 0) & batch.known_B)[:, None] & ~_last(batch))
                | batch.false_claim_BT
            )
        return batch.decided_BT & bad_BT

    def _ratio(self, batch: TrainBatch, *, used: bool) -> Tensor:
        return batch.ratio_BT if used else batch.mask_BT.float()

    def _policy_loss(self, batch: TrainBatch, targets: Targets) -> Tensor:
        ratio_BT = self._ratio(batch, used=self._config.importance == "full").clamp(max=self._config.rho_max)
        credit_BT = self._credit(targets.advantage_BT, batch.value_mask_BT)
        if self._config.positive_only:
            credit_BT = torch.where(batch.success_B[:, None] > 0, credit_BT, credit_BT.clamp(max=0.0))
        # The critic knows nothing of examples, so its advantage says nothing against them.
        credit_BT = torch.where(batch.example_B[:, None], 1.0, credit_BT)
        return -mean_over(batch.weight_B[:, None] * ratio_BT * credit_BT * batch.logp_BT, batch.policy_mask_BT)

    def _credit(self, advantage_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """What each action's log-probability is multiplied with."""
        config = self._config
        if config.advantage == "binary":
            return (advantage_BT > config.advantage_floor).float()
        if config.scale_advantages:
            advantage_BT = advantage_BT / mean_over(advantage_BT**2, mask_BT).sqrt().clamp(min=1e-3)
        return advantage_BT.clamp(min=0.0) if config.advantage == "positive" else advantage_BT


def _last(batch: TrainBatch) -> Tensor:
    """True on the last step of each episode."""
    ahead_BT = torch.cat([batch.mask_BT[:, 1:], torch.zeros_like(batch.mask_BT[:, :1])], dim=1)
    return batch.mask_BT & ~ahead_BT


def unlikelihood(batch: TrainBatch, bad_BT: Tensor) -> Tensor:
    """The unlikelihood loss, -log(1 - pi(a)), over the bad steps."""
    chance_BT = batch.logp_BT.exp() * ALMOST_ONE
    return mean_over(-torch.log1p(-chance_BT), bad_BT)

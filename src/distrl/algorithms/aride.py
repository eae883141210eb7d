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

from distrl.algorithms.base import NO_CRITIC, Lesson, Loss, loss_of, mean_over
from distrl.algorithms.losses import value_loss
from distrl.algorithms.targets import Targets, retrace
from distrl.config.schema import AlgorithmConfig

ALMOST_ONE = 1.0 - 1e-4
"""Shrinks the probability in the invalid-action term, so that its gradient stays finite and never vanishes."""


class ARide:
    """The algorithm with its switches set."""

    critic = NO_CRITIC
    proximal_every_updates = 0

    def __init__(self, config: AlgorithmConfig) -> None:
        self._config = config

    def loss(self, lesson: Lesson, *, updates: int) -> Loss:
        config = self._config
        targets = self._targets(lesson)
        policy = self._policy_loss(lesson, targets)
        critic = value_loss(lesson.value_logit_BT, targets.value_BT, lesson.tells_BT)
        entropy = mean_over(lesson.entropy_BT, lesson.mask_BT)
        invalid = push_down(lesson, self._bad(lesson))
        acting = policy - config.entropy_weight * entropy + config.invalid_weight * invalid
        warm = updates >= config.critic_warmup_updates
        total = config.value_weight * critic + (acting if warm else 0.0)
        return loss_of(
            lesson, targets.td_BT, policy=policy, value=critic, entropy=entropy, invalid=invalid, total=total
        )

    def _targets(self, lesson: Lesson) -> Targets:
        config = self._config
        ratio_BT = self._ratio(lesson, used=config.importance != "none")
        course = msgspec.structs.replace(lesson.course, ratio_BT=ratio_BT)
        return retrace(course, gamma=config.gamma, trace=config.trace, rho_max=config.rho_max)

    def _bad(self, lesson: Lesson) -> Tensor:
        """Steps that are bad for certain: what the device refused, and where asked what came to nothing."""
        bad_BT = ~lesson.valid_BT
        if self._config.push_down == "certain":
            bad_BT = (
                bad_BT
                | (~lesson.changed_BT & (lesson.success_B[:, None] == 0) & ~_last(lesson))
                | lesson.false_claim_BT
            )
        return lesson.mask_BT & bad_BT

    def _ratio(self, lesson: Lesson, *, used: bool) -> Tensor:
        return lesson.ratio_BT if used else lesson.mask_BT.float()

    def _policy_loss(self, lesson: Lesson, targets: Targets) -> Tensor:
        ratio_BT = self._ratio(lesson, used=self._config.importance == "full").clamp(max=self._config.rho_max)
        credit_BT = self._credit(targets.advantage_BT, lesson.tells_BT)
        if self._config.learn_from == "successes":
            credit_BT = torch.where(lesson.success_B[:, None] > 0, credit_BT, credit_BT.clamp(max=0.0))
        # The critic knows nothing of examples, so its advantage says nothing against them.
        credit_BT = torch.where(lesson.example_B[:, None], 1.0, credit_BT)
        return -mean_over(lesson.weight_B[:, None] * ratio_BT * credit_BT * lesson.logp_BT, lesson.teaches_BT)

    def _credit(self, advantage_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """What each action's log-probability is multiplied with."""
        config = self._config
        if config.advantage == "binary":
            return (advantage_BT > config.advantage_floor).float()
        if config.scale_advantages:
            advantage_BT = advantage_BT / mean_over(advantage_BT**2, mask_BT).sqrt().clamp(min=1e-3)
        return advantage_BT.clamp(min=0.0) if config.advantage == "positive" else advantage_BT


def _last(lesson: Lesson) -> Tensor:
    """True on the last step of each episode."""
    ahead_BT = torch.cat([lesson.mask_BT[:, 1:], torch.zeros_like(lesson.mask_BT[:, :1])], dim=1)
    return lesson.mask_BT & ~ahead_BT


def push_down(lesson: Lesson, bad_BT: Tensor) -> Tensor:
    """-log(1 - pi(a)) over the bad steps."""
    chance_BT = lesson.logp_BT.exp() * ALMOST_ONE
    return mean_over(-torch.log1p(-chance_BT), bad_BT)

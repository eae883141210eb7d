"""DigiRL (arXiv 2406.11896): imitate the steps that were better than expected, of the episodes that surprised.

    L = - mean over the steps that pass both filters ( log pi(a_h|s_h) )
        + k_v mean( cross-entropy( V(s_h), R ) ) + k_v mean( cross-entropy( V_instr(c), R ) )

    step         A_step_h = lambda^(H-h) R + (1 - lambda^(H-h)) (V(s_{h+1}) + r_h - V(s_h))  >  step_floor
    instruction  A_instr  = R - V_instr(c)  among the largest `top_share` of the lesson, and above 0

R is the outcome, 0 or 1, of an episode with instruction c and last step H. V is the policy's value head, V_instr a
critic of its own. docs/algorithms/digirl.md says what differs from the paper and why.
"""

from __future__ import annotations

from math import ceil

import torch
from torch import Tensor
from torch.nn import functional as F

from distrl.algorithms.base import Lesson, Loss, loss_of, mean_over
from distrl.algorithms.instruction_critic import InstructionCritic
from distrl.algorithms.losses import outcome_loss
from distrl.algorithms.targets import doubly_robust
from distrl.config.schema import AlgorithmConfig


class DigiRL:
    """Imitation behind two filters, each with a critic."""

    proximal_every_updates = 0

    def __init__(self, config: AlgorithmConfig, *, seed: int) -> None:
        self._config = config
        self.critic = InstructionCritic(seed=seed)

    def loss(self, lesson: Lesson, *, updates: int) -> Loss:
        promise_B = self.critic(lesson.instructions).to(lesson.success_B.device)
        taught_BT = self._taught(lesson, promise_B)
        policy = -mean_over(lesson.logp_BT, taught_BT)
        value, missed_BT = outcome_loss(lesson)
        wrong_B = F.binary_cross_entropy_with_logits(promise_B, lesson.success_B, reduction="none")
        instruction = mean_over(wrong_B, lesson.tells_BT.any(1))
        warm = updates >= self._config.critic_warmup_updates
        return loss_of(
            lesson,
            missed_BT,
            policy=policy,
            value=value,
            instruction=instruction,
            entropy=mean_over(lesson.entropy_BT, lesson.mask_BT),
            taught=mean_over(taught_BT.float(), lesson.mask_BT),
            total=self._config.value_weight * (value + instruction) + (policy if warm else 0.0),
        )

    def _taught(self, lesson: Lesson, promise_B: Tensor) -> Tensor:
        """The steps that pass both filters."""
        settings = self._config.digirl
        step_BT = doubly_robust(lesson.course, lesson.success_B, decay=settings.outcome_decay)
        beyond_B = (lesson.success_B - torch.sigmoid(promise_B.detach())) * ~lesson.example_B
        picked_B = largest(beyond_B, settings.top_share) & (beyond_B > 0)
        passed_BT = picked_B[:, None] & (step_BT > settings.step_floor)
        # Examples are there to be imitated: no critic has an opinion on them.
        return lesson.teaches_BT & (passed_BT | lesson.example_B[:, None])


def largest(x_B: Tensor, share: float) -> Tensor:
    """True on the largest `share` of the entries, rounded up, and on whatever equals the least of them."""
    count = ceil(share * len(x_B))
    return x_B >= x_B.topk(count).values[-1] if count else torch.zeros_like(x_B, dtype=torch.bool)

"""DigiRL (arXiv 2406.11896): imitate the steps that were better than expected, of the episodes that surprised.

    L = - mean over the steps that pass both filters ( log pi(a_h|s_h) )
        + k_v mean( cross-entropy( V(s_h), R ) ) + k_v mean( cross-entropy( V_instr(c), R ) )

    step         A_step_h = lambda^(H-h) R + (1 - lambda^(H-h)) (V(s_{h+1}) + r_h - V(s_h))  >  step_floor
    instruction  A_instr  = R - V_instr(c)  among the largest `top_share` of the batch, and above 0

R is the outcome, 0 or 1, of an episode with instruction c and last step H. V is the policy's value head, V_instr a
critic of its own. docs/algorithms/digirl.md says what differs from the paper and why.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import ceil
from zlib import crc32

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from distrl.algorithms.base import Algorithm, AlgorithmContext, Loss, loss_of, outcome_loss
from distrl.algorithms.batch import TrainBatch, mean_over
from distrl.algorithms.targets import doubly_robust
from distrl.config.schema import DigiRLConfig


class DigiRL(Algorithm):
    """Imitation behind two filters, each with a critic."""

    def __init__(self, settings: DigiRLConfig, context: AlgorithmContext) -> None:
        super().__init__(settings, context)
        self._config, self.gamma = settings, settings.gamma
        self.critic = InstructionCritic(seed=context.seed)

    def loss(self, batch: TrainBatch, *, updates: int) -> Loss:
        """Maximum likelihood on the steps that pass both filters, and the losses of both critics."""
        promise_B = self.critic(batch.instructions).to(batch.success_B.device)
        imitated_BT = self._imitated(batch, promise_B)
        policy = -mean_over(batch.logp_BT, imitated_BT)
        value, missed_BT = outcome_loss(batch)
        wrong_B = F.binary_cross_entropy_with_logits(promise_B, batch.success_B, reduction="none")
        instruction = mean_over(wrong_B, batch.outcome_mask_BT.any(1))
        warm = updates >= self._config.critic_warmup_updates
        return loss_of(
            batch,
            missed_BT,
            total=self._config.value_weight * (value + instruction) + (policy if warm else 0.0),
            losses={"policy": policy, "value": value, "instruction": instruction},
            metrics={
                "entropy": mean_over(batch.entropy_BT, batch.mask_BT),
                "imitated_share": mean_over(imitated_BT.float(), batch.mask_BT),
            },
        )

    def _imitated(self, batch: TrainBatch, promise_B: Tensor) -> Tensor:
        """The steps that pass both filters."""
        settings = self._config
        step_BT = doubly_robust(batch.return_inputs, batch.success_B, decay=settings.outcome_decay)
        beyond_B = (batch.success_B - torch.sigmoid(promise_B.detach())) * ~batch.example_B
        picked_B = largest(beyond_B, settings.top_share) & (beyond_B > 0)
        passed_BT = picked_B[:, None] & (step_BT > settings.step_floor)
        # Examples are there to be imitated: no critic has an opinion on them.
        return batch.policy_mask_BT & (passed_BT | batch.example_B[:, None])


def largest(x_B: Tensor, share: float) -> Tensor:
    """True on the largest `share` of the entries, rounded up, and on whatever equals the least of them."""
    count = ceil(share * len(x_B))
    return x_B >= x_B.topk(count).values[-1] if count else torch.zeros_like(x_B, dtype=torch.bool)


# --- the instruction-level critic -------------------------------------------------------------------------------------


ROWS = 4096
WIDTH = 32


class InstructionCritic(nn.Module):
    """A bag of words and a small network over it."""

    def __init__(self, *, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._words = nn.EmbeddingBag(ROWS, WIDTH, mode="mean")
            self._hidden, self._out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
        nn.init.zeros_(self._out.weight)  # at first every instruction is as likely to succeed as to fail
        nn.init.zeros_(self._out.bias)

    def forward(self, instructions: Sequence[str]) -> Tensor:
        """Logit of the chance of success, for each instruction."""
        bags = [rows_of(text) for text in instructions]
        starts = list(accumulate((len(bag) for bag in bags), initial=0))[:-1]
        here = self._out.weight.device
        rows = torch.tensor([row for bag in bags for row in bag], dtype=torch.long).to(here)
        words_BW = self._words(rows, torch.tensor(starts).to(here))
        logit_B: Tensor = self._out(nn.functional.gelu(self._hidden(words_BW))).squeeze(-1)
        return logit_B


@lru_cache(maxsize=16_384)
def rows_of(text: str) -> tuple[int, ...]:
    """The embedding rows of the words of a text."""
    return tuple(crc32(word.encode()) % ROWS for word in re.findall(r"\w+", text.casefold()))

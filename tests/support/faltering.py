"""A policy that fails now and then while it is learnt from."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from itertools import count

import torch
from torch import Tensor

from distrl.config.schema import PointerConfig
from distrl.policies.base import PolicyContext, Scores
from distrl.policies.pointer.features import Encoded
from distrl.policies.pointer.policy import PointerPolicy


class Faltering(PointerPolicy):
    """The smallest pointer; `fail` makes something else of the scores of those passes, counted from 0."""

    def __init__(self, passes: Container[int], fail: Callable[[Scores], Scores]) -> None:
        super().__init__(PointerConfig(width=16, layers=1, word_swap_share=0.0), PolicyContext())
        self._passes, self._fail, self._number = passes, fail, count()

    def score(self, encoded: Sequence[Encoded], choices: Sequence[tuple[int, ...]]) -> Scores:
        scores = super().score(encoded, choices)
        return self._fail(scores) if next(self._number) in self._passes else scores


def out_of_memory(scores: Scores) -> Scores:
    """Scores whose backward pass raises CUDA OOM."""

    def run_out(_gradient_N: Tensor) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    scores.logp_N.register_hook(run_out)
    return scores


def all_nan(scores: Scores) -> Scores:
    """Scores as they come from logits of which one is infinite."""
    nan = float("nan")
    return Scores(logp_N=scores.logp_N * nan, entropy_N=scores.entropy_N * nan, value_logit_N=scores.value_logit_N)

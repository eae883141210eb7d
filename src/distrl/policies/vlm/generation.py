"""Text generation: the `Generate` protocol, which faster implementations share, and the one that works for every model.

An implementation must sample from the distribution that `tokens.token_logp` gives for the same logits, and report the
log-probability it sampled with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec
import torch
from torch import Tensor

from distrl.policies.vlm.network import VlmNetwork
from distrl.policies.vlm.tokens import Answer, Inputs, Vocabulary, entropy_of, token_logp


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How to answer."""

    temperature: float
    """0: the likeliest token, each with its log-probability at temperature 1."""
    answer_tokens: int
    vocabulary: Vocabulary
    generator: torch.Generator
    """On the CPU, wherever the model is."""


class Generated(msgspec.Struct, frozen=True, kw_only=True):
    """The answers to a batch of prompts, all on the CPU."""

    answers: list[Answer]
    """With the end token, where it came in time."""
    logp_B: Tensor
    entropy_B: Tensor
    value_logit_B: Tensor
    finite_B: Tensor
    """False where the model gave NaN: the answer then means nothing."""


class Generate(Protocol):
    """Answers a batch of prompts, which are padded on the left."""

    def __call__(self, network: VlmNetwork, inputs: Inputs, sampling: Sampling) -> Generated: ...


def generate(network: VlmNetwork, inputs: Inputs, sampling: Sampling) -> Generated:
    """Answers by transformers' own loop, which knows the cache and the positions of every model.

    The loop runs greedily over logits that `Sampler` has reduced to the sampled token.
    """
    from transformers import GenerationConfig, LogitsProcessorList

    vocabulary = sampling.vocabulary
    settings = GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=sampling.answer_tokens,
        do_sample=False,
        use_cache=True,
        eos_token_id=list(vocabulary.ends),
        pad_token_id=vocabulary.padding,
    )
    sampler = Sampler(lambda: network.value(network.last_hidden()[:, -1]), sampling)
    network.model.generate(**inputs, generation_config=settings, logits_processor=LogitsProcessorList([sampler]))
    return sampler.answered()


class Sampler:
    """A logits processor: draws each next token, records its log-probability and entropy, and forces the loop to take it.

    `value` is called once, right after the prompts went through the model.
    """

    def __init__(self, value: Callable[[], Tensor], sampling: Sampling) -> None:
        self._value, self._sampling = value, sampling
        self._columns: list[tuple[Tensor, Tensor, Tensor]] = []
        self._open_B = self._finite_B = self._value_B = torch.empty(0)
        self._never = torch.empty(0, dtype=torch.long)

    def __call__(self, input_ids: Any, scores: Tensor) -> Tensor:
        if not self._columns:
            self._begin(scores)
        logp_BV = token_logp(scores, self._never, self._sampling.temperature or 1.0)
        finite_B = ~logp_BV.isnan().any(-1)
        self._finite_B = self._finite_B & (finite_B | ~self._open_B)
        # A row with NaN ends here.
        token_B = torch.where(finite_B, self._draw(logp_BV.nan_to_num()), self._sampling.vocabulary.ends[0])
        chosen_B = logp_BV.gather(1, token_B[:, None]).squeeze(1)
        masked_B = ~self._open_B | ~finite_B
        said_B = token_B.where(self._open_B, torch.full_like(token_B, -1))
        entropy_B = entropy_of(logp_BV).masked_fill(masked_B, 0.0)
        self._columns.append((said_B, chosen_B.masked_fill(masked_B, 0.0), entropy_B))
        ends = torch.tensor(self._sampling.vocabulary.ends, device=token_B.device)
        self._open_B = self._open_B & ~torch.isin(token_B, ends)
        return torch.full_like(scores, float("-inf")).scatter(1, token_B[:, None], 0.0)

    @property
    def is_over(self) -> bool:
        """Whether every answer has ended."""
        return bool(self._columns) and not bool(self._open_B.any())

    def _begin(self, scores: Tensor) -> None:
        self._open_B = torch.ones(len(scores), dtype=torch.bool, device=scores.device)
        self._never = self._sampling.vocabulary.never(scores.device)
        self._value_B = self._value()
        self._finite_B = self._value_B.isfinite()

    def _draw(self, logp_BV: Tensor) -> Tensor:
        if self._sampling.temperature == 0:
            return logp_BV.argmax(-1)
        # One number per row from the CPU's generator, looked up in the cumulative distribution: the same draw on
        # every device, and exact enough in float64 for any vocabulary.
        total_BV = logp_BV.double().exp().cumsum(-1)
        share_B1 = torch.rand(len(logp_BV), 1, dtype=torch.float64, generator=self._sampling.generator)
        wanted_B1 = share_B1.to(total_BV.device) * total_BV[:, -1:]
        return torch.searchsorted(total_BV, wanted_B1, right=True).squeeze(1).clamp(max=logp_BV.shape[-1] - 1)

    def answered(self) -> Generated:
        """The sampled answers."""
        token_BA, logp_BA, entropy_BA = (
            torch.stack(column, dim=1).cpu() for column in zip(*self._columns, strict=True)
        )
        return Generated(
            answers=[tuple(token for token in row if token >= 0) for row in token_BA.tolist()],
            logp_B=logp_BA.sum(1),
            entropy_B=entropy_BA.sum(1),
            value_logit_B=self._value_B.float().cpu(),
            finite_B=self._finite_B.cpu(),
        )

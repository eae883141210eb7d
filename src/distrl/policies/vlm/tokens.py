"""Answers as tokens: allowed tokens, log-probability, entropy, and padding for a batch.

A log-probability is that of the whole answer, its end token included: the sum over its tokens. So is the entropy: at
each token it is exact over the vocabulary, and the sum along a sampled answer is an unbiased estimate of the entropy
over all answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.nn import functional as F

from distrl.policies.vlm.image_processor import UnpaddedInputs
from distrl.policies.vlm.loading import Model

Answer = tuple[int, ...]
Inputs = dict[str, Tensor]
"""Named inputs of a model, one row per prompt; the images of all rows lie in tensors of their own."""

DRAW_BLOCK = 128
"""Tokens whose probabilities are summed before a draw looks for its own among them."""
NEVER = -1e9
"""Logit of a forbidden token: probability 0, without the NaN gradients that infinity would give."""


class Vocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """The special tokens of a model: those that end an answer, and those that no answer may hold."""

    ends: tuple[int, ...]
    """The first is the one that is trained."""
    padding: int
    forbidden: tuple[int, ...]
    """Placeholders of images and videos: an answer with one of them could not be scored again."""

    def never(self, device: torch.device) -> Tensor:
        """The forbidden tokens, for `token_logp`."""
        return torch.tensor(self.forbidden, dtype=torch.long, device=device)


def vocabulary_of(model: Model) -> Vocabulary:
    """The special tokens of a model."""
    tokenizer, config = model.tokenizer, model.config
    network: Any = model.network
    also = network.generation_config.eos_token_id
    ends = [tokenizer.eos_token_id, *(also if isinstance(also, list) else [] if also is None else [also])]
    names = [
        f"{what}_token_{how}" for what in ("image", "video", "vision_start", "vision_end") for how in ("id", "index")
    ]
    specials = {getattr(config, name, None) for name in names}
    forbidden = {token for token in specials if token is not None and token not in ends}
    padding = ends[0] if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    return Vocabulary(ends=tuple(dict.fromkeys(ends)), padding=padding, forbidden=tuple(sorted(forbidden)))


def token_logp(logits: Tensor, never_X: Tensor, temperature: float | Tensor = 1.0) -> Tensor:
    """The log-probability of each token (last dimension), in float32; the tokens `never_X` have probability 0."""
    return torch.log_softmax((logits.float() / temperature).index_fill(-1, never_X, NEVER), dim=-1)


def entropy_of(logp: Tensor) -> Tensor:
    """The entropy over the last dimension."""
    return -(logp.exp() * logp).sum(-1)


def draw(logp_BV: Tensor, share_B: Tensor) -> Tensor:
    """The token of each row at `share_B` of its cumulative distribution, in float64: exact enough for any vocabulary."""
    missing = -logp_BV.shape[1] % DRAW_BLOCK
    p_BKX = F.pad(logp_BV.exp(), (0, missing)).view(len(logp_BV), -1, DRAW_BLOCK)
    before_BK = p_BKX.sum(-1, dtype=torch.float64).cumsum(-1)
    wanted_B1 = share_B[:, None] * before_BK[:, -1:]
    block_B1 = torch.searchsorted(before_BK, wanted_B1, right=True).clamp(max=before_BK.shape[1] - 1)
    inside_BX = p_BKX.gather(1, block_B1[..., None].expand(-1, -1, DRAW_BLOCK))[:, 0].double().cumsum(-1)
    earlier_B1 = before_BK.gather(1, (block_B1 - 1).clamp(min=0)).where(block_B1 > 0, torch.zeros_like(wanted_B1))
    place_B1 = torch.searchsorted(inside_BX, wanted_B1 - earlier_B1, right=True).clamp(max=DRAW_BLOCK - 1)
    return (block_B1 * DRAW_BLOCK + place_B1)[:, 0].clamp(max=logp_BV.shape[1] - 1)


def on_device(inputs: Inputs, device: torch.device, floats: torch.dtype) -> Inputs:
    """The same inputs on a device, floats in the given dtype."""
    return {name: value.to(device, floats if value.is_floating_point() else None) for name, value in inputs.items()}


def pack_rows(prompts: Sequence[Sequence[int]], answers: Sequence[Answer], padding: int) -> tuple[Inputs, Tensor]:
    """Rows of prompt and answer, padded on the right, and the position of each prompt's last token.

    Attention is causal, so the padding needs no mask.
    """
    rows = [(*prompt, *answer) for prompt, answer in zip(prompts, answers, strict=True)]
    length_B = torch.tensor([len(row) for row in rows])
    ids_BL = torch.full((len(rows), int(length_B.max())), padding)
    ids_BL[torch.arange(ids_BL.shape[1]) < length_B[:, None]] = torch.tensor(list(chain.from_iterable(rows)))
    return {"input_ids": ids_BL}, torch.tensor([len(prompt) - 1 for prompt in prompts])


def pad(reading: UnpaddedInputs, answers: Sequence[Answer], padding: int) -> Inputs:
    """Prompts padded on the left and answers on the right, so that every answer begins in the same column."""
    prompt = max(map(len, reading.ids))
    answer = max(map(len, answers), default=0)

    def table(rows: Sequence[Sequence[int]], tails: Sequence[Answer], filling: int) -> Tensor:
        filled = [
            [filling] * (prompt - len(row)) + [*row, *tail] + [filling] * (answer - len(tail))
            for row, tail in zip(rows, tails, strict=True)
        ]
        return torch.tensor(filled)

    zeros = [(0,) * len(tail) for tail in answers]
    here = table([[1] * len(row) for row in reading.ids], [(1,) * len(tail) for tail in answers], 0)
    numbered = {name: table(rows, zeros, 0) for name, rows in reading.per_token.items()}
    ids = table(reading.ids, answers, padding)
    return {"input_ids": ids, "attention_mask": here, **numbered, **reading.images}

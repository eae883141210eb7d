"""How a batch of what the pixel policy has read becomes tensors. Suffixes as in features.py, and B batch."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distrl.policies.pixel.features import NO_TINT, Encoded


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What is read besides the pictures; `word_mask_BI` is true where a word stands."""

    byte_BL: Tensor
    word_BL: Tensor
    first_BI: Tensor
    last_BI: Tensor
    word_mask_BI: Tensor
    past_BPC: Tensor
    tint_BC: Tensor


def collate(items: Sequence[Encoded], device: torch.device) -> Batch:
    """A batch on `device`. Where an instruction has no word, an empty one stands for it."""
    texts = [item.text for item in items]
    most = max(1, max(text.num_words for text in texts))
    spans_BIC = np.zeros((len(items), most, 3), np.int16)
    for row, text in enumerate(texts):
        spans_BIC[row, : text.num_words, 0], spans_BIC[row, : text.num_words, 1] = text.first_I, text.last_I
        spans_BIC[row, : max(1, text.num_words), 2] = 1
    # Few transfers: each of them costs more than what it carries.
    text_BCL = _send(np.stack([np.stack([text.byte_L, text.word_L]) for text in texts]), device).long()
    spans = _send(spans_BIC, device).long()
    return Batch(
        byte_BL=text_BCL[:, 0],
        word_BL=text_BCL[:, 1],
        first_BI=spans[..., 0],
        last_BI=spans[..., 1],
        word_mask_BI=spans[..., 2] > 0,
        past_BPC=_send(np.stack([item.past_PC for item in items]), device).long(),
        tint_BC=_send(np.stack([NO_TINT if item.tint_C is None else item.tint_C for item in items]), device),
    )


def _send(array: NDArray[np.generic], device: torch.device) -> Tensor:
    # Without waiting: a GPU that is asked to wait here finishes all its work first.
    return torch.from_numpy(array).to(device, non_blocking=True)

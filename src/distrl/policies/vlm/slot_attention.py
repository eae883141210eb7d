"""Attention of new tokens to what a cache of slots holds: one kernel for prompts and for single tokens, without padding.

A slot is a stretch of the cache for one sequence. The new tokens of several sequences lie one after the other; their own
keys and values are in the slots already. Suffixes: S sequences, N new tokens, H heads, W width of a head, P places.
"""

from __future__ import annotations

from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.nn import functional as F

NO_DROPOUT = 0.0


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """Which places of the cache the new tokens of each sequence attend to: all before them, and their own."""

    bounds: Tensor
    """Where the new tokens of each sequence begin, and the end of the last; [S + 1], int32."""
    start: Tensor
    """The first place of each sequence's slot; [S + 1], int32, of which the last means nothing."""
    used_S: Tensor
    """Places of each slot that are filled, those of the new tokens included; int32."""
    most_new: int
    """New tokens of one sequence, at most."""
    places: int
    """Of a slot."""


def has_kernel(tensor: Tensor) -> bool:
    """Whether there is a kernel for such numbers, on that device."""
    return tensor.is_cuda and tensor.dtype in (torch.bfloat16, torch.float16)


def attend_slots(query_NHW: Tensor, keys_PHW: Tensor, values_PHW: Tensor, reach: Reach, scale: float) -> Tensor:
    """What the new tokens take from the cache, [N, H, W]."""
    if has_kernel(query_NHW):
        kernel: Any = torch.ops.aten._flash_attention_forward
        mixed: Tensor = kernel(
            query_NHW, keys_PHW, values_PHW, reach.bounds, reach.start, reach.most_new, reach.places,
            NO_DROPOUT, reach.most_new > 1, False, scale=scale, seqused_k=reach.used_S,
        )[0]  # fmt: skip
        return mixed
    return _attend_padded(query_NHW, keys_PHW, values_PHW, reach, scale)


def _attend_padded(query_NHW: Tensor, keys_PHW: Tensor, values_PHW: Tensor, reach: Reach, scale: float) -> Tensor:
    """The same with every sequence padded to the longest: for numbers that the kernel does not take."""
    device, shared = query_NHW.device, query_NHW.shape[1] // keys_PHW.shape[1]
    place_SL = reach.start[:-1, None] + torch.arange(reach.places, device=device)
    # Nobody attends to what an earlier sequence left in the slot, but NaN there would spoil the sums even so.
    stale_SL11 = (torch.arange(reach.places, device=device) >= reach.used_S[:, None])[..., None, None]
    keys, values = (
        x_PHW[place_SL].masked_fill(stale_SL11, 0.0).repeat_interleave(shared, 2).transpose(1, 2)
        for x_PHW in (keys_PHW, values_PHW)
    )
    new_S = reach.bounds[1:] - reach.bounds[:-1]
    order_Q = torch.arange(reach.most_new, device=device)
    row_SQ = (reach.bounds[:-1, None] + order_Q).clamp(max=len(query_NHW) - 1)
    last_SQ = reach.used_S[:, None] - new_S[:, None] + order_Q
    seen_S1QL = (torch.arange(reach.places, device=device) <= last_SQ[..., None])[:, None]
    query = query_NHW[row_SQ].transpose(1, 2)
    mixed_SQHW = F.scaled_dot_product_attention(query, keys, values, attn_mask=seen_S1QL, scale=scale).transpose(1, 2)
    if reach.most_new == 1:  # every sequence has exactly one: nothing to leave out, and nothing to wait for
        return mixed_SQHW[:, 0]
    return mixed_SQHW[order_Q < new_S[:, None]]

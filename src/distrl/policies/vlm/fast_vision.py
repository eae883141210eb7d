"""The vision tower of Qwen-VL models without its loop over windows: the same numbers, far fewer kernels.

The stock tower attends to each window of each picture in a call of its own, thousands a forward, and the GPU waits for
Python most of the time. Here all windows of a layer go into one call: a variable-length kernel on CUDA, one padded
batch elsewhere. The patch embedding, a convolution whose stride is its kernel, becomes the equal matrix product.
"""

from __future__ import annotations

import sys
from functools import cache
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def speed_up_vision(model: nn.Module) -> int:
    """Give every windowed attention and patch embedding under `model` its fast form; how many there were."""
    lengths = Lengths()
    changed = 0
    for module in model.modules():
        if is_packed_attention(module):
            module.forward = MethodType(_attend_with(lengths), module)
            changed += 1
        elif _is_patch_embedding(module):
            module.forward = MethodType(_embed_patches, module)
            changed += 1
    return changed


class Lengths:
    """Figures about packed sequences that would cost a wait for the GPU in every layer, kept from the layer before."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Tensor, int]] = {}

    def longest(self, bounds_W: Tensor) -> int:
        """The longest sequence between `bounds_W`."""
        held = self._held.get(id(bounds_W))
        if held is None or held[0] is not bounds_W:
            if len(self._held) > 8:
                self._held.clear()
            held = bounds_W, int((bounds_W[1:] - bounds_W[:-1]).max())
            self._held[id(bounds_W)] = held
        return held[1]


def is_packed_attention(module: nn.Module) -> bool:
    """Qwen2-VL, Qwen2.5-VL and Qwen3-VL call theirs alike: one product for query, key and value, one head size."""
    return type(module).__name__.endswith("VisionAttention") and hasattr(module, "qkv") and hasattr(module, "proj")


def _is_patch_embedding(module: nn.Module) -> bool:
    conv = getattr(module, "proj", None)
    return isinstance(conv, nn.Conv3d) and conv.stride == conv.kernel_size and not any(conv.padding)


def _attend_with(lengths: Lengths) -> Any:
    def forward(
        self: Any,
        hidden_states: Tensor,
        cu_seqlens: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        **_: Any,
    ) -> Tensor:
        rotate = _rotation(type(self).__module__, hidden_states.is_cuda)
        qkv_3NHD = self.qkv(hidden_states).view(len(hidden_states), 3, self.num_heads, -1).transpose(0, 1)
        query_NHD, key_NHD = rotate(qkv_3NHD[0], qkv_3NHD[1], *position_embeddings)
        mixed_NHD = attend_packed(query_NHD, key_NHD, qkv_3NHD[2], cu_seqlens, lengths.longest(cu_seqlens))
        out: Tensor = self.proj(mixed_NHD.reshape(len(hidden_states), -1))
        return out

    return forward


@cache
def _rotation(module: str, joined: bool) -> Any:
    """The tower's own rotation of queries and keys; compiled into one kernel on CUDA."""
    rotate = sys.modules[module].apply_rotary_pos_emb_vision
    return torch.compile(rotate, dynamic=True) if joined else rotate


def attend_packed(query_NHD: Tensor, key_NHD: Tensor, value_NHD: Tensor, bounds_W: Tensor, longest: int) -> Tensor:
    """Attention inside each of the sequences that lie one after the other in N, cut at `bounds_W`."""
    if query_NHD.is_cuda and query_NHD.dtype in (torch.bfloat16, torch.float16):
        from torch.nn.attention.varlen import varlen_attn

        cuts = bounds_W.int()
        mixed = varlen_attn(query_NHD, key_NHD, value_NHD.contiguous(), cuts, cuts, longest, longest)
        assert isinstance(mixed, Tensor)
        return mixed
    return _attend_padded(query_NHD, key_NHD, value_NHD, bounds_W, longest)


def _attend_padded(query_NHD: Tensor, key_NHD: Tensor, value_NHD: Tensor, bounds_W: Tensor, longest: int) -> Tensor:
    size_W = bounds_W[1:] - bounds_W[:-1]
    place_L = torch.arange(longest, device=bounds_W.device)
    here_WL = place_L < size_W[:, None]
    row_WL = (bounds_W[:-1, None] + place_L).clamp(max=len(query_NHD) - 1)
    query, key, value = (x_NHD[row_WL].transpose(1, 2) for x_NHD in (query_NHD, key_NHD, value_NHD))
    mixed_WHLD = F.scaled_dot_product_attention(query, key, value, attn_mask=here_WL[:, None, None, :])
    return mixed_WHLD.transpose(1, 2)[here_WL]


def _embed_patches(self: Any, hidden_states: Tensor) -> Tensor:
    weight = self.proj.weight.flatten(1)
    flat = hidden_states.reshape(-1, weight.shape[1]).to(weight.dtype)
    return F.linear(flat, weight, self.proj.bias)

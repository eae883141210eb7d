"""Attention of packed sequences inside a transformers model, under gradient."""

from __future__ import annotations

from types import MethodType
from typing import Any

from torch import Tensor

from distrl.policies.vlm.fast_layers import attend_packed
from distrl.policies.vlm.fast_text import computes, text_of
from distrl.policies.vlm.rows import rotate_packed

GROUPED = "distrl_grouped"
"""Its name among transformers' kinds of attention."""


def use_grouped_attention(config: Any) -> None:
    """Make the language model under `config` use the grouped attention."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(GROUPED, attend_grouped)
    AttentionMaskInterface.register(GROUPED, sdpa_mask)
    config._attn_implementation = GROUPED


def attend_grouped(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **rest: Any
) -> tuple[Tensor, None]:
    """Attention for packed sequences; others go the usual way."""
    bounds_W = rest.get("cu_seq_lens_q")
    if bounds_W is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        mixed, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **rest)
        return mixed, None
    query_NHD, key_NHD, value_NHD = (x_1HND[0].transpose(0, 1) for x_1HND in (query, key, value))
    mixed_NHD = attend_packed(query_NHD, key_NHD, value_NHD, bounds_W, rest["max_length_q"], causal=True)
    return mixed_NHD[None], None


def fuse_attention(model: Any) -> None:
    """Give the language model's attention its form for packed sequences: rotation in one kernel, no heads moved around."""
    text = text_of(model)
    use_grouped_attention(text.config)
    if computes(model):
        for layer in text.layers:
            layer.self_attn.forward = MethodType(_attend, layer.self_attn)


def _attend(self: Any, hidden_states: Tensor, **given: Any) -> tuple[Tensor, Tensor | None]:
    bounds = given.get("cu_seq_lens_q")
    if bounds is None:
        usual: tuple[Tensor, Tensor | None] = type(self).forward(self, hidden_states, **given)
        return usual
    cos_1NW, sin_1NW = given["position_embeddings"]
    x_ND, rotation = hidden_states[0], (cos_1NW[0], sin_1NW[0])
    query, key, value = (
        layer(x_ND).unflatten(-1, (-1, self.head_dim)) for layer in (self.q_proj, self.k_proj, self.v_proj)
    )
    if hasattr(self, "q_norm"):
        query, key = self.q_norm(query), self.k_norm(key)
    query, key = rotate_packed(query, rotation), rotate_packed(key, rotation)
    mixed = attend_packed(query, key, value, bounds, given["max_length_q"], causal=True)
    return self.o_proj(mixed.flatten(1))[None], None

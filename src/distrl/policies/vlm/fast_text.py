"""The forward pass of a language model over new tokens whose past is in a cache of slots: for decisions, without gradient.

It computes what transformers computes, with a few kernels for each layer: `rows` between the products, `FusedLinear`
for those that read the same input, `slot_attention` for everything before. Suffixes as in `rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import torch
from torch import Tensor

from distrl.policies.vlm.rows import FusedLinear, HeadNorms, Rows, Stored, add_norm, gate, rotate, rows_of

FAMILIES = frozenset(
    {"llama", "mistral", "qwen2", "qwen3", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text"}
)  # fmt: skip
"""Language models, by their `model_type`, whose layers are the ones computed here."""
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Attention of queries to the keys and values of a layer's cache."""


def text_of(base: Any) -> Any:
    """The language model inside `base`."""
    return getattr(base.model, "language_model", base.model)


class KeyValues:
    """A cache of keys and values: slots of one size, one after the other, for every layer."""

    def __init__(self, base: Any, *, slots: int, places: int) -> None:
        text = text_of(base).config
        weight = base.lm_head.weight
        width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        shape = (text.num_hidden_layers, slots * places, text.num_key_value_heads, width)
        # Zeros: what is masked is not attended to, but NaN there would spoil the sums even so.
        self.keys, self.values = weight.new_zeros(shape), weight.new_zeros(shape)
        self.slots, self.places = slots, places

    def share(self, length: int, source: int) -> None:
        """Copy the first places of one slot to all slots."""
        for held in (self.keys, self.values):
            by_slot = held.unflatten(1, (self.slots, self.places))
            by_slot[:, :, :length] = by_slot[:, source : source + 1, :length].clone()


class Stacked(msgspec.Struct, frozen=True, kw_only=True):
    """What Qwen3-VL adds to the tokens of images after the first layers."""

    here_N: Tensor
    layers: Sequence[Tensor]


class FastText:
    """The layers of the language model in `base`, whose weights it shares."""

    def __init__(self, base: Any, *, fp8: bool = False) -> None:
        language = text_of(base)
        attention = language.layers[0].self_attn
        self._language, self._norm = language, language.norm
        self._layers = [_Layer(layer, fp8) for layer in language.layers]
        config = language.config
        self.heads = (config.num_attention_heads, config.num_key_value_heads)
        self.scale: float = attention.scaling
        self.num_axes = 3 if hasattr(base.model, "get_rope_index") else 0
        """Of a token's position; 0: a plain number."""

    def refresh(self) -> None:
        """Take the present adapters."""
        for layer in self._layers:
            layer.refresh()

    @property
    def apart(self) -> bool:
        """Whether adapters act beside the weights."""
        return self._layers[0].apart

    def embed(self, ids_N: Tensor) -> Tensor:
        """The embeddings of tokens."""
        found: Tensor = self._language.embed_tokens(ids_N)
        return found

    def __call__(
        self,
        embedded_ND: Tensor,
        positions: Tensor,
        cache: KeyValues,
        place_N: Tensor,
        attend: Attend,
        stacked: Stacked | None = None,
    ) -> Tensor:
        """The last hidden state of each token, whose keys and values go to `place_N` of the cache. The embeddings are overwritten."""
        h_ND, delta_ND = embedded_ND, None
        wanted = positions[:, None] if self.num_axes else positions[None]
        rotation = tuple(part[0] for part in self._language.rotary_emb(embedded_ND[None], wanted))
        for number, layer in enumerate(self._layers):
            stored = Stored(keys=cache.keys[number], values=cache.values[number], place_N=place_N)
            x = add_norm(h_ND, delta_ND, layer.first_norm, quantized=layer.qkv.quantizes(len(h_ND)))
            query_NHW = rotate(
                layer.qkv(x), (rotation[0], rotation[1]), self.heads, norms=layer.head_norms, stored=stored
            )
            mixed_NE = attend(query_NHW, stored.keys, stored.values).flatten(1)
            out_ND = layer.out(rows_of(mixed_NE, quantized=layer.out.quantizes(len(h_ND))))
            delta_ND = layer.mlp(add_norm(h_ND, out_ND, layer.second_norm, quantized=layer.opened.quantizes(len(h_ND))))
            if stacked is not None and number < len(stacked.layers):
                h_ND.add_(delta_ND)
                h_ND[stacked.here_N] += stacked.layers[number].to(h_ND.dtype)
                delta_ND = None
        return add_norm(h_ND, delta_ND, self._norm).plain


class _Layer:
    """One layer of the language model."""

    def __init__(self, layer: Any, fp8: bool) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.first_norm, self.second_norm = layer.input_layernorm, layer.post_attention_layernorm
        self.qkv = FusedLinear(attention.q_proj, attention.k_proj, attention.v_proj, fp8=fp8)
        self.out = FusedLinear(attention.o_proj, fp8=fp8)
        # 22,016 x 2,048 weights for one token: 26 us in bfloat16 and 17 in float8; the other products gain nothing.
        self.opened = FusedLinear(mlp.gate_proj, mlp.up_proj, fp8=fp8, small_batches=True)
        self.down = FusedLinear(mlp.down_proj, fp8=fp8)
        norm = getattr(attention, "q_norm", None)
        self.head_norms = None if norm is None else _head_norms(attention)

    @property
    def apart(self) -> bool:
        return any(part.apart for part in self._parts)

    @property
    def _parts(self) -> tuple[FusedLinear, ...]:
        return self.qkv, self.out, self.opened, self.down

    def refresh(self) -> None:
        for part in self._parts:
            part.refresh()

    def mlp(self, x: Rows) -> Tensor:
        both = self.opened(x)
        return self.down(gate(both, quantized=self.down.quantizes(len(both)), keep=self.down.apart))


def _head_norms(attention: Any) -> HeadNorms:
    query, key = attention.q_norm, attention.k_norm
    return HeadNorms(query_W=query.weight, key_W=key.weight, eps=query.variance_epsilon)


def computes(base: Any) -> bool:
    """Whether the layers of `base` are the ones computed here."""
    config = text_of(base).config
    return config.model_type in FAMILIES and "silu" in str(getattr(config, "hidden_act", "")).lower()


def lora_versions(network: torch.nn.Module) -> tuple[int, ...]:
    """A number for each trained tensor, which changes when the tensor does."""
    return tuple(weights._version for weights in network.parameters() if weights.requires_grad)

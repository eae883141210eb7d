"""Fused forward passes for transformers models: the same numbers up to rounding, fewer kernels and passes over memory.

Norms, MLPs and adapted layers: stock norms take six passes over their input and stock gates two; here one fused kernel
does each. An adapter is added to its layer by the product that computes it. MLPs without an adapter whose inner width
is no multiple of 8 (3,420 in Qwen2.5-VL's vision tower) are zero-padded for the product, since matrix kernels for such
widths run at a fraction of the chip's rate; the weights themselves stay as they are.

The vision tower of Qwen-VL: the stock tower attends to each window of each image in a call of its own, thousands a
forward, and the GPU waits for Python most of the time. Here all windows of a layer go into one call: a variable-length
kernel on CUDA, one padded batch elsewhere. The patch embedding, a convolution whose stride is its kernel, becomes the
equal matrix product.
"""

from __future__ import annotations

import sys
from functools import cache
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from distrl.policies.vlm.adapters import ADAPTER

WIDTH_STEP = 64
"""Inner widths are padded to a multiple of this."""
KERNELS = 64
"""How many variants of the fused gate a process may compile; beyond that it computes them in two steps."""


def fuse_layers(model: nn.Module) -> int:
    """Give every norm and gated MLP under `model` its fused form; how many there were."""
    changed = 0
    for module in model.modules():
        fused = _fused_form(module)
        if fused is not None:
            module.forward = MethodType(fused, module)
            changed += 1
    return changed


def restore_layers(model: nn.Module) -> None:
    """Give every module under `model` the forward of its class again."""
    for module in model.modules():
        module.__dict__.pop("forward", None)


def _fused_form(module: nn.Module) -> Any:
    if _is_adapted(module):
        return _adapted_linear
    if type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon"):
        return _norm
    gated = all(hasattr(module, name) for name in ("gate_proj", "up_proj", "down_proj", "act_fn"))
    if not (gated and "silu" in type(module.act_fn).__name__.lower()):
        return None
    plain = all(type(getattr(module, name)) is nn.Linear for name in ("gate_proj", "up_proj", "down_proj"))
    return _padded_mlp if plain and module.gate_proj.out_features % 8 else _gated_mlp  # type: ignore[operator,union-attr]


def _is_adapted(module: Any) -> bool:
    """Whether this is a linear layer with one plain adapter, of peft."""
    adapters = getattr(module, "lora_A", None)
    return adapters is not None and list(adapters) == [ADAPTER] and type(module.base_layer) is nn.Linear


def _adapted_linear(self: Any, x: Tensor) -> Tensor:
    """The layer and its adapter in the numbers of `x`, where peft would leave them for float32 and come back."""
    layer = self.base_layer
    if self.merged or self.disable_adapters:
        plain: Tensor = layer(x)
        return plain
    down_RD, up_ER = (part[ADAPTER].weight.to(x.dtype) for part in (self.lora_A, self.lora_B))
    x_ND = x.flatten(0, -2)
    if layer.weight.requires_grad:
        out_NE = torch.addmm(layer(x_ND), F.linear(x_ND, down_RD), up_ER.T, alpha=self.scaling[ADAPTER])
    else:
        out_NE = _AdaptedLinear.apply(x_ND, layer.weight, layer.bias, down_RD, up_ER, self.scaling[ADAPTER])  # type: ignore[no-untyped-call]
    return out_NE.view(*x.shape[:-1], -1)


class _AdaptedLinear(torch.autograd.Function):
    """x W' + b + s (x A') B' for a frozen W and b: the adapter is added in place, in both directions."""

    @staticmethod
    def forward(
        ctx: Any, x_ND: Tensor, weight_ED: Tensor, bias_E: Tensor | None, down_RD: Tensor, up_ER: Tensor, scale: float
    ) -> Tensor:
        low_NR = x_ND @ down_RD.T
        ctx.save_for_backward(x_ND, weight_ED, down_RD, up_ER, low_NR)
        ctx.scale = scale
        return F.linear(x_ND, weight_ED, bias_E).addmm_(low_NR, up_ER.T, alpha=scale)

    @staticmethod
    def backward(ctx: Any, grad_NE: Tensor) -> Any:
        x_ND, weight_ED, down_RD, up_ER, low_NR = ctx.saved_tensors
        low_grad_NR = (grad_NE @ up_ER).mul_(ctx.scale)
        x_grad_ND = (grad_NE @ weight_ED).addmm_(low_grad_NR, down_RD) if ctx.needs_input_grad[0] else None
        return x_grad_ND, None, None, low_grad_NR.T @ x_ND, (grad_NE.T @ low_NR).mul_(ctx.scale), None


def _norm(self: Any, hidden_states: Tensor) -> Tensor:
    return F.rms_norm(hidden_states, self.weight.shape, self.weight, self.variance_epsilon)


def _gated_mlp(self: Any, x: Tensor) -> Tensor:
    out: Tensor = self.down_proj(_gate(self.gate_proj(x), self.up_proj(x)))
    return out


def _padded_mlp(self: Any, x: Tensor) -> Tensor:
    gate, up, down = self.gate_proj, self.up_proj, self.down_proj
    missing = -gate.out_features % WIDTH_STEP
    weight = torch.cat([_taller(gate.weight, missing), _taller(up.weight, missing)])
    bias = None if gate.bias is None else torch.cat([F.pad(gate.bias, (0, missing)), F.pad(up.bias, (0, missing))])
    gated = _gate(*F.linear(x, weight, bias).chunk(2, dim=-1))
    return F.linear(gated, F.pad(down.weight, (0, missing)), down.bias)


def _taller(weight: Tensor, rows: int) -> Tensor:
    return F.pad(weight, (0, 0, 0, rows))


def _gate(gate: Tensor, up: Tensor) -> Tensor:
    return _compiled_gate()(gate, up) if gate.is_cuda else _plain_gate(gate, up)


def _plain_gate(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


@cache
def _compiled_gate() -> Any:
    # One kernel for each kind of numbers, of layout and of gradients: more than the compiler makes of one function by itself.
    torch._dynamo.config.recompile_limit = max(KERNELS, torch._dynamo.config.recompile_limit)
    return torch.compile(_plain_gate, dynamic=True)


# The vision tower of Qwen-VL.


def fuse_vision(model: nn.Module) -> int:
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
    """Longest length of packed sequences, kept from layer to layer: reading it from the GPU costs a synchronisation."""

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
def _rotation(module: str, compiled: bool) -> Any:
    """The tower's own rotation of queries and keys; compiled into one kernel on CUDA."""
    rotate = sys.modules[module].apply_rotary_pos_emb_vision
    return torch.compile(rotate, dynamic=True) if compiled else rotate


def attend_packed(
    query_NHD: Tensor, key_NHD: Tensor, value_NHD: Tensor, bounds_W: Tensor, longest: int, *, causal: bool = False
) -> Tensor:
    """Attention inside each of the sequences that lie one after the other in N, cut at `bounds_W`; under gradient too.

    Keys and values may have fewer heads than queries, each shared by as many of them.
    """
    if query_NHD.is_cuda and query_NHD.dtype in (torch.bfloat16, torch.float16):
        cuts, kernel = bounds_W.int(), torch.ops.aten._flash_attention_forward
        mixed: Tensor = kernel(query_NHD, key_NHD, value_NHD, cuts, cuts, longest, longest, 0.0, causal, False)[0]
        return mixed
    shared = query_NHD.shape[1] // key_NHD.shape[1]
    key_NHD, value_NHD = (x_NHD.repeat_interleave(shared, 1) for x_NHD in (key_NHD, value_NHD))
    return _attend_padded(query_NHD, key_NHD, value_NHD, bounds_W, longest, causal)


def _attend_padded(
    query_NHD: Tensor, key_NHD: Tensor, value_NHD: Tensor, bounds_W: Tensor, longest: int, causal: bool
) -> Tensor:
    size_W = bounds_W[1:] - bounds_W[:-1]
    place_L = torch.arange(longest, device=bounds_W.device)
    here_WL = place_L < size_W[:, None]
    row_WL = (bounds_W[:-1, None] + place_L).clamp(max=len(query_NHD) - 1)
    query, key, value = (x_NHD[row_WL].transpose(1, 2) for x_NHD in (query_NHD, key_NHD, value_NHD))
    seen = here_WL[:, None, None, :]
    if causal:
        seen = seen & (place_L <= place_L[:, None])
    mixed_WHLD = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
    return mixed_WHLD.transpose(1, 2)[here_WL]


def _embed_patches(self: Any, hidden_states: Tensor) -> Tensor:
    weight = self.proj.weight.flatten(1)
    flat = hidden_states.reshape(-1, weight.shape[1]).to(weight.dtype)
    return F.linear(flat, weight, self.proj.bias)

"""What happens to each token between the products of a transformer, as a few fused operations: without gradient.

On a GPU each is one Triton kernel, which reads and writes memory once; elsewhere the same in plain PyTorch. Suffixes: N
tokens, D width, I inner width of an MLP, W width of a head, E heads times their width.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.nn import functional as F


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """Activations, in float8 beside or instead of their own numbers where a product wants that."""

    x: Tensor | None
    small: Tensor | None = None
    scale_N1: Tensor | None = None

    @property
    def plain(self) -> Tensor:
        """In their own numbers."""
        assert self.x is not None
        return self.x


class HeadNorms(msgspec.Struct, frozen=True, kw_only=True):
    """RMS norms of each query and each key, as Qwen3 has them."""

    query_W: Tensor
    key_W: Tensor
    eps: float


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """Where keys and values go: row `place_N` of each."""

    keys: Tensor
    values: Tensor
    place_N: Tensor


def has_fp8(device: torch.device) -> bool:
    """Whether this device multiplies matrices in float8."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)


@cache
def _triton() -> Any:
    from distrl.policies.vlm import triton_kernels

    return triton_kernels


def add_norm(h_ND: Tensor, delta_ND: Tensor | None, norm: Any, *, quantized: bool = False) -> Rows:
    """`h += delta`, in place; its RMS norm."""
    if h_ND.is_cuda:
        x, small, scale = _triton().add_norm(h_ND, delta_ND, norm.weight, norm.variance_epsilon, quantized)
        return Rows(x=x, small=small, scale_N1=scale)
    if delta_ND is not None:
        h_ND.add_(delta_ND)
    return Rows(x=F.rms_norm(h_ND, norm.weight.shape, norm.weight, norm.variance_epsilon))


def gate(both_N2I: Tensor, *, quantized: bool = False, keep: bool = True) -> Rows:
    """silu of the first half times the second; without `keep`, in float8 alone where that is wanted."""
    if both_N2I.is_cuda:
        x, small, scale = _triton().gate(both_N2I, quantized, keep)
        return Rows(x=x, small=small, scale_N1=scale)
    opened, up = both_N2I.chunk(2, dim=-1)
    return Rows(x=F.silu(opened) * up)


def rows_of(x_ND: Tensor, *, quantized: bool = False) -> Rows:
    """The rows as they are, and in float8 where that is wanted."""
    if not (quantized and x_ND.is_cuda):
        return Rows(x=x_ND)
    small, scale = _triton().quantize(x_ND)
    return Rows(x=x_ND, small=small, scale_N1=scale)


def rotate(
    qkv_NE: Tensor,
    rotation: tuple[Tensor, Tensor],
    heads: tuple[int, int],
    *,
    norms: HeadNorms | None = None,
    stored: Stored | None = None,
) -> Tensor:
    """Rotate the queries and keys of `heads` heads by cosines and sines whose two halves are the same; the queries, [N, heads, W].

    `qkv_NE` holds queries, keys and values, one after the other. With `stored`, keys and values go there; without,
    queries and keys are rotated where they are.
    """
    cos_NW, sin_NW = rotation
    if qkv_NE.is_cuda:
        of_heads = None if norms is None else (norms.query_W, norms.key_W, norms.eps)
        target = None if stored is None else (stored.keys, stored.values, stored.place_N)
        queries: Tensor = _triton().rotate(qkv_NE, cos_NW, sin_NW, heads, of_heads, target)
        return queries
    width = cos_NW.shape[-1]
    qkv_NHW = qkv_NE.view(len(qkv_NE), -1, width)
    query, key = (_rotated(part, rotation, norm) for part, norm in _parts(qkv_NHW, heads, norms))
    if stored is None:
        qkv_NHW[:, : heads[0]], qkv_NHW[:, heads[0] : sum(heads)] = query, key
    else:
        stored.keys.index_copy_(0, stored.place_N, key)
        stored.values.index_copy_(0, stored.place_N, qkv_NHW[:, sum(heads) :])
    return query


def rotate_packed(x_NHW: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Heads rotated by cosines and sines whose two halves are the same, under gradient."""
    if not x_NHW.is_cuda:
        return _rotated(x_NHW, rotation, None)
    turned: Tensor = _Rotation.apply(x_NHW, *rotation)  # type: ignore[no-untyped-call]
    return turned


class _Rotation(torch.autograd.Function):
    """The way back of a rotation is the rotation the other way."""

    @staticmethod
    def forward(ctx: Any, x_NHW: Tensor, cos_NW: Tensor, sin_NW: Tensor) -> Tensor:
        ctx.save_for_backward(cos_NW, sin_NW)
        return _turned(x_NHW, cos_NW, sin_NW)

    @staticmethod
    def backward(ctx: Any, grad_NHW: Tensor) -> Any:
        cos_NW, sin_NW = ctx.saved_tensors
        return _turned(grad_NHW.contiguous(), cos_NW, -sin_NW), None, None


def _turned(x_NHW: Tensor, cos_NW: Tensor, sin_NW: Tensor) -> Tensor:
    turned: Tensor = _triton().rotate(x_NHW.flatten(1), cos_NW, sin_NW, (x_NHW.shape[1], 0), None, None, apart=True)
    return turned


def _parts(
    qkv_NHW: Tensor, heads: tuple[int, int], norms: HeadNorms | None
) -> list[tuple[Tensor, tuple[Tensor, float] | None]]:
    query, key = qkv_NHW[:, : heads[0]], qkv_NHW[:, heads[0] : sum(heads)]
    if norms is None:
        return [(query, None), (key, None)]
    return [(query, (norms.query_W, norms.eps)), (key, (norms.key_W, norms.eps))]


def _rotated(x_NHW: Tensor, rotation: tuple[Tensor, Tensor], norm: tuple[Tensor, float] | None) -> Tensor:
    if norm is not None:
        x_NHW = F.rms_norm(x_NHW, norm[0].shape, *norm)
    cos_N1W, sin_N1W = (part[:, None] for part in rotation)
    left, right = x_NHW.chunk(2, dim=-1)
    return x_NHW * cos_N1W + torch.cat([-right, left], dim=-1) * sin_N1W


class FusedLinear:
    """Layers that read the same input as one product, with their adapters beside it; in float8 where that is asked for.

    The weights of the layers become views of one tensor: whoever changes them in place changes this product too. Their
    adapters are copied by `refresh`, scaled, so that captured graphs see new ones.
    """

    def __init__(self, *layers: Any, fp8: bool = False, small_batches: bool = False, step: int = 1) -> None:
        self._layers = layers
        plain = [getattr(layer, "base_layer", layer) for layer in layers]
        self._sizes = [-(-one.out_features // step) * step for one in plain]
        self.weight_ED, self.bias_E = _joined(plain, self._sizes)
        self._adapted = [layer for layer in layers if hasattr(layer, "lora_A")]
        self._down_RD, self._up_ER = (self._zeros(), self._zeros())
        self._small_batches = small_batches
        self._small: tuple[Tensor, Tensor] | None = _shrunk(self.weight_ED) if fp8 else None

    def _zeros(self) -> Tensor:
        return self.weight_ED.new_zeros(0)

    @property
    def apart(self) -> bool:
        """Whether adapters act beside the weights."""
        return any(not layer.merged for layer in self._adapted)

    def quantizes(self, rows: int) -> bool:
        """Whether the product of so many rows is in float8: small ones wait for the weights, and lose by it."""
        return self._small is not None and (rows >= FP8_ROWS or self._small_batches)

    @torch.no_grad()
    def refresh(self) -> None:
        """Take the present adapters."""
        if not self._adapted:
            return
        down = torch.cat([_lora(layer, "lora_A") for layer in self._adapted]).to(self.weight_ED.dtype)
        up = down.new_zeros(len(self.weight_ED), len(down))
        at_row = at = 0
        for layer, size in zip(self._layers, self._sizes, strict=True):
            if layer in self._adapted:
                part = _lora(layer, "lora_B") * next(iter(layer.scaling.values()))
                up[at_row : at_row + len(part), at : at + part.shape[1]] = part
                at += part.shape[1]
            at_row += size
        if len(self._down_RD):
            self._down_RD.copy_(down)
            self._up_ER.copy_(up)
        else:
            self._down_RD, self._up_ER = down, up

    def __call__(self, rows: Rows) -> Tensor:
        """The product."""
        if rows.small is not None and self._small is not None:
            assert rows.scale_N1 is not None
            weight, scale_E1 = self._small
            out: Tensor = torch._scaled_mm(
                rows.small, weight.t(), scale_a=rows.scale_N1, scale_b=scale_E1.t(), bias=self.bias_E,
                out_dtype=self.weight_ED.dtype, use_fast_accum=True,
            )  # fmt: skip
        else:
            out = F.linear(rows.plain, self.weight_ED, self.bias_E)
        if self.apart:
            out.addmm_(rows.plain @ self._down_RD.t(), self._up_ER.t())
        return out


FP8_ROWS = 512
"""Fewer rows than this are no faster in float8 (one H200: 1,024 rows of a 2,560 x 2,048 product take 29 us in bfloat16 and 39 in float8)."""


def _lora(layer: Any, part: str) -> Tensor:
    weight: Tensor = next(iter(getattr(layer, part).values())).weight
    return weight


@torch.no_grad()
def _joined(layers: list[Any], sizes: list[int]) -> tuple[Tensor, Tensor | None]:
    """The weights and biases of layers as one tensor each, of which those of the layers become views."""
    if len(layers) == 1 and sizes[0] == layers[0].out_features:
        return layers[0].weight, layers[0].bias
    found: list[Tensor | None] = []
    for name in ("weight", "bias"):
        parts = [getattr(layer, name) for layer in layers]
        if parts[0] is None:
            found.append(None)
            continue
        whole = parts[0].new_zeros(sum(sizes), *parts[0].shape[1:])
        at = 0
        for part, size in zip(parts, sizes, strict=True):
            view = whole[at : at + len(part)]
            part.data = view.copy_(part.data)
            at += size
        found.append(whole)
    assert found[0] is not None
    return found[0], found[1]


@torch.no_grad()
def _shrunk(weight_ED: Tensor) -> tuple[Tensor, Tensor]:
    """The weights in float8, and the scale of each row."""
    scale_E1 = weight_ED.float().abs().amax(1, keepdim=True).clamp(min=1e-12) / 448.0
    return (weight_ED.float() / scale_E1).to(torch.float8_e4m3fn), scale_E1

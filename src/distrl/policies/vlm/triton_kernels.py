"""The fused row operations of `rows` as Triton kernels: one pass over memory each. Imported on a GPU alone.

One program works on one row. Suffixes as in `rows`.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# Triton reads the annotations of its kernels, and knows none but its own.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LARGEST_FP8 = 448.0
"""The largest number of float8_e4m3."""
SMALLEST = 1e-12
"""Of a row's largest value, so that a row of zeros is not divided by zero."""


def add_norm(
    h_ND: Tensor, delta_ND: Tensor | None, weight_D: Tensor, eps: float, quantized: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """`h += delta` in place, and its RMS norm; with `quantized` in float8 too, with the scale of each row."""
    rows, width = h_ND.shape
    out_ND = torch.empty_like(h_ND)
    small_ND, scale_N1 = _small_like(out_ND, quantized)
    _add_norm[(rows,)](
        h_ND, h_ND if delta_ND is None else delta_ND, weight_D, out_ND, *_or(out_ND, small_ND, scale_N1), eps, width,
        HAS_DELTA=delta_ND is not None, QUANTIZED=quantized, LARGEST=LARGEST_FP8, SMALLEST=SMALLEST,
        BLOCK=triton.next_power_of_2(width), num_warps=_warps(width),
    )  # fmt: skip
    return out_ND, small_ND, scale_N1


def gate(both_N2I: Tensor, quantized: bool, keep: bool) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """silu of the first half times the second; in float8 too with `quantized`, and then in its own numbers only with `keep`."""
    rows, width = len(both_N2I), both_N2I.shape[1] // 2
    out_NI = both_N2I.new_empty(rows, width) if keep or not quantized else None
    small_NI, scale_N1 = _small_like(both_N2I[:, :width], quantized)
    _gate[(rows,)](
        both_N2I, both_N2I if out_NI is None else out_NI, *_or(both_N2I, small_NI, scale_N1), width,
        KEEP=out_NI is not None, QUANTIZED=quantized, LARGEST=LARGEST_FP8, SMALLEST=SMALLEST,
        BLOCK=triton.next_power_of_2(width), num_warps=_warps(width),
    )  # fmt: skip
    return out_NI, small_NI, scale_N1


def quantize(x_ND: Tensor) -> tuple[Tensor, Tensor]:
    """The rows in float8, with the scale of each."""
    small_ND, scale_N1 = _small_like(x_ND, True)
    assert small_ND is not None
    assert scale_N1 is not None
    _quantize[(len(x_ND),)](
        x_ND, small_ND, scale_N1, x_ND.shape[1], LARGEST=LARGEST_FP8, SMALLEST=SMALLEST,
        BLOCK=triton.next_power_of_2(x_ND.shape[1]), num_warps=_warps(x_ND.shape[1]),
    )  # fmt: skip
    return small_ND, scale_N1


def rotate(
    qkv_NE: Tensor, cos_NW: Tensor, sin_NW: Tensor, heads: tuple[int, int], norms: tuple[Tensor, Tensor, float] | None,
    store: tuple[Tensor, Tensor, Tensor] | None, apart: bool = False,
) -> Tensor:  # fmt: skip
    """Rotate queries and keys; see `rows.rotate`. With `apart`, for queries alone, what is given stays as it is."""
    num_q, num_k = heads
    rows, width = len(qkv_NE), cos_NW.shape[1]
    keys, values, place_N = store or (qkv_NE[:, num_q * width :], qkv_NE, qkv_NE)
    query_NE = qkv_NE if store is None and not apart else qkv_NE.new_empty(rows, num_q * width)
    query_norm, key_norm, eps = norms or (cos_NW, cos_NW, 0.0)
    _rotate[(rows,)](
        qkv_NE, cos_NW, sin_NW, query_norm, key_norm, query_NE, keys, values, place_N,
        qkv_NE.stride(0), query_NE.stride(0), keys.stride(0), eps, num_q, num_k,
        WIDTH=width, HAS_NORM=norms is not None, STORES=store is not None,
        HEADS=triton.next_power_of_2(num_q + num_k), HALF=triton.next_power_of_2(width // 2), num_warps=4,
    )  # fmt: skip
    turned: Tensor = query_NE[:, : num_q * width].view(rows, num_q, width)
    return turned


def _small_like(x_ND: Tensor, wanted: bool) -> tuple[Tensor | None, Tensor | None]:
    if not wanted:
        return None, None
    small = torch.empty(x_ND.shape, dtype=torch.float8_e4m3fn, device=x_ND.device)
    return small, torch.empty(len(x_ND), 1, dtype=torch.float32, device=x_ND.device)


def _or(other: Tensor, *tensors: Tensor | None) -> tuple[Tensor, ...]:
    """The tensors; `other`, which is not touched, in place of those that are missing."""
    return tuple(other if tensor is None else tensor for tensor in tensors)


def _warps(width: int) -> int:
    return 4 if width <= 2048 else 8 if width <= 8192 else 16


@triton.jit
def _add_norm(
    h_ptr, delta_ptr, weight_ptr, out_ptr, small_ptr, scale_ptr, eps, width,
    HAS_DELTA: tl.constexpr, QUANTIZED: tl.constexpr, LARGEST: tl.constexpr, SMALLEST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    here = at < width
    h = tl.load(h_ptr + row * width + at, mask=here, other=0.0)
    if HAS_DELTA:
        delta = tl.load(delta_ptr + row * width + at, mask=here, other=0.0)
        h = (h.to(tl.float32) + delta.to(tl.float32)).to(h_ptr.dtype.element_ty)
        tl.store(h_ptr + row * width + at, h, mask=here)
    x = h.to(tl.float32)
    x = x * tl.rsqrt(tl.sum(x * x, axis=0) / width + eps)
    x = x * tl.load(weight_ptr + at, mask=here, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * width + at, x.to(out_ptr.dtype.element_ty), mask=here)
    if QUANTIZED:
        scale = tl.maximum(tl.max(tl.abs(x), axis=0), SMALLEST) / LARGEST
        tl.store(scale_ptr + row, scale)
        tl.store(small_ptr + row * width + at, (x / scale).to(small_ptr.dtype.element_ty), mask=here)


@triton.jit
def _gate(
    both_ptr, out_ptr, small_ptr, scale_ptr, width,
    KEEP: tl.constexpr, QUANTIZED: tl.constexpr, LARGEST: tl.constexpr, SMALLEST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    here = at < width
    opened = tl.load(both_ptr + row * 2 * width + at, mask=here, other=0.0).to(tl.float32)
    up = tl.load(both_ptr + row * 2 * width + width + at, mask=here, other=0.0).to(tl.float32)
    x = opened * tl.sigmoid(opened) * up
    if KEEP:
        tl.store(out_ptr + row * width + at, x.to(out_ptr.dtype.element_ty), mask=here)
    if QUANTIZED:
        scale = tl.maximum(tl.max(tl.abs(x), axis=0), SMALLEST) / LARGEST
        tl.store(scale_ptr + row, scale)
        tl.store(small_ptr + row * width + at, (x / scale).to(small_ptr.dtype.element_ty), mask=here)


@triton.jit
def _quantize(
    x_ptr, small_ptr, scale_ptr, width,
    LARGEST: tl.constexpr, SMALLEST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    here = at < width
    x = tl.load(x_ptr + row * width + at, mask=here, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), axis=0), SMALLEST) / LARGEST
    tl.store(scale_ptr + row, scale)
    tl.store(small_ptr + row * width + at, (x / scale).to(small_ptr.dtype.element_ty), mask=here)


@triton.jit
def _rotate(
    qkv_ptr, cos_ptr, sin_ptr, query_norm_ptr, key_norm_ptr, query_ptr, key_ptr,
    value_ptr, place_ptr, qkv_stride, query_stride, key_stride, eps, num_q, num_k,
    WIDTH: tl.constexpr, HAS_NORM: tl.constexpr, STORES: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, HEADS)[:, None]
    at = tl.arange(0, HALF)[None, :]
    half: tl.constexpr = WIDTH // 2
    here = (head < num_q + num_k) & (at < half)
    cos = tl.load(cos_ptr + row * WIDTH + at, mask=at < half, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + row * WIDTH + at, mask=at < half, other=0.0).to(tl.float32)
    source = qkv_ptr + row * qkv_stride + head * WIDTH + at
    left = tl.load(source, mask=here, other=0.0).to(tl.float32)
    right = tl.load(source + half, mask=here, other=0.0).to(tl.float32)
    is_query = head < num_q
    if HAS_NORM:
        inverse = tl.rsqrt((tl.sum(left * left, axis=1) + tl.sum(right * right, axis=1)) / WIDTH + eps)[:, None]
        near = tl.where(is_query, tl.load(query_norm_ptr + at, mask=at < half, other=0.0),
                        tl.load(key_norm_ptr + at, mask=at < half, other=0.0)).to(tl.float32)  # fmt: skip
        far = tl.where(is_query, tl.load(query_norm_ptr + half + at, mask=at < half, other=0.0),
                       tl.load(key_norm_ptr + half + at, mask=at < half, other=0.0)).to(tl.float32)  # fmt: skip
        left = left * inverse * near
        right = right * inverse * far
    first = (left * cos - right * sin).to(qkv_ptr.dtype.element_ty)
    second = (right * cos + left * sin).to(qkv_ptr.dtype.element_ty)
    if STORES:
        dest = tl.load(place_ptr + row)
        one = (head < num_k) & (at < half)
        given = qkv_ptr + row * qkv_stride + (num_q + num_k + head) * WIDTH + at
        kept = value_ptr + dest * key_stride + head * WIDTH + at
        tl.store(kept, tl.load(given, mask=one), mask=one)
        tl.store(kept + half, tl.load(given + half, mask=one), mask=one)
    else:
        dest = row
    turned = query_ptr + row * query_stride + head * WIDTH + at
    tl.store(turned, first, mask=here & is_query)
    tl.store(turned + half, second, mask=here & is_query)
    written = key_ptr + dest * key_stride + (head - num_q) * WIDTH + at
    tl.store(written, first, mask=here & (head >= num_q))
    tl.store(written + half, second, mask=here & (head >= num_q))

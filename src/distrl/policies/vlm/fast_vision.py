"""The vision tower of Qwen2.5-VL without gradient, in a few kernels for each layer: the same numbers up to rounding.

The stock tower works out windows, positions and rotations of every image anew, on the CPU and in Python; here those of a
size are kept. Suffixes as in `rows`; M merged tokens, of which each is four patches.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.nn import functional as F

from distrl.policies.vlm.fast_layers import attend_packed
from distrl.policies.vlm.rows import FusedLinear, add_norm, gate, rotate, rows_of

WIDTH_STEP = 64
"""Inner widths are zero-padded to a multiple of this: kernels for 3,420 run at a fraction of the chip's rate."""
MOST_SIZES = 64
"""Batches whose geometry is kept."""
MOST_GRAPHS = 4
"""Sizes of images that have a captured graph."""


class _Geometry(msgspec.Struct, frozen=True, kw_only=True):
    """Of one image."""

    order_M: Tensor
    """The merged tokens, window by window."""
    cos_NW: Tensor
    sin_NW: Tensor
    windows: tuple[int, ...]
    """Patches of each window."""


class _Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Of the images of a batch, on their device."""

    order_M: Tensor
    back_M: Tensor
    rotation: tuple[Tensor, Tensor]
    windows: tuple[Tensor, int]
    """Bounds and the longest."""
    whole: tuple[Tensor, int]


class FastVision:
    """The vision tower `tower`, whose weights it shares."""

    def __init__(self, tower: Any, *, fp8: bool = False) -> None:
        self._tower = tower
        self._blocks = [_Block(block, fp8) for block in tower.blocks]
        self._unit: int = tower.spatial_merge_size**2
        self._everywhere = frozenset(tower.fullatt_block_indexes)
        self._geometry = cache(self._measure)
        self._batch = _Kept(self._gather)
        self._seen: set[_Sizes] = set()
        self._graphs: OrderedDict[_Sizes, _Graph] = OrderedDict()

    @property
    def dtype(self) -> torch.dtype:
        """The numbers that it computes with."""
        found: torch.dtype = self._tower.patch_embed.proj.weight.dtype
        return found

    @torch.no_grad()
    def __call__(self, pixels: Tensor, grids: Tensor) -> list[Tensor]:
        """The features of each image."""
        sizes = tuple((int(t), int(h), int(w)) for t, h, w in grids.tolist())
        graph = self._graph(sizes, pixels)
        merged_MD = self._merged(pixels, self._batch(sizes)) if graph is None else graph(pixels)
        return list(torch.split(merged_MD, [t * h * w // self._unit for t, h, w in sizes]))

    def _merged(self, pixels: Tensor, batch: _Batch) -> Tensor:
        conv = self._tower.patch_embed.proj
        flat = conv.weight.flatten(1)
        h_ND = F.linear(pixels.reshape(-1, flat.shape[1]).to(flat.dtype), flat, conv.bias)
        h_ND = h_ND.view(-1, self._unit, h_ND.shape[1])[batch.order_M].flatten(0, 1)
        delta_ND = None
        for number, block in enumerate(self._blocks):
            bounds, longest = batch.whole if number in self._everywhere else batch.windows
            delta_ND = block(h_ND, delta_ND, batch.rotation, bounds, longest)
        merger = self._tower.merger
        x_ND = add_norm(h_ND, delta_ND, merger.ln_q).plain
        merged_MD: Tensor = merger.mlp(x_ND.view(-1, self._unit * x_ND.shape[1]))[batch.back_M]
        return merged_MD

    def _graph(self, sizes: _Sizes, pixels: Tensor) -> _Graph | None:
        """A captured graph for a single image of a size that came before: starting its kernels takes longer than they do."""
        if not pixels.is_cuda or len(sizes) > 1:
            return None
        if sizes not in self._seen:
            self._seen.add(sizes)
            return None
        if sizes not in self._graphs:
            while len(self._graphs) >= MOST_GRAPHS:
                self._graphs.popitem(last=False)
            batch = self._batch(sizes)
            self._graphs[sizes] = _Graph(lambda given: self._merged(given, batch), pixels)
        self._graphs.move_to_end(sizes)
        return self._graphs[sizes]

    def _measure(self, size: tuple[int, int, int]) -> _Geometry:
        from transformers.vision_utils import get_vision_position_ids, get_vision_window_index

        tower, grid = self._tower, torch.tensor([size])
        order_M, bounds = get_vision_window_index(
            grid,
            spatial_merge_size=tower.spatial_merge_size,
            window_size=tower.window_size,
            patch_size=tower.patch_size,
        )
        device = tower.patch_embed.proj.weight.device
        positions = get_vision_position_ids(grid, tower.spatial_merge_size).to(device)
        by_window = (
            part.unflatten(0, (-1, self._unit))[order_M.to(device)].flatten(0, 1)
            for part in tower.rotary_pos_emb(torch.empty(0, device=device), positions)
        )
        cos_NW, sin_NW = by_window
        return _Geometry(order_M=order_M, cos_NW=cos_NW, sin_NW=sin_NW, windows=tuple(bounds.diff().tolist()))

    def _gather(self, sizes: tuple[tuple[int, int, int], ...]) -> _Batch:
        each = [self._geometry(size) for size in sizes]
        device = each[0].cos_NW.device
        merged = [len(one.order_M) for one in each]
        offset = torch.tensor([0, *merged]).cumsum(0).tolist()
        order_M = torch.cat([one.order_M + at for one, at in zip(each, offset, strict=False)])
        windows = [size for one in each for size in one.windows]
        # Images of several frames do not occur; each frame would attend to itself alone.
        return _Batch(
            order_M=order_M.to(device),
            back_M=order_M.argsort().to(device),
            rotation=(torch.cat([one.cos_NW for one in each]), torch.cat([one.sin_NW for one in each])),
            windows=_bounds(windows, device),
            whole=_bounds([count * self._unit for count in merged], device),
        )


_Sizes = tuple[tuple[int, int, int], ...]


class _Graph:
    """A captured function of one tensor."""

    def __init__(self, work: Callable[[Tensor], Tensor], like: Tensor) -> None:
        self._given = like.clone()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            work(self._given)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=side):
            self._made = work(self._given)

    def __call__(self, given: Tensor) -> Tensor:
        self._given.copy_(given)
        self._graph.replay()
        return self._made.clone()


class _Kept:
    """What a function gave for its last arguments."""

    def __init__(self, make: Any) -> None:
        self._make, self._found = make, dict[Any, Any]()

    def __call__(self, key: Any) -> Any:
        if key not in self._found:
            if len(self._found) >= MOST_SIZES:
                self._found.pop(next(iter(self._found)))
            self._found[key] = self._make(key)
        return self._found[key]


class _Block:
    """One layer of the tower."""

    def __init__(self, block: Any, fp8: bool) -> None:
        self._first, self._second, self._heads = block.norm1, block.norm2, block.attn.num_heads
        self._qkv, self._out = FusedLinear(block.attn.qkv, fp8=fp8), FusedLinear(block.attn.proj, fp8=fp8)
        mlp = block.mlp
        self._inner = -(-mlp.gate_proj.out_features // WIDTH_STEP) * WIDTH_STEP
        self._opened = FusedLinear(mlp.gate_proj, mlp.up_proj, fp8=fp8, step=WIDTH_STEP)
        self._down = FusedLinear(_widened(mlp.down_proj, self._inner), fp8=fp8)

    def __call__(
        self, h_ND: Tensor, delta_ND: Tensor | None, rotation: tuple[Tensor, Tensor], bounds: Tensor, longest: int
    ) -> Tensor:
        rows = len(h_ND)
        qkv_NE = self._qkv(add_norm(h_ND, delta_ND, self._first, quantized=self._qkv.quantizes(rows)))
        rotate(qkv_NE, rotation, (self._heads, self._heads))
        query, key, value = torch.split(qkv_NE.view(rows, 3 * self._heads, -1), self._heads, dim=1)
        mixed_NE = attend_packed(query, key, value, bounds, longest).flatten(1)
        out_ND = self._out(rows_of(mixed_NE, quantized=self._out.quantizes(rows)))
        both = self._opened(add_norm(h_ND, out_ND, self._second, quantized=self._opened.quantizes(rows)))
        return self._down(gate(both, quantized=self._down.quantizes(rows), keep=False))


def computes_vision(base: Any) -> bool:
    """Whether the vision tower of `base` is the one computed here."""
    tower = getattr(base.model, "visual", None)
    named = type(tower).__name__ == "Qwen2_5_VisionTransformerPretrainedModel"
    return named and all(
        hasattr(tower, part) for part in ("blocks", "merger", "rotary_pos_emb", "fullatt_block_indexes")
    )


def _widened(layer: Any, width: int) -> Any:
    """A layer whose weights are those of `layer`, zero-padded to more inputs; `layer` gets a view of them."""
    wide = torch.nn.Linear(width, layer.out_features, bias=False, device="meta")
    whole = layer.weight.new_zeros(layer.out_features, width)
    view = whole[:, : layer.in_features]
    layer.weight.data = view.copy_(layer.weight.data)
    wide.weight = torch.nn.Parameter(whole, requires_grad=False)
    wide.bias = layer.bias
    return wide


def _bounds(sizes: Sequence[int], device: torch.device) -> tuple[Tensor, int]:
    return torch.tensor([0, *sizes]).cumsum(0).to(device, torch.int32), max(sizes)

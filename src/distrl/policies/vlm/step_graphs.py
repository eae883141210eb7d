"""What the engine does again and again, as captured CUDA graphs: starting kernels one by one takes longer than they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from distrl.policies.vlm.fast_text import KeyValues
from distrl.policies.vlm.slot_attention import Reach

if TYPE_CHECKING:
    from distrl.policies.vlm.engine import Engine


class Step:
    """One token of `size` answers: a captured graph on a GPU."""

    def __init__(self, engine: Engine, size: int) -> None:
        self._engine, self._size = engine, size
        device = engine.state[0].device
        self._slot_B = torch.full((size,), engine.slots, device=device)
        self._bounds = torch.arange(size + 1, dtype=torch.int32, device=device)
        self._rows: tuple[int, ...] = ()
        self._graph = self._capture() if device.type == "cuda" else None

    def run(self, rows: tuple[int, ...]) -> None:
        """One token of the answers in the slots `rows`."""
        if rows != self._rows:
            filled = (*rows, *([self._engine.slots] * (self._size - len(rows))))
            self._slot_B.copy_(torch.tensor(filled), non_blocking=True)
            self._rows = rows
        if self._graph is None:
            self._engine.token(self._slot_B, self._bounds)
        else:
            self._graph.replay()

    def _capture(self) -> Any:
        """Capture a token's work on the scratch slot alone, so that no answer is touched."""
        return captured(lambda: self._engine.token(self._slot_B, self._bounds), self._engine.graph_pool())


class Single:
    """One prompt of up to `size` tokens as a captured graph: starting its kernels takes longer than they do.

    It is filled up with tokens of a sequence of their own, in the scratch slot.
    """

    def __init__(self, engine: Engine, cache: KeyValues, size: int) -> None:
        device, hidden = engine.state[0].device, cache.keys
        self._engine, self._cache, self._size = engine, cache, size
        axes = (engine.num_axes,) if engine.num_axes else ()
        self._embedded_ND = hidden.new_zeros(size, engine.width)
        self._positions = torch.zeros(*axes, size, dtype=torch.long, device=device)
        self._place_N = torch.zeros(size, dtype=torch.long, device=device)
        self._ints = torch.zeros(8, dtype=torch.int32, device=device)
        """Three bounds, three starts, and how much of both slots is used."""
        self._hidden_ND = hidden.new_empty(0)
        self._describe(torch.zeros(0, dtype=torch.long), engine.slots, 0)
        self._graph = captured(self._work, engine.graph_pool())

    def _describe(self, place_N: Tensor, slot: int, used: int) -> None:
        count, places, scratch = len(place_N), self._cache.places, self._engine.slots
        filler = self._size - count
        self._place_N.copy_(torch.cat([place_N, scratch * places + torch.arange(filler)]))
        numbers = [0, count, self._size, slot * places, scratch * places, 0, used, filler]
        self._ints.copy_(torch.tensor(numbers, dtype=torch.int32))

    def _work(self) -> None:
        reach = Reach(
            bounds=self._ints[:3],
            start=self._ints[3:6],
            used_S=self._ints[6:],
            most_new=self._size,
            places=self._cache.places,
        )
        # What a forward pass does to the embeddings must not be there the next time.
        embedded_ND = self._embedded_ND.clone()
        self._hidden_ND = self._engine.layers(embedded_ND, self._positions, self._cache, self._place_N, reach)

    def run(self, embedded_ND: Tensor, positions: Tensor, place_N: Tensor, slot: int, used: int) -> Tensor:
        """The last hidden states of the prompt."""
        count = len(embedded_ND)
        self._describe(place_N, slot, used)
        self._embedded_ND[:count] = embedded_ND
        self._positions[..., :count] = positions.to(self._positions.device)
        self._graph.replay()
        hidden_ND: Tensor = self._hidden_ND[:count]
        return hidden_ND


def captured(work: Callable[[], None], pool: Any) -> Any:
    """A graph of `work`, which is done a few times for it."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side, pool=pool):
        work()
    return graph

"""Weights averaged over the last updates: what a run ends with where `learner.average_updates` is above 0.

    average += (weights - average) / window,    window = learner.average_updates

but a fifth of all updates at most, so that a short run is not held back by where it began, and 1 at least. Many updates
on few episodes throw the weights to and fro; their average follows none of these throws. Workers act with the newest
weights all the same: what is fresh explores more.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from distrl.errors import StoreError
from distrl.policies.standing_in import standing_in

GROWTH = 0.2
"""Longest window, as a share of all updates."""


class Averaging:
    """The average of a network's trained weights; that of nothing where it is switched off."""

    def __init__(self, network: nn.Module, *, window: int) -> None:
        self._window = window
        trained = {name: weights for name, weights in network.named_parameters() if weights.requires_grad}
        self._weights = trained if window else {}
        self._average = list[Tensor]()
        """In the order of the weights; empty before the first update."""

    def follow(self, *, updates: int) -> None:
        """Take the weights in, after so many updates."""
        if not self._weights:
            return
        present = [weights.detach() for weights in self._weights.values()]
        if not self._average:
            self._average = [weights.clone() for weights in present]
        window = max(1.0, min(self._window, GROWTH * updates))
        torch._foreach_lerp_(self._average, present, 1.0 / window)

    def shown(self) -> AbstractContextManager[None]:
        """Let the network have the average for a while; nothing may be learnt meanwhile."""
        return standing_in(list(self._weights.values()), self._average) if self._average else nullcontext()

    def dump(self) -> bytes:
        """The average as a safetensors file; empty where there is none."""
        held = dict(zip(self._weights, (tensor.contiguous() for tensor in self._average), strict=False))
        return save(held) if held else b""

    def restore(self, data: bytes) -> None:
        """Go on from what `dump` gave; from the present weights where it gave nothing."""
        if not data or not self._weights:
            self._average = []
            return
        found = _matched(data, self._weights)
        self._average = [torch.empty_like(one.data).copy_(found[name]) for name, one in self._weights.items()]


def put_average(network: nn.Module, data: bytes) -> None:
    """Give the network the average that `Averaging.dump` gave, for good; nothing happens where there was none."""
    weights = {name: one for name, one in network.named_parameters() if one.requires_grad}
    for name, average in (_matched(data, weights) if data else {}).items():
        weights[name].data.copy_(average)


def _matched(data: bytes, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found = load(data)
    if {name: one.shape for name, one in found.items()} != {name: one.shape for name, one in weights.items()}:
        raise StoreError(
            "the averaged weights in the checkpoint fit another policy",
            expected="the policy that the checkpoint was written with",
            fix="take the settings of that run",
        )
    return found

"""Weights averaged over the last updates, which is what workers and evaluations get.

    average += (weights - average) / window,    window = min(learner.average_updates, updates / 10), at least 1

Updates on small and stale samples throw the weights to and fro; their average follows none of these throws. The window
grows with the run, so that a short one is not held back by where it began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from distrl.errors import StoreError

GROWTH = 0.1
"""Updates of the window for each update of the run, until it is as long as it may be."""


class Averaging:
    """The average of a network's trained weights; that of nothing where it is switched off."""

    def __init__(self, network: nn.Module, *, longest: int) -> None:
        self._longest = longest
        trained = {name: weights for name, weights in network.named_parameters() if weights.requires_grad}
        self._weights = trained if longest > 1 else {}
        self._average: dict[str, Tensor] = {}

    def follow(self, updates: int) -> None:
        """Take the weights after so many updates in."""
        if not self._weights:
            return
        present = {name: weights.detach() for name, weights in self._weights.items()}
        if not self._average:
            self._average = {name: weights.clone() for name, weights in present.items()}
        window = max(1.0, min(self._longest, GROWTH * updates))
        torch._foreach_lerp_(list(self._average.values()), list(present.values()), 1.0 / window)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Let the network have the average for a while; nothing may be learnt meanwhile."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for name, average in self._average.items():
            weights = self._weights[name]
            self._average[name], weights.data = weights.data, average

    def dump(self) -> bytes:
        """The average as a safetensors file; empty where there is none."""
        return save({name: tensor.contiguous() for name, tensor in self._average.items()}) if self._average else b""

    def restore(self, data: bytes) -> None:
        """Go on from what `dump` gave; from the present weights where it gave nothing."""
        found = _matched(data, self._weights) if data and self._weights else {}
        weights = self._weights if found else {}
        # In the order of the weights: a file sorts by name.
        self._average = {name: torch.empty_like(one.data).copy_(found[name]) for name, one in weights.items()}


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

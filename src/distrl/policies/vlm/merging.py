"""Adapters inside the weights while answering, and apart again while learning.

An adapter costs more small kernels than the layer under it. Added into the weights it costs nothing, at the price of a
second copy of the weights, from which they are made anew with every version, and of one more rounding of them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from distrl.policies.vlm.adapters import ADAPTER


class Merging:
    """Puts the adapters of one network into its weights and takes them out again, in place: captured graphs stay valid."""

    def __init__(self, network: nn.Module) -> None:
        self._layers: list[Any] = [module for module in network.modules() if hasattr(module, "get_delta_weight")]
        self._plain: list[Tensor] = []
        self._of: list[int] = []
        """The state of the adapters that are in the weights now; empty: they are apart."""

    @torch.no_grad()
    def join(self) -> None:
        """Add the present adapters into the weights, where they are not in them yet."""
        state = [part[ADAPTER].weight._version for layer in self._layers for part in (layer.lora_A, layer.lora_B)]
        if self._of == state:
            return
        if not self._plain:
            self._plain = [layer.get_base_layer().weight.clone() for layer in self._layers]
        for layer, plain in zip(self._layers, self._plain, strict=True):
            layer.get_base_layer().weight.copy_(plain.float() + layer.get_delta_weight(ADAPTER).float())
            layer.merged_adapters[:] = [ADAPTER]
        self._of = state

    @torch.no_grad()
    def part(self) -> None:
        """The weights as they were; what was in them acts through the adapters again."""
        if not self._of:
            return
        for layer, plain in zip(self._layers, self._plain, strict=True):
            layer.get_base_layer().weight.copy_(plain)
            layer.merged_adapters.clear()
        self._of = []

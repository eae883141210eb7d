"""LoRA adapters on the language model: added for training, merged into the weights for faster answers.

The adapters and the value head are all that is trained and published.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from distrl.config.schema import VlmConfig
from distrl.errors import ConfigError, closest

ADAPTER = "default"
"""Peft's name for the only adapter."""


def add_adapters(network: nn.Module, config: VlmConfig) -> nn.Module:
    """`network` frozen, with adapters that start out without effect; with rank 0, `network` as it is."""
    if config.lora_rank == 0:
        return network.requires_grad_(True)
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,  # type: ignore[arg-type]  # any number will do, whatever peft's annotation says
        target_modules=target_names(network, config.lora_targets),
        lora_dropout=0.0,
    )
    adapted: nn.Module = get_peft_model(network, lora)
    return adapted


def target_names(network: Any, targets: Sequence[str]) -> list[str]:
    """The full names of the language model's layers whose last part is in `targets`."""
    wanted = set(targets)
    inside = {id(module) for module in network.get_decoder().modules()}
    linear = [
        name for name, module in network.named_modules() if isinstance(module, nn.Linear) and id(module) in inside
    ]
    found = [name for name in linear if name.rpartition(".")[2] in wanted]
    if not found:
        known = {name.rpartition(".")[2] for name in linear}
        raise ConfigError(
            f"policy.vlm.lora_targets = {','.join(targets)} names no layer of this model",
            expected=closest(targets[0] if targets else "", known),
            fix=f"--policy.vlm.lora_targets {','.join(sorted(known))}",
        )
    return found


class AdapterMerger:
    """Merges a network's LoRA adapters into its weights and takes them out again, in place: captured graphs stay valid.

    An adapter costs more small kernels than the layer under it; merged, it costs nothing. The price is a second copy of
    the weights, from which they are made anew with every version, and one more rounding of them.
    """

    def __init__(self, network: nn.Module) -> None:
        self._layers: list[Any] = [module for module in network.modules() if hasattr(module, "get_delta_weight")]
        self._plain: list[Tensor] = []
        self._merged: list[int] = []
        """Versions of the adapter tensors that are merged now; empty: none are."""

    @torch.no_grad()
    def merge(self) -> None:
        """Add the present adapters to the weights, unless these very adapters are merged already."""
        state = [part[ADAPTER].weight._version for layer in self._layers for part in (layer.lora_A, layer.lora_B)]
        if self._merged == state:
            return
        if not self._plain:
            self._plain = [layer.get_base_layer().weight.clone() for layer in self._layers]
        for layer, plain in zip(self._layers, self._plain, strict=True):
            layer.get_base_layer().weight.copy_(plain.float() + layer.get_delta_weight(ADAPTER).float())
            layer.merged_adapters[:] = [ADAPTER]
        self._merged = state

    @torch.no_grad()
    def unmerge(self) -> None:
        """Restore the weights; the adapters act on their own again."""
        if not self._merged:
            return
        for layer, plain in zip(self._layers, self._plain, strict=True):
            layer.get_base_layer().weight.copy_(plain)
            layer.merged_adapters.clear()
        self._merged = []

"""Low-rank adapters on the language model: small, trainable, and all that a version has to carry."""

from __future__ import annotations

from typing import Any

from torch import nn

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


def target_names(network: Any, targets: str) -> list[str]:
    """The full names of the language model's layers whose last part is in `targets`, a list with commas."""
    wanted = {name.strip() for name in targets.split(",")}
    inside = {id(module) for module in network.get_decoder().modules()}
    linear = [
        name for name, module in network.named_modules() if isinstance(module, nn.Linear) and id(module) in inside
    ]
    found = [name for name in linear if name.rpartition(".")[2] in wanted]
    if not found:
        known = {name.rpartition(".")[2] for name in linear}
        raise ConfigError(
            f"policy.vlm.lora_targets = {targets!r} names no layer of this model",
            expected=closest(targets, known),
            fix=f"policy.vlm.lora_targets = {','.join(sorted(known))!r}",
        )
    return found

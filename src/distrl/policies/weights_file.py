"""Weights as the bytes of a safetensors file, and back, checked against what they are for."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from distrl.errors import StoreError


def dump(network: nn.Module) -> bytes:
    """The weights of a whole network, wherever they are."""
    return dump_tensors(network.state_dict())


def restore(network: nn.Module, data: bytes, *, source: str, expected: str) -> None:
    """Put the weights in `data` into `network`, or raise and change nothing; `expected` says what would fit."""
    restore_tensors(network.state_dict(), data, source=source, expected=expected)


def dump_tensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Some tensors by name, wherever they are."""
    return save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


def restore_tensors(own: Mapping[str, Tensor], data: bytes, *, source: str, expected: str) -> None:
    """Put what is in `data` into the tensors in `own`, in place, or raise and change nothing."""
    try:
        tensors = load(data)
    except SafetensorError as error:
        raise StoreError(
            f"{source} cannot be read: {error}",
            expected="a safetensors file",
            fix="pick another version or checkpoint",
        ) from error
    strange = [name for name in own.keys() | tensors.keys() if _shape(own, name) != _shape(tensors, name)]
    if strange:
        raise StoreError(
            f"{source} holds weights of another architecture: {min(strange)} does not fit",
            expected=expected,
            fix="use the config.toml that lies beside these weights",
        )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def _shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(tensors[name].shape) if name in tensors else None

"""What a policy publishes as the bytes of a safetensors file, and back, checked against what the policy has."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from distrl.errors import StoreError
from distrl.policies.tensors import pack, unpack


def dump(weights: Mapping[str, Tensor]) -> bytes:
    """The weights, wherever they are."""
    return b"".join(pack(weights))


@torch.no_grad()
def restore(own: Mapping[str, Tensor], data: bytes | memoryview, *, source: str, expected: str) -> None:
    """Put the weights in `data` into `own`, in place, or raise and change nothing; `expected` says what would fit."""
    try:
        tensors = unpack(data)
    except ValueError as error:
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
    for name, tensor in own.items():
        tensor.copy_(tensors[name])


def _shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(tensors[name].shape) if name in tensors else None

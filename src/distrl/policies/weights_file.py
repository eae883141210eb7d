"""A network's weights as the bytes of a safetensors file, and back, checked against the network."""

from __future__ import annotations

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from distrl.errors import StoreError


def dump(network: nn.Module) -> bytes:
    """The weights, wherever they are."""
    return save({name: tensor.cpu().contiguous() for name, tensor in network.state_dict().items()})


def restore(network: nn.Module, data: bytes, *, source: str, expected: str) -> None:
    """Put the weights in `data` into `network`, or raise and change nothing; `expected` says what would fit."""
    try:
        tensors = load(data)
    except SafetensorError as error:
        raise StoreError(
            f"{source} cannot be read: {error}",
            expected="a safetensors file",
            fix="pick another version or checkpoint",
        ) from error
    own = network.state_dict()
    strange = [name for name in own.keys() | tensors.keys() if _shape(own, name) != _shape(tensors, name)]
    if strange:
        raise StoreError(
            f"{source} holds weights of another architecture: {min(strange)} does not fit",
            expected=expected,
            fix="use the config.toml that lies beside these weights",
        )
    network.load_state_dict(tensors)


def _shape(tensors: dict[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(tensors[name].shape) if name in tensors else None

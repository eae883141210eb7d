"""What a policy of your own with one network need not write itself. Inherit from it, or write the four methods."""

from __future__ import annotations

from typing import TypeVar

from torch import Tensor, nn

from distrl.policies import weights as weights_file

Encoded = TypeVar("Encoded")


class NetworkPolicy:
    """Part of `distrl.policies.base.Policy`: no data augmentation, and all tensors of `network` are published and saved."""

    network: nn.Module

    def augment(self, encoded: Encoded) -> Encoded:
        """No data augmentation."""
        return encoded

    def weights(self) -> dict[str, Tensor]:
        """The network's tensors by name."""
        return self.network.state_dict()

    def dump(self) -> bytes:
        """The weights as a safetensors file."""
        return weights_file.dump(self.weights())

    def restore(self, data: bytes | memoryview, *, source: str) -> None:
        """Load weights of the same sizes."""
        weights_file.restore(self.weights(), data, source=source, expected=f"weights of a {type(self).__name__}")

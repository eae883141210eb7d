"""Where a policy that looks sits: what it sees with, and what it computes on."""

from __future__ import annotations

import msgspec
import torch

from distrl.policies.pictures import Pictures


class Seat(msgspec.Struct, frozen=True, kw_only=True):
    """The place that a role gives to its policy."""

    pictures: Pictures
    device: torch.device = torch.device("cpu")
    learning: bool = False
    """Whether it sees the same pictures again and again, so that it pays to keep them at hand."""

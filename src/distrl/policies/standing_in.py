"""Other weights in the place of a policy's own, for a while."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn


@contextmanager
def standing_in(weights: Sequence[nn.Parameter], others: list[Tensor]) -> Iterator[None]:
    """Let `others` stand where `weights` are. Nothing is copied: meanwhile it is `others` that holds the weights."""
    _swap(weights, others)
    try:
        yield
    finally:
        _swap(weights, others)


def _swap(weights: Sequence[nn.Parameter], others: list[Tensor]) -> None:
    for number, one in enumerate(weights):
        one.data, others[number] = others[number], one.data

"""What may go wrong inside a model, and how often it may: too little memory, and results that are no numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from distrl.errors import ConfigError, RoleCrashed

MOST_IN_A_ROW = 32
"""Answers without numbers after which something is wrong for good."""


@contextmanager
def memory_errors(setting: str, present: int) -> Iterator[None]:
    """Turn a lack of memory into a `ConfigError` that names what to lower."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        smaller = f"--policy.vlm.{setting} {max(1, present // 2)}" if present > 1 else "policy.vlm.image_max_pixels"
        raise ConfigError(
            f"the GPU ran out of memory with policy.vlm.{setting} = {present}",
            expected="room for the weights and for so many prompts at once",
            fix=f"lower {smaller}, or set policy.vlm.gradient_checkpointing = true in the learner, or take a smaller model",
        ) from error


class Soundness:
    """Counts answers whose numbers are none. Single ones are passed over; many in a row are an error with the cause."""

    def __init__(self) -> None:
        self.skipped = 0
        """Answers that were passed over."""
        self._in_a_row = 0

    def note(self, finite_N: Tensor, during: str) -> None:
        """Take note of a batch; `RoleCrashed` where nothing but such answers has come for long."""
        bad = int((~finite_N).sum())
        self.skipped += bad
        self._in_a_row = self._in_a_row + bad if bad == len(finite_N) else 0
        if self._in_a_row >= MOST_IN_A_ROW:
            raise RoleCrashed(
                f"the model gave {self._in_a_row} results in a row that are no numbers, while {during}",
                expected="finite log-probabilities",
                fix="lower learner.learning_rate or set policy.vlm.dtype = float32, then go on from an earlier checkpoint",
            )

"""What may go wrong inside a model, and how often it may: too little memory, and results that are no numbers."""

from __future__ import annotations

from contextlib import AbstractContextManager

from torch import Tensor

from distrl.errors import RoleCrashed
from distrl.policies import room

MOST_IN_A_ROW = 32
"""Answers without numbers after which something is wrong for good."""


def memory_errors(setting: str, present: int) -> AbstractContextManager[None]:
    """Turn a lack of memory into `OutOfMemory` that names what to lower of `policy.vlm`."""
    return room.memory_errors(
        f"policy.vlm.{setting}",
        present,
        smallest="lower policy.vlm.image_max_pixels",
        besides="policy.vlm.gradient_checkpointing = true in the learner, a smaller model, ",
    )


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

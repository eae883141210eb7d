"""CUDA out of memory (OOM) as an error that names the setting to lower.

Callers that can go on with less memory catch `OutOfMemory`: workers halve their batches, the learner skips an update.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, runtime_checkable

import torch

from distrl.errors import OutOfMemory


@contextmanager
def oom_errors(setting: str, present: int, *, smallest: str = "a smaller policy", besides: str = "") -> Iterator[None]:
    """Turn CUDA OOM on a batch of `present` into `OutOfMemory` that says to halve `setting`, the limit of that batch.

    `smallest` is the advice where the batch is 1 already, `besides` what would help as well.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        less = f"--{setting} {present // 2}" if present > 1 else smallest
        raise OutOfMemory(
            f"the GPU ran out of memory on a batch of {present} ({setting})",
            expected="memory for the weights and for such a batch",
            fix=f"{less}, {besides}or a GPU that nobody else uses",
        ) from error


def vlm_oom_errors(setting: str, present: int) -> AbstractContextManager[None]:
    """`oom_errors` for a setting of `policy.vlm`."""
    return oom_errors(
        f"policy.vlm.{setting}",
        present,
        smallest="lower policy.vlm.image_max_pixels",
        besides="policy.vlm.gradient_checkpointing = true in the learner, a smaller model, ",
    )


@runtime_checkable
class LearnsInPortions(Protocol):
    """Optional part of a policy that splits what it learns from: a setting of its own then decides the memory."""

    def learning_oom_errors(self) -> AbstractContextManager[None]:
        """`oom_errors` that names that setting."""


def oom_errors_of(policy: object, setting: str, present: int) -> AbstractContextManager[None]:
    """`oom_errors` while `policy` learns: names `setting`, or the policy's own where it learns in portions."""
    return policy.learning_oom_errors() if isinstance(policy, LearnsInPortions) else oom_errors(setting, present)

"""Too little memory for a model, as an error that names what to lower of `policy.vlm`."""

from __future__ import annotations

from contextlib import AbstractContextManager

from distrl.policies import oom as room


def memory_errors(setting: str, present: int) -> AbstractContextManager[None]:
    """Turn a lack of memory into `OutOfMemory` that names what to lower of `policy.vlm`."""
    return room.memory_errors(
        f"policy.vlm.{setting}",
        present,
        smallest="lower policy.vlm.image_max_pixels",
        besides="policy.vlm.gradient_checkpointing = true in the learner, a smaller model, ",
    )

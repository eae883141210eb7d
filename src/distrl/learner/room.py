"""Too little memory in the middle of an update: which setting to lower depends on who learns."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from distrl.config.schema import VlmConfig
from distrl.policies.base import Policy
from distrl.policies.room import memory_errors
from distrl.policies.vlm import room as vlm_room


def learning_memory(policy: Policy[Any], setting: str, present: int) -> AbstractContextManager[None]:
    """Turn a lack of memory into `OutOfMemory` that names `setting`, or the portions in which the policy learns."""
    config = getattr(policy, "config", None)
    if isinstance(config, VlmConfig):
        return vlm_room.memory_errors("score_batch", config.score_batch)
    return memory_errors(setting, present)

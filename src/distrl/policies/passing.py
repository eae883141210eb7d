"""What a policy passes over rather than fail, by the names of the figures that tell of it."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from distrl.policies.base import Policy
from distrl.policies.soundness import Soundness


@runtime_checkable
class Looking(Protocol):
    """A policy that decodes pictures."""

    @property
    def num_dark(self) -> int:
        """Pictures that could not be decoded, and were seen as black ones."""


@runtime_checkable
class Answering(Protocol):
    """A policy whose model may come to what is no number."""

    soundness: Soundness


def passed_over(policy: Policy[Any]) -> dict[str, float]:
    """How many pictures and how many results so far, in this life of the process; 0 where a policy knows none."""
    return {
        "dark": policy.num_dark if isinstance(policy, Looking) else 0,
        "skipped": policy.soundness.skipped if isinstance(policy, Answering) else 0,
    }

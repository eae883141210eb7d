"""NaN and infinity in what a policy computes: single results are skipped and counted, many are an error with the cause.

Workers skip a decision, the learner skips a score. The counters that tell of it are collected here by `skipped_counters`.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from distrl.errors import RoleCrashed
from distrl.policies.base import Policy
from distrl.types import Decision, Unparsed

WINDOW = 64
"""Latest results that the guard remembers."""
MAX_NONFINITE = 32
"""Non-finite results within `WINDOW` at which the policy counts as broken."""
SKIPPED_DECISION = Decision(action=Unparsed(""), choice=(), logp=0.0, entropy=0.0, value=0.5)
"""Replaces a non-finite decision: an invalid step, whose empty choice carries no policy gradient."""


class NonFiniteGuard:
    """Counts results that hold NaN or infinity."""

    def __init__(self) -> None:
        self.skipped = 0
        """Results that were skipped."""
        self._recent = deque[bool](maxlen=WINDOW)

    def check(self, finite_N: Tensor, during: str) -> None:
        """Count a batch of results; `RoleCrashed` where too many of the latest ones are not finite."""
        self.skipped += int((~finite_N).sum())
        self._recent.extend(finite_N.tolist())
        nonfinite = self._recent.count(False)
        if nonfinite >= MAX_NONFINITE:
            raise RoleCrashed(
                f"{nonfinite} of the policy's last {len(self._recent)} results are NaN or infinite, while {during}",
                expected="finite log-probabilities",
                fix="lower learner.learning_rate, for a VLM also set policy.vlm.dtype = float32; "
                "then go on from an earlier checkpoint",
            )


@runtime_checkable
class DecodesFrames(Protocol):
    """A policy that decodes screenshots."""

    @property
    def num_undecodable(self) -> int:
        """Screenshots that could not be decoded and were replaced by black ones."""


@runtime_checkable
class HasNonFiniteGuard(Protocol):
    """A policy whose model may give NaN."""

    nonfinite: NonFiniteGuard


def skipped_counters(policy: Policy[Any]) -> dict[str, float]:
    """Undecodable screenshots and skipped results since the process started, by metric name; 0 where a policy has none."""
    return {
        "undecodable_frames": policy.num_undecodable if isinstance(policy, DecodesFrames) else 0,
        "skipped": policy.nonfinite.skipped if isinstance(policy, HasNonFiniteGuard) else 0,
    }

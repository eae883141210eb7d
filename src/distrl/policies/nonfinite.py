"""Decisions and scores that are no numbers: single ones are passed over and counted, many are an error with the cause."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from distrl.errors import RoleCrashed
from distrl.policies.base import Policy
from distrl.types import Decision, Unparsed

LOOK_BACK = 64
MOST_UNSOUND = 32
"""So many of the last `LOOK_BACK` results, and something is wrong for good."""
NO_DECISION = Decision(action=Unparsed(""), choice=(), logp=0.0, entropy=0.0, value=0.5)
"""In place of one that is no number: an invalid step, whose empty choice teaches nothing."""


class Soundness:
    """Counts results whose numbers are none."""

    def __init__(self) -> None:
        self.skipped = 0
        """Results that were passed over."""
        self._recent = deque[bool](maxlen=LOOK_BACK)

    def note(self, finite_N: Tensor, during: str) -> None:
        """Take note of a batch; `RoleCrashed` where too many of late were none."""
        self.skipped += int((~finite_N).sum())
        self._recent.extend(finite_N.tolist())
        unsound = self._recent.count(False)
        if unsound >= MOST_UNSOUND:
            raise RoleCrashed(
                f"{unsound} of the policy's last {len(self._recent)} results are no numbers, while {during}",
                expected="finite log-probabilities",
                fix="lower learner.learning_rate, for a VLM also set policy.vlm.dtype = float32; "
                "then go on from an earlier checkpoint",
            )


# --- What a policy passes over rather than fail, by the names of the figures that tell of it ---


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

"""What a learner is made of: the places that it reads from and writes to, as it sees them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from distrl.algorithms.base import Algorithm
from distrl.config.schema import Config
from distrl.learner.checkpoint import Checkpoint
from distrl.learner.intake import EpisodeSource, Fitting
from distrl.policies.base import Policy
from distrl.pretraining.demonstrations import Look, no_picture
from distrl.types import PolicyVersion


class Reporter(Protocol):
    """Who hears what the learner is doing."""

    def doing(self, what: str) -> None: ...

    def waiting(self, what: str) -> None: ...

    def measured(self, values: dict[str, float]) -> None: ...


class Publisher(Protocol):
    """Where versions go."""

    def latest(self) -> PolicyVersion | None: ...

    def publish(self, policy: Policy[Any], version: PolicyVersion) -> PolicyVersion: ...


class Checkpoints(Protocol):
    """Where the learner's state is kept."""

    def newest(self) -> Checkpoint | None: ...

    def write(self, checkpoint: Checkpoint) -> object: ...


def not_counted() -> float:
    """For a learner without a run around it: it has no time to spend."""
    return 0.0


class LearnerParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a learner is made of."""

    config: Config
    policy: Policy[Any]
    algorithm: Algorithm
    store: EpisodeSource
    weights: Publisher
    checkpoints: Checkpoints
    report: Reporter
    fitting: Fitting | None = None
    """Where hindsight is wanted: which other tasks an episode fulfilled."""
    look: Look = no_picture
    """Takes the pictures of kept demonstrations, for a policy that looks."""
    collected_s: Callable[[], float] = not_counted
    """How long the run has been collecting, over all its sessions: what `run.minutes` limits."""
    clock: Callable[[], float] = time.monotonic

"""What a worker plays next, and whether it may: the order of tasks, and admission by staleness."""

from __future__ import annotations

from random import Random

import msgspec

from distrl.config.schema import Config
from distrl.errors import TaskError
from distrl.tasks.base import Suite
from distrl.types import Split, Task


class TaskFeed:
    """Training tasks in a seeded order without end; every task comes once before any comes twice."""

    def __init__(self, suite: Suite, split: Split, *, seed: str, max_oracle_steps: int = 0) -> None:
        self._suite, self._split = suite, split
        self._max_oracle_steps = max_oracle_steps
        self._random = Random(seed)
        self._order: list[int] = []

    def next(self) -> Task:
        """The next task; `TaskError` where none is short enough."""
        size = self._suite.sizes[self._split]
        for _ in range(2 * size):  # what is left of this round, and a whole one
            if not self._order:
                self._order = self._random.sample(range(size), size)
            task = self._suite.task(self._split, self._order.pop())
            if not self._max_oracle_steps or len(task.route) <= self._max_oracle_steps:
                return task
        raise TaskError(
            f"no {self._split} task of {self._suite.name} is done in {self._max_oracle_steps} step(s)",
            expected="tasks.max_oracle_steps of 0 (no limit), or large enough for some task",
            fix="--tasks.max_oracle_steps 0",
        )


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a worker stands when it asks to start an episode."""

    held: int
    """The version in use; -1: none."""
    latest: int
    """The newest published version."""


class Admission:
    """Lets an episode start only where its data can still be used; how many may is up to `rounds`."""

    def __init__(self, config: Config) -> None:
        self._max_staleness = config.replay.max_staleness

    def refusal(self, standing: Standing) -> str:
        """Why no episode may start now; empty: one may."""
        if standing.held < 0:
            return "the first weights from the learner"
        if standing.latest - standing.held > self._max_staleness:
            return f"version {standing.latest}: version {standing.held} is too stale to start with"
        return ""

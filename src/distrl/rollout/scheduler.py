"""What a worker plays next, and whether it may: the order of tasks, and admission by staleness."""

from __future__ import annotations

from random import Random

import msgspec

from distrl.config.schema import Config
from distrl.errors import TaskError
from distrl.tasks.base import Suite
from distrl.types import Split, Task


class TaskFeed:
    """Training tasks in a seeded order without end, each `group_size` times in a row; all come before any comes again."""

    def __init__(
        self, suite: Suite, split: Split, *, seed: str, max_oracle_steps: int = 0, group_size: int = 1
    ) -> None:
        self._suite, self._split = suite, split
        self._max_oracle_steps, self._group_size = max_oracle_steps, group_size
        self._random = Random(seed)
        self._order: list[int] = []
        self._group: list[Task] = []

    def next(self) -> Task:
        """The next task; `TaskError` where none is short enough."""
        if not self._group:
            self._group = [self._draw()] * self._group_size
        return self._group.pop()

    def _draw(self) -> Task:
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
    started: int
    """Episodes that this worker has started with the held version."""


class Admission:
    """Lets an episode start only where its data can still be used.

    In sync mode each worker gets its share of a round per version and then waits for the next one: a staleness of 0
    and a barrier, with the same code.
    """

    def __init__(self, config: Config, *, worker: int = 0) -> None:
        self._max_staleness = config.replay.max_staleness
        self._sync = config.learner.mode == "sync"
        # The shares add up to the round exactly: one episode too many would still run when the learner goes on.
        share, rest = divmod(config.learner.round_episodes, config.rollout.workers)
        self._share = share + (worker < rest)

    def refusal(self, standing: Standing) -> str:
        """Why no episode may start now; empty: one may."""
        if standing.held < 0:
            return "the first weights from the learner"
        if standing.latest - standing.held > self._max_staleness:
            return f"version {standing.latest}: version {standing.held} is too stale to start with"
        if self._sync and standing.started >= self._share:
            return f"version {standing.held + 1}: this worker's {self._share} episodes of the round are out"
        return ""

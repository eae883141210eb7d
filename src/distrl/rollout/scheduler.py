"""What a worker plays next, and whether it may: the order of tasks, and admission by staleness."""

from __future__ import annotations

from collections import deque
from random import Random
from zlib import crc32

import msgspec

from distrl.config.schema import Config
from distrl.errors import TaskError
from distrl.tasks.base import RenamesTasks, Suite, no_tasks
from distrl.types import Split, Task

RATE_VERSIONS = 8
"""Versions over which the present rate is measured."""


class Portion(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks of a split are fed, and how."""

    max_oracle_steps: int = 0
    """Longer ones are left out; 0: none."""
    group_size: int = 1
    """How often in a row each one comes."""
    rename_share: float = 0.0
    """Share of them that come under other names; only training tasks do."""


ALL = Portion()


class TaskFeed:
    """Tasks of a split in a seeded order without end; all come before any comes again, under whichever names."""

    def __init__(self, suite: Suite, split: Split, *, seed: str, portion: Portion = ALL) -> None:
        self._suite, self._split, self._portion = suite, split, portion
        self._random = Random(seed)
        # Of its own: whoever draws the pictures of these tasks has soon drawn all words of one pool.
        self._pool = crc32(seed.encode())
        self._order: list[int] = []
        self._group: list[Task] = []

    def next(self) -> Task:
        """The next task; `TaskError` where none is short enough."""
        if not self._group:
            self._group = [self._rename(self._draw())] * self._portion.group_size
        return self._group.pop()

    def _rename(self, task: Task) -> Task:
        if not self._portion.rename_share or self._random.random() >= self._portion.rename_share:
            return task
        return self._suite.rename(task, self._random, self._pool) if isinstance(self._suite, RenamesTasks) else task

    def _draw(self) -> Task:
        size, limit = self._suite.size(self._split), self._portion.max_oracle_steps
        if not size:
            raise no_tasks(self._suite, self._split)
        for _ in range(2 * size):  # what is left of this round, and a whole one
            if not self._order:
                self._order = self._random.sample(range(size), size)
            task = self._suite.task(self._split, self._order.pop())
            if not limit or task.oracle_steps <= limit:
                return task
        raise TaskError(
            f"no {self._split} task of {self._suite.name} is done in {limit} step(s)",
            expected="tasks.max_oracle_steps of 0 (no limit), or large enough for some task",
            fix="--tasks.max_oracle_steps 0",
        )


class VersionRate:
    """How fast versions are published, as seen from one worker: by its own clock, whoever publishes."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=RATE_VERSIONS + 1)

    def note(self, version: int, now_s: float) -> None:
        """Remember when a version was first seen."""
        if version >= 0 and (not self._seen or version > self._seen[-1][1]):
            self._seen.append((now_s, version))

    def per_s(self, now_s: float) -> float:
        """Versions per second lately; falls towards 0 while no new one comes."""
        if not self._seen:
            return 0.0
        (first_s, first), (_, last) = self._seen[0], self._seen[-1]
        return (last - first) / (now_s - first_s) if now_s > first_s else 0.0


class AdmissionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of itself when it asks to start an episode."""

    held: int
    """The version in use; -1: none."""
    latest: int
    """The newest published version."""
    running: int = 0
    """Episodes of this worker that are under way."""
    versions_per_s: float = 0.0
    """How fast versions have come lately."""
    usual_s: float = 0.0
    """How long an episode usually takes on this worker; 0: not known yet."""

    @property
    def expected(self) -> int:
        """Whole versions that will usually appear before an episode that starts now is over."""
        return int(self.versions_per_s * self.usual_s)


class Admission:
    """Lets an episode start only where its data can still be used; how many may is up to `rounds`.

    What it will be too old by is foreseen: the versions that the worker is behind, plus those that usually appear
    during an episode. While versions come too fast for that, a worker that has nothing under way and the newest
    weights still plays one episode at a time: it would otherwise never learn that episodes have become shorter.
    Where successes are kept however stale, any episode may be of use, and none is held back for its length.
    """

    def __init__(self, config: Config) -> None:
        self._max_staleness = config.replay.max_staleness
        self._ahead = config.learner.mode == "async" and not config.replay.keep_successes
        """In sync mode nothing is published while a round is played; a success that is kept is never too old."""

    def refusal(self, request: AdmissionRequest) -> str:
        """Why no episode may start now; empty: one may."""
        if request.held < 0:
            return "the first weights from the learner"
        behind = request.latest - request.held
        if behind > self._max_staleness:
            return f"version {request.latest}: version {request.held} is too stale to start with"
        if self._ahead and behind + request.expected > self._max_staleness and (request.running or behind):
            return (
                f"slower versions: about {request.expected} appear during an episode of {request.usual_s:.0f} s, "
                f"and data may be {self._max_staleness} old"
            )
        return ""

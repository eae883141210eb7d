"""When the learner publishes: after a round in sync mode, and in async mode no faster than episodes can follow.

Who plays a round is left to `rollout.rounds`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from statistics import median

import numpy as np

from distrl.config.schema import LearnerConfig
from distrl.experience.index import IndexRow
from distrl.transport.base import EpisodeSource


class Round:
    """Counts the episodes that the newest version began; what an earlier version began late belongs to no round."""

    def __init__(self, learning: LearnerConfig) -> None:
        self._needed = learning.round_episodes if learning.mode == "sync" else 0
        self.num_in = 0

    @property
    def over(self) -> bool:
        """Whether all of it is in; without rounds, always."""
        return self.num_in >= self._needed

    def begin(self) -> None:
        """A new version is out: nothing of its round is in."""
        self.num_in = 0

    def take(self, rows: Iterable[IndexRow], version: int) -> None:
        """Count what has come in of the newest version."""
        self.num_in += sum(row.source == "played" and row.version == version for row in rows)

    def reload(self, store: EpisodeSource, version: int, *, first: int, last: int) -> None:
        """Count again what had come in, after a restart: everything of the newest version has a number in this span."""
        rows = store.after(first - 1, max(0, last + 1 - first))
        self.begin()
        self.take((row for row in rows if row.seq <= last), version)


RECENT_EPISODES = 256
"""Episodes, of all workers together, that tell how long one takes at present."""
VERSIONS_AT_0 = 0.5
"""Versions during a usual episode where data may not age at all: at least every other episode then sees none appear."""


class EpisodeDurations:
    """How long episodes take lately, and on which worker."""

    def __init__(self) -> None:
        self._recent: deque[tuple[str, float]] = deque(maxlen=RECENT_EPISODES)

    def note(self, worker: str, wall_s: float) -> None:
        """An episode of this worker took so long."""
        self._recent.append((worker, wall_s))

    def interval_s(self, max_staleness: int) -> float:
        """The shortest interval between two versions at which usual episodes arrive in time; 0: nothing is known."""
        return self._usual_s() / (max_staleness or VERSIONS_AT_0)

    def _usual_s(self) -> float:
        """What 90 % of all episodes keep to, and half of those of every worker.

        The second because a worker asks its own median before it starts an episode: a slow one with a small part of
        the episodes would otherwise be held back for good, and its part stay small. Budgets bound what that can cost.
        """
        if not self._recent:
            return 0.0
        walls_of: defaultdict[str, list[float]] = defaultdict(list)
        for worker, wall_s in self._recent:
            walls_of[worker].append(wall_s)
        most_s = float(np.quantile([wall_s for _, wall_s in self._recent], 0.9))
        return max(most_s, *map(median, walls_of.values()))

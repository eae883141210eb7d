"""How much of a round the learner has taken in, in sync mode; who plays it is left to `rollout.rounds`."""

from __future__ import annotations

from collections.abc import Iterable

from distrl.config.schema import LearnerConfig
from distrl.experience.index import IndexRow
from distrl.learner.intake import EpisodeSource


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
        self.num_in += sum(row.version == version for row in rows)

    def reload(self, store: EpisodeSource, version: int, *, first: int, last: int) -> None:
        """Count again what had come in, in a next life: everything of the newest version has a number in this span."""
        rows = store.after(first - 1, max(0, last + 1 - first))
        self.begin()
        self.take((row for row in rows if row.seq <= last), version)

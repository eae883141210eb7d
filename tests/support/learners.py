"""A learner on real folders, with a clock that the test turns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch

from distrl.algorithms.base import Algorithm, AlgorithmContext, Loss
from distrl.algorithms.batch import TrainBatch
from distrl.config.schema import Config
from distrl.learner.loop import Learner, LearnerParts
from distrl.policies.base import Policy
from distrl.rollout.hindsight import Relabeller
from distrl.runtime.factory import make_algorithm, make_relabeller
from distrl.tasks.base import find_suite
from distrl.transport.files import CheckpointFolder, FileEpisodes
from distrl.transport.weight_files import WeightsFolder
from distrl.types import PolicyVersion
from support.batches import ORDINARY, Played, decided_episode, tiny_policy

SMALL: dict[str, dict[str, object]] = {
    "policy": {"pointer": {"width": 16, "layers": 1}},
    "algorithm": {"aride": {"critic_warmup_updates": 0}},
    "warm_start": {"keep": False},
    "data": {"filter_noops": False, "hindsight": False},
    "replay": {"capacity_steps": 400, "max_staleness": 4},
    "learner": {
        "batch_trajectories": 3,
        "first_update_episodes": 2,
        "updates_per_episode": 1.0,
        "publish_every_s": 10.0,
        "checkpoint_every_s": 1000.0,
        "keep_versions": 50,
    },
}


def small_config(**sections: dict[str, object]) -> Config:
    """A configuration for a few episodes; each section given adds to that of `SMALL`."""
    names = SMALL.keys() | sections.keys()
    return msgspec.convert({name: {**SMALL.get(name, {}), **sections.get(name, {})} for name in names}, Config)


class Hearer:
    """Remembers the last thing that the learner said."""

    def __init__(self) -> None:
        self.last = ""
        self.figures: dict[str, float] = {}
        self.losses: dict[str, float] = {}
        self.metrics: dict[str, float] = {}

    def doing(self, what: str) -> None:
        self.last = what

    def waiting(self, what: str) -> None:
        self.last = f"waiting for {what}"

    def measured(self, losses: dict[str, float], metrics: dict[str, float]) -> None:
        self.losses, self.metrics, self.figures = losses, metrics, {**losses, **metrics}


class Recording(Algorithm):
    """An algorithm without effect: it records its batches, and is surprised by as much as each step's reward."""

    def __init__(self, *, proximal_every_updates: int = 0, config: Config | None = None) -> None:
        super().__init__(None, AlgorithmContext(replay=(config or small_config()).replay))
        self.proximal_every_updates = proximal_every_updates
        self.batches: list[TrainBatch] = []

    def loss(self, batch: TrainBatch, *, updates: int) -> Loss:
        self.batches.append(batch)
        nothing = torch.zeros_like(batch.reward_BT)
        return Loss(
            total=batch.logp_BT.sum() * 0.0,
            losses={},
            metrics={},
            td_BT=batch.reward_BT,
            ratio_BT=nothing,
            entropy_BT=nothing,
        )


class Workshop:
    """The folders of a run. Every `learner` is a new process on them: what the one before did not save is lost."""

    def __init__(
        self, folder: Path, config: Config | None = None, *, policy: Callable[[], Policy[Any]] = tiny_policy
    ) -> None:
        self.folder, self.config, self.make_policy = folder, config or small_config(), policy
        self.episodes = FileEpisodes(folder / "experience")
        self.store = self.episodes.store
        self.weights = WeightsFolder(folder / "weights", keep=self.config.learner.keep_versions)
        self.checkpoints = CheckpointFolder(folder / "checkpoints")
        self.policy = policy()
        self.hearer = Hearer()
        self.now_s = 0.0
        self.collected_s = 0.0
        """What the supervisor has written down."""
        self._arrived = 0

    def learner(
        self,
        algorithm: Algorithm | None = None,
        *,
        skipped_episode: Callable[[str, str], None] = lambda episode, why: None,
        scorer: Callable[[Policy[Any]], Policy[Any]] = lambda policy: policy,
    ) -> Learner:
        """A learner that has just been started."""
        self.policy = self.make_policy()
        return Learner(
            LearnerParts(
                config=self.config,
                policy=self.policy,
                scorer=scorer(self.policy),
                algorithm=algorithm or make_algorithm(self.config),
                episodes=self.episodes,
                weights=self.weights,
                checkpoints=self.checkpoints,
                report=self.hearer,
                skipped_episode=skipped_episode,
                collected_s=lambda: self.collected_s,
                clock=lambda: self.now_s,
            )
        )

    def relabeller(self) -> Relabeller | None:
        """What a worker of this run relabels its failures by."""
        config = self.config
        return make_relabeller(config, find_suite(config.tasks), self.policy, make_algorithm(config))

    def deliver(self, count: int = 1, played: Played = ORDINARY) -> list[str]:
        """Store so many new episodes; their ids."""
        ids = [f"episode-{self._arrived + index:03d}" for index in range(count)]
        for id in ids:
            self.store.add(decided_episode(tiny_policy(), id, played))
        self._arrived += count
        return ids

    def newest_version(self) -> int:
        """What a worker sees; -1: nothing yet."""
        newest = WeightsFolder(self.folder / "weights").latest()
        return newest.version if newest else -1


def make_version(number: int, *, updates: int = 0, episodes: int = 0) -> PolicyVersion:
    """A version that is about to be published."""
    return PolicyVersion(
        version=number, file="", sha256="", size_bytes=0, updates=updates, episodes=episodes, published_s=1.0
    )

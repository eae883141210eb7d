"""The single-process trainer: instant phones and a fixed staleness. It compares algorithms, not systems.

One iteration plays a chunk of episodes with a policy `lag` versions old and then makes the updates that those episodes
allow. The learner, the replay and the algorithm are the real ones; only the store and the weights are in memory.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from distrl.config.schema import Config
from distrl.evaluation.evaluate import evaluate
from distrl.experience.frames import FrameCache
from distrl.learner.loop import Learner, LearnerParts
from distrl.policies.base import Policy
from distrl.pretraining.cloning import clone, examples_for
from distrl.pretraining.demonstrations import demonstrate, demonstration_tasks
from distrl.pretraining.warm_start import WarmStarter
from distrl.rollout.hindsight import flip_seed_of, misjudged
from distrl.runtime.factory import make_algorithm, make_evaluation, make_feed, make_policy, make_relabeller
from distrl.tasks.base import find_suite
from distrl.transport.memory import MemoryTransport
from distrl.types import Task, Trajectory

RECENT = 256

WarmStart = Callable[[Policy[Any], Config], None]
"""Pretrains a policy before reinforcement learning."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One training."""

    config: Config
    episodes: int
    chunk: int = 64
    """Episodes between two versions."""
    lag: int = 2
    """How many versions old the acting policy is."""
    evaluate_every: int = 0
    """Episodes between two evaluations; 0: only at the start and at the end."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation during training."""

    episodes: int
    success: float
    train_success: float
    """Among the most recent training episodes."""
    updates: int
    wall_s: float
    losses: dict[str, float]


class SingleProcessTrainer:
    """Trains as its plan says."""

    def __init__(self, plan: Plan, held_out: list[Task], warm: WarmStart | None = None) -> None:
        self._plan, self._held_out, self._warm = plan, held_out, warm or warm_start
        config = plan.config
        self.policy, self._actor = make_policy(config), make_policy(config)
        self._algorithm, suite = make_algorithm(config), find_suite(config.tasks)
        self._transport = MemoryTransport(keep_versions=plan.lag + 1, forget_read=True)
        self._metrics = _LastMetrics()
        parts = LearnerParts(
            config=config,
            policy=self.policy,
            algorithm=self._algorithm,
            episodes=self._transport.episodes,
            weights=self._transport.weights,
            checkpoints=self._transport.checkpoints,
            report=self._metrics,
        )
        self._learner = Learner(parts)
        self._relabeller = make_relabeller(config, suite, self.policy, self._algorithm)
        # The text is part of the seed: another one would draw other tasks.
        self._feed = make_feed(config, suite, seed=f"lab {config.run.seed}")
        self._recent: deque[bool] = deque(maxlen=RECENT)
        self._played = 0
        self._misjudged, self._known = Counter[str](), Counter[str]()

    def run(self, report: Callable[[Point], None]) -> list[Point]:
        """Train to the end of the plan; `report` gets every evaluation as it is made."""
        started_s, points = time.monotonic(), []
        self._warm(self.policy, self._plan.config)
        self._learner.keep(WarmStarter(self._plan.config, self.policy, FrameCache(0), _Silent()).kept())
        for _ in range(self._plan.lag + 1):  # so that the first episodes arrive as old as all later ones
            self._learner.publish()
        while True:
            if self._due():
                points.append(self._evaluate(started_s))
                report(points[-1])
            if self._played >= self._plan.episodes:
                return points
            self._play_chunk()
            self._learn()

    def averaged_weights(self) -> AbstractContextManager[None]:
        """Swap the averaged weights, with which a run ends, into the policy."""
        return self._learner.ema.swapped()

    def error_rates(self) -> dict[str, float]:
        """Of the verdicts that the learner saw, the share that was wrong: of failures, of successes, and of all."""
        known, wrong = self._known, self._misjudged
        found = {outcome: wrong[outcome] / max(1, known[outcome]) for outcome in ("failure", "success")}
        return {**found, "all": wrong.total() / max(1, known.total())}

    def _due(self) -> bool:
        every = self._plan.evaluate_every
        ends = self._played == 0 or self._played >= self._plan.episodes
        return ends or bool(every and self._played % every == 0)

    def _evaluate(self, started_s: float) -> Point:
        with self.averaged_weights():
            found = evaluate(self.policy, self._held_out, make_evaluation(self._plan.config, seed=0))
        return Point(
            episodes=self._played,
            success=sum(t.verdict.success for t in found) / max(1, len(found)),
            train_success=sum(self._recent) / max(1, len(self._recent)),
            updates=self._learner.updates,
            wall_s=time.monotonic() - started_s,
            losses=self._metrics.last,
        )

    def _play_chunk(self) -> None:
        config = self._plan.config
        oldest = self._transport.weights.oldest()
        assert oldest is not None, "the first versions are published before the first chunk"
        self._transport.weights.load(self._actor, oldest)
        how = make_evaluation(config, seed=config.run.seed * 1_000_003 + self._played)
        how = replace(how, temperature=config.rollout.temperature, version=oldest.version)
        tasks = [self._feed.next() for _ in range(self._plan.chunk)]
        for number, trajectory in enumerate(evaluate(self._actor, tasks, how)):
            self._store(replace(trajectory, id=f"{self._played}-{number}"))
            self._recent.append(trajectory.verdict.success)
        self._played += self._plan.chunk

    def _store(self, played: Trajectory) -> None:
        """Keep an episode, and what hindsight makes of it."""
        episodes, data = self._transport.episodes, self._plan.config.data
        seen = misjudged(played, data.outcome_flip, seed=flip_seed_of(self._plan.config))
        self._known[played.verdict.outcome] += played.verdict.known
        self._misjudged[played.verdict.outcome] += seen.verdict.outcome != played.verdict.outcome
        episodes.add(replace(played, priority=self._algorithm.first_priority(played)))
        relabelled = self._relabeller.relabel(played) if self._relabeller else None
        if relabelled is not None:
            episodes.add(relabelled)

    def _learn(self) -> None:
        while self._learner.take_in(limit=self._plan.chunk):
            pass
        while self._learner.ready():
            self._learner.update()
        self._learner.publish()


def warm_start(policy: Policy[Any], config: Config) -> None:
    """Clone the configured number of demonstrations."""
    if not config.warm_start.demonstrations:
        return
    pairs = demonstrate(demonstration_tasks(config), config.devices.sim.perturbations, history=config.rollout.history)
    examples = examples_for(policy, pairs)
    clone(policy, examples, config.warm_start, random=Random(config.run.seed), report=lambda now: None)


def play_tasks(policy: Policy[Any], tasks: Sequence[Task], config: Config) -> list[bool]:
    """Success on each task, in their order, so that methods are compared task by task; a lost episode is a failure."""
    played = evaluate(policy, tasks, make_evaluation(config, seed=config.run.seed))
    success = {trajectory.task.id: trajectory.verdict.success for trajectory in played}
    return [success.get(task.id, False) for task in tasks]


class _LastMetrics:
    """Keeps the learner's last metrics."""

    def __init__(self) -> None:
        self.last: dict[str, float] = {}

    def doing(self, what: str) -> None:
        """Nothing to report to."""

    def waiting(self, what: str) -> None:
        """Nothing to report to."""

    def measured(self, losses: dict[str, float], metrics: dict[str, float]) -> None:
        """Take the losses and metrics of an update."""
        self.last = {**losses, **metrics}


class _Silent:
    """Hears how a warm start goes, and tells nobody."""

    def say(self, what: str) -> None:
        """Nobody watches."""

    def alive(self) -> None:
        """Nobody watches."""

    def measured(self, values: dict[str, float]) -> None:
        """Nobody watches."""

    def log(self, what: str) -> None:
        """Nobody watches."""

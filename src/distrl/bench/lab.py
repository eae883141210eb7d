"""Training without waiting: one process, instant phones, staleness set by hand. For comparing algorithms, not systems.

A turn plays a chunk of episodes with a policy `lag` versions old and then makes the updates that those episodes are
due. The learner, the replay and the algorithm are the real ones; only the store and the weights live in memory.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from distrl.config.schema import Config
from distrl.evaluation.evaluate import Evaluation, evaluate
from distrl.experience.index import IndexRow
from distrl.experience.priorities import first_priority
from distrl.learner.checkpoint import Checkpoint
from distrl.learner.loop import Learner, LearnerParts
from distrl.policies.base import Policy
from distrl.pretraining.cloning import clone, demonstrate, demonstration_tasks, examples_for
from distrl.runtime.assembly import make_algorithm, make_feed, make_fitting, make_policy
from distrl.types import PolicyVersion, Task, Trajectory

RECENT = 256

WarmStart = Callable[[Policy[Any], Config], None]
"""Makes a policy what it is when practice begins."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to run."""

    config: Config
    episodes: int
    chunk: int = 64
    """Episodes between two versions."""
    lag: int = 2
    """How many versions old the acting policy is."""
    evaluate_every: int = 0
    """Episodes between two evaluations; 0: only at the start and at the end."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """An evaluation on the way."""

    episodes: int
    success: float
    train_success: float
    """Among the last training episodes."""
    updates: int
    wall_s: float
    losses: dict[str, float]


class Lab:
    """One training by a plan."""

    def __init__(self, plan: Plan, held_out: list[Task], warm: WarmStart | None = None) -> None:
        self._plan, self._held_out, self._warm = plan, held_out, warm or warm_start
        config = plan.config
        self.policy, self._actor = make_policy(config), make_policy(config)
        self._memory, self._versions, self._report = _Memory(), _Versions(plan.lag), _Quiet()
        parts = LearnerParts(
            config=config,
            policy=self.policy,
            algorithm=make_algorithm(config),
            store=self._memory,
            weights=self._versions,
            checkpoints=_NoCheckpoints(),
            report=self._report,
            fitting=make_fitting(config),
        )
        self._learner = Learner(parts)
        self._feed = make_feed(config, seed=f"lab {config.run.seed}")
        self._recent: deque[bool] = deque(maxlen=RECENT)
        self._played = 0

    def run(self, tell: Callable[[Point], None]) -> list[Point]:
        """Train to the end of the plan; `tell` hears every evaluation as it comes."""
        started_s, points = time.monotonic(), []
        self._warm(self.policy, self._plan.config)
        self._learner.keep_demonstrations()
        for _ in range(self._plan.lag + 1):  # so that the first episodes arrive as old as all later ones
            self._learner.publish()
        while True:
            if self._due():
                points.append(self._evaluate(started_s))
                tell(points[-1])
            if self._played >= self._plan.episodes:
                return points
            self._play_chunk()
            self._learn()

    def averaged(self) -> AbstractContextManager[None]:
        """Let the policy have the weights that a run would end with."""
        return self._learner.average.shown()

    def _due(self) -> bool:
        every = self._plan.evaluate_every
        ends = self._played == 0 or self._played >= self._plan.episodes
        return ends or bool(every and self._played % every == 0)

    def _evaluate(self, started_s: float) -> Point:
        with self.averaged():
            found = evaluate(self.policy, self._held_out, Evaluation(config=self._plan.config))
        return Point(
            episodes=self._played,
            success=sum(t.verdict.success for t in found) / max(1, len(found)),
            train_success=sum(self._recent) / max(1, len(self._recent)),
            updates=self._learner.updates,
            wall_s=time.monotonic() - started_s,
            losses=self._report.last,
        )

    def _play_chunk(self) -> None:
        config = self._plan.config
        version, weights = self._versions.held[0]
        self._actor.restore(weights, source="memory")
        seed = config.run.seed * 1_000_003 + self._played
        how = Evaluation(config=config, seed=seed, temperature=config.rollout.temperature, version=version)
        tasks = [self._feed.next() for _ in range(self._plan.chunk)]
        for number, trajectory in enumerate(evaluate(self._actor, tasks, how)):
            named = replace(trajectory, id=f"{self._played}-{number}")
            priority = first_priority(named, config.replay, gamma=config.algorithm.gamma)
            self._memory.add(replace(named, priority=priority))
            self._recent.append(trajectory.verdict.success)
        self._played += self._plan.chunk

    def _learn(self) -> None:
        self._learner.take_in(limit=self._plan.chunk)
        while self._learner.ready():
            self._learner.update()
        self._learner.publish()


def warm_start(policy: Policy[Any], config: Config) -> None:
    """Clone the configured number of demonstrations."""
    if not config.warm_start.demonstrations:
        return
    pairs = demonstrate(demonstration_tasks(config), config.devices.wild, history=config.rollout.history)
    examples = examples_for(policy, pairs)
    clone(policy, examples, config.warm_start, random=Random(config.run.seed), tell=lambda now: None)


class _Memory:
    """Episodes in memory, as the learner reads them."""

    def __init__(self) -> None:
        self._held: dict[str, Trajectory] = {}
        self._rows: list[IndexRow] = []

    def add(self, trajectory: Trajectory) -> None:
        self._held[trajectory.id] = trajectory
        row = IndexRow(
            seq=len(self._rows) + 1,
            id=trajectory.id,
            task=trajectory.task.id,
            template=trajectory.task.template,
            version=trajectory.version,
            steps=len(trajectory.steps),
            success=trajectory.verdict.success,
            ending=trajectory.ending,
            wall_s=trajectory.wall_s,
            worker="lab",
            created_s=0.0,
            size_bytes=0,
        )
        self._rows.append(row)

    def after(self, seq: int, limit: int) -> list[IndexRow]:
        return self._rows[seq : seq + limit]

    def read(self, id: str) -> Trajectory:
        return self._held.pop(id)


class _Versions:
    """The last few versions, in memory; the oldest of them acts."""

    def __init__(self, lag: int) -> None:
        self.held: deque[tuple[int, bytes]] = deque(maxlen=lag + 1)

    def latest(self) -> PolicyVersion | None:
        return None

    def publish(self, policy: Policy[Any], version: PolicyVersion) -> PolicyVersion:
        self.held.append((version.version, policy.dump()))
        return version


class _NoCheckpoints:
    def newest(self) -> Checkpoint | None:
        return None

    def write(self, checkpoint: Checkpoint) -> None:
        return None


class _Quiet:
    """Keeps the last measurement."""

    def __init__(self) -> None:
        self.last: dict[str, float] = {}

    def doing(self, what: str) -> None:
        """Nobody watches."""

    def waiting(self, what: str) -> None:
        """Nobody watches."""

    def measured(self, values: dict[str, float]) -> None:
        self.last = values

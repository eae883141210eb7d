"""Training without waiting: one process, instant phones, staleness set by hand. For comparing algorithms, not systems.

A turn plays a chunk of episodes with a policy `lag` versions old and then makes the updates that those episodes are
due. The learner, the replay and the algorithm are the real ones; only the store and the weights live in memory.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from distrl.config.schema import Config
from distrl.evaluation.evaluate import Evaluation, evaluate
from distrl.experience.index import IndexRow
from distrl.experience.priorities import first_priority
from distrl.learner.checkpoint import Checkpoint
from distrl.learner.loop import Learner, LearnerParts
from distrl.learner.warm_start import clone, demonstrate, demonstration_tasks, examples_for
from distrl.policies.base import Policy
from distrl.rollout.scheduler import TaskFeed
from distrl.runtime.assembly import make_algorithm, make_policy
from distrl.tasks.suites import suite
from distrl.types import PolicyVersion, Task, Trajectory


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to run."""

    config: Config
    episodes: int
    chunk: int = 64
    """Episodes between two versions."""
    lag: int = 2
    """How many versions old the acting policy is."""
    evaluate_every: int = 0
    """Episodes between two evaluations; 0: only at the end."""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """An evaluation on the way."""

    episodes: int
    success: float
    train_success: float
    samples: int
    wall_s: float


class _Memory:
    """Episodes in memory, as the learner reads them."""

    def __init__(self) -> None:
        self._held: dict[str, Trajectory] = {}
        self._rows: list[IndexRow] = []

    def add(self, trajectory: Trajectory) -> None:
        seq = len(self._rows) + 1
        self._held[trajectory.id] = trajectory
        self._rows.append(
            IndexRow(
                seq=seq,
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
        )

    def after(self, seq: int, limit: int) -> list[IndexRow]:
        return self._rows[seq : seq + limit]

    def read(self, id: str) -> Trajectory:
        return self._held.pop(id)


class _Versions:
    """The last few versions, in memory."""

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
    def __init__(self) -> None:
        self.last: dict[str, float] = {}

    def doing(self, what: str) -> None: ...

    def waiting(self, what: str) -> None: ...

    def measured(self, values: dict[str, float]) -> None:
        self.last = values


def run_lab(plan: Plan, held_out: list[Task], tell: Callable[[Point, dict[str, float]], None]) -> Policy[Any]:
    """Train by `plan`; `tell` hears every evaluation. Returns the trained policy."""
    config, started_s = plan.config, time.monotonic()
    policy = make_policy(config)
    warm_start(policy, config)
    memory, versions, quiet = _Memory(), _Versions(plan.lag), _Quiet()
    learner = Learner(
        LearnerParts(
            config=config,
            policy=policy,
            algorithm=make_algorithm(config),
            store=memory,
            weights=versions,
            checkpoints=_NoCheckpoints(),
            report=quiet,
        )
    )
    learner.publish()
    feed = TaskFeed(
        suite(config.tasks.suite),
        "train",
        seed=f"lab {config.run.seed}",
        max_oracle_steps=config.tasks.max_oracle_steps,
    )
    actor = make_policy(config)
    recent: deque[bool] = deque(maxlen=256)
    played = samples = 0
    while True:
        if played == 0 or played >= plan.episodes or (plan.evaluate_every and played % plan.evaluate_every == 0):
            found = evaluate(policy, held_out, Evaluation(config=config, seed=0))
            success = sum(t.verdict.success for t in found) / max(1, len(found))
            rate = sum(recent) / max(1, len(recent))
            tell(
                Point(
                    episodes=played,
                    success=success,
                    train_success=rate,
                    samples=samples,
                    wall_s=time.monotonic() - started_s,
                ),
                quiet.last,
            )
        if played >= plan.episodes:
            return policy
        version, weights = versions.held[0]
        actor.restore(weights, source="memory")
        how = Evaluation(
            config=config,
            seed=config.run.seed * 100_000 + played,
            temperature=config.rollout.temperature,
            version=version,
        )
        for number, trajectory in enumerate(evaluate(actor, [feed.next() for _ in range(plan.chunk)], how)):
            named = msgspec.structs.replace(trajectory, id=f"{played}-{number}")
            first = first_priority(named, config.replay, gamma=config.algorithm.gamma)
            memory.add(msgspec.structs.replace(named, priority=first))
            recent.append(trajectory.verdict.success)
        played += plan.chunk
        learner.take_in(limit=plan.chunk)
        while (
            learner.updates < learner.episodes * config.learner.updates_per_episode
            and learner.episodes >= config.learner.first_update_episodes
        ):
            learner.update()
        samples = learner.updates * config.learner.batch_trajectories
        learner.publish()


def warm_start(policy: Policy[Any], config: Config) -> None:
    """Clone the configured number of demonstrations."""
    if not config.warm_start.demonstrations:
        return
    random = Random(config.run.seed)
    pairs = demonstrate(demonstration_tasks(config), config.devices.wild, history=config.rollout.history)
    clone(policy, examples_for(policy, pairs), config.warm_start, random=random, beat=lambda share: None)

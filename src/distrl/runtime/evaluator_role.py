"""The evaluator in its process: pins a version, plays held-out tasks with it, writes a report, while training goes on."""

from __future__ import annotations

import os
import time
from typing import Any

from msgspec.structs import replace

from distrl.errors import StoreError
from distrl.evaluation.evaluate import Evaluation, evaluate, evaluate_by
from distrl.evaluation.report import make_report
from distrl.policies.base import Policy
from distrl.rollout.batching import Decider
from distrl.rollout.remote import Pinned
from distrl.runtime.base import RoleContext
from distrl.runtime.factory import (
    leases_of,
    make_evaluation,
    make_frame_cache,
    make_pinned_decider,
    make_policy,
    prepare_torch,
)
from distrl.tasks.base import find_suite, held_out, held_out_templates
from distrl.transport.base import VersionGone
from distrl.types import PolicyVersion, Task, Trajectory

POLL_S = 0.1
NICENESS = 5
"""Training comes first where there are few cores."""


def keep_evaluating(context: RoleContext) -> None:
    """Evaluate the first version, then one now and then, and the last one when asked to stop."""
    prepare_torch()
    config, weights = context.config.evaluation, context.transport.weights
    os.nice(NICENESS)
    first = _await_first(context)
    if first is None:
        return
    evaluator = Evaluator(context)
    if not context.transport.reports.has("before"):
        evaluator.evaluate(first, config.episodes, name="before")
    last_s = time.monotonic()
    while not context.stopping():
        newest = weights.latest()
        if config.every_s and newest and time.monotonic() - last_s >= config.every_s:
            evaluator.evaluate(newest, config.during_episodes, name=f"v{newest.version:06d}")
            last_s = time.monotonic()
        evaluator.rest()
        time.sleep(POLL_S)
    final = weights.latest()
    if final is not None and not context.orphaned():
        evaluator.evaluate(final, config.episodes, name="after")


def _await_first(context: RoleContext) -> PolicyVersion | None:
    weights = context.transport.weights
    while weights.latest() is None:
        if context.stopping():
            return None
        context.heartbeat.waiting("the first weights from the learner")
        time.sleep(POLL_S)
    return weights.find(0) or weights.latest()


class Evaluator:
    """Holds the policy that takes on one version after another: a large one is slow to load, and memory holds one.

    Where inference actors decide for the workers, they decide here too, by the version that is evaluated, and no policy is held.
    """

    def __init__(self, context: RoleContext) -> None:
        self._context = context
        self._frames = make_frame_cache(context.config)
        elsewhere = context.config.rollout.decide == "actors"
        self._policy = None if elsewhere else make_policy(context.config, self._frames)
        self._decider: Decider | None = None
        """Who decides in the evaluation that is under way, where it is an actor."""
        self._num_reports = 0
        """In this incarnation: one that dies before its first has made no progress."""

    def evaluate(self, version: PolicyVersion, count: int, *, name: str) -> None:
        """Play the tasks with a version and write the report, unless the version is gone and newer ones are there."""
        context, config = self._context, self._context.config
        self._begin()
        # The curve on the way comes from the tuning split: test tasks are played before and after, and never between.
        tasks = held_out(config.tasks, count, "test" if name in ("before", "after") else "tune")
        how = make_evaluation(config, seed=config.run.seed, frames=self._frames)
        # With the report's name: a version may be evaluated twice in a row, and each has its own deadline.
        words = f"evaluating version {version.version} ({name})"
        how = replace(
            how,
            leases=leases_of(context),
            beat=lambda done: self._beat(f"{words}: {done} of {len(tasks)}"),
            needs=lambda seconds: context.heartbeat.figures.update(needs_s=seconds),
        )
        try:
            played = self._play(version, tasks, how)
        except VersionGone as error:
            if context.transport.weights.latest() == version:
                raise
            # It was removed for newer versions in the meantime: the next turn takes one of those.
            context.log.write("skipped", version=version.version, why=error.seen)
            return
        unseen = held_out_templates(find_suite(config.tasks))
        report = make_report(played, suite=config.tasks.suite, version=version.version, unseen=unseen)
        context.transport.reports.write(name, report)
        self._num_reports += 1
        figures = {"success": report.success, "version": version.version, "n": report.n, "unknown": report.unknown}
        context.heartbeat.figures.update({**figures, "progress": 1.0})
        metrics = {f"evaluator/{key}": value for key, value in figures.items()}
        context.metrics.write("evaluator", role="evaluator", **metrics)

    def _play(self, version: PolicyVersion, tasks: list[Task], how: Evaluation) -> list[Trajectory]:
        if self._policy is not None:
            self._load(self._policy, version)
            return evaluate(self._policy, tasks, how)

        def elsewhere(num_devices: int) -> Decider:
            pinned = Pinned(version=version, temperature=how.temperature)
            self._decider = make_pinned_decider(self._context, self._frames, pinned, batch_size=num_devices)
            return self._decider

        try:
            return evaluate_by(elsewhere, tasks, how)
        finally:
            self._decider = None

    def _load(self, policy: Policy[Any], version: PolicyVersion) -> None:
        weights = self._context.transport.weights
        try:
            weights.load(policy, version)
        except StoreError as error:
            if weights.latest() == version:
                raise
            raise VersionGone(error.seen) from error

    def rest(self) -> None:
        """Say that nothing is due: a process that waits for its turn is well, whoever kills it."""
        self._context.heartbeat.figures["progress"] = 1.0
        self._context.heartbeat.waiting("its next turn")

    def _begin(self) -> None:
        """Say that something is due, before anything can go wrong: from here on only a report is progress."""
        heartbeat = self._context.heartbeat
        heartbeat.figures["progress"] = float(self._num_reports > 0)
        heartbeat.figures.pop("needs_s", None)  # of the evaluation before
        heartbeat.beat(force=True)

    def _beat(self, what: str) -> None:
        lacks = "" if self._decider is None else self._decider.waiting
        if lacks:
            self._context.heartbeat.waiting(lacks)
        else:
            self._context.heartbeat.doing(what)
        if self._context.orphaned():
            raise SystemExit(0)  # nobody waits for the report

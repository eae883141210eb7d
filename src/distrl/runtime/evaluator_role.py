"""The evaluator in its process: pins a version, plays held-out tasks with it, writes a report, while training goes on."""

from __future__ import annotations

import os
import time

from msgspec.structs import replace

from distrl.errors import StoreError
from distrl.evaluation.evaluate import evaluate
from distrl.evaluation.report import make_report
from distrl.runtime.base import RoleContext
from distrl.runtime.factory import leases_of, make_evaluation, make_frame_cache, make_policy, prepare_torch
from distrl.tasks.base import held_out
from distrl.types import PolicyVersion

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
    """Holds the policy that takes on one version after another: a large one is slow to load, and memory holds one."""

    def __init__(self, context: RoleContext) -> None:
        self._context = context
        self._frames = make_frame_cache(context.config)
        self._policy = make_policy(context.config, self._frames)
        self._num_reports = 0
        """In this incarnation: one that dies before its first has made no progress."""

    def evaluate(self, version: PolicyVersion, count: int, *, name: str) -> None:
        """Play the tasks with a version and write the report, unless the version is gone and newer ones are there."""
        context, config = self._context, self._context.config
        self._begin()
        try:
            context.transport.weights.load(self._policy, version)
        except StoreError as error:
            if context.transport.weights.latest() == version:
                raise
            # It was removed for newer versions in the meantime: the next turn takes one of those.
            context.log.write("skipped", version=version.version, why=error.seen)
            return
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
        report = make_report(evaluate(self._policy, tasks, how), suite=config.tasks.suite, version=version.version)
        context.transport.reports.write(name, report)
        self._num_reports += 1
        figures = {"success": report.success, "version": version.version, "n": report.n, "unknown": report.unknown}
        context.heartbeat.figures.update({**figures, "progress": 1.0})
        metrics = {f"evaluator/{key}": value for key, value in figures.items()}
        context.metrics.write("evaluator", role="evaluator", **metrics)

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
        self._context.heartbeat.doing(what)
        if self._context.orphaned():
            raise SystemExit(0)  # nobody waits for the report

"""The evaluator in its process: pins a version, plays held-out tasks with it, writes a report, while training goes on."""

from __future__ import annotations

import os
import time

import msgspec

from distrl.errors import StoreError
from distrl.evaluation.evaluate import Evaluation, evaluate, held_out
from distrl.evaluation.report import make_report
from distrl.experience.durable import replace
from distrl.learner.weights import WeightsFolder
from distrl.runtime.assembly import make_policy, make_sight, prepare_torch
from distrl.runtime.role import Life
from distrl.types import PolicyVersion

NAP_S = 0.1
POLITENESS = 5
"""Added to the niceness: training comes first where there are few cores."""


def keep_evaluating(life: Life) -> None:
    """Evaluate the first version, then one now and then, and the last one when asked to stop."""
    prepare_torch()
    evaluation, weights = life.config.evaluation, WeightsFolder(life.run.weights)
    os.nice(POLITENESS)
    first = _await_first(life, weights)
    if first is None:
        return
    examiner = Examiner(life, weights)
    if not (life.run.evaluations / "before.json").exists():
        examiner.evaluate(first, evaluation.episodes, name="before")
    last_s = time.monotonic()
    life.pulse.figures["progress"] = 1.0  # also where nothing was due: a life that waits for its turn is a good one
    while not life.stopping():
        newest = weights.latest()
        if evaluation.every_s and newest and time.monotonic() - last_s >= evaluation.every_s:
            examiner.evaluate(newest, evaluation.during_episodes, name=f"v{newest.version:06d}")
            last_s = time.monotonic()
        life.pulse.waiting("its next turn")
        time.sleep(NAP_S)
    final = weights.latest()
    if final is not None and not life.orphaned():
        examiner.evaluate(final, evaluation.episodes, name="after")


def _await_first(life: Life, weights: WeightsFolder) -> PolicyVersion | None:
    while weights.latest() is None:
        if life.stopping():
            return None
        life.pulse.waiting("the first weights from the learner")
        time.sleep(NAP_S)
    return weights.find(0) or weights.latest()


def _beat(life: Life, what: str) -> None:
    life.pulse.doing(what)
    if life.orphaned():
        raise SystemExit(0)  # nobody waits for the report


class Examiner:
    """Holds the policy that takes on one version after another: a large one is slow to load, and there is room for one."""

    def __init__(self, life: Life, weights: WeightsFolder) -> None:
        self._life, self._weights = life, weights
        self._sight = make_sight(life.config)
        self._policy = make_policy(life.config, self._sight)

    def evaluate(self, version: PolicyVersion, count: int, *, name: str) -> None:
        """Play the tasks with a version and write the report, unless the version is gone and newer ones are there."""
        life = self._life
        try:
            self._weights.load(self._policy, version)
        except StoreError as error:
            if self._weights.latest() == version:
                raise
            # It made room for newer versions in the meantime: the next turn takes one of those.
            life.log.write("skipped", version=version.version, why=error.seen)
            return
        # The curve on the way comes from the tuning split: test tasks are looked at before and after, and never between.
        tasks = held_out(life.config, count, "test" if name in ("before", "after") else "tune")
        how = Evaluation(
            config=life.config,
            seed=life.config.run.seed,
            beat=lambda done: _beat(life, f"evaluating version {version.version}: {done} of {len(tasks)}"),
            keep_frame=None if self._sight is None else self._sight.put,
        )
        played = evaluate(self._policy, tasks, how)
        report = make_report(played, suite=life.config.tasks.suite, version=version.version)
        life.run.evaluations.mkdir(exist_ok=True)
        replace(life.run.evaluations / f"{name}.json", msgspec.json.format(msgspec.json.encode(report)))
        told = {"success": report.success, "version": version.version, "n": report.n}
        life.pulse.figures.update({**told, "progress": 1.0})
        life.metrics.write("evaluator", role="evaluator", **{f"evaluator/{key}": value for key, value in told.items()})

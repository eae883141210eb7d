"""Hindsight relabelling: a failed episode as a success at some training task that its end does fulfil.

Done by whoever played, right after the verdict, and stored as a trajectory of its own (`source = "hindsight"`), so that
it is never made again. Which tasks an episode fulfilled is up to the suite (`tasks.base.RelabelsEpisodes`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from random import Random
from typing import Any

from msgspec.structs import replace

from distrl.experience.noop import noop_steps
from distrl.policies.base import Policy
from distrl.tasks.base import Fitting
from distrl.types import Task, Trajectory, Verdict

SUFFIX = "+hindsight"
"""Ends the id of a trajectory that was given another task."""
TASKS_TRIED = 4
"""Tasks that a failure is tried as, at most: what it typed has to stand in the new instruction too."""


class Relabeller:
    """Relabels the failures of one policy."""

    def __init__(
        self,
        fitting: Fitting,
        policy: Policy[Any],
        *,
        filter_noops: bool,
        outcome_flip: float,
        first_priority: Callable[[Trajectory], float],
    ) -> None:
        self._fitting, self._policy, self._filter_noops = fitting, policy, filter_noops
        self._outcome_flip, self._first_priority = outcome_flip, first_priority
        self.num_relabelled = 0
        self.num_inexpressible = 0
        """Failures that fulfilled other tasks, under whose instructions the policy could not have acted so."""

    def relabel(self, played: Trajectory) -> Trajectory | None:
        """A failure as a success at the first task that it fulfilled and that the policy can express; None: no such."""
        played, tried = misjudged(played, self._outcome_flip), False
        if not played.verdict.known:
            return None
        for task in islice(self._fitting(played), TASKS_TRIED):
            relabelled = as_success_at(task, played, self._policy, filter_noops=self._filter_noops)
            if relabelled is not None:
                self.num_relabelled += 1
                return replace(relabelled, priority=self._first_priority(relabelled))
            tried = True
        self.num_inexpressible += tried
        return None


def as_success_at(task: Task, played: Trajectory, policy: Policy[Any], *, filter_noops: bool) -> Trajectory | None:
    """`played` as a success at `task`, with `filter_noops` without its no-op steps; None where a step is inexpressible or none is left."""
    steps = []
    noops = noop_steps(played) if filter_noops else [False] * len(played.steps)
    for step, noop in zip(played.steps, noops, strict=True):
        seen = replace(step.observation, instruction=task.instruction)
        choice = None if noop else policy.imitate(seen, step.decision.action)
        if choice is not None:
            steps.append(replace(step, observation=seen, decision=replace(step.decision, choice=choice)))
        elif not noop:
            return None
    if not steps:
        return None
    steps[-1] = replace(steps[-1], reward=steps[-1].reward + 1.0)
    verdict = Verdict(outcome="success", reason="in hindsight", progress=1.0)
    return replace(
        played, id=f"{played.id}{SUFFIX}", task=task, steps=tuple(steps), verdict=verdict, source="hindsight"
    )


def misjudged(played: Trajectory, share: float) -> Trajectory:
    """`played` with the other verdict for this share of the episodes that the agent ended; the id decides which."""
    if not played.ending.is_terminal or not played.verdict.known:
        return played
    if Random(f"verdict {played.id}").random() >= share:
        return played
    success = not played.verdict.success
    last = replace(played.steps[-1], reward=played.steps[-1].reward + (1.0 if success else -1.0))
    verdict = replace(played.verdict, outcome="success" if success else "failure")
    return replace(played, steps=(*played.steps[:-1], last), verdict=verdict)

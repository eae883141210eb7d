"""Which held-out tasks a policy fulfils, task by task, so that methods can be compared on the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distrl.config.schema import Config
from distrl.evaluation.evaluate import Evaluation, evaluate
from distrl.policies.base import Policy
from distrl.types import Task


def outcomes(policy: Policy[Any], tasks: Sequence[Task], config: Config) -> list[bool]:
    """Success on each task, in their order; an episode that came to nothing counts as a failure."""
    played = evaluate(policy, tasks, Evaluation(config=config, seed=config.run.seed))
    success = {trajectory.task.id: trajectory.verdict.success for trajectory in played}
    return [success.get(task.id, False) for task in tasks]

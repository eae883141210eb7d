"""The tasks of AndroidWorld (arXiv 2405.14573) as a suite: its goals, its set-up and its own check, on our devices.

The package is not part of distrl: the user has it, in a Python of its own if need be. The test split is what AndroidWorld's own runner makes of
`tasks.android_world.seed`; training and tuning tasks are of other seeds, without the goals that the test split has, since many of its
tasks have the same goal whatever the seed. An attempt may take ten steps for each unit of a task's complexity, as there.
"""

from __future__ import annotations

import logging

from distrl.config.judging import AndroidWorldConfig
from distrl.devices.android.world import WorldTask, list_tasks
from distrl.tasks.base import SPLITS, check_index
from distrl.types import AndroidSetup, RewardCheck, Split, Task

log = logging.getLogger("distrl.tasks")
STEPS_PER_COMPLEXITY = 10


class AndroidWorldSuite:
    """AndroidWorld's tasks, by name and number."""

    name = "android_world"

    def __init__(self, settings: AndroidWorldConfig | None = None) -> None:
        config = settings or AndroidWorldConfig()
        seeds: dict[Split, int] = {"test": config.seed, "train": config.seed + 1, "tune": config.seed + 2}
        found = {
            split: list_tasks(config.python, seed=seed, count=config.instances, names=config.names)
            for split, seed in seeds.items()
        }
        self._tasks: dict[Split, list[Task]] = {split: [] for split in SPLITS}
        taken: set[str] = set()
        for split in ("test", "tune", "train"):
            fresh = {task.goal: task for task in found[split] if task.goal.casefold() not in taken}
            for task in found[split] if split == "test" else fresh.values():
                self._tasks[split].append(self._task(split, task))
            taken |= {goal.casefold() for goal in fresh}
        left_out = len(found["train"]) - self.size("train")
        if left_out:
            log.info("%d of %d training tasks have a goal that is tested or tuned on", left_out, len(found["train"]))

    def size(self, split: Split) -> int:
        """How many tasks a split has."""
        return len(self._tasks[split])

    def task(self, split: Split, index: int) -> Task:
        """Task number `index` of a split; `TaskError` beyond its size."""
        check_index(self, split, index)
        return self._tasks[split][index]

    def _task(self, split: Split, task: WorldTask) -> Task:
        return Task(
            id=f"{self.name}/{split}/{len(self._tasks[split]):05d}",
            suite=self.name,
            template=task.name,
            split=split,
            instruction=task.goal,
            setup=AndroidSetup(world=f"{task.name}/{task.seed}"),
            check=RewardCheck(at_least=1.0),
            max_steps=max(1, int(STEPS_PER_COMPLEXITY * task.complexity)),
        )

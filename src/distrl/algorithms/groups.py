"""What came of the latest attempts at each task, for algorithms that compare attempts with each other.

Nobody waits for a group to be whole: an attempt is compared with whatever has arrived. Memory is bounded in attempts
per task and in tasks; the task that has been quiet the longest goes first.
"""

from __future__ import annotations

from collections import deque

MAX_TASKS = 4096


class Groups:
    """Outcomes by task."""

    def __init__(self, size: int, *, max_tasks: int = MAX_TASKS) -> None:
        # Two at least: where tasks are not repeated in a row, an attempt is still compared with the one before.
        self._size, self._max_tasks = max(2, size), max_tasks
        self._outcomes: dict[str, deque[bool]] = {}

    def __len__(self) -> int:
        """Tasks remembered."""
        return len(self._outcomes)

    def add(self, task: str, success: bool) -> None:
        """Remember an attempt; the oldest at the task makes room."""
        outcomes = self._outcomes.pop(task, None) or deque(maxlen=self._size)
        outcomes.append(success)
        self._outcomes[task] = outcomes
        if len(self._outcomes) > self._max_tasks:
            del self._outcomes[next(iter(self._outcomes))]

    def spread(self, task: str) -> tuple[float, float]:
        """Mean and standard deviation of the outcomes at a task; zeros where there are none."""
        outcomes = self._outcomes.get(task)
        if not outcomes:
            return 0.0, 0.0
        mean = sum(outcomes) / len(outcomes)
        return mean, (mean * (1.0 - mean)) ** 0.5

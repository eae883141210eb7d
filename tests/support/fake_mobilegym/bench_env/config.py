"""How many steps a task may take."""

from typing import Any

STEPS = {"L1": 6, "L2": 9}


class RunnerConfig:
    def get_max_steps(self, task: Any) -> int:
        form = self.eval_mode == "grounded" and task.answer_fields
        return STEPS[task.difficulty] + (5 if form else 0)

"""Three tasks as `task_eval.TaskEval` has them, and the registry that knows them."""

from __future__ import annotations

import random
import subprocess
from typing import Any

print("the package talks while it is imported")


class Task:
    """Turn a setting to what was drawn."""

    template = "Set the volume to {level}"
    complexity = 1.2
    start_on_home_screen = True
    app_names = ("settings", "")

    def __init__(self, params: dict[str, Any]) -> None:
        self.params, self.initialized = params, False

    @classmethod
    def set_device_time(cls, env: object) -> None:
        """As AndroidWorld's tasks have it."""

    @classmethod
    def generate_random_params(cls) -> dict[str, Any]:
        return {"level": random.randrange(1, 1000)}

    @property
    def goal(self) -> str:
        return self.template.format(**self.params)

    def initialize_task(self, env: Any) -> None:
        print("initializing")
        if self.initialized:
            raise RuntimeError("initialize_task() is already called")
        self.initialized = True
        env.put("0")
        env.open_settings()  # a set-up leaves an app open

    def is_successful(self, env: Any) -> float:
        return 1.0 if env.get() == str(self.params["level"]) else 0.0

    def tear_down(self, env: Any) -> None:
        self.initialized = False
        env.torn_down()


class Question(Task):
    """Its goal is the same whatever the seed."""

    template = "Which level is the volume?"
    complexity = 1.96
    start_on_home_screen = False

    def is_successful(self, env: Any) -> float:
        return 1.0 if env.interaction_cache == "0" else 0.0


class Broken(Task):
    """Its app is not installed."""

    def initialize_task(self, env: Any) -> None:
        try:
            env.fail()
        except subprocess.CalledProcessError:
            raise RuntimeError("app snapshot is missing") from None


class TaskRegistry:
    """As AndroidWorld's."""

    ANDROID_WORLD_FAMILY = "android_world"

    def get_registry(self, family: str) -> dict[str, type[Task]]:
        assert family == self.ANDROID_WORLD_FAMILY
        return {"SetVolume": Task, "AskVolume": Question, "BrokenTask": Broken}

"""Finds task classes by name."""

from importlib import import_module
from typing import Any


class TaskRegistry:
    def list_tasks(self, suite: str) -> list[str]:
        module = import_module(f"bench_env.task.{suite}")
        return [name for name, kind in vars(module).items() if isinstance(kind, type) and hasattr(kind, "templates")]

    def create_task(self, name: str, **params: Any) -> Any:
        suite, _, kind = name.partition(".")
        return getattr(import_module(f"bench_env.task.{suite}"), kind)(**params)

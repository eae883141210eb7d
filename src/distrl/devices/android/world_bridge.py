"""AndroidWorld's side of the bridge: a program for the Python that has its package, and nothing of distrl in it.

It reads requests from stdin and answers on the file that stdout was, one JSON object a line; whatever the package prints goes to
stderr. Requests: `tasks` (which there are, with their goals, without any emulator), `initialize`, `score` and `tear_down`. Tasks are
instantiated as AndroidWorld's own `suite_utils.create_suite` does, so that a name and a seed mean the same as there.

    python world_bridge.py [--adb PATH] [--console-port N] [--grpc-port N]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any


def instance_seed(seed: int, name: str, number: int) -> int:
    """As `suite_utils.create_suite` seeds the instances of a task."""
    return int(hashlib.sha256(f"{seed}_{name}_{number}".encode()).hexdigest(), 16) % (2**32)


class Bridge:
    """Answers requests; the environment is made by the first that needs an emulator."""

    def __init__(self, args: argparse.Namespace) -> None:
        from android_world import registry

        tasks = registry.TaskRegistry()
        self._registry: dict[str, Any] = tasks.get_registry(tasks.ANDROID_WORLD_FAMILY)
        self._args = args
        self._env: Any = None
        self._task: Any = None

    def tasks(self, seed: int, count: int, names: list[str]) -> list[dict[str, Any]]:
        """`count` instances of each task, or of those that are named."""
        unknown = sorted(set(names) - set(self._registry))
        if unknown:
            raise ValueError(f"there is no task {unknown[0]!r} among the {len(self._registry)} of AndroidWorld")
        return [
            self._describe(name, instance_seed(seed, name, number))
            for name in sorted(names or self._registry)
            for number in range(count)
        ]

    def _describe(self, name: str, seed: int) -> dict[str, Any]:
        task = self._make(name, seed)
        apps = [app for app in task.app_names if app]
        return {"name": name, "seed": seed, "goal": task.goal, "complexity": float(task.complexity), "apps": apps}

    def _make(self, name: str, seed: int) -> Any:
        kind = self._registry[name]
        kind.set_device_time(self._env)
        random.seed(seed)
        params = kind.generate_random_params()
        params["seed"] = seed
        return kind(params)

    def initialize(self, name: str, seed: int) -> str:
        """Bring the emulator to the start of a task; its goal."""
        self.tear_down()
        if self._env is None:
            self._env = self._connect()
        self._task = self._make(name, seed)
        self._task.initialize_task(self._env)
        # After the set-up, as AndroidWorld's own runner has it: many set-ups leave an app open.
        self._env.reset(go_home=self._task.start_on_home_screen)
        return str(self._task.goal)

    def _connect(self) -> Any:
        from android_world.env import env_launcher

        return env_launcher.load_and_setup_env(
            console_port=self._args.console_port,
            emulator_setup=False,
            freeze_datetime=True,
            adb_path=self._args.adb,
            grpc_port=self._args.grpc_port,
        )

    def score(self, answer: str) -> float:
        """What AndroidWorld's own check says, after the agent said that it is done."""
        if self._task is None:
            raise RuntimeError("no task was initialized")
        if answer:
            self._env.interaction_cache = answer
        return float(self._task.is_successful(self._env))

    def tear_down(self) -> None:
        """Undo the last task; one that fails at that costs nothing, since the next one sets up its own."""
        task, self._task = self._task, None
        if task is not None:
            attempt(lambda: task.tear_down(self._env))

    def answer(self, asked: dict[str, Any]) -> Any:
        """What one request comes to."""
        what = asked["do"]
        if what == "tasks":
            return self.tasks(asked["seed"], asked["count"], asked["names"])
        if what == "initialize":
            return self.initialize(asked["name"], asked["seed"])
        if what == "score":
            return self.score(asked["answer"])
        if what == "tear_down":
            return self.tear_down()
        raise ValueError(f"no request is called {what!r}")


def attempt(work: Callable[[], Any]) -> dict[str, Any]:
    """What comes of it, as it is told to the other side."""
    try:
        return {"answer": work()}
    except Exception as error:  # the package may raise anything, and whoever asked has to hear of it
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    """Answer until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--adb", default="adb")
    parser.add_argument("--console-port", type=int, default=5554)
    parser.add_argument("--grpc-port", type=int, default=8554)
    args = parser.parse_args()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)  # what the package prints must not get between the answers

        def say(told: dict[str, Any]) -> None:
            out.write(json.dumps(told) + "\n")
            out.flush()

        made = attempt(lambda: Bridge(args))
        if "error" in made:
            return say(made)
        say({"ready": True})
        bridge: Bridge = made["answer"]
        for line in sys.stdin:
            say(attempt(partial(answer_line, bridge, line)))
        bridge.tear_down()


def answer_line(bridge: Bridge, line: str) -> Any:
    """What a line of stdin comes to."""
    return bridge.answer(json.loads(line))


if __name__ == "__main__":
    main()

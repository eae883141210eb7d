"""Durations are measured on the monotonic clock; the date is for people. Setting the date must end nobody."""

from __future__ import annotations

import ast
from pathlib import Path

import distrl

SOURCE = Path(distrl.__file__).parent
DATES = {
    "api.py": "how long ago the last heartbeat of a run that is not running was",
    "bench/system/collection.py": "compared with the dates of episodes",
    "bench/system/fault_signals.py": "as in cli/status.py",
    "bench/system/fault_surroundings.py": "what shifts the date, to see that nobody minds",
    "bench/system/judge_load.py": "compared with the dates of episodes",
    "bench/system/ray_faults.py": "as in cli/status.py",
    "bench/system/scale.py": "which episodes were stored within a window",
    "bench/system/view.py": "which episodes were stored within a window",
    "bench/system/weights.py": "when a version was published",
    "cli/status.py": "how long ago the last heartbeat of a run that is not running was",
    "devices/serve_sim/server.py": "when a file of a simulated phone was written",
    "experience/store.py": "when an episode was stored, and how old files are",
    "learner/loop.py": "when a version was published",
    "rollout/outbox.py": "when an episode was spooled",
    "rollout/watched.py": "as of when the devices are shown, for people",
    "telemetry/events.py": "when something happened",
    "telemetry/heartbeat.py": "when a role last beat, for people",
    "telemetry/spans.py": "when work began, for people who compare roles; how long it took is measured on the monotonic clock",
    "transport/memory.py": "when an episode was stored",
    "transport/ray/service.py": "events of roles on other machines, by this machine's date",
    "transport/stored_elsewhere.py": "when an episode was stored",
}
"""Where the date is asked for, and why that is no duration."""


def asks_for_the_date(file: Path) -> bool:
    """Whether a module uses `time.time` under any name."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and node.attr in ("time", "time_ns") and ast.unparse(node.value) == "time":
            return True
        if (
            isinstance(node, ast.ImportFrom)
            and node.module == "time"
            and {"time", "time_ns"} & {name.name for name in node.names}
        ):
            return True
    return False


def test_the_date_is_asked_for_only_where_a_date_is_meant() -> None:
    found = {str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py") if asks_for_the_date(file)}
    assert found == set(DATES)

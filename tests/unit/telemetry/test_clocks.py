"""Durations are measured on the monotonic clock; the date is for people. Setting the date must end nobody."""

from __future__ import annotations

import ast
from pathlib import Path

import distrl

SOURCE = Path(distrl.__file__).parent
DATES = {
    "api.py": (1, "how long ago the last heartbeat of a run that is not running was"),
    "bench/system/collection.py": (1, "compared with the dates of episodes"),
    "bench/system/fault_signals.py": (2, "as in cli/status.py"),
    "bench/system/fault_surroundings.py": (1, "what shifts the date, to see that nobody minds"),
    "bench/system/judge_load.py": (1, "compared with the dates of episodes"),
    "bench/system/ray_faults.py": (1, "as in cli/status.py"),
    "bench/system/processes.py": (3, "which episodes were stored within a window"),
    "bench/system/view.py": (2, "which episodes were stored within a window"),
    "bench/system/weights.py": (1, "when a version was published"),
    "cli/status.py": (1, "how long ago the last heartbeat of a run that is not running was"),
    "devices/serve_sim/server.py": (2, "when a file of a simulated phone was written"),
    "experience/store.py": (1, "when an episode was stored, and how old files are"),
    "learner/loop.py": (2, "when a version was published; how long ago episodes were stored, for a metric"),
    "rollout/outbox.py": (1, "when an episode was spooled"),
    "rollout/watched.py": (1, "as of when the devices are shown, for people"),
    "telemetry/events.py": (1, "when something happened"),
    "telemetry/heartbeat.py": (1, "when a role last beat, for people"),
    "telemetry/spans.py": (
        1,
        "when work began, for people who compare roles; how long it took is measured on the monotonic clock",
    ),
    "transport/memory.py": (2, "when an episode was stored"),
    "transport/ray/service.py": (1, "events of roles on other machines, by this machine's date"),
    "transport/stored_elsewhere.py": (1, "when an episode was stored"),
}
"""Where the date is asked for: how often, and why that is no duration."""


def asks_for_the_date(file: Path) -> int:
    """How often a module uses `time.time`; by another name, as often as nobody may."""
    found = 0
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and node.attr in ("time", "time_ns") and ast.unparse(node.value) == "time":
            found += 1
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            found += 1000 * len({"time", "time_ns"} & {name.name for name in node.names})
    return found


def test_the_date_is_asked_for_only_where_a_date_is_meant() -> None:
    asked = {str(file.relative_to(SOURCE)): asks_for_the_date(file) for file in SOURCE.rglob("*.py")}
    assert {file: times for file, times in asked.items() if times} == {
        file: times for file, (times, _) in DATES.items()
    }

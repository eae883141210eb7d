"""What each device of a run went through: episodes, losses by cause, restarts that failed, and how long it was away.

Read from the workers' logs alone, so that it works on a live, a killed and a finished run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from distrl.runtime.run_folder import RunFolder
from distrl.telemetry.events import read_events
from distrl.types import Value

LOSSES = ("device_lost", "device_probe_failed")


class DeviceHistory(msgspec.Struct, frozen=True, kw_only=True):
    """One device over a whole run."""

    device: str
    episodes: int
    """That ended with at least one step, those that a loss ended included."""
    losses: int
    losses_per_100: float
    """Per 100 episodes."""
    causes: dict[str, int]
    """Of these losses."""
    failed_restarts: int
    down_s: float
    """Between its losses and its returns, in all."""
    longest_down_s: float
    is_down: bool
    """It was lost and has not come back since, as far as the log goes."""
    last: str
    """Why it was lost the last time."""


def read_histories(run: RunFolder) -> list[DeviceHistory]:
    """Every device that the workers of a run have told of, those that were lost most often first."""
    events = (event for path in sorted(run.logs.glob("worker-*.jsonl")) for event in read_events(path))
    return histories(events)


def histories(events: Iterable[Mapping[str, Value]]) -> list[DeviceHistory]:
    """The same, from the events of all workers; those of one worker in their order."""
    by_device: dict[str, list[Mapping[str, Value]]] = defaultdict(list)
    for event in events:
        if isinstance(device := event.get("device"), str):
            by_device[device].append(event)
    found = [_history(device, told) for device, told in by_device.items()]
    return sorted(found, key=lambda one: (-one.losses, one.device))


def _history(device: str, told: list[Mapping[str, Value]]) -> DeviceHistory:
    names = Counter(str(event["event"]) for event in told)
    lost = [event for event in told if event["event"] in LOSSES]
    down_s = [float(event.get("down_s", 0.0)) for event in told if event["event"] == "device_back"]
    changes = [event["event"] in LOSSES for event in told if event["event"] in (*LOSSES, "device_back")]
    return DeviceHistory(
        device=device,
        episodes=names["finished"],
        losses=len(lost),
        losses_per_100=round(100 * len(lost) / max(1, names["finished"]), 1),
        causes=dict(Counter(str(event.get("cause", "crash")) for event in lost).most_common()),
        failed_restarts=names["device_restart_failed"],
        down_s=round(sum(down_s), 1),
        longest_down_s=round(max(down_s, default=0.0), 1),
        is_down=changes[-1:] == [True],
        last=str(lost[-1].get("why", "")) if lost else "",
    )

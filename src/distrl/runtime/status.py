"""What a run folder says about its run, whether it is live, finished or was killed."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from distrl.evaluation.report import Rate, read_rate
from distrl.experience.store import ExperienceStore
from distrl.runtime.base import RoleStatus
from distrl.runtime.locks import held
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.spent import Spent, read_spent
from distrl.runtime.summary import read_summary
from distrl.telemetry.events import read_events
from distrl.telemetry.pulse import read_heartbeat

TROUBLES = 5
"""How many of the last troubles are named."""


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A run at a glance."""

    run: str
    phase: Literal["live", "finished", "stopped"]
    """Stopped: nobody works on it and its budget is not spent, so it can be resumed."""
    episodes: int
    steps: int
    spent: Spent
    device_utilisation: float
    """So far."""
    roles: list[RoleStatus]
    """In the order of the live table."""
    evaluations: dict[str, Rate]
    """`before`, then `v000012` and the like by version, then `after`."""
    notices: list[str]
    """What the roles do otherwise than their settings ask, each once."""
    troubles: list[str]
    """The last deaths of roles and losses of devices, newest last."""


def read_status(run: RunFolder, *, now_s: float) -> RunStatus:
    """Read everything from the folder; nothing is asked of the roles."""
    names = sorted((path.stem for path in run.pulses.glob("*.json")), key=_place)
    reports, spent = sorted(run.evaluations.glob("*.json"), key=_moment), read_spent(run.progress)
    with ExperienceStore(run.experience) as store:
        stats = store.stats()
    return RunStatus(
        run=run.name,
        phase=_phase(run),
        episodes=stats.episodes,
        steps=stats.steps,
        spent=spent,
        device_utilisation=round(spent.device_utilisation, 4),
        roles=[_role(run, name, now_s) for name in names],
        evaluations={path.stem: rate for path in reports if (rate := read_rate(path))},
        notices=_notices(run),
        troubles=_troubles(run),
    )


def _place(role: str) -> tuple[int, int, str]:
    """Where a role stands: the learner, then the workers by number, then the evaluator."""
    kind, _, number = role.partition("-")
    return {"learner": 0, "worker": 1}.get(kind, 2), int(number) if number.isdecimal() else 0, role


def _moment(report: Path) -> tuple[int, int, str]:
    """When a report was made: before the training, at a version, or after it."""
    name = report.stem
    version = int(name[1:]) if name[:1] == "v" and name[1:].isdecimal() else 0
    return {"before": 0, "after": 2}.get(name, 1), version, name


def _phase(run: RunFolder) -> Literal["live", "finished", "stopped"]:
    if held(run.lock("supervisor")):
        return "live"
    summary = read_summary(run)
    return "stopped" if summary is None or summary.interrupted else "finished"


def _role(run: RunFolder, name: str, now_s: float) -> RoleStatus:
    heartbeat = read_heartbeat(run.pulses, name)
    alive = held(run.lock(name))
    deaths = [
        event for event in read_events(run.log("supervisor")) if event["event"] == "died" and event["role"] == name
    ]
    silent_s = now_s - heartbeat.beat_s if heartbeat else 0.0
    note = f"last heard of {silent_s:.0f} s ago" if heartbeat and heartbeat.phase != "stopped" and not alive else ""
    return RoleStatus(role=name, alive=alive, restarts=len(deaths), note=note, heartbeat=heartbeat)


def _notices(run: RunFolder) -> list[str]:
    events = (event for path in sorted(run.logs.glob("*.jsonl")) for event in read_events(path))
    return list(dict.fromkeys(str(event["text"]) for event in events if event["event"] == "notice"))


def _troubles(run: RunFolder) -> list[str]:
    found = [
        (float(event["time_s"]), f"{event['role']} died: {event['why']}")
        for event in read_events(run.log("supervisor"))
        if event["event"] == "died"
    ]
    for path in run.logs.glob("worker-*.jsonl"):
        found += [
            (float(event["time_s"]), f"{event['device']} lost: {event['why']}")
            for event in read_events(path)
            if event["event"] == "device_lost"
        ]
    return [text for _, text in sorted(found)[-TROUBLES:]]

"""What a run comes to: the figures that other programs read from `summary.json`.

Also the status of a run, live, finished or killed: everything is read from its folder, nothing is asked of the roles.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from distrl.config.load import config_hash
from distrl.config.schema import Config
from distrl.errors import StoreError
from distrl.evaluation.report import Rate, read_rate
from distrl.experience.durable import replace
from distrl.experience.store import ExperienceStore
from distrl.runtime.base import RoleStatus
from distrl.runtime.run_folder import RunFolder, held
from distrl.telemetry.events import read_events
from distrl.transport.files import BudgetUsed, FileHeartbeats, read_budget


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A run in figures. `success_*_rate` hold the intervals."""

    run: str
    suite: str
    success_before: float | None
    success_after: float | None
    success_before_rate: Rate | None
    success_after_rate: Rate | None
    episodes: int
    steps: int
    wall_s: float
    collect_s: float
    """Seconds of `wall_s` in which workers were collecting."""
    policy_version: int
    updates: int
    updates_per_episode: float
    """As many as there were; `learner.updates_per_episode` is the cap."""
    updates_per_episode_cap: float
    device_utilisation: float
    learner_idle_ratio: float
    staleness_mean: float
    staleness_max: float
    """Of the fresh draws; kept successes are counted in `kept_share`."""
    kept_share: float
    lost_episodes: int
    """Acknowledged by the store and no longer there whole: 0 unless files were damaged."""
    unacknowledged_episodes: int
    """Finished by a worker that was killed before the store had them: nobody was told that they are safe."""
    duplicate_episodes: int
    restarts: int
    device_losses: int
    interrupted: bool
    """Stopped before its budget was used up: it can be resumed."""
    seed: int
    config_hash: str
    gpu_utilisation: float | None = None
    """While workers were collecting, in the last session; None without a GPU."""


def summarise(
    run: RunFolder,
    config: Config,
    used: BudgetUsed,
    *,
    interrupted: bool = False,
    gpu_utilisation: float | None = None,
) -> Summary:
    """The figures of a run that has ended, also written to its folder."""
    with ExperienceStore(run.experience) as store:
        store.recover(temporary_age_s=0.0)
        audit, stats = store.audit(), store.stats()
        told = _compare(run, {row.id for row in store.after(0, 1_000_000_000)})
    learner = FileHeartbeats(run.heartbeats).last("learner")
    figures = learner.figures if learner else {}
    before, after = read_rate(run.evaluations / "before.json"), read_rate(run.evaluations / "after.json")
    updates = int(figures.get("updates", 0))
    summary = Summary(
        run=run.name,
        suite=config.tasks.suite,
        success_before=before.value if before else None,
        success_after=after.value if after else None,
        success_before_rate=before,
        success_after_rate=after,
        episodes=stats.episodes,
        steps=stats.steps,
        wall_s=round(used.wall_s, 2),
        collect_s=round(used.collect_s, 2),
        policy_version=int(figures.get("version", -1)),
        updates=updates,
        updates_per_episode=round(updates / max(1, stats.episodes), 4),
        updates_per_episode_cap=config.learner.updates_per_episode,
        device_utilisation=round(used.device_utilisation, 4),
        learner_idle_ratio=round(figures.get("idle", 0.0), 4),
        staleness_mean=round(figures.get("staleness/mean", 0.0), 3),
        staleness_max=figures.get("staleness/max", 0.0),
        kept_share=round(figures.get("staleness/kept", 0.0), 4),
        lost_episodes=len(audit.missing) + told.lost,
        unacknowledged_episodes=told.unacknowledged,
        duplicate_episodes=len(audit.duplicates),
        restarts=used.restarts,
        device_losses=_losses(run),
        interrupted=interrupted,
        seed=config.run.seed,
        config_hash=config_hash(config),
        gpu_utilisation=gpu_utilisation and round(gpu_utilisation, 4),
    )
    replace(run.summary, msgspec.json.format(msgspec.json.encode(summary)))
    return summary


def read_summary(run: RunFolder) -> Summary | None:
    """The figures of a run that has ended; None where it has not."""
    try:
        return msgspec.json.decode(run.summary.read_bytes(), type=Summary)
    except FileNotFoundError:
        return None
    except ValueError as error:
        fix = f"remove {run.summary}; `distrl train --resume {run.path}` makes it anew"
        raise StoreError(f"{run.summary} is damaged: {error}", expected="what the run wrote there", fix=fix) from error


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """What the workers wrote down of their episodes, against what the store has."""

    lost: int
    unacknowledged: int


def _compare(run: RunFolder, held: set[str]) -> _Told:
    events = [event for path in run.logs.glob("worker-*.jsonl") for event in read_events(path)]
    finished, acknowledged = (
        {str(event["id"]) for event in events if event["event"] == name} for name in ("finished", "acknowledged")
    )
    return _Told(lost=len(acknowledged - held), unacknowledged=len(finished - acknowledged - held))


def _losses(run: RunFolder) -> int:
    return sum(
        event["event"] == "device_lost" for path in run.logs.glob("worker-*.jsonl") for event in read_events(path)
    )


# --- status -----------------------------------------------------------------------------------------------------------


TROUBLES = 5
"""How many of the last troubles are named."""


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A run at a glance."""

    run: str
    phase: Literal["live", "finished", "stopped"]
    """Stopped: nobody works on it and its budget is not used up, so it can be resumed."""
    episodes: int
    steps: int
    budget: BudgetUsed
    device_utilisation: float
    """So far."""
    roles: list[RoleStatus]
    """In the order of the live table."""
    evaluations: dict[str, Rate]
    """`before`, then `v000012` and the like by version, then `after`."""
    notices: list[str]
    """What the roles do otherwise than their settings ask, each once, and how many episodes have no verdict."""
    troubles: list[str]
    """The last deaths of roles and losses of devices, newest last."""


def read_status(run: RunFolder, *, now_s: float) -> RunStatus:
    """Read everything from the folder; nothing is asked of the roles."""
    names = sorted((path.stem for path in run.heartbeats.glob("*.json")), key=_place)
    reports, budget = sorted(run.evaluations.glob("*.json"), key=_moment), read_budget(run.budget)
    with ExperienceStore(run.experience) as store:
        stats = store.stats()
    return RunStatus(
        run=run.name,
        phase=_phase(run),
        episodes=stats.episodes,
        steps=stats.steps,
        budget=budget,
        device_utilisation=round(budget.device_utilisation, 4),
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
    heartbeat = FileHeartbeats(run.heartbeats).last(name)
    alive = held(run.lock(name))
    deaths = [
        event for event in read_events(run.log("supervisor")) if event["event"] == "died" and event["role"] == name
    ]
    silent_s = now_s - heartbeat.beat_s if heartbeat else 0.0
    note = f"last heartbeat {silent_s:.0f} s ago" if heartbeat and heartbeat.phase != "stopped" and not alive else ""
    return RoleStatus(role=name, alive=alive, restarts=len(deaths), note=note, heartbeat=heartbeat)


def _notices(run: RunFolder) -> list[str]:
    events = [event for path in sorted(run.logs.glob("*.jsonl")) for event in read_events(path)]
    unjudged = [str(event["why"]) for event in events if event["event"] == "unjudged"]
    # A judge of one's own that always fails would otherwise look like a policy that learns nothing.
    lost = [f"{len(unjudged)} episode(s) without a verdict, the last: {unjudged[-1]}"] if unjudged else []
    return list(dict.fromkeys(str(event["text"]) for event in events if event["event"] == "notice")) + lost


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

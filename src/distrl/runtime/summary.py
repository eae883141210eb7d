"""What a run comes to: the figures that other programs read from `summary.json`.

Also the status of a run, live, finished or killed: everything is read from its folder, nothing is asked of the roles.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from distrl.config.load import config_hash
from distrl.config.schema import Config, RuntimeConfig
from distrl.errors import DistrlError, StoreError
from distrl.evaluation.report import Rate, Report, parse_report, rate_of
from distrl.experience.durable import replace
from distrl.experience.store import ExperienceStore, has_index
from distrl.runtime.base import RoleStatus, describe_silence
from distrl.runtime.run_folder import RunFolder, held
from distrl.telemetry.events import events_of
from distrl.telemetry.heartbeat import Heartbeat
from distrl.transport.base import BudgetUsed, Events, IndexRow, Reports, StoreStats, Transport
from distrl.transport.files import FileBudget, FileHeartbeats
from distrl.types import Value


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A run in figures. `success_*_rate` hold the intervals."""

    run: str
    suite: str
    success_before: float | None
    success_after: float | None
    success_before_rate: Rate | None
    success_after_rate: Rate | None
    unknown_before: int = 0
    """Attempts of that evaluation without an outcome, such as after a device was lost: they count as no success."""
    unknown_after: int = 0
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
    lost_episodes: int | None
    """Acknowledged by the store and no longer there whole: 0 unless files were damaged. None: not known."""
    unacknowledged_episodes: int | None
    """Finished by a worker that was killed before the store had them: nobody was told that they are safe. None: not known."""
    duplicate_episodes: int
    restarts: int
    device_losses: int | None
    """None: not known, as for the other two, where a worker that played has left no log."""
    interrupted: bool
    """Stopped before its budget was used up: it can be resumed."""
    cut_off: str = ""
    """What is missing at its end and why, such as a last evaluation that did not end in time; `--resume` makes up for it."""
    seed: int
    config_hash: str
    gpu_utilisation: float | None = None
    """While workers were collecting, in the last session; None without a GPU."""

    @property
    def is_whole(self) -> bool:
        """Whether the run has come to its end with all that belongs to it."""
        return not self.interrupted and not self.cut_off


def summarise(
    run: RunFolder,
    config: Config,
    used: BudgetUsed,
    transport: Transport | None = None,
    *,
    interrupted: bool = False,
    cut_off: str = "",
    gpu_utilisation: float | None = None,
) -> Summary:
    """The figures of a run that has ended, also written to its folder; without a transport, that of the folder."""
    travelled = transport or run.transport(config)
    episodes, newest = travelled.episodes, travelled.weights.latest()
    audit, stats = episodes.audit(), episodes.stats()
    told = _compare(travelled.events, episodes.after(0, 1_000_000_000))
    learner = travelled.heartbeats.last("learner")
    figures = learner.figures if learner else {}
    before, after = _report(travelled.reports, "before"), _report(travelled.reports, "after")
    updates = int(figures.get("updates", 0))
    summary = Summary(
        run=run.name,
        suite=config.tasks.suite,
        success_before=before.success if before else None,
        success_after=after.success if after else None,
        success_before_rate=before.rate if before else None,
        success_after_rate=after.rate if after else None,
        unknown_before=before.unknown if before else 0,
        unknown_after=after.unknown if after else 0,
        episodes=stats.episodes,
        steps=stats.steps,
        wall_s=round(used.wall_s, 2),
        collect_s=round(used.collect_s, 2),
        policy_version=newest.version if newest else -1,
        updates=updates,
        updates_per_episode=round(updates / max(1, stats.episodes), 4),
        updates_per_episode_cap=config.learner.updates_per_episode,
        device_utilisation=round(used.device_utilisation, 4),
        learner_idle_ratio=round(figures.get("idle", 0.0), 4),
        staleness_mean=round(figures.get("staleness/mean", 0.0), 3),
        staleness_max=figures.get("staleness/max", 0.0),
        kept_share=round(figures.get("staleness/kept", 0.0), 4),
        lost_episodes=len(audit.missing) + told.lost if told else None,
        unacknowledged_episodes=told.unacknowledged if told else None,
        duplicate_episodes=len(audit.duplicates),
        restarts=used.restarts,
        device_losses=told.device_losses if told else None,
        interrupted=interrupted,
        cut_off=cut_off,
        seed=config.run.seed,
        config_hash=config_hash(config),
        gpu_utilisation=gpu_utilisation and round(gpu_utilisation, 4),
    )
    replace(run.summary, msgspec.json.format(msgspec.json.encode(summary)))
    if transport is None:
        travelled.close()
    return summary


def _report(reports: Reports, name: str) -> Report | None:
    """A report; None where there is none, or it is damaged: that must not cost all the other figures."""
    found = reports.read(name)
    with suppress(StoreError):
        return None if found is None else parse_report(found, source=name)
    return None


def read_summary(run: RunFolder) -> Summary | None:
    """The figures of a run that has ended; None where it has not."""
    try:
        return msgspec.json.decode(run.summary.read_bytes(), type=Summary)
    except FileNotFoundError:
        return None
    except ValueError as error:
        fix = f"remove {run.summary}; `distrl train --resume {run.path}` makes it anew"
        raise StoreError(f"{run.summary} is damaged: {error}", expected="what the run wrote there", fix=fix) from error


class _WorkerLogs(msgspec.Struct, frozen=True, kw_only=True):
    """What the workers wrote down of their episodes, against what the store has."""

    lost: int
    unacknowledged: int
    device_losses: int


def _compare(events: Events, rows: list[IndexRow]) -> _WorkerLogs | None:
    """None where a worker that played has no log: what it lost is not known, and is not nothing."""
    played, logged = {row.worker for row in rows if row.source == "played"}, set(events.roles())
    if not played <= logged:
        return None
    workers = played | {role for role in logged if role.startswith("worker-")}
    told = [event for worker in workers for event in events.read(worker)]
    finished, acknowledged = (
        {str(event["id"]) for event in told if event["event"] == name and "id" in event}
        for name in ("finished", "acknowledged")
    )
    held = {row.id for row in rows}
    return _WorkerLogs(
        lost=len(acknowledged - held),
        unacknowledged=len(finished - acknowledged - held),
        device_losses=sum(event["event"] == "device_lost" for event in told),
    )


# --- status -----------------------------------------------------------------------------------------------------------


TROUBLES = 5
"""How many of the last troubles are named."""
NO_EPISODES = StoreStats(episodes=0, steps=0, successes=0, wall_s=0.0, size_bytes=0, last_seq=0)


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A run at a glance."""

    run: str
    phase: Literal["live", "finished", "stopped"]
    """Stopped: nobody works on it and it has not come to its end, so it can be resumed."""
    cause: str
    """Why its last session ended before its end; empty: nothing went wrong."""
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
    """The last deaths of roles, losses of devices and disagreements between workers and learner, newest last."""


def read_status(run: RunFolder, *, now_s: float, clock: Callable[[], float] = time.monotonic) -> RunStatus:
    """Read everything from the folder; nothing is asked of the roles, nothing is written, and damaged files are named.

    `now_s` is the date, `clock` that of the heartbeats.
    """
    names = sorted((path.stem for path in run.heartbeats.glob("*.json")), key=_place)
    budget, damaged = FileBudget(run.budget).read(), list[str]()
    phase, stats = _phase(run), _stats(run)
    look = _Look(now_s=now_s, clock_s=clock(), heartbeat_s=_heartbeat_s(run))
    return RunStatus(
        run=run.name,
        phase=phase,
        cause="" if phase == "finished" else _cause(run),
        episodes=stats.episodes,
        steps=stats.steps,
        budget=budget,
        device_utilisation=round(budget.device_utilisation, 4),
        roles=[_role(run, name, look) for name in names],
        evaluations=_evaluations(run, damaged),
        notices=_notices(run) + damaged,
        troubles=_troubles(run),
    )


def _stats(run: RunFolder) -> StoreStats:
    if not has_index(run.experience):
        return NO_EPISODES
    with ExperienceStore(run.experience, read_only=True) as store:
        return store.stats()


def _evaluations(run: RunFolder, damaged: list[str]) -> dict[str, Rate]:
    found = {}
    for path in sorted(run.evaluations.glob("*.json"), key=_moment):
        try:
            found[path.stem] = rate_of(path.read_bytes(), source=str(path))
        except (StoreError, OSError) as error:
            damaged.append(str(error).splitlines()[0])
    return found


def _cause(run: RunFolder) -> str:
    """What ended the last session, where it was an error."""
    log = run.log("supervisor")
    last = sorted((*events_of(log, "session"), *events_of(log, "ended")), key=lambda event: float(event["time_s"]))[-1:]
    return str(last[0].get("why", "")) if last and last[0]["event"] == "ended" else ""


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
    return "finished" if summary is not None and summary.is_whole else "stopped"


class _Look(msgspec.Struct, frozen=True, kw_only=True):
    """When a run is looked at, and how often its roles should have been heard of."""

    now_s: float
    clock_s: float
    heartbeat_s: float


def _heartbeat_s(run: RunFolder) -> float:
    """How often the roles of the last session beat; where its settings are damaged, how often they usually do."""
    with suppress(DistrlError, OSError):
        return run.session_config().runtime.heartbeat_s
    return RuntimeConfig().heartbeat_s


def _role(run: RunFolder, name: str, look: _Look) -> RoleStatus:
    heartbeat = FileHeartbeats(run.heartbeats).last(name)
    alive = held(run.lock(name))
    deaths = [event for event in events_of(run.log("supervisor"), "died", "role") if event["role"] == name]
    note = "" if heartbeat is None or heartbeat.phase == "stopped" else _silence(heartbeat, alive, look)
    return RoleStatus(role=name, alive=alive, restarts=len(deaths), note=note, heartbeat=heartbeat)


def _silence(heartbeat: Heartbeat, alive: bool, look: _Look) -> str:
    if not alive:
        return f"last heartbeat {look.now_s - heartbeat.time_s:.0f} s ago"
    starting = heartbeat.phase == "starting"
    return describe_silence(look.clock_s - heartbeat.beat_s, starting=starting, heartbeat_s=look.heartbeat_s)


def _notices(run: RunFolder) -> list[str]:
    logs = sorted(run.logs.glob("*.jsonl"))
    unjudged = [str(event.get("why", "")) for path in logs for event in events_of(path, "unjudged")]
    # A judge of one's own that always fails would otherwise look like a policy that learns nothing.
    lost = [f"{len(unjudged)} episode(s) without a verdict, the last: {unjudged[-1]}"] if unjudged else []
    told = [str(event["text"]) for path in logs for event in events_of(path, "notice", "text")]
    return list(dict.fromkeys(told)) + lost


def last_unjudged(run: RunFolder) -> str:
    """Why the judge had no verdict on the newest episode without one."""
    found = [event for path in run.logs.glob("worker-*.jsonl") for event in events_of(path, "unjudged", "why")]
    newest = max(found, key=lambda event: float(event["time_s"]), default=None)
    return "read the logs of the workers" if newest is None else str(newest["why"])


def last_lost(run: RunFolder) -> str:
    """Which device was lost last, and why; empty: none was."""
    found = [
        event
        for path in run.logs.glob("worker-*.jsonl")
        for name in ("device_lost", "device_restart_failed")
        for event in events_of(path, name, "device", "why")
    ]
    newest = max(found, key=lambda event: float(event["time_s"]), default=None)
    return "" if newest is None else f"{newest['device']}: {_why_of(newest)}"


def _why_of(event: dict[str, Value]) -> str:
    """Why a device was lost, without its name once more."""
    return str(event["why"]).removeprefix(f"{event['device']} is lost: ")


def _troubles(run: RunFolder) -> list[str]:
    found = [
        (float(event["time_s"]), f"{event['role']} died: {event['why']}")
        for event in events_of(run.log("supervisor"), "died", "role", "why")
    ]
    found += [
        (float(event["time_s"]), str(event["why"])) for event in events_of(run.log("learner"), "disagreement", "why")
    ]
    for path in run.logs.glob("worker-*.jsonl"):
        found += [
            (float(event["time_s"]), f"{event['device']} lost: {_why_of(event)}")
            for event in events_of(path, "device_lost", "device", "why")
        ]
    return [text for _, text in sorted(found)[-TROUBLES:]]

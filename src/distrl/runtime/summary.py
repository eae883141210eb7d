"""What a run comes to: the figures that other programs read from `summary.json`."""

from __future__ import annotations

import msgspec

from distrl.config.load import config_hash
from distrl.config.schema import Config
from distrl.errors import StoreError
from distrl.evaluation.report import Rate, read_rate
from distrl.experience.durable import replace
from distrl.experience.store import ExperienceStore
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.spent import Spent
from distrl.telemetry.events import read_events
from distrl.telemetry.pulse import read_heartbeat


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
    """Stopped before its budget was spent: it can be resumed."""
    seed: int
    config_hash: str
    gpu_utilisation: float | None = None
    """While workers were collecting, in the last session; None without a GPU."""


def summarise(
    run: RunFolder,
    config: Config,
    spent: Spent,
    *,
    interrupted: bool = False,
    gpu_utilisation: float | None = None,
) -> Summary:
    """The figures of a run that has ended, also written to its folder."""
    with ExperienceStore(run.experience) as store:
        store.recover(temporary_age_s=0.0)
        audit, stats = store.audit(), store.stats()
        told = _compare(run, {row.id for row in store.after(0, 1_000_000_000)})
    learner = read_heartbeat(run.pulses, "learner")
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
        wall_s=round(spent.wall_s, 2),
        collect_s=round(spent.collect_s, 2),
        policy_version=int(figures.get("version", -1)),
        updates=updates,
        updates_per_episode=round(updates / max(1, stats.episodes), 4),
        updates_per_episode_cap=config.learner.updates_per_episode,
        device_utilisation=round(spent.device_utilisation, 4),
        learner_idle_ratio=round(figures.get("idle", 0.0), 4),
        staleness_mean=round(figures.get("staleness/mean", 0.0), 3),
        staleness_max=figures.get("staleness/max", 0.0),
        kept_share=round(figures.get("staleness/kept", 0.0), 4),
        lost_episodes=len(audit.missing) + told.lost,
        unacknowledged_episodes=told.unacknowledged,
        duplicate_episodes=len(audit.duplicates),
        restarts=spent.restarts,
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

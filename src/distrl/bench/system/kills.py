"""`distrl bench kills`: roles of a training run are killed at random times, and every episode is counted.

Real `distrl train`s are started one after the other, as a user would. While one collects, random roles (workers, learner and
evaluator; the supervisor restarts them) are ended with `kill -9` at random times, both from a seed. Nothing is restarted from
here. Once its workers have stopped, nothing more is killed. Then the run finishes by itself, and its folder is audited: every
acknowledged episode must be there once, and the learner must have read each episode exactly once. There are as many runs as it takes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random

import msgspec

from distrl.bench.base import BenchOptions
from distrl.bench.jobs import log_progress
from distrl.config.load import config_hash, load_config
from distrl.config.schema import Config
from distrl.errors import DistrlError
from distrl.experience.store import ExperienceStore
from distrl.learner.checkpoint import from_files
from distrl.runtime.base import role_names
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.summary import Summary, read_summary
from distrl.telemetry.heartbeat import Heartbeat
from distrl.transport.files import CheckpointFolder, FileHeartbeats
from distrl.types import Value

KILLS, QUICK_KILLS = 1000, 8
"""In all runs together."""
KILLS_PER_RUN = 200
"""At most: kills that wait for a role to come back may not fit into the run."""
MOST_RUNS = 12
SECONDS_PER_KILL = 3.0
"""Mean time between two kills: hardly longer than a role needs to restart on two cores."""
START_S = 300.0
"""Longest wait for the first episodes."""
END_S = 600.0
"""Longest wait for the end of the run after the last kill."""
POLL_S = 0.02
SETTINGS: dict[str, Value] = {
    "run.name": "kills",
    "devices.per_worker": 24,
    "devices.sim.latency.time_scale": 0.2,
    "warm_start.demonstrations": 60,
    "warm_start.epochs": 4,
    "learner.checkpoint_every_s": 5.0,
    "evaluation.episodes": 30,
    "evaluation.every_s": 10.0,
    "evaluation.during_episodes": 30,
    "runtime.max_restarts": 100,  # it is about crashes, and these come from outside
}


class KillFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The kills and their consequences."""

    kills: int
    by_role: dict[str, int]
    episodes: int
    """Rows of the store at the end."""
    taken_in: int
    """Episodes that the learner counts; the same number where each was read once."""
    lost_episodes: int
    unacknowledged_episodes: int
    """Finished but not yet stored when their worker was killed, so never acknowledged."""
    duplicate_episodes: int
    restarts: int
    finished: bool
    """The run ended by itself, with a summary."""
    exactly_once: bool
    """No episode lost or duplicated, and the learner's count and cursor agree with the store."""
    longest_silence_s: float
    """From a kill to the first heartbeat of the restarted role."""
    wall_s: float
    seeds: int
    config_hash: str


class Kills(msgspec.Struct, frozen=True, kw_only=True):
    """The kills of one run."""

    by_role: dict[str, int]
    longest_silence_s: float


class _Kill(msgspec.Struct, frozen=True, kw_only=True):
    role: str
    pid: int
    at_s: float


def run(options: BenchOptions) -> KillFigures:
    """Measure everything that `distrl bench kills` reports."""
    target, found = QUICK_KILLS if options.quick else KILLS, list[KillFigures]()
    for seed in range(options.seeds or MOST_RUNS):
        left = target - sum(one.kills for one in found)
        if left <= 0:
            break
        found.append(measure(min(KILLS_PER_RUN, left), seed))
        log_progress(f"run {seed + 1}: {msgspec.json.encode(found[-1]).decode()}")
    return combine(found)


def combine(found: list[KillFigures]) -> KillFigures:
    """Combine several runs: sums, the longest silence, and true only where it is true of all."""
    return KillFigures(
        kills=sum(one.kills for one in found),
        by_role=dict(sum((Counter(one.by_role) for one in found), Counter())),
        episodes=sum(one.episodes for one in found),
        taken_in=sum(one.taken_in for one in found),
        lost_episodes=sum(one.lost_episodes for one in found),
        unacknowledged_episodes=sum(one.unacknowledged_episodes for one in found),
        duplicate_episodes=sum(one.duplicate_episodes for one in found),
        restarts=sum(one.restarts for one in found),
        finished=all(one.finished for one in found),
        exactly_once=all(one.exactly_once for one in found),
        longest_silence_s=max(one.longest_silence_s for one in found),
        wall_s=sum(one.wall_s for one in found),
        seeds=len(found),
        config_hash=found[0].config_hash,
    )


def measure(kills: int, seed: int, changes: Mapping[str, Value] | None = None) -> KillFigures:
    """Measure one run; `changes` override its settings."""
    minutes = kills * SECONDS_PER_KILL / 60
    with tempfile.TemporaryDirectory(prefix="distrl-kills-") as root:
        settings = {**SETTINGS, "run.seed": seed, "run.minutes": minutes, "run.root": root, **(changes or {})}
        config, started_s = load_config(None, settings), time.monotonic()
        flags = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
        errors = Path(root, "errors")
        with errors.open("wb") as output:
            training = subprocess.Popen(
                [sys.executable, "-m", "distrl", "train", "--no-view", *flags], stdout=subprocess.DEVNULL, stderr=output
            )
        try:
            run = _await_first_episode(training, Path(root))
            killer = _RoleKiller(run, config, training, Random(f"kills {seed}")).kill(kills)
            _await_end(training, errors)
        finally:
            training.kill()
            training.wait()
        return audit(run, config, killer.tally(), time.monotonic() - started_s)


class _RoleKiller:
    """Kills roles at times spread over the run, and measures how long each is silent."""

    def __init__(self, run: RunFolder, config: Config, training: subprocess.Popen[bytes], random: Random) -> None:
        self._run, self._training, self._random = run, training, random
        self._roles = role_names(config)
        # In the last tenth the roles restart.
        self._span_s = 54.0 * config.run.minutes
        self._silent: dict[str, _Kill] = {}
        self.longest_silence_s = 0.0
        self.by_role: Counter[str] = Counter()

    def kill(self, kills: int) -> _RoleKiller:
        """Kill this many roles, as long as the run collects."""
        started_s = time.monotonic()
        for time_s in sorted(self._random.uniform(0.0, self._span_s) for _ in range(kills)):
            while time.monotonic() - started_s < time_s or not self._kill_one():
                if self._training.poll() is not None or self._finishing():
                    return self
                self._note_restarts()
                time.sleep(POLL_S)
        while self._silent and self._training.poll() is None:
            self._note_restarts()
            time.sleep(POLL_S)
        return self

    def _finishing(self) -> bool:
        beats = [self._heartbeat(role) for role in self._roles if role.startswith("worker-")]
        return any(beat is not None and beat.phase == "stopped" for beat in beats)

    def _kill_one(self) -> bool:
        """Kill one of the roles that have a heartbeat; False where there is none."""
        alive = [role for role in self._roles if role not in self._silent and self._heartbeat(role) is not None]
        if not alive:
            return False
        role = self._random.choice(alive)
        beat = self._heartbeat(role)
        if beat is None or beat.phase == "stopped":
            return False
        try:
            os.kill(beat.pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self._silent[role] = _Kill(role=role, pid=beat.pid, at_s=time.monotonic())
        self.by_role[role] += 1
        log_progress(f"kill {self.by_role.total()}: {role}")
        return True

    def tally(self) -> Kills:
        """The kills so far."""
        return Kills(by_role=dict(sorted(self.by_role.items())), longest_silence_s=self.longest_silence_s)

    def _note_restarts(self) -> None:
        for killed in list(self._silent.values()):
            beat = self._heartbeat(killed.role)
            if beat is not None and beat.pid != killed.pid:
                del self._silent[killed.role]
                self.longest_silence_s = max(self.longest_silence_s, time.monotonic() - killed.at_s)

    def _heartbeat(self, role: str) -> Heartbeat | None:
        return FileHeartbeats(self._run.heartbeats).last(role)


def _await_first_episode(training: subprocess.Popen[bytes], root: Path) -> RunFolder:
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s and training.poll() is None:
        for file in root.glob("*/weights/latest.json"):
            run = RunFolder(file.parents[1])
            with ExperienceStore(run.experience) as store:
                if store.count():
                    return run
        time.sleep(POLL_S)
    raise DistrlError(
        f"the run did not begin within {START_S:g} s", fix="distrl doctor, then distrl train to see what it waits for"
    )


def _await_end(training: subprocess.Popen[bytes], errors: Path) -> None:
    with suppress(subprocess.TimeoutExpired):
        training.wait(timeout=END_S)
    if training.returncode != 0:
        lines = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
        raise DistrlError(
            f"the run failed (exit code {training.returncode}): {' / '.join(lines)}",
            expected="a run that survives the kills",
        )


def audit(run: RunFolder, config: Config, kills: Kills, wall_s: float) -> KillFigures:
    """Compare what the run's store, checkpoint and summary say about its episodes."""
    summary = read_summary(run)
    with ExperienceStore(run.experience) as store:
        rows = store.after(0, 1_000_000_000)
    played = [row for row in rows if row.source == "played"]
    files = CheckpointFolder(run.checkpoints).newest()
    state = from_files(files).state if files else None
    taken_in, cursor = (state.episodes, state.cursor) if state else (0, 0)
    agreed = (taken_in, cursor) == (len(played), rows[-1].seq if rows else 0)
    return KillFigures(
        kills=sum(kills.by_role.values()),
        by_role=kills.by_role,
        episodes=len(played),
        taken_in=taken_in,
        lost_episodes=_known(summary.lost_episodes if summary else None),
        unacknowledged_episodes=_known(summary.unacknowledged_episodes if summary else None),
        duplicate_episodes=summary.duplicate_episodes if summary else -1,
        restarts=summary.restarts if summary else -1,
        finished=summary is not None and not summary.interrupted,
        exactly_once=agreed and _is_whole(summary),
        longest_silence_s=round(kills.longest_silence_s, 2),
        wall_s=round(wall_s, 1),
        seeds=1,
        config_hash=config_hash(config),
    )


def _known(count: int | None) -> int:
    """A count of the summary; -1: nobody knows."""
    return -1 if count is None else count


def _is_whole(summary: Summary | None) -> bool:
    return summary is not None and summary.lost_episodes == summary.duplicate_episodes == 0

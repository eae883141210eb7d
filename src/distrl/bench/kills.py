"""What a training run survives: roles are killed at random moments, and every episode is counted.

One real `distrl train` runs as anyone would start it. While it collects, roles drawn from a seed (workers, the learner
and the evaluator; the supervisor is who brings them back) are ended with `kill -9` at moments drawn from the same seed;
nobody is asked first and nothing is restarted from here. Then the run finishes by itself, and its folder is audited:
what workers were told is safe must be there, once, and the learner must have taken each episode in exactly once.
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
from distrl.bench.crew import say_on_stderr
from distrl.config.load import config_hash, load_config
from distrl.config.schema import Config
from distrl.errors import DistrlError
from distrl.experience.store import ExperienceStore
from distrl.learner.checkpoint import CheckpointFolder
from distrl.runtime.base import role_names
from distrl.runtime.run_folder import RunFolder
from distrl.runtime.summary import Summary, read_summary
from distrl.telemetry.pulse import Heartbeat, read_heartbeat
from distrl.types import Value

KILLS, QUICK_KILLS = 50, 8
SECONDS_PER_KILL = 6.0
"""Mean time between two kills: about as long as a role needs to come back on two cores."""
START_S = 300.0
"""Longest wait for the first episodes."""
END_S = 600.0
"""Longest wait for the end of the run after the last kill."""
POLL_S = 0.02
SETTINGS: dict[str, Value] = {
    "run.name": "kills",
    "devices.per_worker": 24,
    "devices.latency.time_scale": 0.2,
    "warm_start.demonstrations": 60,
    "warm_start.epochs": 4,
    "learner.checkpoint_every_s": 5.0,
    "evaluation.episodes": 30,
    "evaluation.every_s": 10.0,
    "evaluation.during_episodes": 30,
}


class KillFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to the run, and what came of it."""

    kills: int
    by_role: dict[str, int]
    episodes: int
    """Rows of the store at the end."""
    taken_in: int
    """Episodes that the learner counts; the same number where each was taken in once."""
    lost_episodes: int
    unacknowledged_episodes: int
    """Finished and not yet stored when their worker was killed: gone, and nobody was told that they are safe."""
    duplicate_episodes: int
    restarts: int
    finished: bool
    """The run came to its own end with a summary."""
    exactly_once: bool
    """Nothing lost, nothing doubled, and the learner's count and cursor agree with the store."""
    longest_silence_s: float
    """From a kill to the first heartbeat of the role's next life."""
    wall_s: float
    seeds: int
    config_hash: str


class _Killed(msgspec.Struct, frozen=True, kw_only=True):
    role: str
    pid: int
    at_s: float


def run(options: BenchOptions) -> KillFigures:
    """The figures, as `distrl bench kills` reports them."""
    seeds = max(1, options.seeds)
    kills = QUICK_KILLS if options.quick else KILLS
    return combine([measure(kills, seed) for seed in range(seeds)])


def combine(found: list[KillFigures]) -> KillFigures:
    """Several runs as one: sums, the worst silence, and true only where it is true of all."""
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
    """One run under fire; `changes` go over its settings."""
    minutes = kills * SECONDS_PER_KILL / 60
    with tempfile.TemporaryDirectory(prefix="distrl-kills-") as root:
        settings = {**SETTINGS, "run.seed": seed, "run.minutes": minutes, "run.root": root, **(changes or {})}
        config, began_s = load_config(None, settings), time.monotonic()
        words = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
        errors = Path(root, "errors")
        with errors.open("wb") as output:
            training = subprocess.Popen(
                [sys.executable, "-m", "distrl", "train", *words], stdout=subprocess.DEVNULL, stderr=output
            )
        try:
            run = _await_first_episode(training, Path(root))
            deaths = _Marksman(run, config, training, Random(f"kills {seed}")).shoot(kills)
            _await_end(training, errors)
        finally:
            training.kill()
            training.wait()
        return _audit(run, config, deaths, time.monotonic() - began_s)


class _Marksman:
    """Kills roles at moments spread over the run, and times how long each stays silent."""

    def __init__(self, run: RunFolder, config: Config, training: subprocess.Popen[bytes], random: Random) -> None:
        self._run, self._training, self._random = run, training, random
        self._roles = role_names(config)
        # The last tenth is left for the roles to come back in.
        self._span_s = 54.0 * config.run.minutes
        self._silent: dict[str, _Killed] = {}
        self.longest_silence_s = 0.0
        self.by_role: Counter[str] = Counter()

    def shoot(self, kills: int) -> _Marksman:
        """Kill so many roles, as long as the run goes on."""
        began_s = time.monotonic()
        for moment_s in sorted(self._random.uniform(0.0, self._span_s) for _ in range(kills)):
            while time.monotonic() - began_s < moment_s or not self._kill_one():
                if self._training.poll() is not None:
                    return self
                self._listen()
                time.sleep(POLL_S)
        while self._silent and self._training.poll() is None:
            self._listen()
            time.sleep(POLL_S)
        return self

    def _kill_one(self) -> bool:
        """Kill one of those that are alive and have spoken; False where there is none."""
        alive = [role for role in self._roles if role not in self._silent and self._beat(role) is not None]
        if not alive:
            return False
        role = self._random.choice(alive)
        beat = self._beat(role)
        if beat is None or beat.phase == "stopped":
            return False
        try:
            os.kill(beat.pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self._silent[role] = _Killed(role=role, pid=beat.pid, at_s=time.time())
        self.by_role[role] += 1
        say_on_stderr(f"kill {self.by_role.total()}: {role}")
        return True

    def _listen(self) -> None:
        for killed in list(self._silent.values()):
            beat = self._beat(killed.role)
            if beat is not None and beat.pid != killed.pid:
                del self._silent[killed.role]
                self.longest_silence_s = max(self.longest_silence_s, time.time() - killed.at_s)

    def _beat(self, role: str) -> Heartbeat | None:
        return read_heartbeat(self._run.pulses, role)


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
        said = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:]
        raise DistrlError(
            f"the run did not come to a good end (exit code {training.returncode}): {' / '.join(said)}",
            expected="a run that survives what is done to it",
        )


def _audit(run: RunFolder, config: Config, shot: _Marksman, wall_s: float) -> KillFigures:
    summary = read_summary(run)
    with ExperienceStore(run.experience) as store:
        rows = store.after(0, 1_000_000_000)
    checkpoint = CheckpointFolder(run.checkpoints).newest()
    taken_in, cursor = (checkpoint.state.episodes, checkpoint.state.cursor) if checkpoint else (0, 0)
    agreed = (taken_in, cursor) == (len(rows), rows[-1].seq if rows else 0)
    return KillFigures(
        kills=shot.by_role.total(),
        by_role=dict(sorted(shot.by_role.items())),
        episodes=len(rows),
        taken_in=taken_in,
        lost_episodes=summary.lost_episodes if summary else -1,
        unacknowledged_episodes=summary.unacknowledged_episodes if summary else -1,
        duplicate_episodes=summary.duplicate_episodes if summary else -1,
        restarts=summary.restarts if summary else -1,
        finished=summary is not None and not summary.interrupted,
        exactly_once=agreed and _is_whole(summary),
        longest_silence_s=round(shot.longest_silence_s, 2),
        wall_s=round(wall_s, 1),
        seeds=1,
        config_hash=config_hash(config),
    )


def _is_whole(summary: Summary | None) -> bool:
    return summary is not None and summary.lost_episodes == summary.duplicate_episodes == 0

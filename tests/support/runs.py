"""Real training runs in processes of their own, small enough for tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distrl.experience.store import ExperienceStore
from distrl.learner.checkpoint import from_files
from distrl.runtime.run_folder import RunFolder, held
from distrl.telemetry.events import read_events
from distrl.telemetry.heartbeat import Heartbeat
from distrl.transport.files import CheckpointFolder, FileHeartbeats

PATIENCE_S = 180.0
"""Generous: on a busy machine, loading torch alone takes ten seconds, and several processes do."""

TINY = {
    "run.minutes": 0,
    "run.episodes": 60,
    "tasks.suite": "sim-start",
    "devices.per_worker": 3,
    "devices.sim.latency.profile": "instant",
    "rollout.workers": 2,
    "policy.pointer.width": 16,
    "policy.pointer.layers": 1,
    "warm_start.demonstrations": 20,
    "warm_start.epochs": 1,
    "learner.first_update_episodes": 8,
    "learner.batch_trajectories": 4,
    "learner.publish_every_s": 0.3,
    "learner.checkpoint_every_s": 0.5,
    "evaluation.episodes": 10,
    "evaluation.every_s": 0,
    "runtime.heartbeat_s": 0.1,
    "runtime.silent_after_s": 60,
}
SLOW = {
    "devices.sim.latency.profile": "emulator",
    "devices.sim.latency.time_scale": 0.03,
    "devices.sim.latency.stall_rate": 0,
}
"""Phones that take long enough for something to happen in the middle of an episode."""


def distrl(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; trainings without a dashboard, which tests of their own start."""
    if arguments[:1] == ("train",):
        arguments = ("train", "--no-view", *arguments[1:])
    command = [sys.executable, "-m", "distrl", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, **options)


def last_json(stdout: str) -> dict[str, Any]:
    """The object on the last line."""
    found: dict[str, Any] = json.loads(stdout.splitlines()[-1])
    return found


def flags(settings: dict[str, Any]) -> list[str]:
    """A configuration as flags."""
    return [word for key, value in settings.items() for word in (f"--{key}", str(value))]


ENDLESS = 100_000
"""Episodes of a run that goes on until it is told otherwise: whatever happens in it, happens before its end."""


class Training:
    """A `distrl train` under way."""

    def __init__(self, *arguments: object, view: bool = False) -> None:
        quiet = [] if view else ["--no-view"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "distrl", "train", *quiet, *map(str, arguments), "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=_hear_hangup,
        )  # fmt: skip
        self.run = RunFolder(Path("nowhere"))

    @classmethod
    def begin(cls, root: Path, **changes: Any) -> Training:
        """A new run of tiny settings, with changes (`run__episodes=5`), once its folder is there."""
        settings = {**TINY, **_dotted(changes)}
        training = cls(*flags({**settings, "run.root": root}))
        training.until(lambda: any(root.glob("*/config.toml")))
        training.run = RunFolder(next(root.glob("*/config.toml")).parent)
        return training

    @classmethod
    def resume(cls, run: RunFolder, **changes: Any) -> Training:
        """A run that goes on, with changes."""
        training = cls("--resume", run.path, *flags(_dotted(changes)))
        training.run = run
        return training

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something that this run should come to."""
        until_s = time.monotonic() + PATIENCE_S
        while not holds():
            if self.process.poll() is not None:
                raise AssertionError(f"it ended too early: {self.process.communicate()}")
            assert time.monotonic() < until_s, "it took too long"
            time.sleep(0.02)

    def finish(self) -> dict[str, Any]:
        """The summary of a run that ends well."""
        out, errors = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, errors
        return last_json(out)

    def stop(self) -> None:
        """End it, whatever it is doing; nothing is left behind."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        gone_by_s = time.monotonic() + PATIENCE_S
        while living(self.run) and time.monotonic() < gone_by_s:
            for role in living(self.run):
                kill(self.run, role)
            time.sleep(0.05)


def _dotted(changes: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("__", "."): value for key, value in changes.items()}


def _hear_hangup() -> None:
    """Tests that `nohup` started hand on that SIGHUP is ignored, and a supervisor that finds that keeps to it."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Stage:
    """Begins runs in a folder of their own, on phones that take their time, and leaves nothing running."""

    def __init__(self, root: Path) -> None:
        self.root, self._begun = root, list[Training]()

    def begin(self, **changes: Any) -> Training:
        """A new run with one worker and a short evaluation, unless the changes say otherwise."""
        slow = {key.replace(".", "__"): value for key, value in SLOW.items()}
        short = {"rollout__workers": 1, "evaluation__episodes": 4}
        self._begun.append(Training.begin(self.root, **{**slow, **short, **changes}))
        return self._begun[-1]

    def resume(self, training: Training, **changes: Any) -> Training:
        """The same run, which goes on."""
        self._begun.append(Training.resume(training.run, **changes))
        return self._begun[-1]

    def clear(self) -> None:
        """End all of them."""
        for training in self._begun:
            training.stop()


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for something that happens without a `Training`, or fail."""
    until_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until_s, "it took too long"
        time.sleep(0.02)


def num_episodes(run: RunFolder) -> int:
    """Episodes in the store; 0 before there is one."""
    if not (run.experience / "index.sqlite").exists():
        return 0
    with ExperienceStore(run.experience) as store:
        return store.count()


def role_names(run: RunFolder) -> list[str]:
    """Every role that has spoken."""
    return sorted(path.stem for path in run.heartbeats.glob("*.json"))


def living(run: RunFolder) -> list[str]:
    """The roles whose processes live."""
    return [name for name in role_names(run) if held(run.lock(name))]


def heartbeat(run: RunFolder, role: str) -> Heartbeat:
    """What a role said last."""
    found = FileHeartbeats(run.heartbeats).last(role)
    assert found is not None
    return found


def kill(run: RunFolder, role: str) -> int:
    """Kill a role's process the hard way; which it was."""
    pid = int(run.lock(role).read_text() or 0)
    if pid:
        os.kill(pid, signal.SIGKILL)
    return pid


def restarted(run: RunFolder, role: str, than: int) -> bool:
    """Whether a later incarnation of a role has beaten."""
    found = FileHeartbeats(run.heartbeats).last(role)
    return found is not None and found.pid != than


def check_exactly_once(run: RunFolder, *, logs_whole: bool = True) -> int:
    """Nothing lost, nothing doubled, and the learner has taken each episode in once; how many there are.

    Logs are not whole where workers were killed while nobody took what they said: what they had finished is found in their spools.
    """
    with ExperienceStore(run.experience) as store:
        rows, audit = store.after(0, 1_000_000), store.audit()
    assert (audit.missing, audit.duplicates) == ((), ())
    events = [event for path in run.logs.glob("worker-*.jsonl") for event in read_events(path)]
    finished, acknowledged = (
        [event["id"] for event in events if event["event"] == name] for name in ("finished", "acknowledged")
    )
    assert not logs_whole or set(acknowledged) <= set(finished)
    assert len(acknowledged) == len(set(acknowledged))
    assert set(acknowledged) <= {row.id for row in rows}
    played = [row for row in rows if row.source == "played"]
    files = CheckpointFolder(run.checkpoints).newest()
    assert files is not None
    state = from_files(files).state
    assert (state.episodes, state.cursor) == (len(played), rows[-1].seq)
    return len(played)

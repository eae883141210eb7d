"""Killed roles: who is killed, how long it is silent, and how the episodes of a run are audited."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from distrl.bench.base import BenchOptions, names
from distrl.bench.system import kills
from distrl.bench.system.kills import SETTINGS, KillFigures, Kills, audit, combine
from distrl.config.load import config_hash, load_config
from distrl.config.schema import Config
from distrl.errors import DistrlError
from distrl.experience.replay import Replay
from distrl.experience.store import ExperienceStore
from distrl.learner.checkpoint import Checkpoint, LearnerState, to_files
from distrl.runtime.run_folder import RunFolder
from distrl.telemetry.heartbeat import Heartbeat, Phase
from distrl.transport.files import CheckpointFolder
from support.summaries import a_summary
from support.trajectories import make_trajectory

ONE = KillFigures(
    kills=8, by_role={"learner": 3, "worker-0": 5}, episodes=100, taken_in=100, lost_episodes=0,
    unacknowledged_episodes=1, duplicate_episodes=0, restarts=8, finished=True, exactly_once=True, longest_silence_s=2.0, wall_s=60.0, seeds=1, config_hash="a",
)  # fmt: skip


def test_runs_are_added_up_and_the_worst_of_them_counts() -> None:
    other = replace(ONE, by_role={"worker-1": 8}, longest_silence_s=5.0, lost_episodes=1, exactly_once=False)
    both = combine([ONE, other])
    assert (both.kills, both.episodes, both.lost_episodes, both.restarts, both.seeds) == (16, 200, 1, 16, 2)
    assert both.unacknowledged_episodes == 2
    assert both.by_role == {"learner": 3, "worker-0": 5, "worker-1": 8}
    assert (both.finished, both.exactly_once, both.longest_silence_s) == (True, False, 5.0)
    assert combine([ONE]) == ONE


def test_it_is_there_by_name_and_its_settings_fit_the_schema() -> None:
    assert "kills" in names()
    assert load_config(None, SETTINGS).run.name == "kills"


# --- the audit --------------------------------------------------------------------------------------------------------

KILLS = Kills(by_role={"learner": 2, "worker-0": 1}, longest_silence_s=3.14159)


def finished(folder: Path, *, stored: int = 5, taken_in: int = 5, cursor: int | None = None) -> RunFolder:
    """A run with so many episodes in its store, of which the learner counts so many."""
    run = RunFolder(folder)
    with ExperienceStore(run.experience) as store:
        for number in range(stored):
            store.add(make_trajectory(f"w0-{number}"))
    state = LearnerState(
        version=1, updates=1, episodes=taken_in, cursor=taken_in if cursor is None else cursor, idle_s=0.0, busy_s=1.0,
        replay=Replay[str](Config().replay, np.random.default_rng(0)).state(), sampler="{}",
    )  # fmt: skip
    CheckpointFolder(run.checkpoints).write(to_files(Checkpoint(state=state, policy=b"policy", optimizer=b"optimizer")))
    write_summary(run)
    return run


def write_summary(run: RunFolder, **changes: object) -> None:
    run.summary.write_bytes(msgspec.json.encode(replace(a_summary(), **changes)))


def test_a_run_in_which_every_episode_was_read_once_is_exact(tmp_path: Path) -> None:
    found = audit(finished(tmp_path), Config(), KILLS, 61.26)
    assert (found.exactly_once, found.finished) == (True, True)
    assert (found.episodes, found.taken_in, found.lost_episodes, found.duplicate_episodes) == (5, 5, 0, 0)
    assert (found.kills, found.by_role) == (3, {"learner": 2, "worker-0": 1})
    assert (found.longest_silence_s, found.wall_s, found.seeds) == (3.14, 61.3, 1)
    assert found.config_hash == config_hash(Config())


@pytest.mark.parametrize("counts", [{"taken_in": 4}, {"taken_in": 6}, {"cursor": 4}, {"stored": 6}])
def test_a_learner_that_missed_or_repeated_an_episode_is_found_out(tmp_path: Path, counts: dict[str, int]) -> None:
    found = audit(finished(tmp_path, **counts), Config(), KILLS, 1.0)
    assert not found.exactly_once
    assert found.finished


@pytest.mark.parametrize("damage", [{"lost_episodes": 1}, {"duplicate_episodes": 1}])
def test_a_lost_or_doubled_episode_is_not_exact(tmp_path: Path, damage: dict[str, int]) -> None:
    run = finished(tmp_path)
    write_summary(run, **damage)
    assert not audit(run, Config(), KILLS, 1.0).exactly_once


def test_an_episode_that_was_never_acknowledged_is_counted_and_is_no_loss(tmp_path: Path) -> None:
    run = finished(tmp_path)
    write_summary(run, unacknowledged_episodes=2, restarts=3)
    found = audit(run, Config(), KILLS, 1.0)
    assert (found.unacknowledged_episodes, found.restarts, found.exactly_once) == (2, 3, True)


def test_an_interrupted_run_is_not_finished(tmp_path: Path) -> None:
    run = finished(tmp_path)
    write_summary(run, interrupted=True)
    assert not audit(run, Config(), KILLS, 1.0).finished


def test_a_run_without_summary_and_checkpoint_is_neither_finished_nor_exact(tmp_path: Path) -> None:
    run = finished(tmp_path)
    run.summary.unlink()
    shutil.rmtree(run.checkpoints)
    found = audit(run, Config(), KILLS, 1.0)
    assert (found.finished, found.exactly_once, found.taken_in) == (False, False, 0)
    assert (found.lost_episodes, found.duplicate_episodes, found.restarts) == (-1, -1, -1), "nobody knows"


# --- the kills --------------------------------------------------------------------------------------------------------


class Role:
    """A process that does nothing, with a heartbeat in its name."""

    def __init__(self, run: RunFolder, name: str) -> None:
        self.run, self.name = run, name
        self.process = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
        self.beat()

    def beat(self, *, phase: Phase = "doing", pid: int | None = None) -> None:
        self.run.heartbeats.mkdir(parents=True, exist_ok=True)
        beat = Heartbeat(role=self.name, pid=pid or self.process.pid, phase=phase, what="", since_s=0.0, beat_s=0.0)
        (self.run.heartbeats / f"{self.name}.json").write_bytes(msgspec.json.encode(beat))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()


@pytest.fixture
def role(tmp_path: Path) -> Iterator[Role]:
    one = Role(RunFolder(tmp_path), "learner")
    yield one
    one.end()


def killer_of(role: Role) -> kills._RoleKiller:
    return kills._RoleKiller(role.run, Config(), role.process, Random(0))


def test_only_a_role_with_a_heartbeat_is_killed_and_it_is_counted(role: Role) -> None:
    killer = killer_of(role)
    assert killer._kill_one()
    assert role.process.wait(timeout=30) == -signal.SIGKILL
    assert killer.tally() == Kills(by_role={"learner": 1}, longest_silence_s=0.0)
    assert not killer._kill_one(), "it has not come back yet, and no other role has a heartbeat"


def test_a_role_that_has_stopped_is_left_alone(role: Role) -> None:
    role.beat(phase="stopped")
    assert not killer_of(role)._kill_one()
    assert role.process.poll() is None


def test_a_heartbeat_of_a_process_that_is_gone_is_no_kill(role: Role) -> None:
    role.end()
    killer = killer_of(role)
    assert not killer._kill_one()
    assert killer.tally().by_role == {}


def test_a_role_is_silent_until_a_heartbeat_of_another_process(role: Role) -> None:
    killer = killer_of(role)
    killer._kill_one()
    killer._note_restarts()
    assert list(killer._silent) == ["learner"]
    role.beat(pid=role.process.pid + 1)
    killer._note_restarts()
    assert killer._silent == {}
    assert killer.longest_silence_s > 0.0


def test_nothing_is_killed_after_the_run_has_ended(role: Role) -> None:
    role.end()
    role.beat(pid=2**22 + 1)
    found = killer_of(role).kill(5)
    assert found.tally().by_role == {}


def test_a_run_that_failed_is_an_error_with_its_last_lines(tmp_path: Path) -> None:
    (tmp_path / "errors").write_text("one\ntwo\nthree\nfour\n")
    failed = subprocess.Popen([sys.executable, "-S", "-c", "raise SystemExit(4)"])
    with pytest.raises(DistrlError, match=r"exit code 4\): two / three / four"):
        kills._await_end(failed, tmp_path / "errors")


def test_a_run_that_ends_before_its_first_episode_is_an_error(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()
    with pytest.raises(DistrlError, match="did not begin"):
        kills._await_first_episode(ended, tmp_path)


def test_nothing_is_killed_once_the_workers_have_stopped(role: Role) -> None:
    worker = Role(role.run, "worker-0")
    worker.beat(phase="stopped")
    found = killer_of(role).kill(5)
    worker.end()
    assert found.tally().by_role == {}
    assert role.process.poll() is None


def test_there_are_as_many_runs_as_the_kills_take(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def measure(number: int, seed: int) -> KillFigures:
        asked.append((number, seed))
        return replace(ONE, kills=min(number, 170))

    monkeypatch.setattr(kills, "measure", measure)
    assert kills.run(BenchOptions(quick=True)).kills == kills.QUICK_KILLS
    assert asked == [(kills.QUICK_KILLS, 0)]
    whole = kills.run(BenchOptions())
    assert (whole.kills, whole.seeds) == (kills.KILLS, 6)
    assert asked[1:] == [*((kills.KILLS_PER_RUN, seed) for seed in range(5)), (150, 5)]
    assert kills.run(BenchOptions(seeds=2)).seeds == 2

"""What the benchmarks on Ray make of what they saw."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

pytest.importorskip("ray", reason="needs the extra [ray]")

from distrl.bench.system import ray_faults
from distrl.bench.system.ray_faults import (
    EVERY_S,
    HUB,
    NAMED_WITHIN_S,
    SHARES,
    Pauses,
    Watch,
    is_running,
    is_telling,
)
from distrl.bench.system.ray_training import TrainingFigures, compare
from distrl.runtime.base import RoleStatus
from distrl.runtime.run_folder import RunFolder
from distrl.telemetry.heartbeat import Heartbeat

ONE = TrainingFigures(
    success_before=0.5, success_after=0.95, low=0.92, high=0.97, n=300, episodes=900, episodes_per_s=10.0, device_utilisation=0.97,
    staleness_mean=1.0, updates=50, lost_episodes=0, duplicate_episodes=0, restarts=0, wall_s=200.0,
)  # fmt: skip


def test_trainings_are_alike_where_all_intervals_have_something_in_common() -> None:
    ray, actors = replace(ONE, episodes_per_s=8.0, low=0.90, high=0.94), replace(ONE, episodes_per_s=5.0)
    found = compare(ONE, ray, actors, minutes=1.0, config="c")
    assert (found.throughput_ratio, found.throughput_ratio_actors) == (0.8, 0.5)
    assert found.success_within_noise
    assert not compare(ONE, replace(ray, high=0.91), actors, minutes=1.0, config="c").success_within_noise


def test_the_kinds_of_faults_come_to_two_hundred() -> None:
    assert sum(SHARES.values()) == ray_faults.FAULTS == 200
    assert EVERY_S > 0


def a_beat(phase: str, what: str) -> Heartbeat:
    return Heartbeat(role="worker-0", pid=1, phase=phase, what=what, since_s=0.0, beat_s=0.0)  # type: ignore[arg-type]


def test_a_role_that_waits_for_what_is_not_there_names_a_stall_and_one_that_works_does_not() -> None:
    assert is_telling(a_beat("waiting", "the hub: add"))
    assert is_telling(a_beat("waiting", "an inference actor: 3 batches, the oldest for 4 s"))
    assert is_telling(a_beat("starting", "loading its libraries"))
    assert not is_telling(a_beat("doing", "playing: 16 episodes"))
    assert not is_telling(a_beat("waiting", "its next episode"))
    assert not is_telling(None)


def test_a_stall_lasts_until_an_episode_comes_and_is_unnamed_until_something_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, said = [0.0], {"episodes": 1, "note": ""}

    class Role:
        role = "worker-0"
        heartbeat = None

        @property
        def note(self) -> object:
            return said["note"]

    class Status:
        phase, roles = "live", (Role(),)

        @property
        def episodes(self) -> object:
            return said["episodes"]

    monkeypatch.setattr(ray_faults.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(ray_faults, "read_status", lambda run, now_s: Status())
    watch = Watch(RunFolder(tmp_path))
    for at_s in range(6):
        now_s[0] = float(at_s)
        watch.look()
    said["note"] = "silent for 5 s"
    for at_s in range(6, 9):
        now_s[0] = float(at_s)
        watch.look()
    assert (watch.longest_without_s, watch.longest_unnamed_s) == (8.0, 5.0)
    said.update(episodes=2, note="")
    now_s[0] = 20.0
    watch.look()
    assert (watch.longest_without_s, watch.longest_unnamed_s) == (8.0, 5.0)


def a_role(name: str, *, note: str = "", phase: str = "doing", what: str = "playing") -> RoleStatus:
    return RoleStatus(role=name, alive=True, restarts=0, note=note, heartbeat=a_beat(phase, what))


def test_a_pause_is_named_by_its_role_is_over_before_or_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr(ray_faults.time, "monotonic", lambda: now_s[0])
    pauses = Pauses()
    for name in ("worker-0", "worker-1", "learner", "evaluator"):
        pauses.begin(name)
    pauses.look([a_role("worker-0"), a_role("worker-1"), a_role("evaluator", phase="starting")], 1.0)
    assert pauses.named_s == []
    pauses.look([a_role("worker-0", note="silent for 2 s"), a_role("worker-1"), a_role("learner")], 2.5)
    assert pauses.named_s == [2.5]
    now_s[0] = 4.0
    pauses.end("worker-1")
    now_s[0] = NAMED_WITHIN_S + 1
    for name in ("worker-0", "learner", "evaluator"):
        pauses.end(name)
    assert (pauses.named_s, pauses.over_before, pauses.not_named) == ([2.5], 1, 1)


def test_the_hub_is_named_by_whoever_waits_for_it() -> None:
    pauses = Pauses()
    pauses.begin(HUB)
    pauses.look([a_role("worker-0", phase="waiting", what="a device")], ray_faults.time.monotonic())
    assert pauses.named_s == []
    pauses.look([a_role("worker-0", phase="waiting", what="the hub: add")], ray_faults.time.monotonic())
    assert len(pauses.named_s) == 1


def test_a_process_that_is_stopped_or_gone_is_not_hit_again() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert is_running(process.pid)
        process.send_signal(19)
        until_s = time.monotonic() + 60
        while is_running(process.pid) and time.monotonic() < until_s:
            time.sleep(0.02)
        assert not is_running(process.pid)
    finally:
        process.kill()
        process.wait()
    assert not is_running(process.pid)

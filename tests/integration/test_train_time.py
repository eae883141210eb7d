"""Real runs in which clocks jump, processes are stopped, and terminals and pipes are closed: nothing ends that should not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from distrl.runtime.run_folder import RunFolder
from distrl.runtime.summary import read_status, read_summary
from distrl.telemetry.events import events_of
from support.runs import (
    ENDLESS,
    TINY,
    Stage,
    Training,
    check_exactly_once,
    flags,
    kill,
    living,
    num_episodes,
    wait_until,
)

SHIFTED = """
import os, time
from pathlib import Path
real, shift = time.time, Path(os.environ["DISTRL_TEST_SHIFT"])
time.time = lambda: real() + float(shift.read_text())
"""
"""A `sitecustomize` that sets the date of every process by what stands in a file."""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path / "runs")
    yield made
    made.clear()


def role_pids(run: RunFolder) -> dict[str, int]:
    return {str(event["role"]): int(event["pid"]) for event in events_of(run.log("supervisor"), "started", "pid")}


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.long
def test_a_date_that_jumps_ends_nobody_and_charges_nothing(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sitecustomize.py").write_text(SHIFTED)
    shift = tmp_path / "shift"
    shift.write_text("0")
    monkeypatch.setenv("DISTRL_TEST_SHIFT", str(shift))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'path'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    training = stage.begin(run__episodes=60, runtime__silent_after_s=20)
    started_s = time.monotonic()
    for count, seconds in ((10, 3600), (20, -3600), (30, 0)):
        training.until(lambda count=count: num_episodes(training.run) >= count)  # type: ignore[misc]
        draft = shift.with_suffix(".new")
        draft.write_text(str(seconds))
        draft.rename(shift)
    summary = training.finish()
    assert (summary["restarts"], summary["interrupted"], summary["lost_episodes"]) == (0, False, 0)
    assert summary["wall_s"] <= time.monotonic() - started_s + 60.0
    dates = [float(event["time_s"]) for event in events_of(training.run.log("worker-0"), "finished")]
    assert max(dates) - min(dates) > 3000.0, "the date did jump"


def test_all_processes_stopped_for_a_while_as_under_a_closed_lid_are_not_killed_for_it_and_a_closed_terminal_saves(
    stage: Stage,
) -> None:
    training = stage.begin(run__episodes=ENDLESS, runtime__silent_after_s=8)
    run = training.run
    training.until(lambda: num_episodes(run) >= 10)
    everyone = [training.process.pid, *role_pids(run).values()]
    for pid in everyone:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(12.0)
    for pid in everyone:
        os.kill(pid, signal.SIGCONT)
    stored = num_episodes(run)
    training.until(lambda: num_episodes(run) >= stored + 10)
    training.process.send_signal(signal.SIGHUP)
    summary = training.finish()
    assert (summary["restarts"], summary["lost_episodes"], summary["interrupted"]) == (0, 0, True)
    check_exactly_once(run)


@pytest.mark.long
def test_a_stopped_role_is_named_and_one_that_a_killed_supervisor_left_stopped_does_not_keep_the_run_from_going_on(
    stage: Stage,
) -> None:
    training = stage.begin(run__episodes=ENDLESS, rollout__workers=2)
    run = training.run
    training.until(lambda: num_episodes(run) >= 10)
    worker = role_pids(run)["worker-0"]
    os.kill(worker, signal.SIGSTOP)
    stopped_s = time.monotonic()

    def named() -> bool:
        notes = {role.role: role.note for role in read_status(run, now_s=time.time()).roles}
        return notes["worker-0"].startswith("silent for ")

    training.until(named)
    assert time.monotonic() - stopped_s < 20.0  # three seconds, and room for a busy machine
    training.process.kill()
    training.process.wait()
    wait_until(lambda: living(run) == ["worker-0"])
    assert named()
    enough = num_episodes(run) + 10
    summary = stage.resume(training, run__episodes=enough).finish()
    assert is_gone(worker)
    assert (summary["lost_episodes"], summary["duplicate_episodes"]) == (0, 0)
    assert summary["episodes"] == check_exactly_once(run) >= enough


def test_roles_that_are_still_starting_notice_that_their_supervisor_is_gone(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "path" / "torch").mkdir(parents=True)
    (tmp_path / "path" / "torch" / "__init__.py").write_text("import time; time.sleep(600.0)")  # a slow disk
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'path'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    training = stage.begin()
    training.until(lambda: len(living(training.run)) == 3)
    pids = role_pids(training.run).values()
    training.process.kill()
    training.process.wait()
    until_s = time.monotonic() + 60.0
    while not all(map(is_gone, pids)):
        assert time.monotonic() < until_s
        time.sleep(0.02)


@pytest.mark.long
def test_a_reader_that_has_gone_does_not_end_the_training_and_a_last_evaluation_that_was_cut_off_is_made_up_for(
    stage: Stage,
) -> None:
    settings = {**TINY, "run.root": stage.root, "run.episodes": 30, "rollout.workers": 1}
    command = [sys.executable, "-m", "distrl", "train", "--no-view", *flags(settings)]
    training = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert training.stdout is not None
    training.stdout.readline()
    training.stdout.close()
    assert training.wait(180.0) == 0
    run = RunFolder(next(stage.root.glob("*/config.toml")).parent)
    summary = read_summary(run)
    assert summary is not None
    assert summary.is_whole
    assert summary.episodes >= 30

    lacking = msgspec.structs.replace(summary, cut_off="the evaluator was cut off", success_after=None)
    run.summary.write_bytes(msgspec.json.encode(lacking))
    (run.evaluations / "after.json").unlink()
    again = Training.resume(run).finish()
    assert (again["success_after"] is not None, again["cut_off"], again["episodes"]) == (True, "", summary.episodes)


@pytest.mark.long
def test_a_learner_that_crashes_between_checkpoints_is_given_up_on(stage: Stage) -> None:
    training = stage.begin(run__episodes=0, runtime__max_restarts=2, learner__checkpoint_every_s=1000)
    run = training.run
    for count in range(3):
        training.until(lambda count=count: len(events_of(run.log("learner"), "started")) > count)  # type: ignore[misc]
        training.until(lambda: "learner" in living(run) and _updates(run) > 0)
        kill(run, "learner")
    assert training.process.wait(60.0) == 4
    assert "learner died 3 times in a row" in read_status(run, now_s=0.0).cause


def _updates(run: RunFolder) -> float:
    beats = [role.heartbeat for role in read_status(run, now_s=0.0).roles if role.role == "learner"]
    pid = role_pids(run)["learner"]
    return beats[0].figures.get("updates", 0.0) if beats and beats[0] and beats[0].pid == pid else 0.0

"""Real runs in which processes are killed: they finish, and nothing is lost or doubled."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from distrl.experience.store import ExperienceStore
from distrl.runtime.run_folder import held
from distrl.telemetry.events import read_events
from support.runs import (
    ENDLESS,
    Stage,
    check_exactly_once,
    distrl,
    heartbeat,
    kill,
    last_json,
    living,
    num_episodes,
    restarted,
    wait_until,
)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.clear()


def test_a_worker_and_the_learner_are_killed_in_the_middle_and_nothing_is_lost(stage: Stage) -> None:
    training = stage.begin(run__episodes=ENDLESS, rollout__workers=2)
    run = training.run
    training.until(lambda: num_episodes(run) >= 15)
    worker = kill(run, "worker-1")
    training.until(lambda: num_episodes(run) >= 20 and any(run.checkpoints.glob("*/manifest.json")))
    learner = kill(run, "learner")
    training.until(lambda: restarted(run, "worker-1", worker) and restarted(run, "learner", learner))
    training.until(lambda: heartbeat(run, "learner").phase == "doing" and heartbeat(run, "worker-1").phase == "doing")
    training.process.send_signal(signal.SIGINT)
    summary = training.finish()
    assert (summary["lost_episodes"], summary["duplicate_episodes"], summary["restarts"]) == (0, 0, 2)
    assert summary["episodes"] == check_exactly_once(run) >= 20
    deaths = [(e["role"], e["why"]) for e in read_events(run.log("supervisor")) if e["event"] == "died"]
    assert deaths == [("worker-1", "killed by SIGKILL"), ("learner", "killed by SIGKILL")]
    assert "resumed" in {event["event"] for event in read_events(run.log("learner"))}
    assert living(run) == []


def test_ctrl_c_finishes_and_saves_and_the_run_goes_on_to_its_end(stage: Stage) -> None:
    training = stage.begin(run__episodes=60)
    run = training.run
    settings = run.config_file.read_bytes()
    training.until(lambda: num_episodes(run) >= 12)
    training.process.send_signal(signal.SIGINT)
    summary = training.finish()
    assert (summary["interrupted"], summary["lost_episodes"], summary["success_after"]) == (True, 0, None)
    first = check_exactly_once(run)
    assert 12 <= first < 60
    assert last_json(distrl("status", run.path, "--json").stdout)["phase"] == "stopped"

    summary = stage.resume(training).finish()
    assert (summary["interrupted"], summary["lost_episodes"], summary["duplicate_episodes"]) == (False, 0, 0)
    assert summary["episodes"] == check_exactly_once(run) >= 60
    assert summary["success_after"] is not None
    assert run.config_file.read_bytes() == settings
    with ExperienceStore(run.experience) as store:  # what the first session collected is there, in its old place
        assert [row.seq for row in store.after(0, first)] == list(range(1, first + 1))

    again = distrl("train", "--resume", run.path)
    assert again.returncode == 2
    assert "is finished" in again.stderr


HELPER = """
import os, subprocess, sys
if "worker-0" in sys.orig_argv and not os.path.exists(os.environ["DISTRL_TEST_HELPER"]):
    with open(os.environ["DISTRL_TEST_HELPER"], "w") as file:
        file.write(str(subprocess.Popen(["sleep", "120"]).pid))
"""
"""A `sitecustomize` with which a worker has a process beside it, as one with a browser has."""


def test_a_killed_supervisor_leaves_no_orphans_and_its_run_goes_on(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sitecustomize.py").write_text(HELPER)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'path'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("DISTRL_TEST_HELPER", str(tmp_path / "helper"))
    training = stage.begin(run__episodes=ENDLESS, rollout__workers=2)
    run = training.run
    training.until(lambda: num_episodes(run) >= 20)
    status = last_json(distrl("status", run.path, "--json").stdout)
    assert status["phase"] == "live"
    assert {role["role"] for role in status["roles"] if role["alive"]} == {
        "learner",
        "worker-0",
        "worker-1",
        "evaluator",
    }
    second = distrl("train", "--resume", run.path)
    assert (second.returncode, f"in use by process {training.process.pid}" in second.stderr) == (2, True)

    orphans = [heartbeat(run, role).pid for role in living(run)]
    orphans.append(int((tmp_path / "helper").read_text()))
    assert all(Path(f"/proc/{pid}").exists() for pid in orphans)
    os.killpg(training.process.pid, signal.SIGKILL)
    training.process.wait()
    # At once, while the roles of the first session may still be about to notice: two incarnations of one never overlap.
    enough = num_episodes(run) + 20
    summary = stage.resume(training, run__episodes=enough).finish()
    assert not any(Path(f"/proc/{pid}").exists() for pid in orphans)
    assert (summary["lost_episodes"], summary["duplicate_episodes"]) == (0, 0)
    assert summary["episodes"] == check_exactly_once(run) >= enough
    assert living(run) == []
    assert not held(run.lock("supervisor"))
    assert last_json(distrl("status", run.path, "--json").stdout)["phase"] == "finished"


@pytest.mark.long
def test_the_roles_of_a_supervisor_killed_early_end_by_themselves_and_the_run_goes_on_later_with_other_settings(
    stage: Stage,
) -> None:
    training = stage.begin(run__episodes=40, rollout__workers=2, warm_start__demonstrations=60)
    run = training.run
    training.until(lambda: "learner" in living(run) and heartbeat(run, "learner").phase == "doing")
    roles = {role: heartbeat(run, role).pid for role in living(run)}
    training.process.kill()
    training.process.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in roles.values()))
    assert living(run) == []
    assert last_json(distrl("status", run.path, "--json").stdout)["phase"] == "stopped"

    changes = {"run__episodes": 20, "rollout__workers": 1, "learner__learning_rate": 0.0005}
    summary = stage.resume(training, **changes).finish()
    assert (summary["lost_episodes"], summary["duplicate_episodes"], summary["restarts"]) == (0, 0, 0)
    assert summary["episodes"] == check_exactly_once(run) >= 20
    changed = [(e["key"], e["was"], e["now"]) for e in read_events(run.log("supervisor")) if e["event"] == "setting"]
    assert changed == [
        ("run.episodes", 40, 20),
        ("rollout.workers", 2, 1),
        ("learner.learning_rate", 0.003, 0.0005),
    ]
    assert 0.0 < summary["device_utilisation"] <= 1.0


@pytest.mark.long
def test_an_evaluator_that_is_killed_again_and_again_while_it_has_nothing_to_do_does_not_end_the_run(
    stage: Stage,
) -> None:
    training = stage.begin(run__episodes=0, runtime__max_restarts=1)
    run = training.run
    for _ in range(2):
        training.until(lambda: "evaluator" in living(run) and heartbeat(run, "evaluator").what == "its next turn")
        killed = kill(run, "evaluator")
        training.until(partial(restarted, run, "evaluator", killed))
    training.process.send_signal(signal.SIGINT)
    summary = training.finish()
    assert (summary["restarts"], summary["interrupted"], summary["lost_episodes"]) == (2, True, 0)
    assert summary["success_before"] is not None


@pytest.mark.parametrize("lockstep", [pytest.param(False, marks=pytest.mark.long), True])
def test_in_sync_mode_a_worker_killed_in_the_middle_of_a_round_does_not_stop_the_run(
    stage: Stage, lockstep: bool
) -> None:
    training = stage.begin(
        run__episodes=50,
        rollout__workers=2,
        learner__mode="sync",
        learner__round_episodes=10,
        learner__first_update_episodes=64,
        rollout__lockstep=lockstep,
    )
    run = training.run
    training.until(lambda: num_episodes(run) >= 13)
    kill(run, "worker-0")
    summary = training.finish()
    assert (summary["restarts"], summary["lost_episodes"]) == (1, 0)
    assert summary["staleness_max"] <= 8
    check_exactly_once(run)
    with ExperienceStore(run.experience) as store:
        by_version = Counter(row.version for row in store.after(0, 1000) if row.source == "played")
    # Every version but the last, which the end cut short, was played for one round exactly.
    rounds = [by_version[version] for version in sorted(by_version)]
    assert rounds[:-1] == [10] * (len(rounds) - 1)
    assert len(rounds) >= 5
    assert heartbeat(run, "learner").figures["updates"] > 0

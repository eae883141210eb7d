"""Without Ray, too, one process may decide for the workers and the evaluator; it is killed in the middle, and so is all else."""

from __future__ import annotations

from pathlib import Path

import msgspec

from distrl.runtime.spools import SpoolRecord
from distrl.telemetry.events import read_events
from support.runs import SLOW, Training, check_exactly_once, heartbeat, kill, num_episodes, restarted

ACTOR = "inference-0"


def test_an_actor_that_is_killed_starts_again_and_nothing_is_lost(tmp_path: Path) -> None:
    changes = {name.replace(".", "__"): value for name, value in SLOW.items()}
    training = Training.begin(tmp_path, rollout__decide="actors", run__episodes=40, **changes)
    try:
        run = training.run
        training.until(lambda: num_episodes(run) >= 5)
        pid = kill(run, ACTOR)
        training.until(lambda: restarted(run, ACTOR, than=pid))
        summary = training.finish()
    finally:
        training.stop()
    assert summary["episodes"] == check_exactly_once(run) >= 40
    assert (summary["lost_episodes"], summary["restarts"]) == (0, 1)
    answered = heartbeat(run, ACTOR).figures
    assert answered["decisions"] > 0
    assert answered["pinned"] > 0  # the last evaluation, of which the evaluator decides nothing itself
    assert heartbeat(run, "worker-0").figures["deciding"] == 0.0
    repeated = [
        event
        for n in range(2)
        for event in read_events(run.log(f"worker-{n}"))
        if event["event"] == "decision_repeated"
    ]
    assert repeated
    (folder,) = msgspec.json.decode(run.spools.read_bytes(), type=SpoolRecord).folders
    assert not Path(folder).exists()  # with the sockets


def test_a_run_whose_supervisor_was_killed_goes_on_with_a_new_actor(tmp_path: Path) -> None:
    changes = {name.replace(".", "__"): value for name, value in SLOW.items()}
    training = Training.begin(tmp_path, rollout__decide="actors", **{**changes, "run__episodes": 100_000})
    run = training.run
    try:
        training.until(lambda: num_episodes(run) >= 5)
    finally:
        training.stop()
    before = num_episodes(run)
    training = Training.resume(run, run__episodes=before + 10)
    try:
        summary = training.finish()
    finally:
        training.stop()
    assert summary["episodes"] == check_exactly_once(run) >= before + 10
    assert summary["lost_episodes"] == 0

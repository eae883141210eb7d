"""What a folder says of its run, and the figures of one that has ended."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from distrl.cli.main import main
from distrl.config.load import config_hash, load_config
from distrl.config.schema import Config
from distrl.errors import StoreError
from distrl.evaluation.evaluate import nothing_played
from distrl.evaluation.report import make_report, wilson
from distrl.experience.store import ExperienceStore
from distrl.runtime.run_folder import RunFolder, create_run, take
from distrl.runtime.summary import read_status, read_summary, summarise
from distrl.telemetry.events import EventLog
from distrl.telemetry.heartbeat import HeartbeatWriter
from distrl.transport.base import BudgetUsed
from distrl.transport.files import FileHeartbeats
from distrl.transport.memory import MemoryTransport
from support.trajectories import make_trajectory

# As ARCHITECTURE asks; other programs read these names.
SUMMARY_KEYS = {
    "success_before", "success_after", "episodes", "steps", "wall_s", "policy_version", "device_utilisation",
    "learner_idle_ratio", "staleness_mean", "staleness_max", "lost_episodes", "duplicate_episodes", "restarts",
    "seed", "config_hash",
}  # fmt: skip
USED = BudgetUsed(wall_s=20.0, collect_s=10.0, busy_s=38.0, device_s=40.0, restarts=2)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(None, {"run.root": str(tmp_path), "rollout.workers": 2, "devices.per_worker": 2})


@pytest.fixture
def run(config: Config) -> RunFolder:
    """A run with three episodes, of which the workers were told."""
    made = create_run(config, now=datetime(2026, 5, 4))
    with ExperienceStore(made.experience) as store:
        for number, worker in enumerate(("worker-0", "worker-1", "worker-0")):
            store.add(replace(make_trajectory(f"e{number}"), worker=worker))
            log = EventLog(made.log(worker))
            log.write("finished", id=f"e{number}")
            log.write("acknowledged", id=f"e{number}", success=True)
    return made


def test_a_summary_holds_what_other_programs_read(run: RunFolder, config: Config) -> None:
    summary = summarise(run, config, USED)
    written = json.loads(run.summary.read_text())
    assert written.keys() >= SUMMARY_KEYS
    assert (summary.episodes, summary.steps, summary.restarts) == (3, 12, 2)
    assert summary.device_utilisation == pytest.approx(38.0 / (4 * 10.0))
    assert (summary.lost_episodes, summary.unacknowledged_episodes, summary.duplicate_episodes) == (0, 0, 0)
    assert written["config_hash"] == config_hash(config)
    assert read_summary(run) == summary


def test_an_episode_whose_file_is_gone_is_lost(run: RunFolder, config: Config) -> None:
    next(run.experience.glob("episodes/*/e1.ep")).unlink()
    assert summarise(run, config, USED).lost_episodes == 1


def test_an_episode_that_was_acknowledged_and_is_not_in_the_store_is_lost(run: RunFolder, config: Config) -> None:
    EventLog(run.log("worker-1")).write("acknowledged", id="never-arrived", success=True)
    assert summarise(run, config, USED).lost_episodes == 1


def test_an_episode_that_was_finished_and_never_stored_is_not_lost_but_told_of(run: RunFolder, config: Config) -> None:
    log = EventLog(run.log("worker-5"))  # of a session with more workers
    log.write("finished", id="killed-before-it-was-stored")
    log.write("finished", id="stored-and-not-told")
    with ExperienceStore(run.experience) as store:
        store.add(replace(make_trajectory("stored-and-not-told"), worker="worker-5"))
    summary = summarise(run, config, USED)
    assert (summary.lost_episodes, summary.unacknowledged_episodes) == (0, 1)


def test_what_a_worker_without_a_log_has_lost_is_not_known(run: RunFolder, config: Config) -> None:
    run.log("worker-1").unlink()
    summary = summarise(run, config, USED)
    assert (summary.lost_episodes, summary.unacknowledged_episodes, summary.device_losses) == (None, None, None)
    assert (summary.episodes, summary.duplicate_episodes) == (3, 0)
    assert read_summary(run) == summary


def test_the_workers_of_another_transport_are_summed_up_from_there(run: RunFolder, config: Config) -> None:
    transport = MemoryTransport()
    log = transport.events.log("worker-7")
    for number in range(2):
        transport.episodes.add(replace(make_trajectory(f"e{number}"), worker="worker-7"))
    for id in ("e0", "e1", "killed-before-it-was-stored"):
        log.write("finished", id=id)
    log.write("acknowledged", id="never-arrived", success=True)
    log.write("device_lost", device="phone-0", why="crash")
    summary = summarise(run, config, USED, transport)
    assert (summary.lost_episodes, summary.unacknowledged_episodes, summary.device_losses) == (1, 1, 1)


def test_attempts_that_a_fault_left_without_an_outcome_are_counted_beside_the_success(
    run: RunFolder, config: Config
) -> None:
    assert (summarise(run, config, USED).unknown_before, summarise(run, config, USED).unknown_after) == (0, 0)
    reports, played = run.transport(config).reports, make_trajectory("e0", success=True)
    lost = nothing_played("e1", played.task, why="no device")
    reports.write("before", make_report([played], suite="sim-start", version=0))
    reports.write("after", make_report([played, lost, lost], suite="sim-start", version=3))
    summary = summarise(run, config, USED)
    assert (summary.unknown_before, summary.unknown_after) == (0, 2)
    assert summary.success_after == pytest.approx(1 / 3)
    assert summary.success_after_rate == wilson(1, 3)
    assert read_summary(run) == summary


def test_the_updates_per_episode_are_those_that_were_made(run: RunFolder, config: Config) -> None:
    writer = HeartbeatWriter(FileHeartbeats(run.heartbeats).beat, "learner", interval_s=0.0)
    writer.figures.update(updates=2.0, episodes=3.0)
    writer.beat(force=True)
    summary = summarise(run, config, USED)
    assert summary.updates_per_episode == pytest.approx(2 / 3, abs=1e-4)
    assert summary.updates_per_episode_cap == config.learner.updates_per_episode


def test_an_episode_that_is_there_twice_is_doubled(run: RunFolder, config: Config) -> None:
    source = next(run.experience.glob("episodes/*/e1.ep"))
    (source.parent / "copy.ep").write_bytes(source.read_bytes())
    assert summarise(run, config, USED).duplicate_episodes == 1


def test_an_episode_that_a_kill_left_without_a_row_is_found_again(run: RunFolder, config: Config) -> None:
    for leftover in run.experience.glob("index.sqlite*"):
        leftover.unlink()
    summary = summarise(run, config, USED)
    assert (summary.episodes, summary.lost_episodes) == (3, 0)


def test_a_damaged_summary_is_named(run: RunFolder) -> None:
    run.summary.write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        read_summary(run)


def test_a_run_is_live_while_its_supervisor_lives(run: RunFolder, config: Config) -> None:
    assert read_status(run, now_s=0.0).phase == "stopped"
    lock = take(run.lock("supervisor"), wait_s=0.0, what="it")
    assert read_status(run, now_s=0.0).phase == "live"
    lock.release()
    summarise(run, config, USED, interrupted=True)
    assert read_status(run, now_s=0.0).phase == "stopped"
    summarise(run, config, USED)
    status = read_status(run, now_s=0.0)
    assert (status.phase, status.episodes, status.steps) == ("finished", 3, 12)


def test_roles_are_alive_by_their_lock_and_not_by_a_number_that_may_be_someone_elses(run: RunFolder) -> None:
    # The heartbeat names this very process, which lives, and is no worker.
    HeartbeatWriter(FileHeartbeats(run.heartbeats).beat, "worker-0", interval_s=0.0).doing("playing: 4 episodes")
    heartbeat = FileHeartbeats(run.heartbeats).last("worker-0")
    assert heartbeat is not None
    (role,) = read_status(run, now_s=heartbeat.time_s + 30.0).roles
    assert (role.alive, role.note) == (False, "last heartbeat 30 s ago")
    lock = take(run.lock("worker-0"), wait_s=0.0, what="it")
    (role,) = read_status(run, now_s=heartbeat.time_s).roles
    lock.release()
    assert (role.alive, role.note) == (True, "")


def test_roles_come_in_the_order_of_the_live_table(run: RunFolder) -> None:
    for name in ("evaluator", "worker-10", "worker-2", "learner"):
        HeartbeatWriter(FileHeartbeats(run.heartbeats).beat, name, interval_s=0.0)
    names = [role.role for role in read_status(run, now_s=0.0).roles]
    assert names == ["learner", "worker-2", "worker-10", "evaluator"]


def test_evaluations_come_in_the_order_in_which_they_were_made(run: RunFolder) -> None:
    report = make_report([make_trajectory()], suite="sim-start", version=0)
    run.evaluations.mkdir()
    for name in ("after", "before", "v000012", "v000003", "v1000000"):
        (run.evaluations / f"{name}.json").write_bytes(msgspec.json.encode(report))
    assert list(read_status(run, now_s=0.0).evaluations) == ["before", "v000003", "v000012", "v1000000", "after"]


def test_the_utilisation_so_far_is_told_of_a_run_that_is_not_over(run: RunFolder) -> None:
    assert read_status(run, now_s=0.0).device_utilisation == 0.0
    run.budget.write_bytes(msgspec.json.encode(USED))
    assert read_status(run, now_s=0.0).device_utilisation == pytest.approx(38.0 / 40.0)


def test_a_finished_run_shows_success_before_and_after(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run.evaluations.mkdir()
    for name in ("before", "after"):
        report = make_report([make_trajectory()] * 4, suite="sim-start", version=0)
        (run.evaluations / f"{name}.json").write_bytes(msgspec.json.encode(report))
    run.budget.write_bytes(msgspec.json.encode(USED))
    assert main(["status", str(run.path)]) == 0
    shown = capsys.readouterr().out
    assert "phones busy 95.0% of the time" in shown
    assert shown.index("success before:") < shown.index("success after:")
    assert shown.count("on 4 held-out tasks") == 2
    assert shown.count("on 4 held-out tasks, after 50 demonstrations\n") == 1
    (run.path / "config.toml").write_text("damaged [")
    assert main(["status", str(run.path)]) == 0
    assert "success before: " in capsys.readouterr().out


def damage(path: Path) -> None:
    """Flip bits all over a file, lines ends and quotes among them."""
    data = bytearray(path.read_bytes())
    for at in range(3, len(data), 7):
        data[at] ^= 1 << at % 8
    path.write_bytes(data)


STRAY_LINES = (
    b'{"event":"died"}', b'{"event":"died","time_s":"soon","role":1}', b'{"time_s":1,"event":"acknowledged"}', b"[]", b"\xff\xfe",
    b'{"time_s":1,"event":"device_lost"}', b'{"time_s":1,"event":"notice"}', b'{"time_s":1,"event":"unjudged"}',
    b'{"time_s":1,"event":"ended"}', b'{"time_s":1,"event":["died"]}', b"null", b'{"time_s":1,"event":"died","role":"learner"}',
)  # fmt: skip


def test_damaged_and_stray_lines_of_logs_cost_neither_summary_nor_status(run: RunFolder, config: Config) -> None:
    for path in run.logs.glob("worker-*.jsonl"):
        damage(path)
    for name in ("worker-0", "supervisor", "learner"):
        with run.log(name).open("ab") as log:
            log.write(b"\n".join(STRAY_LINES))
    run.log("worker-7").mkdir()
    summary = summarise(run, config, USED)
    assert (summary.episodes, summary.lost_episodes) == (3, 0)
    status = read_status(run, now_s=0.0)
    assert (status.episodes, status.phase) == (3, "finished")


def test_damaged_and_stray_files_cost_neither_summary_nor_status(run: RunFolder, config: Config) -> None:
    HeartbeatWriter(FileHeartbeats(run.heartbeats).beat, "learner", interval_s=0.0)
    run.evaluations.mkdir()
    for folder in (run.heartbeats, run.evaluations):
        for name in ("notes.json", "worker-x.json", "v000001 (copy).json", "after.json", "learner.json~"):
            (folder / name).write_bytes(b"\xff rubbish")
    (run.evaluations / "folder.json").mkdir()
    assert summarise(run, config, USED).success_after is None
    status = read_status(run, now_s=0.0)
    assert [role.role for role in status.roles if role.heartbeat] == ["learner"]
    assert any("after.json is damaged" in notice for notice in status.notices)


def test_a_role_that_lives_and_says_nothing_is_named_within_three_seconds(run: RunFolder) -> None:
    HeartbeatWriter(FileHeartbeats(run.heartbeats).beat, "worker-0", interval_s=0.0).doing("playing: 16 episodes")
    heartbeat = FileHeartbeats(run.heartbeats).last("worker-0")
    assert heartbeat is not None
    lock = take(run.lock("worker-0"), wait_s=0.0, what="it")
    for silent_s, note in ((2.0, ""), (2.6, "silent for 3 s"), (4000.0, "silent for 4000 s")):
        (role,) = read_status(run, now_s=0.0, clock=lambda s=silent_s: heartbeat.beat_s + s).roles  # type: ignore[misc]
        assert (role.alive, role.note) == (True, note)
    lock.release()


def test_where_heartbeats_are_rarer_a_healthy_role_is_not_called_silent(tmp_path: Path) -> None:
    config = load_config(None, {"run.root": str(tmp_path), "runtime.heartbeat_s": 3.3})
    run = create_run(config, now=datetime(2026, 5, 4))
    HeartbeatWriter(FileHeartbeats(run.heartbeats).beat, "worker-0", interval_s=0.0).doing("playing: 16 episodes")
    heartbeat = FileHeartbeats(run.heartbeats).last("worker-0")
    assert heartbeat is not None
    lock = take(run.lock("worker-0"), wait_s=0.0, what="it")
    for damaged, silent_s, note in ((False, 6.4, ""), (False, 6.8, "silent for 7 s"), (True, 6.4, "silent for 6 s")):
        if damaged:
            run.config_file.write_bytes(b"\xff")
        (role,) = read_status(run, now_s=0.0, clock=lambda s=silent_s: heartbeat.beat_s + s).roles  # type: ignore[misc]
        assert role.note == note
    lock.release()


def test_why_a_run_ended_is_told_until_it_goes_on(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    log = EventLog(run.log("supervisor"))
    log.write("session")
    assert read_status(run, now_s=0.0).cause == ""
    log.write("ended", why="worker-0: the disk is full")
    assert read_status(run, now_s=0.0).cause == "worker-0: the disk is full"
    assert main(["status", str(run.path)]) == 0
    assert "ended by: worker-0: the disk is full" in capsys.readouterr().out
    log.write("session")
    assert read_status(run, now_s=0.0).cause == ""


def test_a_run_whose_end_is_missing_something_is_not_finished(run: RunFolder, config: Config) -> None:
    summarise(run, config, USED, cut_off="the evaluator was cut off: it did not end in time")
    assert read_status(run, now_s=0.0).phase == "stopped"


def test_the_last_troubles_are_told_in_order(run: RunFolder) -> None:
    supervisor, worker = (
        EventLog(run.log("supervisor"), clock=lambda: 2.0),
        EventLog(run.log("worker-0"), clock=lambda: 1.0),
    )
    supervisor.write("died", role="learner", why="killed by SIGKILL", restarts=1, again_in_s=0.2)
    worker.write("device_lost", device="worker-0/phone-1", why="worker-0/phone-1 is lost: crash")
    HeartbeatWriter(FileHeartbeats(run.heartbeats).beat, "learner", interval_s=0.0)
    status = read_status(run, now_s=0.0)
    assert status.troubles == ["worker-0/phone-1 lost: crash", "learner died: killed by SIGKILL"]
    assert status.roles[0].restarts == 1


def test_a_disagreement_between_workers_and_learner_is_a_trouble(run: RunFolder) -> None:
    EventLog(run.log("learner")).write("disagreement", why="worker and learner disagree about decisions of version 3")
    assert read_status(run, now_s=0.0).troubles == ["worker and learner disagree about decisions of version 3"]

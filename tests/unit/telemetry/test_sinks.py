"""Metrics reach every sink once, and no sink can harm a run, however slow it is and whatever it raises."""

from __future__ import annotations

import json
import logging
import os
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from distrl.cli.main import main, warnings_told
from distrl.config.load import config_hash, load_config
from distrl.config.schema import Config, TelemetryConfig
from distrl.errors import ConfigError, UsageError
from distrl.telemetry import tensorboard, trackers
from distrl.telemetry.events import EventLog
from distrl.telemetry.sinks import MetricForwarder, SinkContext, check_sinks, find_sinks, forwarding
from distrl.telemetry.trackers import by_role
from support.runs import wait_until
from support.trained import small_run


class Recording:
    """A sink of one's own, as a test would name it by import path."""

    made: list[Recording] = []  # noqa: RUF012

    def __init__(self, settings: object, context: SinkContext) -> None:
        self.run, self.rows, self.closed = context.run, list[tuple[str, dict[str, float], float]](), False
        self.wrote = Event()
        self.made.append(self)

    def write(self, role: str, metrics: Mapping[str, float], *, time_s: float, elapsed_s: float) -> None:
        self.rows.append((role, dict(metrics), elapsed_s))
        self.wrote.set()

    def close(self) -> None:
        self.closed = True


class Failing(Recording):
    def write(self, role: str, metrics: Mapping[str, float], *, time_s: float, elapsed_s: float) -> None:
        self.wrote.set()
        raise OSError("the network is down")


class Hanging(Recording):
    """Takes no line before `go`, which ends with the test."""

    def __init__(self, settings: object, context: SinkContext) -> None:
        super().__init__(settings, context)
        self.go = Event()

    def write(self, role: str, metrics: Mapping[str, float], *, time_s: float, elapsed_s: float) -> None:
        self.wrote.set()
        self.go.wait(30)
        self.rows.append((role, dict(metrics), elapsed_s))


class Leaving(Recording):
    def close(self) -> None:
        raise SystemExit("the tracker has had enough")


def make_nothing(settings: object, context: SinkContext) -> int:
    return 3


def log_at(path: Path, *times: float) -> EventLog:
    clock = iter(times)
    return EventLog(path, clock=lambda: next(clock))


def test_whole_lines_are_forwarded_once_with_the_time_since_the_first(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    sink = Recording(None, SinkContext(run=tmp_path))
    forwarder = MetricForwarder(path, {"mine": sink})
    forwarder.forward()
    log = log_at(path, 100.0, 103.0)
    log.write("learner", role="learner", **{"learner/updates": 3, "learner/note": "text"})
    with path.open("ab") as file:
        file.write(b'{"time_s": 101.0, "broken\n{"time_s": 1.0, "\xff": 1}\n{"half')
    forwarder.forward()
    assert sink.wrote.wait(30)
    assert sink.rows == [("learner", {"learner/updates": 3.0}, 0.0)]
    with path.open("ab") as file:
        file.write(b'": 1}\n')
    log.write("worker", role="worker-0", **{"worker/steps": 8})
    forwarder.close()
    assert sink.rows[1:] == [("worker-0", {"worker/steps": 8.0}, 3.0)]
    assert sink.closed


def test_a_later_session_forwards_only_what_is_new_on_the_same_axis(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = log_at(path, 100.0, 160.0)
    log.write("learner", role="learner", **{"learner/updates": 3})
    Recording.made.clear()
    with forwarding(TelemetryConfig(sinks=(f"{__name__}:Recording",)), path) as forward:
        log.write("learner", role="learner", **{"learner/updates": 4})
        forward()
    (sink,) = Recording.made
    assert sink.rows == [("learner", {"learner/updates": 4.0}, 60.0)]
    assert (sink.run, sink.closed) == (tmp_path, True)


def test_a_sink_that_fails_is_left_out_and_the_others_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    context = SinkContext(run=tmp_path)
    good = Recording(None, context)
    forwarder = MetricForwarder(tmp_path / "metrics.jsonl", {"bad": Failing(None, context), "good": good})
    log = log_at(tmp_path / "metrics.jsonl", 1.0, 2.0)
    for updates in (1, 2):
        log.write("learner", role="learner", **{"learner/updates": updates})
    forwarder.close()
    assert len(good.rows) == 2
    assert [record.getMessage() for record in caplog.records] == [
        "the metric sink bad failed and gets no more: OSError: the network is down"
    ]


def write_lines(path: Path, count: int) -> None:
    log = log_at(path, *map(float, range(1, count + 1)))
    for updates in range(count):
        log.write("learner", role="learner", **{"learner/updates": updates})
    log.close()


def test_a_sink_that_hangs_holds_nobody_up_and_what_it_loses_is_counted(tmp_path: Path) -> None:
    context, said, path = SinkContext(run=tmp_path), list[str](), tmp_path / "metrics.jsonl"
    hanging, good = Hanging(None, context), Recording(None, context)
    forwarder = MetricForwarder(path, {"slow": hanging, "good": good}, tell=said.append, queue_lines=6, close_s=1.0)
    write_lines(path, 3)
    forwarder.forward()  # which would never return if it waited for a sink
    assert hanging.wrote.wait(30)
    wait_until(lambda: len(good.rows) == 3)
    assert said == []
    write_lines(path, 6)  # two wait, the first is being written: four have a place
    forwarder.forward()
    forwarder.forward()
    assert said == ["the metric sink slow is too slow and loses lines: metrics.jsonl has them"]
    forwarder.close()
    hanging.go.set()
    assert said[1:] == [
        "the metric sink slow had not closed 1 s after the end, with 6 lines not sent: metrics.jsonl has them",
        "the metric sink slow lost 2 lines, which came faster than it took them: metrics.jsonl has them",
    ]
    assert good.closed


def test_a_slow_sink_gets_all_lines_in_order_where_its_queue_has_room(tmp_path: Path) -> None:
    said, sink, path = list[str](), Hanging(None, SinkContext(run=tmp_path)), tmp_path / "metrics.jsonl"
    forwarder = MetricForwarder(path, {"slow": sink}, tell=said.append)
    write_lines(path, 50)
    forwarder.forward()
    sink.go.set()
    forwarder.close()
    assert [figures["learner/updates"] for _, figures, _ in sink.rows] == list(map(float, range(50)))
    assert (said, sink.closed) == ([], True)


def test_a_sink_that_leaves_while_it_closes_is_told_of(tmp_path: Path) -> None:
    said = list[str]()
    MetricForwarder(tmp_path / "m", {"mine": Leaving(None, SinkContext(run=tmp_path))}, tell=said.append).close()
    assert said == ["the metric sink mine failed and gets no more: SystemExit: the tracker has had enough"]


def test_a_sink_that_fails_is_a_notice_of_the_run_and_a_line_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_run(tmp_path)
    with (
        warnings_told(),
        forwarding(TelemetryConfig(sinks=(f"{__name__}:Failing",)), run.metrics) as forward,
    ):
        write_lines(run.metrics, 2)
        forward()
    text = f"the metric sink {__name__}:Failing failed and gets no more: OSError: the network is down"
    assert capsys.readouterr().err == f"distrl: {text}\n"
    assert main(["status", str(run.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notices"] == [text]


def test_warnings_are_told_while_a_command_runs_and_those_a_run_shows_itself_are_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with warnings_told():
        logging.getLogger("distrl.telemetry").warning("a %s", "word")
        logging.getLogger("distrl.telemetry").info("a detail")
        logging.getLogger("distrl.events.supervisor").warning("died role=learner")
    logging.getLogger("distrl.telemetry").warning("too late")
    assert capsys.readouterr().err == "distrl: a word\n"


def test_sinks_are_found_by_name_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    context = SinkContext(run=tmp_path)
    found = find_sinks(TelemetryConfig(sinks=(f"{__name__}:Recording", "tensorboard")), context)
    assert list(found) == [f"{__name__}:Recording", "tensorboard"]
    with pytest.raises(ConfigError, match=r"telemetry\.sinks = 'tensorbord' is not known"):
        find_sinks(TelemetryConfig(sinks=("tensorbord",)), context)
    with pytest.raises(ConfigError, match="MetricSink"):
        find_sinks(TelemetryConfig(sinks=(f"{__name__}:make_nothing",)), context)


def test_sinks_are_a_list_of_settings_and_change_nothing_about_a_run() -> None:
    config = load_config(None, {"telemetry.sinks": "tensorboard,my.module:Mine"})
    assert config.telemetry.sinks == ("tensorboard", "my.module:Mine")
    assert config_hash(config) == config_hash(Config())


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    path = tmp_path / "metrics.jsonl"
    with forwarding(TelemetryConfig(sinks=("tensorboard",)), path) as forward:
        log = log_at(path, 100.0, 105.0, 106.0)
        log.write("learner", role="learner", **{"learner/updates": 3, "learner/idle": 0.25})
        log.write("learner", role="learner", **{"learner/updates": 9})
        forward()
        log.write("worker", role="worker-0", **{"worker/steps": 8})
    events = EventAccumulator(str(tmp_path / "tensorboard" / "learner"))
    events.Reload()
    assert [(scalar.step, scalar.value, scalar.wall_time) for scalar in events.Scalars("learner/updates")] == [
        (0, 3.0, 100.0),
        (5, 9.0, 105.0),
    ]
    assert [scalar.value for scalar in events.Scalars("learner/idle")] == [0.25]
    assert [folder.name for folder in sorted((tmp_path / "tensorboard").iterdir())] == ["learner", "worker-0"]


def test_a_sink_that_cannot_work_is_told_before_a_run_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--run.root", str(tmp_path / "runs"), "--telemetry.sinks"]
    assert main(["train", *flags, "tensorbord"]) == 2
    assert "one of tensorboard" in capsys.readouterr().err
    monkeypatch.setattr(tensorboard, "find_spec", lambda name: None)
    assert main(["train", *flags, "tensorboard"]) == 2
    assert "'.[tensorboard]'" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


# --- experiment trackers ----------------------------------------------------------------------------------------------


def write_two_roles(run: Path, sink: str) -> None:
    """What a learner and two workers measure, forwarded to a sink, which takes its time to start."""
    path, told = run / "metrics.jsonl", list[str]()
    (run / "config.toml").write_text("[run]\nseed = 7\n")
    sinks = find_sinks(TelemetryConfig(sinks=(sink,)), SinkContext(run=run))
    forwarder = MetricForwarder(path, sinks, tell=told.append, close_s=150.0)
    log = log_at(path, 100.0, 105.0, 106.0, 107.0)
    log.write("learner", role="learner", **{"learner/updates": 3, "learner/loss/policy": 0.5})
    log.write("learner", role="learner", **{"learner/updates": 9})
    forwarder.forward()
    log.write("worker", role="worker-0", **{"worker/steps": 8})
    log.write("worker", role="worker-1", **{"worker/steps": 80})
    forwarder.close()
    assert told == []


def test_a_metric_stands_under_its_role() -> None:
    assert by_role("worker-1", {"worker/steps": 1.0}) == {"worker-1/steps": 1.0}
    assert by_role("learner", {"learner/loss/policy": 1.0}) == {"learner/loss/policy": 1.0}
    assert by_role("supervisor", {"gpu/busy": 1.0}) == {"supervisor/gpu/busy": 1.0}


def test_wandb_reads_what_was_written_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="the package wandb is not installed: the extra [wandb]")
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    run = tmp_path / "20260101-000000-a run"
    run.mkdir()
    write_two_roles(run, "wandb")
    (file,) = run.glob("wandb/offline-run-*/*.wandb")
    assert not list(run.glob("wandb/offline-run-*/files/*"))  # neither packages nor code
    rows, config = wandb_rows(written_to_its_end(file))
    assert [(row["elapsed_s"], row.get("learner/updates")) for row in rows[:2]] == [(0.0, 3.0), (5.0, 9.0)]
    assert rows[0]["learner/loss/policy"] == 0.5
    assert [row.get(f"worker-{n}/steps") for n, row in enumerate(rows[2:])] == [8.0, 80.0]
    assert config["run"] == {"seed": 7}


def written_to_its_end(file: Path) -> bytes:
    """What an offline run holds once its last record is there: a process of wandb's own writes it, and goes on after the run has ended."""
    wait_until(lambda: any(record.HasField("exit") for record in wandb_records(file.read_bytes())))
    return file.read_bytes()


def wandb_records(content: bytes) -> list[Any]:
    """The records of an offline run that are there: its protocol in a log of LevelDB's form, each whole in a file so small."""
    from wandb.proto.wandb_internal_pb2 import Record

    records, at = [], 7
    while at + 7 <= len(content):
        _, size, kind = struct.unpack_from("<IHB", content, at)
        if at + 7 + size > len(content):
            break
        assert kind == 1
        records.append(Record.FromString(content[at + 7 : at + 7 + size]))
        at += 7 + size
    return records


def wandb_rows(content: bytes) -> tuple[list[dict[str, float]], dict[str, object]]:
    """The history and the settings in an offline run."""
    assert content.startswith(b":W&B")
    rows, config = list[dict[str, float]](), dict[str, object]()
    for record in wandb_records(content):
        if record.history.item:
            items = ((one.key or "/".join(one.nested_key), json.loads(one.value_json)) for one in record.history.item)
            rows.append(dict(items))
        config |= {one.key: json.loads(one.value_json) for one in record.run.config.update}
    return rows, config


def test_trackio_reads_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("trackio", reason="the package trackio is not installed: the extra [trackio]")
    run, kept = tmp_path / "20260101-000000-mine", tmp_path / "trackio"
    run.mkdir()
    script = (
        "from pathlib import Path; import sys; from test_sinks import write_two_roles;"
        "write_two_roles(Path(sys.argv[1]), 'trackio')"
    )
    environment = {
        **os.environ,
        "TRACKIO_DIR": str(kept),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }  # read once, at its import
    subprocess.run([sys.executable, "-c", script, str(run)], env=environment, check=True, timeout=200)
    read = (
        "import json, sys; from trackio.sqlite_storage import SQLiteStorage as s;"
        "print(json.dumps([s.get_logs('distrl', sys.argv[1]), s.get_run_config('distrl', sys.argv[1])]))"
    )
    found = subprocess.run(
        [sys.executable, "-c", read, run.name], env=environment, check=True, timeout=200, capture_output=True, text=True
    )
    rows, config = json.loads(found.stdout.splitlines()[-1])
    assert [(row["step"], row.get("learner/updates")) for row in rows[:2]] == [(0, 3.0), (5, 9.0)]
    assert [row.get(f"worker-{n}/steps") for n, row in enumerate(rows[2:])] == [8.0, 80.0]
    assert config["run"] == {"seed": 7}


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_tracker_that_is_not_installed_is_told_with_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda package: None)
    with pytest.raises(UsageError, match=rf"\.\[{name}\]"):
        check_sinks(TelemetryConfig(sinks=(name,)))

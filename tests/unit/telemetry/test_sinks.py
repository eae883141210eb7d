"""Metrics reach every sink once, and no sink can harm a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from distrl.cli.main import main
from distrl.config.load import config_hash, load_config
from distrl.config.schema import Config, TelemetryConfig
from distrl.errors import ConfigError
from distrl.telemetry import tensorboard
from distrl.telemetry.events import EventLog
from distrl.telemetry.sinks import MetricForwarder, SinkContext, find_sinks, forwarding


class Recording:
    """A sink of one's own, as a test would name it by import path."""

    made: list[Recording] = []  # noqa: RUF012

    def __init__(self, settings: object, context: SinkContext) -> None:
        self.run, self.rows, self.closed = context.run, list[tuple[str, dict[str, float], float]](), False
        self.made.append(self)

    def write(self, role: str, metrics: Mapping[str, float], *, time_s: float, elapsed_s: float) -> None:
        self.rows.append((role, dict(metrics), elapsed_s))

    def close(self) -> None:
        self.closed = True


class Failing(Recording):
    def write(self, role: str, metrics: Mapping[str, float], *, time_s: float, elapsed_s: float) -> None:
        raise OSError("the network is down")


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
        file.write(b'{"time_s": 101.0, "broken\n{"half')
    forwarder.forward()
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
    assert "pip install 'distrl[tensorboard]'" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()

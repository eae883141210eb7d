"""Logs of one JSON object a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrl.telemetry import events
from distrl.telemetry.events import EventLog, events_of, newest_events, read_events


def test_events_come_back_in_order_with_their_time(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "logs" / "worker-0.jsonl", clock=lambda: 12.34567)
    log.write("acknowledged", id="a", success=True)
    log.write("device_lost", device="phone-3", why="crash")
    log.close()
    assert read_events(tmp_path / "logs" / "worker-0.jsonl") == [
        {"time_s": 12.346, "event": "acknowledged", "id": "a", "success": True},
        {"time_s": 12.346, "event": "device_lost", "device": "phone-3", "why": "crash"},
    ]


def test_what_is_not_finite_is_left_out_of_a_line_and_costs_nothing_else_in_it(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "metrics.jsonl", clock=lambda: 1.0)
    log.write("learner", loss=float("nan"), norm=float("inf"), updates=3)
    assert read_events(tmp_path / "metrics.jsonl") == [{"time_s": 1.0, "event": "learner", "updates": 3}]


def test_a_new_incarnation_goes_on_in_the_same_log(tmp_path: Path) -> None:
    for incarnation in range(3):
        log = EventLog(tmp_path / "learner.jsonl")
        log.write("resumed", incarnation=incarnation)
        log.close()
    assert [event["incarnation"] for event in read_events(tmp_path / "learner.jsonl")] == [0, 1, 2]


def test_every_line_is_on_disk_when_write_returns(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "x.jsonl")
    log.write("one")
    assert len(read_events(tmp_path / "x.jsonl")) == 1


def test_a_line_that_a_kill_cut_off_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    EventLog(path).write("one")
    with path.open("ab") as file:
        file.write(b'{"time_s": 1, "eve')
    assert [event["event"] for event in read_events(path)] == ["one"]


def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert read_events(tmp_path / "none.jsonl") == []


def test_a_log_whose_last_line_was_cut_off_loses_nothing_that_comes_later(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    EventLog(path).write("one")
    with path.open("ab") as file:
        file.write(b'{"time_s": 1, "eve')
    EventLog(path).write("two")
    EventLog(path).write("three")
    assert [event["event"] for event in read_events(path)] == ["one", "two", "three"]
    assert path.read_bytes().count(b"\n\n") == 0


def test_events_are_found_by_name_and_only_with_all_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    log = EventLog(path, clock=lambda: 1.0)
    log.write("died", role="learner")
    log.write("died", role="worker-0", why="exit code 7")
    log.write("started", role="worker-0", why="")
    assert [event["role"] for event in events_of(path, "died", "role", "why")] == ["worker-0"]


def test_a_line_with_a_number_of_hundreds_of_digits_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(
        b'{"time_s":1,"event":"learner","n":' + b"9" * 400 + b'}\n{"time_s":2,"event":"learner","n":1e18,"d":"' + b"9" * 40 + b'"}\n'
    )  # fmt: skip
    assert [event["time_s"] for event in read_events(path)] == [2]


@pytest.mark.parametrize("chunk_bytes", [1, 7, 64, 1 << 20])
def test_lines_are_found_wherever_the_parts_of_a_log_that_are_read_begin(
    tmp_path: Path, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "CHUNK_BYTES", chunk_bytes)
    path = tmp_path / "x.jsonl"
    log = EventLog(path, clock=lambda: 1.0)
    for number in range(20):
        log.write("died" if number % 3 else "Finished", number=number, why=f"Exit code {number}, died\nat night")
    with path.open("ab") as file:
        file.write(b'{"time_s":1,"event":"died","number":20,"why":"no line end"}')
    every = read_events(path)
    assert [event["number"] for event in every] == list(range(21))
    assert list(newest_events(path)) == every[::-1]
    assert events_of(path, "died", "why") == [event for event in every if event["event"] == "died"]
    assert events_of(path, "finished") == []
    assert [event["number"] for event in newest_events(path, [b"finished", b"exit code 1"])] == [18, 15, 12]
    assert list(newest_events(path, [b"", b"number"])) == every[::-1]
    assert list(newest_events(tmp_path / "none.jsonl", [b"died"])) == events_of(tmp_path / "none.jsonl", "died") == []

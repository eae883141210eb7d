from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from distrl.cli.main import main
from distrl.config.load import load_config
from distrl.runtime.device_history import histories, read_histories
from distrl.runtime.run_folder import RunFolder, create_run
from distrl.telemetry.events import EventLog

EVENTS: list[dict[str, str | float]] = [
    {"event": "finished", "id": "1", "device": "a"},
    {"event": "device_lost", "device": "a", "why": "a is offline", "cause": "offline"},
    {"event": "device_restart_failed", "device": "a", "why": "a is offline", "cause": "offline"},
    {"event": "device_back", "device": "a", "cause": "offline", "down_s": 3.5},
    {"event": "finished", "id": "2", "device": "a"},
    {"event": "finished", "id": "3", "device": "b"},
    {"event": "device_probe_failed", "device": "a", "why": "a is gone", "cause": "gone"},
    {"event": "unjudged", "id": "2", "why": "no device here"},
]


def test_each_device_has_its_episodes_its_losses_by_cause_and_its_time_away() -> None:
    worst, other = histories(EVENTS)
    assert (worst.device, worst.episodes, worst.losses, worst.losses_per_100) == ("a", 2, 2, 100.0)
    assert worst.causes == {"offline": 1, "gone": 1}
    assert (worst.failed_restarts, worst.down_s, worst.longest_down_s) == (1, 3.5, 3.5)
    assert (worst.is_down, worst.last) == (True, "a is gone")
    assert (other.device, other.episodes, other.losses, other.is_down) == ("b", 1, 0, False)


def test_a_device_that_came_back_last_is_not_down() -> None:
    (device,) = histories(EVENTS[1:4])
    assert not device.is_down


def test_the_command_reads_the_logs_of_all_workers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(tmp_path)
    for name, events in (("worker-0", EVENTS[:4]), ("worker-1", EVENTS[4:])):
        log = EventLog(run.log(name))
        for event in events:
            log.write(**event)  # type: ignore[arg-type]
        log.close()
    assert [one.device for one in read_histories(run)] == ["a", "b"]
    assert main(["devices", "stats", str(run.path), "--json"]) == 0
    shown = capsys.readouterr().out
    assert "1 offline, 1 gone" in shown
    assert [one["losses"] for one in json.loads(shown.splitlines()[-1])["devices"]] == [2, 0]


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "stats", str(tmp_path)]) == 2
    assert "try: " in capsys.readouterr().err


def a_run(root: Path) -> RunFolder:
    return create_run(load_config(None, {"run.root": str(root)}), now=datetime(2026, 1, 1))

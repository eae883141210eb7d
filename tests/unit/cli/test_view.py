"""`distrl view` and the dashboard beside `distrl train`: what is refused, and what is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrl.bench.system.stored_run import write_stored_run
from distrl.cli import train
from distrl.cli.main import main
from distrl.dashboard import server
from distrl.errors import UsageError


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(tmp_path / "nothing"), "--no-browser"]) == 2
    assert "does not exist" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["view", str(tmp_path / "file"), "--no-browser"]) == 2
    assert "is no folder" in capsys.readouterr().err


def test_a_run_of_another_format_is_refused_before_a_server_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_stored_run(tmp_path, 1)
    run.format_file.write_text("99")
    assert main(["view", str(run.path), "--no-browser"]) == 2
    assert "format 99" in capsys.readouterr().err


def test_a_port_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for port in ("70000", "-1", "x"):
        assert main(["view", str(tmp_path), f"--port={port}"]) == 2
        assert "whole number from 0 to 65535" in capsys.readouterr().err


def test_nobody_who_wants_no_dashboard_gets_or_hears_of_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_stored_run(tmp_path, 1)
    with train._dashboard(run, wanted=False) as address:
        assert address == ""
    assert capsys.readouterr().err == ""


def test_a_dashboard_that_cannot_start_ends_no_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_stored_run(tmp_path, 1)

    def refuse(*_: object) -> None:
        raise UsageError("the ports 8642 to 8692 are taken")

    monkeypatch.setattr(server, "listen", refuse)
    with train._dashboard(run, wanted=True) as address:
        assert address == ""
    assert capsys.readouterr().err == "no dashboard: the ports 8642 to 8692 are taken\n"

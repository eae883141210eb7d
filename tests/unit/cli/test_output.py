"""What a terminal is given: nothing that it would obey, and a message where nothing can be written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from distrl.cli.main import main, printable
from distrl.telemetry.heartbeat import HeartbeatWriter
from distrl.transport.files import FileHeartbeats
from support.summaries import a_summary
from support.trained import small_run, store_episodes

ESCAPES = "\x1b]0;owned\x07\x1b[2J\u202e"


def test_control_characters_are_replaced_and_lines_stay_lines() -> None:
    assert printable("a\nb\tc é 字 👩‍🚀") == "a\nb\tc é 字 👩‍🚀"
    shown = printable(f"x{ESCAPES}\x9by\r")
    assert not any(letter in shown for letter in "\x1b\x07\u202e\x9b\r")


def test_status_shows_the_log_of_a_stranger_without_its_escapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_run(tmp_path)
    events = [
        {"time_s": 1.0, "event": "notice", "text": ESCAPES},
        {"time_s": 2.0, "event": "died", "role": "learner", "why": ESCAPES},
        {"time_s": 3.0, "event": "ended", "why": f"end {ESCAPES}"},
    ]
    run.logs.mkdir(parents=True, exist_ok=True)
    run.log("supervisor").write_bytes(b"\n".join(map(msgspec.json.encode, events)) + b"\n")
    assert main(["status", str(run.path)]) == 0
    shown = capsys.readouterr().out
    assert "learner died" in shown
    assert "ended by: end" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_a_date_with_hundreds_of_digits_in_a_log_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = small_run(tmp_path)
    run.logs.mkdir(parents=True, exist_ok=True)
    line = b'{"time_s": %s, "event": "device_lost", "device": "d", "why": "w"}\n' % (b"9" * 400)
    run.log("worker-1").write_bytes(line)
    assert main(["status", str(run.path)]) == 0
    assert "lost" not in capsys.readouterr().out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", [["tasks", "list", "--suite", "sim-start"], ["--help"], ["config", "show", "--json"]])
def test_a_full_disk_behind_stdout_is_told_in_two_lines(words: list[str], tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "distrl", *words], stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "distrl: cannot write the output: No space left on device",
        "try: make room where it goes, or send it to another file",
    ]


def test_a_closed_stdout_is_no_traceback_and_no_file_takes_its_place(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    store_episodes(run, a=True)
    command = f"{sys.executable} -m distrl status {run.path} >&-"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_status_without_a_name_tells_of_the_run_before_a_damaged_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = small_run(tmp_path)
    (tmp_path / "20990101-000000-empty").mkdir()
    (tmp_path / "20990101-000000-empty" / "config.toml").touch()
    assert main(["status", "--root", str(tmp_path)]) == 2
    assert f"distrl status {good.path}" in capsys.readouterr().err


def test_no_published_weights_but_checkpoints_are_told_with_one_to_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_run(tmp_path, versions=0)
    checkpoint = run.checkpoints / "000003"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").write_text("{}")
    assert main(["evaluate", str(run.path)]) == 2
    said = capsys.readouterr().err
    assert "has no published weights" in said
    assert f"name a checkpoint instead: {checkpoint}" in said


def test_a_film_is_written_under_its_own_suffix_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = small_run(tmp_path)
    before = run.config_file.read_bytes()
    assert main(["watch", str(run.path), "--gif", str(run.config_file)]) == 2
    assert run.config_file.read_bytes() == before
    assert "try: --gif" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["/dev/zero", "fifo", "large.toml"])
def test_settings_that_are_no_regular_file_or_too_large_are_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    Path("large.toml").write_bytes(b"#" * (2**20 + 1))
    assert main(["train", name]) == 2
    assert "try: name a TOML file" in capsys.readouterr().err


def test_status_of_a_stopped_run_says_how_it_goes_on_and_of_a_finished_one_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_run(tmp_path)
    assert main(["status", str(run.path)]) == 0
    assert "next:" not in capsys.readouterr().out, "no role has ever run: it may only hold episodes"
    HeartbeatWriter(FileHeartbeats(run.heartbeats).beat, "learner", interval_s=0.0)
    assert main(["status", str(run.path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"next: distrl train --resume {run.path}"
    run.summary.write_bytes(msgspec.json.encode(a_summary()))
    assert main(["status", str(run.path)]) == 0
    assert "next:" not in capsys.readouterr().out


def test_where_there_is_no_run_the_whole_path_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["status"]) == 2
    assert f"{tmp_path / 'runs'} holds no run" in capsys.readouterr().err

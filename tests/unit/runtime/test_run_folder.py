"""A run's folder: made whole or not at all, and found again."""

from __future__ import annotations

import errno
import json
import os
from datetime import datetime
from pathlib import Path

import pytest

from distrl.cli.main import main
from distrl.config.load import load_config
from distrl.config.schema import Config
from distrl.errors import ConfigError, StoreError
from distrl.runtime import run_folder
from distrl.runtime.resume import adopt
from distrl.runtime.run_folder import FORMAT, RunFolder, create_run, disk_errors, open_run
from distrl.transport.base import BudgetUsed
from distrl.transport.files import FileBudget

NOW = datetime(2026, 5, 4, 12, 30, 15)


def in_root(root: Path) -> Config:
    return load_config(None, {"run.root": str(root), "run.name": "try", "run.seed": 4})


def test_a_new_run_holds_its_settings_and_the_machine(tmp_path: Path) -> None:
    run = create_run(in_root(tmp_path / "new" / "runs"), now=NOW)
    assert run.name == "20260504-123015-try"
    assert open_run(run.path).config() == in_root(tmp_path / "new" / "runs")
    described = json.loads((run.path / "env.json").read_text())
    assert described["cores"] >= 1
    assert str(tmp_path) not in (run.path / "env.json").read_text()


def test_two_runs_of_one_second_get_folders_of_their_own(tmp_path: Path) -> None:
    names = [create_run(in_root(tmp_path), now=NOW).name for _ in range(3)]
    assert names == ["20260504-123015-try", "20260504-123015-try-2", "20260504-123015-try-3"]


def test_a_file_where_the_root_should_be_is_named_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("mine")
    for root in (tmp_path / "runs", tmp_path / "runs" / "below"):
        with pytest.raises(StoreError, match=r"--run\.root"):
            create_run(in_root(root), now=NOW)
    assert (tmp_path / "runs").read_text() == "mine"


def test_a_run_that_could_not_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(run_folder, "replace", full)
    with pytest.raises(StoreError, match="free some space"):
        create_run(in_root(tmp_path), now=NOW)
    assert list(tmp_path.iterdir()) == []


def test_something_that_is_no_run_is_refused_and_the_runs_there_are_named(tmp_path: Path) -> None:
    create_run(in_root(tmp_path), now=NOW)
    for path in (tmp_path / "20260504-123015-tri", tmp_path):
        with pytest.raises(StoreError, match="is no run folder"):
            open_run(path)
    with pytest.raises(StoreError, match="20260504-123015-try"):
        open_run(tmp_path / "20260504-123015-tri")


def test_the_bare_name_of_a_run_is_answered_with_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create_run(in_root(tmp_path / "runs"), now=NOW)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match="is no run folder") as caught:
        open_run(Path(run.name))
    assert caught.value.expected == f"one of runs/{run.name}"


def test_a_folder_of_runs_is_answered_with_its_newest(tmp_path: Path) -> None:
    runs = [create_run(in_root(tmp_path / "runs"), now=NOW.replace(day=day)) for day in range(1, 9)]
    with pytest.raises(StoreError, match="is no run folder") as caught:
        open_run(tmp_path / "runs")
    newest = ", ".join(str(run.path) for run in runs[:2:-1])
    assert caught.value.expected == f"one of {newest}, … (8 in all)"


def test_without_any_run_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # whoever has trained here has runs/
    with pytest.raises(StoreError, match="a folder that `distrl train` made") as caught:
        open_run(tmp_path / "runs" / "none")
    assert caught.value.fix == "start a run with `distrl train`"


def test_only_what_the_owner_of_a_disk_can_mend_is_called_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="free some space"), disk_errors(tmp_path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(ConnectionResetError), disk_errors(tmp_path):
        raise ConnectionResetError(errno.ECONNRESET, "a bug")


def test_a_folder_in_the_place_of_a_file_is_named_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(StoreError, match=r"metrics\.jsonl: Is a directory") as caught, disk_errors(tmp_path):
        (tmp_path / "metrics.jsonl").open("ab")
    assert caught.value.fix == "move the folder away that stands where a file should be"


def test_the_budget_that_was_used_is_read_back_and_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "budget.json"
    assert FileBudget(path).read() == BudgetUsed()
    path.write_text('{"wall_s": 3.5, "restarts": 2}')
    assert FileBudget(path).read() == BudgetUsed(wall_s=3.5, restarts=2)
    for damaged in ('{"wall_s": ', '{"songs": 3}'):
        path.write_text(damaged)
        with pytest.raises(StoreError, match="remove"):
            FileBudget(path).read()


# --- the format


def test_a_new_run_says_which_format_it_has(tmp_path: Path) -> None:
    run = create_run(in_root(tmp_path), now=NOW)
    assert (run.path / "FORMAT").read_text() == f"{FORMAT}\n"
    assert open_run(run.path).path == run.path


@pytest.mark.parametrize(
    ("content", "said"), [(None, "1"), ("1\n", "1"), ("3\n", "3"), ("\xff" * 90, "\ufffd"), ("", "")]
)
def test_a_run_of_another_format_is_refused_with_the_fix(tmp_path: Path, content: str | None, said: str) -> None:
    run = create_run(in_root(tmp_path), now=NOW)
    run.format_file.unlink()
    if content is not None:
        run.format_file.write_text(content, encoding="utf-8")
    with pytest.raises(StoreError, match=f"this distrl reads format {FORMAT}") as caught:
        open_run(run.path)
    assert f"has run-folder format {said}" in caught.value.seen
    assert "that wrote it, or start a new run" in caught.value.fix
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("verb", [["status"], ["train", "--resume"], ["evaluate"]])
def test_every_verb_refuses_a_run_of_another_format(
    tmp_path: Path, verb: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run = create_run(in_root(tmp_path), now=NOW)
    run.format_file.write_text("1\n")
    before = sorted(path.name for path in run.path.iterdir())
    assert main([*verb, str(run.path)]) == 2
    said = capsys.readouterr().err
    assert f"has run-folder format 1, and this distrl reads format {FORMAT}" in said
    assert len(said.splitlines()) <= 15
    assert sorted(path.name for path in run.path.iterdir()) == before, "nothing was touched"


# --- what is no run


@pytest.mark.parametrize("verb", [["status"], ["runs", "show"], ["train", "--resume"], ["sft"], ["export"]])
def test_an_export_is_called_an_export_and_the_verbs_that_take_one_are_named(
    tmp_path: Path, verb: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    out = an_export(tmp_path / "out")
    arguments = {"sft": ["--data", str(out)], "export": [str(tmp_path / "again")]}.get(verb[0], [])
    assert main([*verb, str(out), *arguments]) == 2
    said = capsys.readouterr().err
    assert f"{out} is an export, not a run" in said
    assert f"try: distrl watch {out}, or distrl evaluate {out}" in said
    assert "format" not in said


def test_an_export_is_not_proposed_as_a_run(tmp_path: Path) -> None:
    run = create_run(in_root(tmp_path), now=NOW)
    an_export(tmp_path / "out")
    with pytest.raises(StoreError, match="is no run folder") as caught:
        open_run(tmp_path)
    assert caught.value.expected == f"one of {run.path}"


def an_export(path: Path) -> Path:
    """What tells an export from a run."""
    path.mkdir()
    (path / "config.toml").write_text("")
    (path / "export.json").write_text("{}")
    return path


def test_a_folder_in_the_place_of_the_format_is_named_with_the_fix(tmp_path: Path) -> None:
    run = create_run(in_root(tmp_path), now=NOW)
    run.format_file.unlink()
    run.format_file.mkdir()
    with pytest.raises(StoreError, match=r"cannot read .*/FORMAT: Is a directory") as caught:
        open_run(run.path)
    assert caught.value.fix == "move that folder away: a file belongs there"


def begun(root: Path) -> RunFolder:
    """A run that has had a session."""
    run = create_run(in_root(root), now=NOW)
    adopt(run, run.config())
    return run


@pytest.mark.parametrize("content", [b"[run\n", b"\xff\xfe", b"a = " + b"[" * 3000])
def test_damaged_settings_of_a_run_are_brought_back_from_its_last_session(tmp_path: Path, content: bytes) -> None:
    run = begun(tmp_path)
    run.config_file.write_bytes(content)
    with pytest.raises(StoreError) as caught:
        run.config()
    assert caught.value.fix.startswith(f"cp {run.session_file} {run.config_file}")
    run.session_file.unlink()
    with pytest.raises(StoreError, match="from a copy of the run"):
        run.config()


@pytest.mark.parametrize("content", [b"", b"[run\n", b"[run]\nname = 'sim'\n", b"[run]\nseed = -1\n"])
def test_a_damaged_session_is_not_taken_for_a_change_of_settings(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    run = begun(tmp_path)
    run.session_file.write_bytes(content)
    assert main(["train", "--resume", str(run.path)]) == 2
    message = capsys.readouterr().err
    assert f"rm {run.session_file}" in message
    assert len(message.splitlines()) <= 4


def test_an_edit_of_a_run_that_does_not_fit_is_answered_like_that_of_any_file(tmp_path: Path) -> None:
    run = begun(tmp_path)
    run.config_file.write_text(run.config_file.read_text().replace("seed = 4", "sed = 4"))
    with pytest.raises(ConfigError, match=r"run\.sed is no setting"):
        run.config()

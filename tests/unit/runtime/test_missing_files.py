"""Files of a run that are gone or are no files: what stands in their place, and that nothing is told as if they had been empty."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import distrl
from distrl.cli.main import main
from distrl.errors import StoreError
from distrl.experience.frames import FrameStore
from distrl.experience.store import ExperienceStore, has_index
from distrl.runtime.run_folder import open_run
from distrl.runtime.run_sizes import describe, newest_run
from support.trained import small_run, store_episodes


def test_a_run_without_its_settings_names_the_copy_that_brings_them_back(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    run.config_file.rename(run.session_file)
    with pytest.raises(StoreError, match=r"config\.toml is gone") as caught:
        open_run(run.path)
    assert f"cp {run.session_file} {run.config_file}" in caught.value.fix
    shutil.copyfile(run.session_file, run.config_file)
    assert open_run(run.path).path == run.path


def test_a_run_without_its_settings_is_still_in_the_list(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    run.config_file.rename(run.session_file)
    assert newest_run(tmp_path) == run.path
    assert (describe(run.path).state, describe(run.path).why) == ("unreadable", f"{run.config_file} is gone")


def without_index(root: Path) -> Path:
    run = small_run(root)
    store_episodes(run, good=True, bad=False)
    for file in run.experience.glob("index.sqlite*"):
        file.unlink()
    return run.path


def test_episodes_without_an_index_are_not_told_as_none(tmp_path: Path) -> None:
    run = distrl.open_run(without_index(tmp_path))
    for read in (run.status, run.index, lambda: list(run.episodes())):
        with pytest.raises(StoreError, match=r"index\.sqlite is gone, and the episodes are there") as caught:
            read()
        assert f"distrl train --resume {run.path}" in caught.value.fix
    assert describe(run.path).state == "unreadable"


@pytest.mark.parametrize("words", [["status"], ["sft", "small.toml", "--data"]])
def test_no_command_takes_a_lost_index_for_a_run_without_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    path = without_index(tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text("[policy.pointer]\nwidth = 16\nlayers = 1\n", encoding="utf-8")
    assert main([*words, str(path)]) == 2
    assert "which rebuilds it from the episode files" in capsys.readouterr().err


def test_the_next_start_rebuilds_a_lost_index_and_a_new_run_has_none_to_miss(tmp_path: Path) -> None:
    store = without_index(tmp_path) / "experience"
    with ExperienceStore(store) as opened:
        assert opened.recover() == 2
    assert has_index(store)
    assert not has_index(tmp_path / "new")


# --- pipes and devices ------------------------------------------------------------------------------------------------

FILES = (
    "FORMAT",
    "summary.json",
    "budget.json",
    "heartbeats/learner.json",
    "heartbeats/learner.lock",
    "weights/latest.json",
)


def put(path: Path, what: str) -> Path:
    """A pipe that nobody writes to, or a link to a device, where a file of a run belongs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path) if what == "pipe" else path.symlink_to("/dev/null")
    return path


@pytest.mark.parametrize("what", ["pipe", "device"])
@pytest.mark.parametrize("name", [*FILES, "config.toml", "experience/index.sqlite", "logs/supervisor.jsonl"])
def test_a_pipe_or_a_device_in_a_run_is_named_and_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, what: str
) -> None:
    run = small_run(tmp_path)
    put(run.path / name, what)
    assert main(["status", str(run.path)]) == 2
    said = capsys.readouterr().err
    assert name == "config.toml" or f"{run.path / name} is a pipe, a socket or a device" in said
    assert len(said.splitlines()) <= 15
    assert "try: " in said
    assert main(["runs", "list", "--root", str(tmp_path)]) == 0
    assert "unreadable" in capsys.readouterr().out


def test_an_export_with_a_pipe_in_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(small_run(tmp_path / "runs").path), str(tmp_path / "out")]) == 0
    put(tmp_path / "out" / "model.safetensors", "pipe")
    assert main(["watch", str(tmp_path / "out")]) == 2
    assert "is a pipe" in capsys.readouterr().err


def test_a_pipe_among_the_episodes_or_screenshots_is_a_damaged_one(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    store_episodes(run, good=True, bad=False)
    with ExperienceStore(run.experience, read_only=True) as store:
        row, other = store.after(0, 10)
        (file,) = run.experience.glob(f"episodes/*/{row.id}.ep")
        put(file, "pipe")
        with pytest.raises(StoreError, match="it is a pipe"):
            store.read(row.id)
        assert store.read(other.id).id == other.id
    frames = FrameStore(tmp_path / "store")
    reference = frames.put(b"picture")
    (kept,) = (path for path in (tmp_path / "store").rglob("*") if path.is_file())
    put(kept, "pipe")
    with pytest.raises(StoreError, match="it is a pipe"):
        frames.get(reference)


def test_links_to_files_and_folders_are_as_good_as_these(tmp_path: Path) -> None:
    run = small_run(tmp_path / "runs")
    store_episodes(run, good=True)
    (run.path / "experience").rename(tmp_path / "elsewhere")
    (run.path / "experience").symlink_to(tmp_path / "elsewhere")
    (run.path / "nowhere").symlink_to(tmp_path / "gone")
    assert main(["status", str(run.path)]) == 0

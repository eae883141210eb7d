"""Files of a run that are gone: what stands in their place, and that nothing is told as if they had been empty."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import distrl
from distrl.cli.main import main
from distrl.errors import StoreError
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

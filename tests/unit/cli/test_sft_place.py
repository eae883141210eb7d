"""What `distrl sft` says where there is nothing to go on with."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from distrl.cli.main import main
from distrl.config.load import load_config
from distrl.experience.store import ExperienceStore
from distrl.runtime.run_folder import create_run
from support.trajectories import make_trajectory


def test_a_run_that_is_not_there_is_refused_without_talk_of_defaults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = create_run(load_config(None, {"run.root": str(tmp_path)}), now=datetime(2026, 5, 4))
    with ExperienceStore(run.experience) as store:
        store.add(make_trajectory("e0"))
    assert main(["sft", str(tmp_path / "nope"), "--data", str(run.path)]) == 2
    said = capsys.readouterr().err
    assert "name a run folder to go on with" in said
    assert "leave it out" not in said


def test_a_ready_run_is_taken_by_its_name_in_any_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sft", "first-run", "--data", "nowhere"]) == 2
    assert "nowhere is no run folder" in capsys.readouterr().err

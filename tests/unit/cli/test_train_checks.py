"""What `distrl train` finds out before it makes a run folder: splits without tasks, and tasks that nobody can judge or play."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrl.cli.main import main
from distrl.tasks.base import split_of
from distrl.types import Split

MODEL = ("--judge.model.url", "http://127.0.0.1:9/v1", "--judge.model.model", "any", "--judge.model.key_env", "")


def write_list(folder: Path, **counts: int) -> Path:
    """A list with so many instructions in each split."""
    wanted: dict[Split, int] = {"train": 0, "tune": 0, "test": 0, **counts}  # type: ignore[dict-item]
    lines: list[str] = []
    for number in range(1000):
        split = split_of(text := f"open page {number}")
        if wanted[split]:
            wanted[split] -= 1
            lines.append(text)
    path = folder / "list.txt"
    path.write_text("\n".join(lines))
    return path


def train(path: Path, folder: Path, *flags: str) -> int:
    settings = {"tasks.suite": "list", "tasks.list.path": str(path), "warm_start.demonstrations": "0"}
    words = [
        word for key, value in {**settings, "run.root": str(folder / "runs")}.items() for word in (f"--{key}", value)
    ]
    return main(["train", *words, *flags])


@pytest.mark.parametrize(("counts", "split"), [({"train": 5, "test": 3}, "tune"), ({"train": 5, "tune": 2}, "test")])
def test_a_split_without_tasks_is_refused_before_anything_is_made(
    counts: dict[str, int], split: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(write_list(tmp_path, **counts), tmp_path, *MODEL) == 2
    assert f"has no {split} tasks" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_tasks_that_only_a_model_can_judge_are_refused_where_there_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(write_list(tmp_path, train=5, tune=2, test=3), tmp_path) == 2
    assert "judge.model" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("kind", ["sim", "web"])
def test_tasks_of_other_devices_are_refused(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_list(tmp_path, train=5, tune=2, test=3)
    assert train(path, tmp_path, "--devices.kind", kind, *MODEL) == 2
    assert "try: --devices.kind android" in capsys.readouterr().err
    assert main(["train", "--devices.kind", "web", "--run.root", str(tmp_path / "runs")]) == 2
    assert "try: --devices.kind sim" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()

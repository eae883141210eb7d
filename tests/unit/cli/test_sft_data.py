"""`distrl sft --data`: what is not imitated is counted with the reason, and a pruned run says that it was pruned."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch
from msgspec.structs import replace

from distrl.cli.main import main
from distrl.experience.store import ExperienceStore
from distrl.runtime.run_folder import RunFolder
from distrl.types import Trajectory, Verdict
from support.summaries import a_summary
from support.trained import small_run
from support.trajectories import make_trajectory

FLAGS = ["--warm_start.epochs", "1", "--policy.pointer.width", "16", "--policy.pointer.layers", "1"]


@pytest.fixture(autouse=True)
def keep_denormals() -> Iterator[None]:
    yield
    torch.set_flush_denormal(False)


def episode(id: str, outcome: str, reason: str = "") -> Trajectory:
    verdict = Verdict(outcome=outcome, reason=reason)  # type: ignore[arg-type]
    return replace(make_trajectory(id, success=outcome == "success"), verdict=verdict)


def run_with(root: Path, *episodes: Trajectory) -> RunFolder:
    run = small_run(root)
    with ExperienceStore(run.experience) as store:
        for one in episodes:
            store.add(one)
    return run


NOT_DONE = (
    episode("b", "failure", "the Wi-Fi is off"),
    episode("c", "failure", "the Wi-Fi\nis off"),
    episode("d", "failure", "the level is 2"),
    episode("e", "unknown", "the device was lost"),
)


def learn(tmp_path: Path, data: RunFolder, *more: str) -> int:
    (tmp_path / "my.toml").write_text(f'[run]\nroot = "{tmp_path / "new"}"\n')
    return main(["sft", str(tmp_path / "my.toml"), "--data", str(data.path), *FLAGS, *more])


def test_failed_and_unknown_episodes_are_counted_with_their_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = run_with(tmp_path / "runs", episode("a", "success"), *NOT_DONE)
    assert learn(tmp_path, data) == 0
    said = "skipped: 3 that failed (most often, 2: the Wi-Fi is off), 1 without an outcome (the device was lost)"
    assert said in capsys.readouterr().out.splitlines()
    assert learn(tmp_path, data, "--json") == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["failed_episodes"], found["unknown_episodes"], found["damaged_episodes"]) == (3, 1, 0)


def test_where_nothing_succeeded_the_error_says_what_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert learn(tmp_path, run_with(tmp_path / "runs", *NOT_DONE)) == 2
    said = capsys.readouterr().err
    assert "holds no successful episode; it has 3 that failed (most often, 2: the Wi-Fi is off), 1 without" in said
    assert "distrl runs list" in said
    assert not (tmp_path / "new").exists()


def test_a_run_without_episodes_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert learn(tmp_path, small_run(tmp_path / "runs")) == 2
    assert "holds no episodes yet" in capsys.readouterr().err


def test_a_pruned_run_says_that_it_was_pruned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = run_with(tmp_path / "runs", episode("a", "success"))
    data.summary.write_bytes(msgspec.json.encode(a_summary(episodes=1)))
    whole = run_with(tmp_path / "others", episode("a", "success"))
    parts = ["--part", "episodes", "--part", "checkpoints"]
    assert main(["runs", "prune", str(data.path), *parts, "--yes"]) == 0
    capsys.readouterr()
    assert learn(tmp_path, data) == 2
    said = capsys.readouterr().err
    assert f"{data.path} was pruned of its episodes" in said
    assert "index.sqlite" not in said
    assert main(["sft", str(data.path), "--data", str(whole.path)]) == 2
    assert "was pruned of its checkpoints and episodes, and cannot go on" in capsys.readouterr().err
    assert main(["status", str(data.path)]) == 0
    assert "pruned of its checkpoints and episodes: it cannot be resumed" in capsys.readouterr().out
    assert main(["status", str(data.path), "--json"]) == 0
    (notice,) = json.loads(capsys.readouterr().out)["notices"]
    assert "those that are left" in notice
    assert main(["runs", "show", str(data.path)]) == 0
    assert "pruned of its checkpoints and episodes" in capsys.readouterr().out

"""Where `distrl evaluate` finds what it evaluates, and where it computes."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
import torch

from distrl.cli.main import main
from distrl.config.schema import Config
from distrl.errors import StoreError
from distrl.runtime.playing import choose_tasks
from distrl.runtime.run_folder import create_run
from distrl.runtime.source import locate, on_this_machine
from distrl.transport.files import MANIFEST
from support.pixels import pixel_config
from support.trained import small_run


def test_a_run_that_had_a_gpu_is_evaluated_without_one_where_there_is_none() -> None:
    assert on_this_machine(pixel_config(policy__device="cuda:1")).policy.device == "auto"
    assert on_this_machine(pixel_config()).policy.device == "cpu"


def test_more_episodes_than_there_are_tasks_are_answered_with_how_many_there_are() -> None:
    told: list[str] = []
    tasks = choose_tasks(Config(), 100_000_000, "test", told.append)
    assert told == [f"--episodes 100000000: sim-start has {len(tasks)} such test tasks, and all of them are played"]
    assert len(choose_tasks(Config(), len(tasks), "test", told.append)) == len(tasks)
    assert len(told) == 1


def test_success_before_the_training_stands_beside_it_where_the_tasks_are_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_run(tmp_path)
    run.evaluations.mkdir()
    assert main(["evaluate", str(run.path), "--episodes", "2", "--json"]) == 0
    (run.evaluations / "before.json").write_text(capsys.readouterr().out.splitlines()[-1])
    assert main(["evaluate", str(run.path), "--episodes", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == [
        "template", "n", "before", "success", "progress", "steps",
    ]  # fmt: skip
    assert main(["evaluate", str(run.path), "--episodes", "1"]) == 0
    assert "before" not in capsys.readouterr().out
    torch.set_flush_denormal(False)


def test_a_checkpoint_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    run = create_run(pixel_config(run__root=str(tmp_path)), now=datetime(2026, 5, 4))
    with pytest.raises(StoreError, match="saved none yet"):
        locate(run.checkpoints / "99")
    kept = [run.checkpoints / f"{number:08d}" for number in (3, 4)]
    for checkpoint in kept:
        checkpoint.mkdir(parents=True)
        (checkpoint / MANIFEST).write_text("{}")
    for wrong in (run.checkpoints / "99", run.checkpoints):
        with pytest.raises(StoreError, match=f"{wrong} is no checkpoint") as caught:
            locate(wrong)
        assert caught.value.expected == f"one of {kept[0]}, {kept[1]}"
        assert caught.value.fix == f"name {kept[1]}, or {run.path} for the newest weights"
    assert locate(kept[0])[1] == kept[0]
    with pytest.raises(StoreError, match="is no run folder"):
        locate(run.weights)

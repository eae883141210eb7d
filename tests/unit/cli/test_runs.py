"""`distrl runs`: what there is, what it weighs, and a prune that touches nothing by accident."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from distrl.cli.main import main
from distrl.cli.runs import human
from distrl.config.load import dump_toml, load_config
from distrl.errors import StoreError
from distrl.evaluation.report import make_report
from distrl.experience.durable import replace
from distrl.runtime.factory import make_policy
from distrl.runtime.run_folder import RunFolder, take
from distrl.runtime.run_sizes import newest_run, pruned_parts, refuse_pruned, sizes
from distrl.transport import weight_files
from distrl.transport.weight_files import WeightsFolder
from support.learners import make_version
from support.summaries import a_summary
from support.trained import small_run, store_episodes
from support.trajectories import make_trajectory


@pytest.fixture(autouse=True)
def keep_denormals() -> Iterator[None]:
    yield
    torch.set_flush_denormal(False)


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def finish(run: RunFolder) -> None:
    """Write down what the run came to."""
    run.evaluations.mkdir()
    for name, success in (("before", False), ("v000003", True), ("after", True)):
        report = make_report([make_trajectory(success=success)], suite="sim-start", version=0)
        replace(run.evaluations / f"{name}.json", msgspec.json.encode(report))
    replace(run.summary, msgspec.json.encode(a_summary(episodes=42)))


def with_all_parts(root: Path) -> RunFolder:
    """A finished run that has something of everything."""
    run = small_run(root, versions=4)
    store_episodes(run, a=True)
    finish(run)
    files = ("checkpoints/00000001/state.json", "experience/frames/00/x.jpg", "logs/w.jsonl", "tensorboard/learner/e")
    for file in files:
        (run.path / file).parent.mkdir(parents=True, exist_ok=True)
        (run.path / file).write_bytes(b"x" * 100)
    return run


def all_files(run: RunFolder) -> set[str]:
    return {str(file.relative_to(run.path)) for file in run.path.rglob("*") if file.is_file()}


def test_runs_are_listed_with_state_success_episodes_and_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = with_all_parts(tmp_path)
    stopped = small_run(tmp_path, run__name="zz")
    store_episodes(stopped, a=True, b=False)
    broken = tmp_path / "20250101-broken"
    broken.mkdir()
    (broken / "config.toml").touch()
    assert main(["runs", "list", "--root", str(tmp_path), "--json"]) == 0
    rows = told(capsys)["runs"]
    assert [row["state"] for row in rows] == ["stopped", "finished", "unreadable"]
    assert [row["episodes"] for row in rows] == [2, 42, 0]
    assert (rows[1]["success_before"]["value"], rows[1]["success_after"]["value"]) == (0.0, 1.0)
    assert "format 1" in rows[2]["why"]
    assert rows[1]["size_bytes"] == sum(file.stat().st_size for file in run.path.rglob("*") if file.is_file())
    assert main(["runs", "list", "--root", str(tmp_path)]) == 0
    assert "100.0%" in capsys.readouterr().out


def test_the_parts_of_a_run_add_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = with_all_parts(tmp_path)
    parts = sizes(run)
    assert sum(parts.values()) == sum(file.stat().st_size for file in run.path.rglob("*") if file.is_file())
    assert parts["frames"] == parts["checkpoints"] == parts["logs"] == parts["tensorboard"] == 100
    assert main(["runs", "show", str(run.path), "--json"]) == 0
    assert told(capsys)["parts"] == parts


def test_prune_says_what_would_go_and_leaves_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = with_all_parts(tmp_path)
    before = all_files(run)
    assert main(["runs", "prune", str(run.path), "--json"]) == 0
    found = told(capsys)
    assert (found["deleted"], list(found["runs"][0]["parts"])) == (False, ["versions"])
    assert found["size_bytes"] == sum((run.weights / f"v{n:06d}.{kind}").stat().st_size for n in (1, 2) for kind in ("json", "safetensors"))  # fmt: skip
    assert all_files(run) == before


def test_prune_deletes_old_versions_and_what_is_left_still_plays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = with_all_parts(tmp_path)
    before = all_files(run)
    assert main(["runs", "prune", "--all", "--root", str(tmp_path), "--yes"]) == 0
    gone = {f"weights/v{n:06d}.{kind}" for n in (1, 2) for kind in ("json", "safetensors")}
    assert before - all_files(run) == gone
    assert main(["evaluate", str(run.path), "--episodes", "2", "--json"]) == 0
    assert told(capsys)["policy_version"] == 3
    refuse_pruned(run)


@pytest.mark.parametrize("part", ["checkpoints", "frames", "episodes", "logs", "tensorboard"])
def test_each_part_goes_alone(part: str, tmp_path: Path) -> None:
    run = with_all_parts(tmp_path)
    home = {"frames": "experience/frames", "episodes": "experience"}.get(part, part)
    before = all_files(run)
    assert main(["runs", "prune", str(run.path), "--part", part, "--yes"]) == 0
    gone = {file for file in before - all_files(run) if not file.startswith("heartbeats/")}
    assert gone == {file for file in before if file.startswith(f"{home}/")}
    assert gone


def test_a_run_without_its_checkpoints_is_not_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = with_all_parts(tmp_path)
    assert main(["runs", "prune", str(run.path), "--part", "checkpoints", "--yes"]) == 0
    with pytest.raises(StoreError, match="pruned of its checkpoints"):
        refuse_pruned(run)
    assert main(["train", "--resume", str(run.path)]) == 2
    assert "distrl watch" in capsys.readouterr().err


def test_a_live_run_keeps_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = with_all_parts(tmp_path)
    before = all_files(run)
    lock = take(run.lock("supervisor"), wait_s=1.0, what="test")
    try:
        assert main(["runs", "prune", str(run.path), "--part", "frames", "--yes"]) == 0
        assert "it is live" in capsys.readouterr().out
        assert all_files(run) >= before
        assert main(["runs", "list", "--root", str(tmp_path), "--json"]) == 0
        assert told(capsys)["runs"][0]["state"] == "live"
    finally:
        lock.release()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["prune"], "RUN … or --all"),
        (["prune", "x", "--all"], "RUN … or --all"),
        (["prune", "nowhere", "--yes"], "no run folder"),
        (["prune", "x", "--yes", "--dry-run"], "not allowed with"),
        (["list", "--root", "nowhere"], "holds no run"),
        (["prune", "--all", "--root", "nowhere"], "holds no run"),
    ],
)
def test_wrong_input_is_answered_with_the_fix(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["runs", *words]) == 2
    assert said in capsys.readouterr().err


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_what_is_published_stays_wherever_the_learner_was_killed(
    writes: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, left = small_run(tmp_path, versions=3), [writes]

    def replace_or_die(path: Path, *pieces: bytes | memoryview) -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1
        replace(path, *pieces)

    monkeypatch.setattr(weight_files, "replace", replace_or_die)
    with pytest.raises(Killed):
        WeightsFolder(run.weights, keep=100).publish(make_policy(run.config()), make_version(3))
    monkeypatch.undo()
    assert main(["runs", "prune", str(run.path), "--yes"]) == 0
    assert not (run.weights / "v000001.safetensors").exists()
    capsys.readouterr()
    assert main(["evaluate", str(run.path), "--episodes", "1", "--json"]) == 0
    assert told(capsys)["policy_version"] == 2


@pytest.mark.parametrize("damage", ["pointer", "weights", "folder"])
def test_no_version_goes_where_the_published_one_is_not_known(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_run(tmp_path, versions=3)
    pointer = run.weights / "latest.json"
    if damage == "weights":
        (run.weights / "v000002.safetensors").unlink()
    else:
        pointer.unlink()
        pointer.mkdir() if damage == "folder" else pointer.write_bytes(b"{")
    before = all_files(run)
    assert main(["runs", "prune", str(run.path), "--yes"]) == 2
    assert "try: " in capsys.readouterr().err
    assert main(["runs", "prune", "--all", "--root", str(tmp_path), "--yes"]) == 0
    assert f"skipped {run.path}: " in capsys.readouterr().out
    assert all_files(run) == before


def test_a_run_that_has_published_nothing_keeps_its_files(tmp_path: Path) -> None:
    run = small_run(tmp_path, versions=2)
    (run.weights / "latest.json").unlink()
    before = all_files(run)
    assert main(["runs", "prune", str(run.path), "--yes"]) == 0
    assert {file for file in before - all_files(run) if not file.startswith("heartbeats/")} == set()


def make_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


@pytest.mark.parametrize("name", ["summary.json", "evaluations/before.json", "FORMAT", "config.toml"])
def test_one_damaged_run_costs_the_others_neither_list_nor_prune(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = with_all_parts(tmp_path)
    damaged = small_run(tmp_path, run__name="zz", versions=3)
    finish(damaged)
    make_folder(damaged.path / name)
    assert main(["runs", "list", "--root", str(tmp_path)]) == 0
    assert f"{damaged.name}: " in capsys.readouterr().out
    assert main(["runs", "list", "--root", str(tmp_path), "--json"]) == 0
    states = {row["name"]: (row["state"], bool(row["why"])) for row in told(capsys)["runs"]}
    assert states == {whole.name: ("finished", False), damaged.name: ("unreadable", True)}
    assert main(["runs", "prune", "--all", "--root", str(tmp_path), "--yes"]) == 0
    assert f"skipped {damaged.path}: it cannot be read: " in capsys.readouterr().out
    assert not (whole.weights / "v000001.safetensors").exists()
    assert (damaged.weights / "v000001.safetensors").exists()


def test_where_one_of_several_runs_is_wrong_nothing_is_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = with_all_parts(tmp_path)
    stopped = small_run(tmp_path, run__name="zz")
    store_episodes(stopped, a=True)
    before = all_files(run)
    for wrong in (tmp_path / "nowhere", stopped.path):
        words = [str(run.path), str(wrong), "--part", "episodes", "--yes"]
        assert main(["runs", "prune", *words]) == 2
        assert str(wrong) in capsys.readouterr().err
    assert all_files(run) == before
    assert main(["runs", "prune", "--all", "--root", str(tmp_path), "--part", "episodes", "--yes"]) == 0
    said = capsys.readouterr().out
    assert f"skipped {stopped.path}: {stopped.path} was stopped" in said
    assert "deleted " in said
    assert not run.experience.exists()


def test_a_deletion_that_stops_halfway_says_what_went_and_goes_on_with_the_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, other = with_all_parts(tmp_path), small_run(tmp_path, run__name="zz", versions=3)
    rmtree = shutil.rmtree

    def refuse_logs(path: Path) -> None:
        if path == run.logs:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        rmtree(path)

    monkeypatch.setattr(shutil, "rmtree", refuse_logs)
    words = [str(run.path), str(other.path), "--part", "tensorboard", "--part", "logs", "--part", "versions", "--yes"]
    assert main(["runs", "prune", *words, "--json"]) == 2
    shown = capsys.readouterr()
    first, second = json.loads(shown.out)["runs"]
    assert (list(first["parts"]), "Permission denied" in first["failed"]) == (["tensorboard"], True)
    assert (second["failed"], second["parts"]["versions"] > 0) == ("", True)
    assert "Permission denied" in shown.err
    assert not (other.weights / "v000001.safetensors").exists()


def test_what_was_pruned_first_is_still_told_after_the_second_time(tmp_path: Path) -> None:
    run = with_all_parts(tmp_path)
    for part in ("checkpoints", "episodes"):
        assert main(["runs", "prune", str(run.path), "--part", part, "--yes"]) == 0
    assert pruned_parts(run) == ("checkpoints", "episodes")
    (run.path / "PRUNED").write_bytes(b"\xff")
    with pytest.raises(StoreError, match="pruned of its checkpoints and episodes"):
        refuse_pruned(run)


def test_a_stopped_run_does_not_lose_the_episodes_that_its_checkpoints_count_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_run(tmp_path)
    store_episodes(run, a=True)
    assert main(["runs", "prune", str(run.path), "--part", "episodes", "--yes"]) == 2
    assert "--part checkpoints" in capsys.readouterr().err
    assert (run.experience / "index.sqlite").exists()


def test_status_takes_the_newest_run_and_watching_ends_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_run(tmp_path)
    newest = small_run(tmp_path, run__name="zz")
    assert newest_run(tmp_path) == newest.path
    assert main(["status", "--root", str(tmp_path), "--watch", "--json"]) == 0
    assert told(capsys)["run"] == newest.name


@pytest.mark.parametrize(("size", "words"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (250_000, "250 kB"), (3_400_000_000, "3.4 GB")])  # fmt: skip
def test_sizes_are_told_in_three_digits(size: int, words: str) -> None:
    assert human(size) == words


def test_a_run_that_cannot_be_read_is_shown_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = with_all_parts(tmp_path)
    run.summary.write_bytes(b"{")
    assert main(["runs", "show", str(run.path)]) == 0
    assert f"{run.summary} is damaged" in capsys.readouterr().out


def test_what_is_stored_elsewhere_comes_back_and_a_run_without_such_a_place_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, share = tmp_path / "run", tmp_path / "share"
    folder.mkdir()
    (folder / "config.toml").write_text(dump_toml(load_config(None, {"run.storage": str(share)})))
    run = RunFolder(folder)
    transport = run.transport(run.config())
    transport.episodes.add(make_trajectory("e1"), {})
    transport.close()
    shutil.rmtree(run.experience)
    assert main(["runs", "fetch", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"episodes": 1, "pictures": 0}
    (folder / "config.toml").write_text(dump_toml(load_config(None, {})))
    assert main(["runs", "fetch", str(folder)]) == 2
    assert "has no run.storage" in capsys.readouterr().err

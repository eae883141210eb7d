"""Spools of a run are of this user alone, and are found again whatever has changed between two sessions."""

from __future__ import annotations

import shutil
import stat
import tempfile
from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from distrl.config.load import load_config
from distrl.config.schema import Config
from distrl.errors import StoreError
from distrl.rollout.outbox import Spool
from distrl.runtime.base import RoleContext
from distrl.runtime.factory import hand_over_left
from distrl.runtime.role import _Stop, make_context
from distrl.runtime.run_folder import RunFolder, create_run, take
from distrl.runtime.spools import left_spools, prepare_spools, remove_empty
from distrl.transport.memory import MemoryTransport
from support.roles import a_context
from support.trajectories import make_trajectory


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's folder for temporary files."""
    made = tmp_path / "tmp"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    return made


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(None, {"run.root": str(tmp_path / "runs"), "rollout.workers": 2})


@pytest.fixture
def run(config: Config, place: Path) -> RunFolder:
    return create_run(config, now=datetime(2026, 5, 4))


def spool(folder: Path, *ids: str) -> Path:
    """A worker's spool in which these episodes wait."""
    for id in ids:
        Spool(folder, capacity=9).put(
            replace(make_trajectory(id), worker=folder.name), {f"picture of {id}": b"picture"}
        )
    return folder


def test_the_folder_of_the_spools_belongs_to_one_user_and_cannot_be_guessed(run: RunFolder, place: Path) -> None:
    made = prepare_spools(run)
    assert made.parent == place.resolve()
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    other = prepare_spools(RunFolder(shutil.copytree(run.path, run.path.with_name("other"))))
    assert len({made.name, other.name}) == 2
    assert str(run.path) not in made.name


def test_the_next_session_spools_where_the_last_one_did_and_an_empty_folder_is_tidied_up(run: RunFolder) -> None:
    made = prepare_spools(run)
    assert prepare_spools(run) == made
    (made / "worker-0").mkdir()
    remove_empty(made)
    assert not made.exists()
    assert prepare_spools(run) == made
    spool(made / "worker-0", "a")
    remove_empty(made)
    assert len(Spool(made / "worker-0", capacity=9)) == 1


def test_a_run_that_was_moved_finds_its_spools(run: RunFolder, config: Config) -> None:
    made = prepare_spools(run)
    moved = RunFolder(run.path.rename(run.path.with_name("elsewhere")))
    assert prepare_spools(moved) == made
    again = RunFolder(moved.path.rename(run.path.with_name("back")))
    assert prepare_spools(again) == made


def test_a_copy_of_a_run_leaves_the_spools_to_the_original(run: RunFolder, config: Config) -> None:
    left = spool(prepare_spools(run) / "worker-7", "a")
    copy = RunFolder(shutil.copytree(run.path, run.path.with_name("copy")))
    current = prepare_spools(copy)
    assert current != prepare_spools(run)
    assert list(left_spools(copy, config, current)) == []
    assert list(left_spools(run, config, prepare_spools(run))) == [left]


def test_spools_of_workers_that_are_no_more_are_left_over(run: RunFolder, config: Config) -> None:
    current = prepare_spools(run)
    for name in ("worker-0", "worker-1", "worker-2", "worker-3"):
        spool(current / name, name)
    assert [path.name for path in left_spools(run, config, current)] == ["worker-2", "worker-3"]
    lock = take(run.lock("worker-2"), wait_s=0.0, what="it")
    assert [path.name for path in left_spools(run, config, current)] == ["worker-3"], "it still runs"
    lock.release()


def test_with_another_folder_for_temporary_files_all_spools_in_the_last_one_are_left_over(
    run: RunFolder, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = prepare_spools(run)
    spool(before / "worker-0", "a")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    current = prepare_spools(run)
    assert current.parent == tmp_path.resolve()
    lock = take(run.lock("worker-0"), wait_s=0.0, what="it")  # by the worker that is to hand it over
    assert list(left_spools(run, config, current)) == [before / "worker-0"]
    lock.release()
    spool(current / "worker-5", "b")
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(before.parent))
    assert prepare_spools(run) == before
    assert list(left_spools(run, config, before)) == [current / "worker-5"]


@pytest.mark.parametrize("trick", ["open to all", "a link", "a file"])
def test_a_folder_that_someone_else_may_have_made_is_not_used(
    run: RunFolder, config: Config, tmp_path: Path, trick: str
) -> None:
    made = prepare_spools(run)
    made.rmdir()
    if trick == "open to all":
        made.mkdir()
        made.chmod(0o777)
        (made / "worker-9").mkdir()
    elif trick == "a link":
        (tmp_path / "theirs" / "worker-9").mkdir(parents=True, mode=0o700)
        made.symlink_to(tmp_path / "theirs")
    else:
        made.write_text("")
    other = prepare_spools(run)
    assert other != made
    assert list(left_spools(run, config, other)) == []


def test_a_place_that_cannot_be_used_is_named_with_the_fix(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(StoreError, match="gone") as refusal:
        prepare_spools(run)
    assert "TMPDIR" in refusal.value.fix


def test_a_damaged_list_of_spools_is_named(run: RunFolder) -> None:
    run.spools.write_text("{")
    with pytest.raises(StoreError, match=r"spools\.json is damaged"):
        prepare_spools(run)


class Running:
    """A role's process that nobody stops."""

    def stopping(self) -> bool:
        return False

    orphaned = stopping


def test_the_first_worker_alone_takes_over_what_is_left(run: RunFolder, config: Config) -> None:
    spools = prepare_spools(run)
    left = spool(spools / "worker-7", "a")
    stop: _Stop = Running()  # type: ignore[assignment]
    contexts = [make_context(name, run, stop, spools) for name in ("worker-0", "worker-1", "learner")]
    assert [list(context.left_spools()) for context in contexts] == [[left], [], []]
    assert [context.spool for context in contexts] == [spools / context.name for context in contexts]


def taking_over(tmp_path: Path, config: Config, *folders: Path) -> tuple[RoleContext, MemoryTransport]:
    transport = MemoryTransport()
    context = a_context("worker-0", tmp_path / "run", config, transport=transport)
    return replace(context, log=transport.events.log("worker-0"), left_spools=lambda: iter(folders)), transport


def test_what_is_left_is_stored_with_its_pictures_acknowledged_and_removed(tmp_path: Path, config: Config) -> None:
    one, other = spool(tmp_path / "spools" / "worker-2", "a", "b"), spool(tmp_path / "spools" / "worker-3", "c")
    context, transport = taking_over(tmp_path, config, one, other)
    assert hand_over_left(context) == 3
    assert [(row.id, row.worker) for row in transport.episodes.after(0, 9)] == [
        ("a", "worker-2"), ("b", "worker-2"), ("c", "worker-3")
    ]  # fmt: skip
    events = transport.events.read("worker-0")
    assert [event["id"] for event in events if event["event"] == "acknowledged"] == ["a", "b", "c"]
    assert transport.frames._held
    assert not (tmp_path / "spools").exists()


def test_the_folder_of_the_present_session_stays_for_its_own_workers(tmp_path: Path, config: Config) -> None:
    context, _ = taking_over(tmp_path, config, spool(tmp_path / "run" / "spool" / "worker-2", "a"))
    assert hand_over_left(context) == 1
    assert list(context.spool.parent.iterdir()) == []


def test_a_damaged_file_is_moved_aside_and_the_others_are_taken_over(tmp_path: Path, config: Config) -> None:
    folder = spool(tmp_path / "worker-2", "a", "b")
    first = min(folder.glob("*.ep"))
    first.write_bytes(b"damaged")
    context, transport = taking_over(tmp_path, config, folder)
    assert hand_over_left(context) == 1
    assert [event["event"] for event in transport.events.read("worker-0")] == ["spool_damaged", "acknowledged"]
    assert first.with_suffix(".damaged").exists()

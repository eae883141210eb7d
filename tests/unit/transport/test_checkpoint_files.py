"""Checkpoints as folders: they appear whole, and a damaged one gives way to the one before."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrl.errors import StoreError
from distrl.experience import durable
from distrl.transport import files as files_module
from distrl.transport.files import CheckpointFolder, read_checkpoint

FILES = ("policy.safetensors", "optimizer.safetensors", "state.json")


class Killed(BaseException):
    """Stands for `kill -9`."""


def checkpoint(updates: int = 5) -> dict[str, bytes]:
    """Named files, as a learner saves them."""
    state = f'{{"updates": {updates}}}'.encode()
    return {
        "policy.safetensors": b"policy " * updates,
        "optimizer.safetensors": b"moments " * updates,
        "state.json": state,
    }


def harm(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
        return
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data) if how == "flipped" else bytes(data[: len(data) // 3]))


def test_there_is_no_newest_checkpoint_before_the_first(tmp_path: Path) -> None:
    assert CheckpointFolder(tmp_path / "checkpoints").newest() is None


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    written = checkpoint()
    path = CheckpointFolder(tmp_path).write(written)
    assert CheckpointFolder(tmp_path).newest() == written == read_checkpoint(path)


def test_the_newest_checkpoint_counts_and_only_two_are_kept(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    for updates in (1, 2, 3, 4):
        folder.write(checkpoint(updates))
    assert folder.newest() == checkpoint(4)
    assert len(list(tmp_path.iterdir())) == 2


def test_one_without_a_new_update_still_counts_as_newer(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.write(checkpoint(7))
    later = {**checkpoint(7), "state.json": b'{"updates": 7, "cursor": 12}'}
    folder.write(later)
    assert folder.newest() == later


def test_a_file_that_not_every_checkpoint_has_comes_back_too_and_is_checked(tmp_path: Path) -> None:
    folder, with_critic = CheckpointFolder(tmp_path), {**checkpoint(), "critic.safetensors": b"critic"}
    path = folder.write(with_critic)
    assert folder.newest() == with_critic
    for how in ("flipped", "gone"):
        harm(path / "critic.safetensors", how)
        with pytest.raises(StoreError, match=r"critic\.safetensors"):
            read_checkpoint(path)


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("how", ["flipped", "cut", "gone"])
def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(tmp_path: Path, file: str, how: str) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.write(checkpoint(1))
    harm(folder.write(checkpoint(2)) / file, how)
    assert folder.newest() == checkpoint(1)


def test_after_falling_back_new_checkpoints_count_although_their_updates_are_fewer(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.write(checkpoint(100))
    harm(folder.write(checkpoint(200)) / "state.json", "cut")
    for updates in (101, 102):
        folder.write(checkpoint(updates))
    assert folder.newest() == checkpoint(102)
    harm(max(tmp_path.iterdir()) / "state.json", "cut")
    assert folder.newest() == checkpoint(101)


def test_where_all_are_damaged_the_error_names_the_newest_and_the_fix(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    paths = [folder.write(checkpoint(updates)) for updates in (1, 2)]
    for path in paths:
        harm(path / "policy.safetensors", "flipped")
    with pytest.raises(StoreError, match=r"is damaged: the checksum of policy\.safetensors differs") as caught:
        folder.newest()
    assert str(paths[1]) in caught.value.seen
    assert "remove" in caught.value.fix


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_a_learner_killed_while_saving_has_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    folder, before = CheckpointFolder(tmp_path), checkpoint(3)
    folder.write(before)
    left = [writes]

    def replace(path: Path, content: bytes) -> None:
        if not left[0]:
            path.write_bytes(content[: len(content) // 2])
            raise Killed
        left[0] -= 1
        durable.replace(path, content)

    def rename(self: Path, target: Path) -> Path:
        raise Killed

    monkeypatch.setattr(files_module, "replace", replace)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", rename)
        with pytest.raises(Killed):
            # No update since: what lies there must not be taken away for it.
            folder.write(checkpoint(3))
    assert CheckpointFolder(tmp_path).newest() == before
    monkeypatch.undo()
    CheckpointFolder(tmp_path).write(checkpoint(4))
    assert CheckpointFolder(tmp_path).newest() == checkpoint(4)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_disk_that_refuses_is_a_store_error_with_a_fix(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file where the folder should be")
    with pytest.raises(StoreError) as caught:
        CheckpointFolder(tmp_path / "checkpoints").write(checkpoint())
    assert caught.value.fix


def test_foreign_names_beside_checkpoints_are_left_alone(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.write(checkpoint(1))
    foreign = ("00000009 (copy)", "notes.txt", "000000123", "0000000x")
    for name in foreign:
        (tmp_path / name).mkdir()
    for updates in (2, 3, 4):
        path = folder.write(checkpoint(updates))
    assert path.name == "00000003"
    assert folder.newest() == checkpoint(4)
    assert {name for name in foreign if (tmp_path / name).exists()} == set(foreign)

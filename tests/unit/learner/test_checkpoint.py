from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from distrl.errors import StoreError
from distrl.experience import durable
from distrl.experience.replay import Drawn, ReplayState
from distrl.learner import checkpoint as checkpoint_module
from distrl.learner.checkpoint import (
    Checkpoint,
    CheckpointFolder,
    LearnerState,
    dump_critic,
    dump_optimizer,
    read_checkpoint,
    restore_critic,
    restore_optimizer,
)

FILES = ("policy.safetensors", "optimizer.safetensors", "state.json")


class Killed(BaseException):
    """Stands for `kill -9`."""


def make_checkpoint(updates: int = 5) -> Checkpoint:
    sampler = np.random.default_rng(updates).bit_generator.state
    state = LearnerState(
        version=updates // 2,
        updates=updates,
        episodes=9,
        cursor=9,
        idle_s=1.25,
        busy_s=2.5,
        replay=ReplayState(
            learner_version=2,
            ids=("a", "b"),
            priorities=(0.1, 123456.789),
            drawn=Drawn(num=4, staleness_sum=3, staleness_max=2, num_kept=1),
        ),
        sampler=msgspec.json.encode({"state": str(sampler)}).decode(),
    )
    return Checkpoint(state=state, policy=f"policy {updates}".encode(), optimizer=f"optimizer {updates}".encode())


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
    written = make_checkpoint()
    path = CheckpointFolder(tmp_path).write(written)
    assert CheckpointFolder(tmp_path).newest() == written == read_checkpoint(path)


def test_the_newest_checkpoint_counts_and_only_two_are_kept(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    for updates in (1, 2, 3, 4):
        folder.write(make_checkpoint(updates))
    assert folder.newest() == make_checkpoint(4)
    assert len(list(tmp_path.iterdir())) == 2


def test_one_without_a_new_update_still_counts_as_newer(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.write(make_checkpoint(7))
    later = make_checkpoint(7)
    later = msgspec.structs.replace(later, state=msgspec.structs.replace(later.state, cursor=12))
    folder.write(later)
    assert folder.newest() == later


def test_the_critic_of_an_algorithm_comes_back_too_and_is_checked(tmp_path: Path) -> None:
    folder, with_critic = CheckpointFolder(tmp_path), msgspec.structs.replace(make_checkpoint(), critic=b"critic")
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
    folder.write(make_checkpoint(1))
    harm(folder.write(make_checkpoint(2)) / file, how)
    assert folder.newest() == make_checkpoint(1)


def test_after_falling_back_new_checkpoints_count_although_their_updates_are_fewer(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.write(make_checkpoint(100))
    harm(folder.write(make_checkpoint(200)) / "state.json", "cut")
    for updates in (101, 102):
        folder.write(make_checkpoint(updates))
    assert folder.newest() == make_checkpoint(102)
    harm(max(tmp_path.iterdir()) / "state.json", "cut")
    assert folder.newest() == make_checkpoint(101)


def test_where_all_are_damaged_the_error_names_the_newest_and_the_fix(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    paths = [folder.write(make_checkpoint(updates)) for updates in (1, 2)]
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
    folder, before = CheckpointFolder(tmp_path), make_checkpoint(3)
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

    monkeypatch.setattr(checkpoint_module, "replace", replace)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", rename)
        with pytest.raises(Killed):
            # No update since: what lies there must not be taken away for it.
            folder.write(make_checkpoint(3))
    assert CheckpointFolder(tmp_path).newest() == before
    monkeypatch.undo()
    CheckpointFolder(tmp_path).write(make_checkpoint(4))
    assert CheckpointFolder(tmp_path).newest() == make_checkpoint(4)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_disk_that_refuses_is_a_store_error_with_a_fix(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file where the folder should be")
    with pytest.raises(StoreError) as caught:
        CheckpointFolder(tmp_path / "checkpoints").write(make_checkpoint())
    assert caught.value.fix


# --- the optimizer --------------------------------------------------------------------------------------------------


def make_optimizer(seed: int) -> tuple[torch.nn.Linear, torch.optim.AdamW]:
    torch.manual_seed(seed)
    layer = torch.nn.Linear(3, 2)
    return layer, torch.optim.AdamW(layer.parameters(), lr=0.1)


def descend(layer: torch.nn.Linear, optimizer: torch.optim.AdamW, times: int) -> None:
    for _ in range(times):
        optimizer.zero_grad()
        layer(torch.ones(1, 3)).pow(2).sum().backward()
        optimizer.step()


def test_an_optimizer_goes_on_exactly_where_it_stopped() -> None:
    layer, optimizer = make_optimizer(0)
    descend(layer, optimizer, 5)
    other, restored = make_optimizer(1)
    other.load_state_dict(layer.state_dict())
    restore_optimizer(restored, dump_optimizer(optimizer))
    descend(layer, optimizer, 3)
    descend(other, restored, 3)
    assert torch.equal(layer.weight, other.weight)
    assert torch.equal(layer.bias, other.bias)


def test_a_critic_that_does_not_fit_the_algorithm_is_refused_with_the_fix() -> None:
    written = dump_critic(torch.nn.Linear(3, 2))
    assert dump_critic(torch.nn.Module()) == b""
    restore_critic(torch.nn.Module(), b"")
    for other, data in ((torch.nn.Linear(4, 2), written), (torch.nn.Linear(3, 2), b""), (torch.nn.Module(), written)):
        with pytest.raises(StoreError, match="does not fit the algorithm") as caught:
            restore_critic(other, data)
        assert "algorithm.name" in caught.value.fix


def test_an_optimizer_that_has_done_nothing_can_be_saved_too() -> None:
    layer, optimizer = make_optimizer(0)
    restore_optimizer(optimizer, dump_optimizer(optimizer))
    descend(layer, optimizer, 1)

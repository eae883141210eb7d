"""A checkpoint as named files, and what is in them."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
import torch

from distrl.errors import StoreError
from distrl.experience.replay import Drawn, ReplayState
from distrl.learner.checkpoint import (
    Checkpoint,
    LearnerState,
    dump_critic,
    dump_optimizer,
    from_files,
    restore_critic,
    restore_optimizer,
    to_files,
)


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


def test_a_checkpoint_comes_back_from_its_files_as_it_was() -> None:
    plain = make_checkpoint()
    assert sorted(to_files(plain)) == ["optimizer.safetensors", "policy.safetensors", "state.json"]
    full = msgspec.structs.replace(plain, critic=b"critic", ema=b"average")
    for one in (plain, full):
        assert from_files(to_files(one)) == one


@pytest.mark.parametrize("file", ["policy.safetensors", "optimizer.safetensors", "state.json"])
def test_a_checkpoint_without_one_of_its_files_is_refused_by_name(file: str) -> None:
    files = {name: data for name, data in to_files(make_checkpoint()).items() if name != file}
    with pytest.raises(StoreError, match=f"checkpoints/7 cannot be used: '{file}'") as caught:
        from_files(files, source="checkpoints/7")
    assert "remove it" in caught.value.fix


@pytest.mark.parametrize("state", [b"", b"{", b'{"updates": 3}', b'{"updates": "many"}'])
def test_a_state_that_says_something_else_is_refused(state: bytes) -> None:
    with pytest.raises(StoreError, match="cannot be used"):
        from_files({**to_files(make_checkpoint()), "state.json": state})


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
        assert "algorithm.kind" in caught.value.fix


def test_an_optimizer_that_has_done_nothing_can_be_saved_too() -> None:
    layer, optimizer = make_optimizer(0)
    restore_optimizer(optimizer, dump_optimizer(optimizer))
    descend(layer, optimizer, 1)

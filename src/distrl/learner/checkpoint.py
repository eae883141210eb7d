"""All that the learner needs to go on after `kill -9`: weights, optimizer, cursor, priorities and counters.

A checkpoint is a set of named files that appear together; where they are kept is up to the transport. Tensors are
safetensors, the rest is JSON; nothing is pickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from distrl.errors import StoreError
from distrl.experience.replay import ReplayState
from distrl.learner.intake import Counts
from distrl.policies.base import Policy, RandomAugmentation

STATE, POLICY, OPTIMIZER = "state.json", "policy.safetensors", "optimizer.safetensors"
CRITIC, EMA = "critic.safetensors", "ema.safetensors"
"""There only where the algorithm has a critic of its own, and where weights are averaged."""


class LearnerState(msgspec.Struct, frozen=True, kw_only=True):
    """The learner's counters and cursors."""

    version: int
    updates: int
    episodes: int
    cursor: int
    """The last row of the store that was taken in."""
    idle_s: float
    busy_s: float
    replay: ReplayState
    sampler: str
    """State of the random generator that draws from the replay, as JSON: its integers are wider than 64 bits."""
    augmentation: str = ""
    """State of the one that augments what the policy trains on; empty: the policy has none."""
    data: Counts = Counts()
    skipped_updates: int = 0
    """Updates whose loss or gradient was non-finite, or that ran out of memory."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint in memory."""

    state: LearnerState
    policy: bytes
    optimizer: bytes
    critic: bytes = b""
    """What the algorithm trains beside the policy; empty where it trains nothing."""
    ema: bytes = b""
    """The averaged weights; empty: `policy`."""


def to_files(checkpoint: Checkpoint) -> dict[str, bytes]:
    """The checkpoint as named files."""
    files = {
        STATE: msgspec.json.encode(checkpoint.state),
        POLICY: checkpoint.policy,
        OPTIMIZER: checkpoint.optimizer,
        CRITIC: checkpoint.critic,
        EMA: checkpoint.ema,
    }
    return {name: data for name, data in files.items() if data}


def from_files(files: Mapping[str, bytes], *, source: str = "the checkpoint") -> Checkpoint:
    """What `to_files` gave; `StoreError` that names `source` where a file is missing or says something else."""
    try:
        return Checkpoint(
            state=msgspec.json.decode(files[STATE], type=LearnerState),
            policy=files[POLICY],
            optimizer=files[OPTIMIZER],
            critic=files.get(CRITIC, b""),
            ema=files.get(EMA, b""),
        )
    except (KeyError, msgspec.DecodeError) as error:
        raise StoreError(
            f"{source} cannot be used: {error}",
            expected=f"{STATE}, {POLICY} and {OPTIMIZER} of this version of distrl",
            fix="remove it to go on from the checkpoint before it, or start a new run",
        ) from error


def dump_optimizer(optimizer: torch.optim.Optimizer) -> bytes:
    """The optimizer's tensors as a safetensors file, keyed `<parameter>.<name>`."""
    tensors: dict[str, Tensor] = {}
    for index, values in optimizer.state_dict()["state"].items():
        tensors |= {f"{index}.{name}": torch.as_tensor(value).contiguous() for name, value in values.items()}
    return save(tensors or {"empty": torch.zeros(1)})


def restore_optimizer(optimizer: torch.optim.Optimizer, data: bytes) -> None:
    """Put what `dump_optimizer` wrote back."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in load(data).items():
        index, _, name = key.partition(".")
        if name:
            state.setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def dump_augmentation(policy: Policy[Any]) -> str:
    """State of the policy's own generator; empty where it has none."""
    return policy.augmentation_state if isinstance(policy, RandomAugmentation) else ""


def restore_augmentation(policy: Policy[Any], state: str) -> None:
    """Let the policy draw on from what `dump_augmentation` gave."""
    if state and isinstance(policy, RandomAugmentation):
        policy.augmentation_state = state


def dump_critic(critic: nn.Module) -> bytes:
    """The weights of an algorithm's own critic as a safetensors file; empty where it has none."""
    tensors = {name: tensor.contiguous() for name, tensor in critic.state_dict().items()}
    return save(tensors) if tensors else b""


def restore_critic(critic: nn.Module, data: bytes) -> None:
    """Put what `dump_critic` wrote back; `StoreError` where it is of another algorithm."""
    tensors = load(data) if data else {}
    try:
        critic.load_state_dict(tensors)
    except RuntimeError as error:
        raise StoreError(
            f"the checkpoint's critic does not fit the algorithm: {str(error).splitlines()[-1].strip()}",
            expected="the algorithm that the run was started with",
            fix="set algorithm.kind in the run's config.toml back, or start a new run",
        ) from error

"""All that the learner needs to go on after `kill -9`: weights, optimizer, cursor, priorities and counters.

A checkpoint is a folder that appears whole under its final name. Its `state.json` holds the checksum of every file
beside it, so a damaged one is recognised; the newest whole one is used. Tensors are safetensors; nothing is pickled.
"""

from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from distrl.errors import StoreError
from distrl.experience.durable import replace, storage_errors, sync_folder
from distrl.experience.replay import ReplayState
from distrl.learner.intake import Counts
from distrl.policies.base import Policy, Varying

KEEP = 2
CRITIC, AVERAGE = "critic.safetensors", "average.safetensors"
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
    variation: str = ""
    """State of the one that varies what the policy trains on; empty: the policy has none."""
    data: Counts = Counts()
    left_out: int = 0
    """Updates that were not taken."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint in memory."""

    state: LearnerState
    policy: bytes
    optimizer: bytes
    critic: bytes = b""
    """What the algorithm trains beside the policy; empty where it trains nothing."""
    average: bytes = b""
    """What was last published or would be next; empty: `policy`."""


class _Manifest(msgspec.Struct, frozen=True, kw_only=True):
    state: LearnerState
    sha256: dict[str, str]


class CheckpointFolder:
    """The checkpoints of a run, newest last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, checkpoint: Checkpoint) -> Path:
        """Save durably; older checkpoints but one are removed."""
        # A number of its own, never one that is taken: replacing a folder has a moment in which neither is there.
        taken = self._paths()
        name = f"{int(taken[-1].name) + 1 if taken else 0:08d}"
        path, draft = self._folder / name, self._folder / f".{name}.partial"
        files = {"policy.safetensors": checkpoint.policy, "optimizer.safetensors": checkpoint.optimizer}
        files |= {CRITIC: checkpoint.critic} if checkpoint.critic else {}
        files |= {AVERAGE: checkpoint.average} if checkpoint.average else {}
        manifest = _Manifest(
            state=checkpoint.state, sha256={name: sha256(data).hexdigest() for name, data in files.items()}
        )
        with storage_errors(self._folder):
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            for file, data in {**files, "state.json": msgspec.json.encode(manifest)}.items():
                replace(draft / file, data)
            draft.rename(path)
            sync_folder(self._folder)
        for old in self._paths()[:-KEEP]:
            shutil.rmtree(old, ignore_errors=True)
        return path

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole; None where there was never one; `StoreError` where all are damaged."""
        problems = []
        for path in reversed(self._paths()):
            try:
                return read_checkpoint(path)
            except StoreError as error:
                problems.append(error)
        if problems:
            raise problems[0]
        return None

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob("[0-9]" * 8))


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in this folder, verified."""
    try:
        manifest = msgspec.json.decode((path / "state.json").read_bytes(), type=_Manifest)
        names = ["policy.safetensors", "optimizer.safetensors", *({CRITIC, AVERAGE} & manifest.sha256.keys())]
        files = {name: (path / name).read_bytes() for name in names}
    except (OSError, ValueError) as error:
        raise _damaged(path, str(error)) from error
    for name, data in files.items():
        if sha256(data).hexdigest() != manifest.sha256.get(name):
            raise _damaged(path, f"the checksum of {name} differs")
    return Checkpoint(
        state=manifest.state,
        policy=files["policy.safetensors"],
        optimizer=files["optimizer.safetensors"],
        critic=files.get(CRITIC, b""),
        average=files.get(AVERAGE, b""),
    )


def _damaged(path: Path, why: str) -> StoreError:
    return StoreError(
        f"checkpoint {path} is damaged: {why}",
        expected="state.json, policy.safetensors and optimizer.safetensors as they were written",
        fix=f"remove {path} to go on from the checkpoint before it, or start a new run",
    )


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


def dump_variation(policy: Policy[Any]) -> str:
    """Where the policy's own generator stands; empty where it has none."""
    return policy.variation if isinstance(policy, Varying) else ""


def restore_variation(policy: Policy[Any], state: str) -> None:
    """Let the policy draw on from what `dump_variation` gave."""
    if state and isinstance(policy, Varying):
        policy.variation = state


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
            fix="set algorithm.name in the run's config.toml back, or start a new run",
        ) from error

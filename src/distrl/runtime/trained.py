"""The weights that a run has come to: its newest version, or one of its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distrl.errors import StoreError
from distrl.learner.checkpoint import from_files
from distrl.learner.update import load_ema
from distrl.policies.base import Policy
from distrl.runtime.run_folder import RunFolder, open_run
from distrl.transport.files import MANIFEST, read_checkpoint
from distrl.transport.weight_files import WeightsFolder


def locate(path: Path) -> tuple[RunFolder, Path | None]:
    """The run folder, and the checkpoint where one was named."""
    if (path / MANIFEST).exists():
        return open_run(path.resolve().parent.parent), path
    folder = path if path.name == "checkpoints" else path.parent
    if folder.name == "checkpoints" and (folder.parent / "config.toml").is_file():
        raise _no_checkpoint(path, folder)
    return open_run(path), None


def load_weights(policy: Policy[Any], run: RunFolder, checkpoint: Path | None) -> int:
    """Put the weights into `policy` and return their version."""
    if checkpoint is not None:
        found = from_files(read_checkpoint(checkpoint), source=str(checkpoint))
        policy.restore(found.policy, source=str(checkpoint))
        load_ema(policy.network, found.ema)
        return found.state.version
    weights = WeightsFolder(run.weights)
    newest = weights.latest()
    if newest is None:
        raise StoreError(
            f"{run.path} has published no weights yet",
            expected="a run that got past its warm start",
            fix=f"distrl status {run.path}",
        )
    weights.load(policy, newest)
    return newest.version


def _no_checkpoint(path: Path, folder: Path) -> StoreError:
    known = sorted(str(found.parent) for found in folder.glob(f"[0-9]*/{MANIFEST}"))
    return StoreError(
        f"{path} is no checkpoint",
        expected=f"one of {', '.join(known)}" if known else "a checkpoint, and this run has saved none yet",
        fix=f"name {known[-1] + ', or ' if known else ''}{folder.parent} for the newest weights",
    )

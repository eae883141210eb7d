"""What `distrl export` wrote, read back: a policy without its run.

`export.json` beside the weights says what the folder holds and the SHA-256 of every file of tensors, which is checked before one
is read. Three forms: `weights` (one file of distrl's own), `adapter` (LoRA adapters, to be put on the model that they came
from) and `merged` (a whole model).
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from distrl.config.load import load_config
from distrl.config.schema import Config
from distrl.errors import StoreError
from distrl.experience.durable import refuse_pipes

if TYPE_CHECKING:  # it loads torch, and whether a folder is an export is asked without
    from distrl.policies.base import Policy

FORMAT = 1
"""Of `export.json`. Raised whenever what an export holds changes its meaning."""
MANIFEST = "export.json"
WEIGHTS = "model.safetensors"
Form = Literal["weights", "adapter", "merged"]


class ExportManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an export holds."""

    format: int = FORMAT
    run: str
    """Name of the run that it came from."""
    form: Form
    policy_version: int
    distrl: str
    """The version that wrote it."""
    sha256: dict[str, str]
    """Of every file of tensors, by its path in the folder."""


def is_export(path: Path) -> bool:
    """Whether `distrl export` wrote this folder."""
    return (path / MANIFEST).is_file()


def hash_file(file: Path) -> str:
    """The SHA-256 of a file, read piece by piece."""
    digest = sha256()
    with file.open("rb") as data:
        while part := data.read(2**20):
            digest.update(part)
    return digest.hexdigest()


def read_manifest(path: Path) -> ExportManifest:
    """What the export in this folder holds; `StoreError` where it is of another format or damaged."""
    refuse_pipes(path)
    try:
        found = msgspec.json.decode((path / MANIFEST).read_bytes(), type=ExportManifest)
    except (OSError, ValueError) as error:
        raise _damaged(path, f"{MANIFEST} cannot be read: {error}") from error
    if found.format != FORMAT:
        raise StoreError(
            f"{path} is an export of format {found.format}, and this distrl reads format {FORMAT}",
            expected=f"an export of format {FORMAT}",
            fix=f"use distrl {found.distrl}, which wrote it",
        )
    return found


def verify(path: Path, manifest: ExportManifest) -> None:
    """Raise where a file of tensors is not what was written."""
    for name, digest in manifest.sha256.items():
        file = path / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise _damaged(path, f"{MANIFEST} names {name}, which is outside of the folder")
        if not file.is_file():
            raise _damaged(path, f"{name} is missing")
        if hash_file(file) != digest:
            raise _damaged(path, f"the checksum of {name} differs")


def export_config(path: Path, manifest: ExportManifest, *, model: Path | None = None) -> Config:
    """The settings that the policy was trained with; `model` is where the model of adapters lies on this machine."""
    config = load_config(path / "config.toml")
    if manifest.form == "weights":
        return config
    own = {"path": str(path), "lora_rank": 0} if manifest.form == "merged" else {}
    given = {"path": str(model)} if model is not None else {}
    return replace(config, policy=replace(config.policy, vlm=replace(config.policy.vlm, **{**own, **given})))


def load_export(policy: Policy[Any], path: Path, manifest: ExportManifest) -> int:
    """Put the weights into a policy that was made from `export_config`, and return their version."""
    verify(path, manifest)
    if manifest.form == "weights":
        policy.restore((path / WEIGHTS).read_bytes(), source=str(path / WEIGHTS))
    else:
        from distrl.policies.vlm.export import load_adapter, load_value

        if manifest.form == "adapter":
            load_adapter(policy, path)
        load_value(policy, path)
    return manifest.policy_version


def _damaged(path: Path, why: str) -> StoreError:
    return StoreError(
        f"the export {path} is damaged: {why}",
        expected="the folder as `distrl export` wrote it",
        fix=f"copy it again, or write it anew: distrl export RUN {path}-2",
    )

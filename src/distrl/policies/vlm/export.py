"""A trained policy as a Hugging Face folder: adapters to put on the model they came from, or a whole model.

The value head goes into a folder of its own: no serving software knows it, and such software takes every file of
tensors beside the weights for a part of them.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from distrl.errors import StoreError, UsageError
from distrl.policies.vlm.folder import PICKLES
from distrl.policies.vlm.policy import VlmPolicy

WEIGHTS = ("*.safetensors", "*.safetensors.index.json", *PICKLES, "*.gguf", "*.onnx", "*.msgpack", "*.h5")
"""What is not copied from the folder of the model: the weights are new."""

OURS = "distrl"
"""Folder of what only distrl reads."""
VALUE_HEAD = "value_head.safetensors"


def export_adapter(policy: VlmPolicy, folder: Path) -> None:
    """Write `adapter_model.safetensors`, `adapter_config.json` and the value head into `folder`."""
    if policy.config.lora_rank == 0:
        raise UsageError(
            "this run trained all weights: there is no adapter", expected="policy.vlm.lora_rank above 0", fix="--merged"
        )
    policy.network.model.peft_config["default"].base_model_name_or_path = Path(policy.config.path).name
    # The embeddings are never trained; asked to find that out, peft would look for the model on its hub.
    policy.network.model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)  # peft's own is a form to fill in
    _export_value(policy, folder)


def export_merged(policy: VlmPolicy, folder: Path) -> None:
    """Write a whole model into `folder`, in the dtype of the original; `policy` cannot be used afterwards."""
    source = Path(policy.config.path)
    shutil.copytree(source, folder, dirs_exist_ok=True, ignore=_not_for_copies)
    network = policy.network.model
    merged = network.merge_and_unload() if policy.config.lora_rank else network
    merged.to(policy.native_dtype or torch.float32).save_pretrained(folder)
    generation = source / "generation_config.json"
    if generation.is_file():  # written anew just now, without what the model's makers had put there
        shutil.copyfile(generation, folder / generation.name)
    _export_value(policy, folder)


def _not_for_copies(folder: str, names: list[str]) -> set[str]:
    hidden = {name for name in names if name.startswith(".") or name == "README.md"}
    return hidden | set(shutil.ignore_patterns(*WEIGHTS)(folder, names))


def _export_value(policy: VlmPolicy, folder: Path) -> None:
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in policy.network.value.state_dict().items()}
    (folder / OURS).mkdir(exist_ok=True)  # the model may itself be such an export
    save_file(tensors, folder / OURS / VALUE_HEAD)


def load_adapter(policy: Any, folder: Path) -> None:
    """Put exported adapters on the model of `policy`, which has adapters of the same rank."""
    from peft import set_peft_model_state_dict

    tensors = load_file(folder / "adapter_model.safetensors")
    found: Any = set_peft_model_state_dict(policy.network.model, tensors)
    missing = [name for name in found.missing_keys if "lora_" in name]
    if found.unexpected_keys or missing:
        raise StoreError(
            f"the adapters in {folder} do not fit: {[*found.unexpected_keys, *missing][0]}",
            expected="adapters of this model and rank",
            fix="name the model that they were trained on: --model FOLDER",
        )


def load_value(policy: Any, folder: Path) -> None:
    """Put the exported value head into `policy`."""
    policy.network.value.load_state_dict(load_file(folder / OURS / VALUE_HEAD))

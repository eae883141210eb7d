"""Auto-UI's two models from their folders: the T5 with its fusion layers, and the vision tower of BLIP-2. Safetensors alone are read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from distrl.config.schema import AutoUIConfig
from distrl.errors import ConfigError
from distrl.installing import install
from distrl.policies.autoui.network import AutoUINetwork
from distrl.policies.autoui.vision import Vision
from distrl.policies.vlm.folder import check_model_folder

VISION = "vision_model."
"""What the tensors of BLIP-2's vision tower begin with in its checkpoints."""


class AutoUI(msgspec.Struct, frozen=True, kw_only=True):
    """All that the policy is made of."""

    network: AutoUINetwork
    vision: Vision
    tokenizer: Any


def load(config: AutoUIConfig, device: torch.device) -> AutoUI:
    """Both models, without dropout, on `device`."""
    _refuse_without_packages()
    from transformers import AutoTokenizer, T5Config, T5ForConditionalGeneration

    folder = check_model_folder(config.path, "policy.autoui.path")
    vision = _load_vision(config, device)
    with _config_errors(folder, "policy.autoui.path"):
        _check_kind(folder, "t5")
        described = T5Config.from_pretrained(folder, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, truncation_side="left")
        described.dropout_rate = 0.0
        t5 = T5ForConditionalGeneration(described)
        tensors = read_tensors(folder)
        network = AutoUINetwork(
            t5, image_width=vision.width, value_width=config.value_width, own_head=has_own_head(tensors)
        )
        missing = network.load(tensors)
    if missing:
        raise ConfigError(
            f"the weights in {folder} lack {len(missing)} tensors of Auto-UI, such as {missing[0]}",
            expected="a checkpoint of Auto-UI: a T5 with image_dense, mha_layer and gate_dense",
            fix="docs/autoui.md says where to get it and how to convert it",
        )
    return AutoUI(network=network.to(device).eval(), vision=vision, tokenizer=tokenizer)


def _load_vision(config: AutoUIConfig, device: torch.device) -> Vision:
    from transformers import Blip2Config, Blip2VisionModel

    folder = check_model_folder(config.vision_path, "policy.autoui.vision_path")
    with _config_errors(folder, "policy.autoui.vision_path"):
        _check_kind(folder, "blip-2")
        described: Any = Blip2Config.from_pretrained(folder, local_files_only=True)
        tower: Any = Blip2VisionModel(described.vision_config)
        tensors = read_tensors(folder, prefix=VISION)
        wanted = dict(tower.named_parameters())
        missing = sorted(name for name in wanted if name not in tensors or tensors[name].shape != wanted[name].shape)
        if not missing:
            tower.load_state_dict(tensors, strict=False)
    if missing:
        raise ConfigError(
            f"the weights in {folder} lack {len(missing)} tensors of BLIP-2's vision tower, such as {VISION}{missing[0]}",
            expected="a checkpoint of BLIP-2, such as Salesforce/blip2-opt-2.7b",
            fix="docs/autoui.md says where to get it",
        )
    processor = folder / "preprocessor_config.json"
    facts = json.loads(processor.read_text(encoding="utf-8")) if processor.is_file() else {}
    return Vision(tower.to(device).eval(), facts, device)


def _check_kind(folder: Path, kind: str) -> None:
    """Raise before a model of the wrong kind is made, which takes gigabytes: what a configuration leaves out is as published."""
    found = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
    if found != kind:
        raise ValueError(f"it holds a {found} model, and a {kind} model is wanted")


def has_own_head(tensors: Mapping[str, Tensor]) -> bool:
    """Whether the language head of a checkpoint is another table than that of its words."""
    head, words = tensors.get("lm_head.weight"), tensors.get("shared.weight")
    return head is not None and (words is None or head.shape != words.shape or not torch.equal(head, words))


def read_tensors(folder: Path, *, prefix: str = "") -> dict[str, Tensor]:
    """All tensors of a folder whose names begin with `prefix`, without it, in float32."""
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            names: list[str] = opened.keys()
            for name in names:
                if name.startswith(prefix):
                    found[name.removeprefix(prefix)] = opened.get_tensor(name).float()
    return found


def _refuse_without_packages() -> None:
    if find_spec("transformers") is None:
        raise ConfigError(
            "policy.kind = autoui needs transformers",
            expected="distrl with its extra for language models",
            fix=install("train,vlm"),
        )


@contextmanager
def _config_errors(folder: Path, key: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, ImportError, SafetensorError, RuntimeError) as error:
        raise ConfigError(
            f"the model in {folder} cannot be loaded: {(str(error).strip() or type(error).__name__).splitlines()[0][:300]}",
            expected="a Hugging Face folder that the installed transformers can read",
            fix=f"download it again, or another {key}; docs/autoui.md",
        ) from error

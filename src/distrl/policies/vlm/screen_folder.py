"""Makes the folder of a vision-language model for screens out of the folder of a Llama language model.

The language model keeps its weights, tokenizer and chat template; the vision encoder in front of it starts from random weights
and must be trained (`distrl ground`). A special token that the tokenizer has and prompts have not stands for images, so
that no embedding is added.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import torch

from distrl.config.schema import VlmConfig
from distrl.errors import ConfigError
from distrl.policies.dialects.grid import COLUMNS, ROWS
from distrl.policies.vlm.folder import check_folder
from distrl.policies.vlm.loading import load_model

IMAGE_TOKEN = "<image>"
"""Stands for images where the tokenizer knows it."""


class VisionSize(msgspec.Struct, frozen=True, kw_only=True):
    """How large the vision encoder is."""

    width: int = 512
    layers: int = 6
    strides: tuple[int, ...] = (2, 2, 2, 3)


def make_screen_model(language: Path, size: VisionSize, *, seed: int) -> tuple[Any, Any]:
    """The untrained model around the language model of a folder, in float32, and its tokenizer."""
    from distrl.policies.vlm.screen_model import ScreenLlamaConfig, ScreenLlamaForConditionalGeneration, ScreenVisionConfig

    check_folder(str(language))
    loaded = load_model(VlmConfig(path=str(language), pictures=False, dtype="float32"), torch.device("cpu"))
    if loaded.config.model_type != "llama":
        raise ConfigError(
            f"{language} holds a {loaded.config.model_type} model",
            expected="a language model of the Llama architecture, such as SmolLM2",
            fix="name the folder of one",
        )
    image = image_token_id(loaded.tokenizer)
    vision = ScreenVisionConfig(width=size.width, layers=size.layers, strides=size.strides)
    torch.manual_seed(seed)
    model = ScreenLlamaForConditionalGeneration(
        ScreenLlamaConfig(text_config=loaded.config, vision_config=vision, image_token_id=image)
    )
    given: Any = loaded.network
    model.model.language_model.load_state_dict(given.model.state_dict())
    model.lm_head.load_state_dict(given.lm_head.state_dict())
    model.tie_weights()
    model.generation_config.eos_token_id = loaded.tokenizer.eos_token_id
    _name_places(model, loaded.tokenizer)
    return model.float(), loaded.tokenizer


def image_token_id(tokenizer: Any) -> int:
    """The token that stands for images: `IMAGE_TOKEN`, or the last special token that prompts do without."""
    known = tokenizer.get_added_vocab()
    ids: int | None = known.get(IMAGE_TOKEN)
    used = set(tokenizer.convert_ids_to_tokens(tokenizer("<|im_start|>", add_special_tokens=False)["input_ids"]))
    used |= {tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token, tokenizer.unk_token}
    free = [number for name, number in sorted(known.items(), key=lambda pair: pair[1]) if name not in used]
    if ids is None and not free:
        raise ConfigError(
            "the tokenizer has no special token to spare, which could stand for images",
            expected=f"{IMAGE_TOKEN}, or an added token that prompts do not use",
            fix="another language model, or add one to its tokenizer",
        )
    return ids if ids is not None else free[-1]


@torch.no_grad()
def _name_places(model: Any, tokenizer: Any) -> None:
    """Begin the embeddings of rows and columns with those of their names."""
    words, visual = model.get_input_embeddings().weight, model.model.visual
    for names, table in ((ROWS, visual.row_name), (COLUMNS, visual.column_name)):
        for place, name in enumerate(names):
            ids = tokenizer(f" {name}", add_special_tokens=False)["input_ids"]
            table.weight[place] = words[ids].mean(0)
    # What it sees begins as large as the words around it.
    visual.down.weight.mul_(words.std() / max(float(visual.down.weight.std()), 1e-6) / visual.up.out_features**0.5)


def save_screen_model(model: Any, tokenizer: Any, folder: Path, *, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write the folder, which `policy.vlm.path` can name."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    vision = model.config.vision_config
    model.config.dtype = str(dtype).removeprefix("torch.")
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    processor = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": vision.square,
        "merge_size": 2,
        "temporal_patch_size": 1,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "rescale_factor": 1 / 255,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor, indent=1), encoding="utf-8")
    kept = {name: part.detach().to("cpu", dtype).contiguous() for name, part in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del kept["lm_head.weight"]
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})

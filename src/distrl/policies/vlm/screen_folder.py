"""Makes the folder of a vision-language model for screens out of the folder of a Llama language model.

The language model keeps its weights, tokenizer and chat template; the vision encoder in front of it starts from random weights
and must be trained (`distrl ground`). A special token that the tokenizer has and prompts have not stands for images, so
that no embedding is added.
"""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import torch

from distrl.config.schema import VlmConfig
from distrl.errors import ConfigError
from distrl.policies import weights as weights_file
from distrl.policies.dialects.grid import COLUMNS, ROWS
from distrl.policies.vlm.folder import VLM_FIX, check_folder
from distrl.policies.vlm.loading import load_model
from distrl.policies.vlm.prompt_tokens import image_token_id

VISION_FILE = "vision.safetensors"
"""What of the encoder has learnt to read, without what leads into the language model."""
READING_PARTS = ("stem.", "norm_stem.", "row.", "column.", "layers.")


class VisionSize(msgspec.Struct, frozen=True, kw_only=True):
    """How large the vision encoder is."""

    width: int = 512
    layers: int = 6
    strides: tuple[int, ...] = (2, 2, 2, 3)

    @property
    def square(self) -> int:
        """Side of a square in pixels."""
        return prod(self.strides)


def make_encoder(language: Path, size: VisionSize, *, seed: int) -> Any:
    """A vision encoder with random weights for the language model of a folder, of which config.json is enough."""
    from distrl.policies.vlm.screen_model import ScreenEncoder, ScreenVisionConfig, init_weights

    try:
        out = json.loads((language / "config.json").read_text(encoding="utf-8"))["hidden_size"]
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"{language} has no config.json with a hidden_size", expected="the folder of a Llama", fix=VLM_FIX
        ) from error
    torch.manual_seed(seed)
    config = ScreenVisionConfig(width=size.width, layers=size.layers, strides=size.strides)
    encoder = ScreenEncoder(config, out)
    encoder.apply(init_weights)
    return encoder


def save_vision(encoder: Any, folder: Path) -> None:
    """Keep what an encoder has learnt to read."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / VISION_FILE).write_bytes(weights_file.dump(_reading_parts(encoder)))


def load_vision(encoder: Any, folder: Path) -> bool:
    """Give an encoder what one has learnt to read; False where the folder holds none."""
    file = folder / VISION_FILE
    if not file.is_file():
        return False
    expected = "a vision encoder of the size that is asked for"
    weights_file.restore(_reading_parts(encoder), file.read_bytes(), source=str(file), expected=expected)
    return True


def _reading_parts(encoder: Any) -> dict[str, torch.Tensor]:
    return {name: part for name, part in encoder.state_dict().items() if name.startswith(READING_PARTS)}


def make_screen_model(language: Path, size: VisionSize, *, seed: int) -> tuple[Any, Any]:
    """The untrained model around the language model of a folder, in float32, and its tokenizer."""
    from distrl.policies.vlm.screen_model import (
        ScreenLlamaConfig,
        ScreenLlamaForConditionalGeneration,
        ScreenVisionConfig,
    )

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
    made: Any = model
    return made.float(), loaded.tokenizer


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


def has_screen_model(folder: Path) -> bool:
    """Whether the folder holds a whole model."""
    return (folder / "config.json").is_file() and (folder / "model.safetensors").is_file()


def load_screen_model(folder: Path) -> tuple[Any, Any]:
    """The model of a folder in float32, to go on training it, and its tokenizer."""
    loaded = load_model(VlmConfig(path=str(folder), dtype="float32"), torch.device("cpu"))
    if loaded.config.model_type != "screen_llama":
        raise ConfigError(
            f"{folder} holds a {loaded.config.model_type} model",
            expected="one that `distrl ground` has made, or a new folder",
            fix="another policy.vlm.path",
        )
    return loaded.network, loaded.tokenizer

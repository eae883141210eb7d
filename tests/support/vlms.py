"""Tiny models of every family, made on the spot with random weights: no file, no network."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    LlamaConfig,
    LlavaConfig,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen3VLConfig,
    SmolVLMConfig,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from distrl.config.schema import VlmConfig
from distrl.errors import StoreError
from distrl.policies.base import FrameReader, PolicyContext
from distrl.policies.dialects import dialect
from distrl.policies.vlm.generation import Generate, generate
from distrl.policies.vlm.policy import VlmPolicy
from distrl.policies.vlm.prompt_text import ROLE
from distrl.policies.vlm.screen_folder import VisionSize, make_screen_model, save_screen_model
from distrl.types import Bounds, Observation, Past, Tap, UiElement

FAMILIES = ("qwen2.5-vl", "qwen3-vl", "smolvlm", "screens", "text")
"""What the policy promises to work with; "llava" stands for any other model that takes pictures."""

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for c in m.content %}{% if c.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TURNS = (
    "<|im_start|>{% for m in messages %}{{ m.role | capitalize }}: {% for c in m.content %}{% if c.type == 'image' %}"
    "<image>{% else %}{{ c.text }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
QWEN_SIGNS = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>", "<|box_start|>", "<|box_end|>"]
TILE_SIGNS = ["<fake_token_around_image>", "<image>", "<global-img>"]
BODY: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "bos_token_id": None,
    "eos_token_id": 1,
}
CPU = torch.device("cpu")
LOUDER = 5.0
"""Fresh weights say almost the same whatever they see; larger ones do not."""


@cache
def tiny_model(family: str) -> Path:
    """The folder of a tiny model of `family`."""
    folder = Path(_home().name) / family
    torch.manual_seed(0)
    network = _MAKERS[family](folder)
    with torch.no_grad():
        for weights in network.parameters():
            if weights.ndim > 1:
                weights.mul_(LOUDER)
    network.save_pretrained(folder)
    return folder


def tiny_vlm(
    family: str = "text",
    *,
    seed: int = 0,
    frames: FrameReader | None = None,
    generate: Generate | None = generate,
    device: torch.device = CPU,
    **settings: Any,
) -> VlmPolicy:
    """A policy over the tiny model of `family`, which finds its screenshots in `PICTURES` by default."""
    torch.set_num_threads(1)
    small: dict[str, Any] = {"pictures": family != "text", "gradient_checkpointing": False}
    small |= {
        "path": str(tiny_model(family)),
        "lora_rank": 4,
        "answer_tokens": 10,
        "image_max_pixels": 8000,
        "value_width": 8,
    }
    config = VlmConfig(**{**small, **settings})
    context = PolicyContext(frames=frames or NamedFrames(PICTURES), device=device, seed=seed)
    return VlmPolicy(config, context, generate=generate)


def shake(policy: VlmPolicy, *, by: float = 0.1, seed: int = 0) -> VlmPolicy:
    """The policy with other trained weights: fresh adapters and value heads have no effect."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in policy.network.parameters():
            if weights.requires_grad:
                weights.add_(by * torch.randn(weights.shape, generator=generator))
    return policy


class NamedFrames:
    """`FrameReader` over a mapping; counts how often each was read."""

    def __init__(self, frames: Mapping[str, bytes]) -> None:
        self._frames, self.read = frames, list[str]()

    def get(self, reference: str) -> bytes:
        self.read.append(reference)
        if reference not in self._frames:
            raise StoreError(f"{reference} is gone", fix="copy it back")
        return self._frames[reference]


def picture(width: int, height: int, *, mode: str = "RGB", format: str = "PNG", seed: int = 0) -> bytes:
    """An encoded picture of noise."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randint(0, 256, (height, width, 3), dtype=torch.uint8, generator=generator)
    out = io.BytesIO()
    Image.fromarray(noise.numpy()).convert(mode).save(out, format)
    return out.getvalue()


PICTURES = {"tall": picture(90, 200), "wide": picture(130, 61, seed=1), "other": picture(90, 200, seed=2)}
WIFI = UiElement(bounds=Bounds(0.0, 0.0, 1.0, 0.1), text="Wi-Fi", class_name="Switch", clickable=True, checked=False)
BACK = UiElement(bounds=Bounds(0.0, 0.1, 0.2, 0.2), description="Back", class_name="Button", clickable=True)


def seen(screenshot: str = "tall", *, instruction: str = "Turn the Wi-Fi on", **rest: Any) -> Observation:
    """A screen with a switch and a button."""
    fields = {"elements": (WIFI, BACK), "recent": (Past(action=Tap(0.5, 0.5), target="Settings"),), **rest}
    return Observation(instruction=instruction, screenshot=screenshot, **fields)


def mixed_screens() -> list[Observation]:
    """Prompts of different lengths, with pictures of different sizes."""
    return [seen("tall"), seen("wide", elements=(WIFI,), recent=()), seen("wide", instruction="Go"), seen("other")]


@cache
def _home() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="tiny-models-")


def _tokenizer(signs: list[str], *, end: str, template: str | None) -> Any:
    """A tokenizer that knows the words of our prompts."""
    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", end, "<|im_start|>", *signs]
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    words.train_from_iterator([ROLE, dialect("json").explain()] * 2, trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token=end, pad_token="<|endoftext|>", extra_special_tokens=special[2:]
    )
    made.chat_template = template
    return made


def _qwen(folder: Path, make: type[Any], patch: int, text: dict[str, Any], vision: dict[str, Any]) -> Any:
    tokenizer = _tokenizer(QWEN_SIGNS, end="<|im_end|>", template=CHATML)
    start, end, image, video = tokenizer.convert_tokens_to_ids(QWEN_SIGNS[:4])
    tower = {"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64}
    config = make(
        text_config={**BODY, "vocab_size": len(tokenizer), **text},
        vision_config={**tower, "patch_size": patch, "spatial_merge_size": 2, **vision},
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
        tie_word_embeddings=False,
    )
    tokenizer.save_pretrained(folder)
    Qwen2VLImageProcessorPil(patch_size=patch, merge_size=2).save_pretrained(folder)
    return AutoModelForImageTextToText.from_config(config)


def _qwen_2_5(folder: Path) -> Any:
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
    vision = {"window_size": 56, "fullatt_block_indexes": [1]}
    return _qwen(folder, Qwen2_5_VLConfig, 14, {"rope_parameters": rope}, vision)


def _qwen_3(folder: Path) -> Any:
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3], "mrope_interleaved": True}
    vision = {"deepstack_visual_indexes": [0], "num_position_embeddings": 64}
    return _qwen(folder, Qwen3VLConfig, 16, {"head_dim": 16, "rope_parameters": rope}, vision)


def _smol(folder: Path) -> Any:
    places = [f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)]
    tokenizer = _tokenizer([*TILE_SIGNS, *places], end="<end_of_utterance>", template=TURNS)
    config = SmolVLMConfig(
        text_config={**BODY, "model_type": "llama", "vocab_size": len(tokenizer), "pad_token_id": 0},
        vision_config={
            "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
            "image_size": 32, "patch_size": 8,
        },
        scale_factor=2,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        pad_token_id=0,
    )  # fmt: skip
    tokenizer.save_pretrained(folder)
    size = {"longest_edge": 32}
    SmolVLMImageProcessorPil(size={"longest_edge": 128}, max_image_size=size).save_pretrained(folder)
    return AutoModelForImageTextToText.from_config(config)


def _llava(folder: Path) -> Any:
    tokenizer = _tokenizer(["<image>"], end="<end_of_utterance>", template=TURNS)
    config = LlavaConfig(
        text_config={**BODY, "model_type": "llama", "vocab_size": len(tokenizer)},
        vision_config={
            "model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
            "num_attention_heads": 2, "image_size": 28, "patch_size": 14, "projection_dim": 32,
        },
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=4,
        vision_feature_layer=-1,
    )  # fmt: skip
    from transformers import LlavaProcessor

    size = {"height": 28, "width": 28}
    images = CLIPImageProcessorPil(size=size, crop_size=size)
    LlavaProcessor(
        images, tokenizer, patch_size=14, vision_feature_select_strategy="default", chat_template=TURNS,
        num_additional_image_tokens=1,
    ).save_pretrained(folder)  # fmt: skip
    return AutoModelForImageTextToText.from_config(config)


def _screens(folder: Path) -> Any:
    model, tokenizer = make_screen_model(tiny_model("spare"), VisionSize(width=32, layers=1, strides=(2, 2)), seed=0)
    save_screen_model(model, tokenizer, folder)
    with torch.no_grad():  # which is loud already
        for weights in (*model.model.language_model.parameters(), *model.lm_head.parameters()):
            if weights.ndim > 1:
                weights.div_(LOUDER)
    return model


def _text(folder: Path, signs: Sequence[str] = ()) -> Any:
    tokenizer = _tokenizer(list(signs), end="<|im_end|>", template=CHATML)
    tokenizer.save_pretrained(folder)
    return AutoModelForCausalLM.from_config(LlamaConfig(**BODY, vocab_size=len(tokenizer)))


_MAKERS: dict[str, Callable[[Path], Any]] = {
    "qwen2.5-vl": _qwen_2_5,
    "qwen3-vl": _qwen_3,
    "smolvlm": _smol,
    "llava": _llava,
    "text": _text,
    "spare": lambda folder: _text(folder, ["<image>"]),
    "screens": _screens,
}

"""Settings of the policies: the pointer's own, and a section each for the pixel policy and Hugging Face models."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from distrl.config.section import Count, CountOrNone, Positive, Processor, Section, Share
from distrl.types import DialectName


class PixelConfig(Section, frozen=True):
    picture_width: Annotated[int, Meta(ge=32, le=1024, multiple_of=16)] = 224
    """Width of what the policy sees; screenshots of another size are resized. Taps land in the middle of squares of 16 × 16."""
    picture_height: Annotated[int, Meta(ge=32, le=2048, multiple_of=16)] = 448
    """Height of what the policy sees."""
    width: Annotated[int, Meta(ge=32, le=1024, multiple_of=32)] = 384
    """Size of a token's vector."""
    vision_layers: Annotated[int, Meta(ge=0, le=24)] = 4
    """Transformer layers over the picture alone."""
    joint_layers: Annotated[int, Meta(ge=1, le=24)] = 4
    """Transformer layers over picture, instruction and history together."""
    text_layers: Annotated[int, Meta(ge=0, le=8)] = 2
    """Transformer layers over the instruction alone."""
    text_bytes: Annotated[int, Meta(ge=16, le=512)] = 128
    """Bytes of an instruction that are read; what comes after them is neither read nor typed."""
    jitter: Share = 0.1
    """How far the colours of a picture are shifted in training, so that the policy does not depend on them; 0: not at all."""
    shelf: CountOrNone = 1024
    """Decoded pictures that the learner keeps at hand on its device, 0.3 MB each at 224 × 448; 0: every picture is decoded each time."""


class VlmConfig(Section, frozen=True):
    path: str = ""
    """Folder of a Hugging Face model: config.json, tokenizer, *.safetensors."""
    dialect: DialectName = "json"
    """Format in which the model writes its actions: the one that it was trained on, or "json"."""
    pictures: bool = True
    """Show the screenshot to the model; false: UI elements alone, for models that take no pictures."""
    elements: bool = True
    """List the UI elements in the prompt; false: the screenshot must do."""
    history: Annotated[int, Meta(ge=0, le=16)] = 4
    """Recent actions in the prompt, `rollout.history` of them at most."""
    history_pictures: Annotated[int, Meta(ge=0, le=8)] = 0
    """Screenshots of earlier steps in the prompt, besides the present one."""
    image_max_pixels: Annotated[int, Meta(ge=1024)] = 602_112
    """Larger screenshots are scaled down to so many pixels: they set the length of the prompt."""
    answer_tokens: Count = 64
    """Longest answer; a longer one is cut off there."""
    lora_rank: CountOrNone = 16
    """Rank of the adapters that are trained and published; 0: train and publish all weights."""
    lora_alpha: Positive = 32.0
    """Scale of the adapters, which is divided by their rank."""
    lora_targets: str = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"
    """Layers of the language model that get adapters, by the last part of their names."""
    value_width: Count = 256
    """Hidden units of the value head, which reads the last token of the prompt."""
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """Numbers that the model computes with; auto: bfloat16 on a GPU, float32 on a CPU."""
    decide_batch: Count = 16
    """Prompts answered at once; fewer need less memory in a worker."""
    score_batch: Count = 2
    """Prompts under gradient at once; fewer need less memory in the learner."""
    fast: bool = True
    """Answer by static caches and captured graphs on a GPU, and learn through fewer kernels, where the model is a Qwen-VL or a plain language model; false: always as transformers does."""
    merge: bool = False
    """Answer with the adapters added into the weights: several times faster for a small model, at the price of a second copy of the weights and of one more rounding."""
    gradient_checkpointing: bool = True
    """Keep only the input of each layer under gradient and compute the rest again: far less memory. Up to half as much time again where score_batch holds a whole update; none for larger ones, of which all but the last part are computed again in either case."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model's folder. Read it first."""


class PolicyConfig(Section, frozen=True):
    kind: Literal["pointer", "pixel", "vlm"] = "pointer"
    """Which policy to train: the pointer reads UI elements, the pixel policy sees screenshots alone, "vlm" is a Hugging Face model."""
    device: Processor = "cpu"
    """Where workers and the evaluator decide: "cpu", "cuda", "cuda:1" or "auto" (a GPU where there is one and the policy has a use for it)."""
    width: Annotated[int, Meta(ge=16, le=256, multiple_of=16)] = 64
    """Pointer: size of a token's vector."""
    layers: Annotated[int, Meta(ge=1, le=8)] = 3
    """Pointer: transformer layers."""
    string_match: bool = True
    """Pointer: tell the policy which words of an element stand in the instruction; a strong prior, off for comparisons."""
    rename_share: Share = 0.5
    """Pointer: share of the words in both instruction and screen that are swapped for others in training, so that the policy learns to match words; 0: none."""
    pixel: PixelConfig = PixelConfig()
    vlm: VlmConfig = VlmConfig()

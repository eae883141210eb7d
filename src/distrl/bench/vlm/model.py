"""What `distrl bench vlm` measures: a model of a known shape with random weights, its adapters, prompts and FLOPs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor

from distrl.bench.jobs import log_progress
from distrl.config.schema import VlmConfig
from distrl.policies.dialects import dialect
from distrl.policies.vlm.adapters import add_adapters
from distrl.policies.vlm.prompt_text import ROLE

GRID = (52, 26)
"""Patches of 14 pixels, down and across, of a 728x364 image."""
IMAGE_TOKENS = GRID[0] * GRID[1] // 4
TEXT_TOKENS = 160
ANSWER_TOKENS = 24
IMAGE, START, END, FILLER = 3, 1, 2, 10
"""Token ids: image placeholder, start and end of an image, and the first id of plain text."""
FORBIDDEN_TOKENS = tuple(range(FILLER))

WARM_CALLS = 3
"""What is new is compiled in the first call, and captured as a graph where it comes again."""
ADAPTER_STD = 0.01
"""Standard deviation of the adapters' B matrices, which start at zero: as after some training."""


class VlmSetting(msgspec.Struct, frozen=True, kw_only=True):
    """Model shape, device and batch sizes of a measurement."""

    shape: str
    device: str
    dtype: Literal["bfloat16", "float32"]
    batches: tuple[int, ...]
    train_batch: int
    micro_batch: int
    repeats: int
    """Calls that are timed, at least."""
    stock_repeats: int
    """The same of stock transformers, whose calls take seconds each."""
    least_s: float = 0.0
    """Calls that are short are timed for so long."""


GPU = VlmSetting(
    shape="3b", device="cuda", dtype="bfloat16", batches=(32, 64, 1), train_batch=32, micro_batch=32, repeats=3,
    stock_repeats=2, least_s=1.5,
)  # fmt: skip
CPU = VlmSetting(
    shape="tiny", device="cpu", dtype="float32", batches=(2,), train_batch=2, micro_batch=2, repeats=1, stock_repeats=1
)


def build_model(shape: str, setting: VlmSetting) -> Any:
    """A Qwen2.5-VL with random weights of this shape."""
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    tokens = {"image_token_id": IMAGE, "vision_start_token_id": START, "vision_end_token_id": END, "video_token_id": 4}
    others = {"bos_token_id": 5, "eos_token_id": 6, "pad_token_id": 0}
    describe: Any = Qwen2_5_VLConfig
    make: Any = Qwen2_5_VLForConditionalGeneration
    config = describe(**_shape(shape), **tokens, **others, tie_word_embeddings=shape != "7b")
    with torch.device(setting.device):
        model = make._from_config(config, dtype=getattr(torch, setting.dtype))
    return model.to(setting.device).eval()


SIGNS = ("<|image_start|>", "<|image_end|>", "<|image_pad|>", "<|video_pad|>")
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for c in m.content %}{% if c.type == 'image' %}<|image_start|><|image_pad|><|image_end|>"
    "{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_folder(setting: VlmSetting, folder: Path) -> None:
    """`save_model` in a process of its own, which leaves nothing on the GPU."""
    log_progress(f"making a model of the {setting.shape} shape")
    subprocess.run([sys.executable, "-m", __name__, setting.shape, setting.device, setting.dtype, folder], check=True)


def save_model(setting: VlmSetting, folder: Path) -> None:
    """A folder that `policy.vlm.path` takes: random weights of the shape, and a tokenizer of a few hundred words."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2VLImageProcessorPil

    words: Any = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_end|>", "<|im_start|>", *SIGNS]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    words.train_from_iterator([ROLE, dialect("json").explain()] * 2, trainer)
    make: Any = PreTrainedTokenizerFast
    ends_and_padding = {"eos_token": special[1], "pad_token": special[0]}
    tokenizer = make(tokenizer_object=words, extra_special_tokens=special[2:], **ends_and_padding)
    tokenizer.chat_template = CHAT_TEMPLATE
    model = build_model(setting.shape, setting)
    start, end, image, video = tokenizer.convert_tokens_to_ids(list(SIGNS))
    named = {
        "vision_start_token_id": start,
        "vision_end_token_id": end,
        "image_token_id": image,
        "video_token_id": video,
    }
    ends = {"eos_token_id": tokenizer.eos_token_id, "bos_token_id": None, "pad_token_id": tokenizer.pad_token_id}
    for name, value in {**named, **ends}.items():
        setattr(model.config, name, value)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    processor: Any = Qwen2VLImageProcessorPil
    processor().save_pretrained(folder)


def _shape(name: str) -> dict[str, Any]:
    if name == "7b":
        return _shape_7b()
    deep = name == "3b"
    sections = [16, 24, 24] if deep else [2, 3, 3]
    wide = name in ("3b", "shallow")
    text = {
        "hidden_size": 2048 if wide else 64,
        "num_hidden_layers": 36 if deep else 3,
        "num_attention_heads": 16 if wide else 4,
        "num_key_value_heads": 2,
        "intermediate_size": 11008 if wide else 128,
        "vocab_size": 151_936 if wide else 512,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e6,
            "mrope_section": [16, 24, 24] if wide else sections,
        },
    }
    vision = {
        "depth": 32 if deep else 4,
        "hidden_size": 1280 if wide else 64,
        "num_heads": 16 if wide else 4,
        "intermediate_size": 3420 if wide else 92,
        "out_hidden_size": 2048 if wide else 64,
        "fullatt_block_indexes": [7, 15, 23, 31] if deep else [1, 3],
        "patch_size": 14,
        "window_size": 112,
    }
    return {"text_config": text, "vision_config": vision}


def _shape_7b() -> dict[str, Any]:
    found = _shape("3b")
    text = {
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "intermediate_size": 18944,
        "vocab_size": 152_064,
        "tie_word_embeddings": False,
    }
    return {
        "text_config": {**found["text_config"], **text},
        "vision_config": {**found["vision_config"], "out_hidden_size": 3584},
    }


def prompts(model: Any, batch: int) -> dict[str, Tensor]:
    """Prompts of one image and text, of slightly different lengths, padded on the left."""
    device, vocabulary = model.device, model.config.text_config.vocab_size
    length = IMAGE_TOKENS + TEXT_TOKENS
    ids_BL = torch.randint(FILLER, vocabulary, (batch, length), device=device)
    ids_BL[:, 20] = START
    ids_BL[:, 21 : 21 + IMAGE_TOKENS] = IMAGE
    ids_BL[:, 21 + IMAGE_TOKENS] = END
    mask_BL = torch.ones_like(ids_BL)
    for row in range(batch):
        mask_BL[row, : row % 8] = 0
    patches = batch * GRID[0] * GRID[1]
    return {
        "input_ids": ids_BL,
        "attention_mask": mask_BL,
        "pixel_values": torch.randn(patches, 1176, device=device),
        "image_grid_thw": torch.tensor([[1, *GRID]] * batch, device=device),
        "mm_token_type_ids": (ids_BL == IMAGE).int(),
    }


class Flops(msgspec.Struct, frozen=True, kw_only=True):
    """FLOPs in matrix products with weights: two per weight and token."""

    decision: float
    sample: float


def flops_of(model: Any) -> Flops:
    """FLOPs of one decision and of one training sample."""
    text = sum(p.numel() for name, p in model.model.language_model.named_parameters() if "embed" not in name)
    vision = sum(p.numel() for p in model.model.visual.parameters())
    head = model.lm_head.weight.numel()
    tokens, patches = IMAGE_TOKENS + TEXT_TOKENS + ANSWER_TOKENS, GRID[0] * GRID[1]
    forward = 2.0 * (text * tokens + vision * patches + head * ANSWER_TOKENS)
    # The backward pass through a frozen layer costs as much as its forward; LoRA saves the gradients of its weights.
    return Flops(decision=forward, sample=forward + 2.0 * (text * tokens + head * ANSWER_TOKENS))


def matrix_rate_share(per_s: float, flops: float, rate: float) -> float:
    """Share of the matrix rate that `per_s` passes of `flops` each reach."""
    return per_s * flops / rate


def matrix_rate(setting: VlmSetting) -> float:
    """FLOPs per second of one large matrix product on this machine."""
    size = 8192 if setting.device == "cuda" else 512
    left = torch.randn(size, size, device=setting.device, dtype=getattr(torch, setting.dtype))
    products = 10
    return products * 2.0 * size**3 / seconds(lambda: [left @ left for _ in range(products)], setting)


def seconds(work: Callable[[], object], setting: VlmSetting) -> float:
    """Mean seconds of a call of `work`, after calls to warm up: kernels are compiled and graphs captured in the first ones."""
    for _ in range(WARM_CALLS):
        work()
    _synchronize(setting)
    started_s, calls, spent_s = time.perf_counter(), 0, 0.0
    while calls < setting.repeats or spent_s < setting.least_s:
        work()
        _synchronize(setting)
        calls, spent_s = calls + 1, time.perf_counter() - started_s
    return spent_s / calls


def stock_seconds(work: Callable[[], object], setting: VlmSetting) -> float:
    """The same for stock transformers, which captures nothing: one call warms it up."""
    work()
    _synchronize(setting)
    started_s = time.perf_counter()
    for _ in range(setting.stock_repeats):
        work()
    _synchronize(setting)
    return (time.perf_counter() - started_s) / setting.stock_repeats


def _synchronize(setting: VlmSetting) -> None:
    if setting.device == "cuda":
        torch.cuda.synchronize()


def with_answer(inputs: dict[str, Tensor], tokens_BA: Tensor) -> dict[str, Tensor]:
    """The prompts with these answers appended."""

    def longer(name: str, more: Tensor) -> Tensor:
        return torch.cat([inputs[name], more.to(inputs[name].dtype)], dim=1)

    return {
        **inputs,
        "input_ids": longer("input_ids", tokens_BA),
        "attention_mask": longer("attention_mask", torch.ones_like(tokens_BA)),
        "mm_token_type_ids": longer("mm_token_type_ids", torch.zeros_like(tokens_BA)),
    }


def rows_of(whole: dict[str, Tensor], start: int, count: int) -> dict[str, Tensor]:
    """`count` of the prompts from `start` on, with their images."""
    batch = len(whole["input_ids"])

    def cut(name: str, tensor: Tensor) -> Tensor:
        each = len(tensor) // batch if name == "pixel_values" else 1
        return tensor[start * each : (start + count) * each]

    return {name: cut(name, tensor) for name, tensor in whole.items()}


@contextmanager
def default_attention() -> Iterator[None]:
    """Allow cuDNN's attention, as PyTorch does by default: our roles disable it, which must not slow down stock."""
    before = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    torch.backends.cuda.enable_cudnn_sdp(True)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def add_trained_adapters(model: Any) -> Any:
    """Add adapters of the default settings with random B matrices to `model`, which is changed in place."""
    adapted: Any = add_adapters(model, VlmConfig())
    with torch.no_grad():
        for name, weights in adapted.named_parameters():
            if "lora_B" in name:
                weights.normal_(std=ADAPTER_STD)
    return adapted.eval()


def stock_gradient_difference(adapted: Any, setting: VlmSetting) -> float:
    """Stock's gradients of a whole batch against its own of two halves: norm of the difference over the norm.

    Gradients in bfloat16 depend on the order of sums. This is the measure for how far ours may be from stock's.
    """
    batch, base = setting.train_batch, adapted.get_base_model()
    answers_BA = torch.randint(FILLER, 500, (batch, ANSWER_TOKENS), device=base.device)
    whole = with_answer(prompts(base, batch), answers_BA)
    base.gradient_checkpointing_enable({"use_reentrant": False})
    adapted.train()
    at_once, halved = (_gradient(adapted, whole, size) for size in (batch, batch // 2))
    base.gradient_checkpointing_disable()
    adapted.eval()
    return float((halved - at_once).norm() / at_once.norm())


def _gradient(adapted: Any, whole: dict[str, Tensor], size: int) -> Tensor:
    """Gradient of the mean loss of all answers, `size` prompts at a time."""
    batch = len(whole["input_ids"])
    adapted.zero_grad(set_to_none=True)
    for start in range(0, batch, size):
        part = rows_of(whole, start, size)
        labels_BL = part["input_ids"].clone()
        labels_BL[:, :-ANSWER_TOKENS] = -100
        loss = adapted(**part, labels=labels_BL).loss
        (loss * (len(labels_BL) / batch)).backward()
    found = torch.cat([p.grad.flatten().float() for p in adapted.parameters() if p.grad is not None])
    adapted.zero_grad(set_to_none=True)
    return found


if __name__ == "__main__":
    save_model(
        msgspec.convert(
            {**msgspec.to_builtins(CPU), **dict(zip(("shape", "device", "dtype"), sys.argv[1:4], strict=True))},
            VlmSetting,
        ),
        Path(sys.argv[4]),
    )

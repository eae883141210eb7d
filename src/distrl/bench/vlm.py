"""`distrl bench vlm`: decisions and training samples a second of a Qwen2.5-VL-3B-shaped model, beside the stock loop.

Random weights of the real shape, one 728x364 screenshot (338 image tokens) and 160 text tokens a prompt, 24 answer
tokens. *Stock* is what transformers does by itself: `generate` for decisions; LoRA with gradient checkpointing for
training. *Ours* are the same weights through `policies.vlm.fast_vision` and `fast_decode`. The outputs are compared:
each sampled token's log-probability with a plain forward of the stock model, and the gradients of the adapters.
Without a GPU a tiny model of the same architecture is measured, which shows that it runs and nothing about speed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import torch
from torch import Tensor

from distrl.bench.base import BenchOptions
from distrl.policies.vlm.fast_decode import Decoder, Decoding, log_chances
from distrl.policies.vlm.fast_layers import fuse_layers, restore_layers
from distrl.policies.vlm.fast_vision import speed_up_vision

GRID = (52, 26)
"""Patches of 14 pixels, down and across, of a 728x364 picture."""
PICTURE_TOKENS = GRID[0] * GRID[1] // 4
TEXT_TOKENS = 160
ANSWER_TOKENS = 24
IMAGE, START, END, FILLER = 3, 1, 2, 10
"""Token ids: a picture's place, its start and end, and the first that is plain text."""
NEVER = tuple(range(FILLER))
LORA_TARGETS = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """One batch size, ours beside stock."""

    batch: int
    decisions_per_s: float
    stock_decisions_per_s: float


class VlmSpeeds(msgspec.Struct, frozen=True, kw_only=True):
    """The headline figures are those of the first batch size."""

    model: str
    device: str
    batch: int
    decisions_per_s: float
    stock_decisions_per_s: float
    decisions_speedup: float
    by_batch: list[Speed]
    train_batch: int
    train_samples_per_s: float
    stock_train_samples_per_s: float
    train_speedup: float
    matrix_tflops: float
    """Measured on this machine: one large bf16 product."""
    matrix_rate_share: float
    """Share of that rate that decisions reach at the last batch size."""
    train_matrix_rate_share: float
    max_logprob_difference: float
    """Over all sampled tokens, ours against a plain stock forward, in the model's own precision."""
    mean_logprob_difference: float
    stock_max_logprob_difference: float
    """The same between stock's own sampling and its plain forward: what rounding alone makes of it."""
    max_logprob_difference_fp32: float
    """The same for a shallow model in full precision, where rounding does not hide a mistake."""
    gradient_difference: float
    """Norm of the difference of the adapters' gradients over the norm of stock's."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured."""

    shape: str
    device: str
    dtype: str
    batches: tuple[int, ...]
    train_batch: int
    micro_batch: int
    repeats: int


GPU = Setting(shape="3b", device="cuda", dtype="bfloat16", batches=(32, 64), train_batch=32, micro_batch=16, repeats=3)
CPU = Setting(shape="tiny", device="cpu", dtype="float32", batches=(2,), train_batch=2, micro_batch=2, repeats=1)


def run(options: BenchOptions) -> VlmSpeeds:
    """Measure on the GPU, or show that it runs on the CPU."""
    setting = GPU if torch.cuda.is_available() else CPU
    torch.manual_seed(0)
    shallow = _shallow_difference(setting)
    rate = _matrix_rate(setting)
    model = build_model(setting.shape, setting)
    speeds = [_decisions(model, batch, setting) for batch in setting.batches[: 1 if options.quick else None]]
    logprob = _logprob_difference(model, setting)
    own = _stock_difference(model, setting)
    work = _work(model)
    del model
    trained = _training(setting)
    first, last = speeds[0], speeds[-1]
    return VlmSpeeds(
        model=f"Qwen2.5-VL {setting.shape} shape, random weights",
        device=torch.cuda.get_device_name() if setting.device == "cuda" else "CPU",
        batch=first.batch,
        decisions_per_s=first.decisions_per_s,
        stock_decisions_per_s=first.stock_decisions_per_s,
        decisions_speedup=first.decisions_per_s / first.stock_decisions_per_s,
        by_batch=speeds,
        train_batch=setting.train_batch,
        train_samples_per_s=trained.ours,
        stock_train_samples_per_s=trained.stock,
        train_speedup=trained.ours / trained.stock,
        matrix_tflops=rate / 1e12,
        matrix_rate_share=last.decisions_per_s * work.decision / rate,
        train_matrix_rate_share=trained.ours * work.sample / rate,
        max_logprob_difference=logprob[0],
        mean_logprob_difference=logprob[1],
        stock_max_logprob_difference=own,
        max_logprob_difference_fp32=shallow,
        gradient_difference=trained.gradient_difference,
    )


# --- the model and its prompts --------------------------------------------------------------------------------------


def build_model(shape: str, setting: Setting) -> Any:
    """A Qwen2.5-VL with random weights of this shape."""
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    tokens = {"image_token_id": IMAGE, "vision_start_token_id": START, "vision_end_token_id": END, "video_token_id": 4}
    others = {"bos_token_id": 5, "eos_token_id": 6, "pad_token_id": 0}
    describe: Any = Qwen2_5_VLConfig
    make: Any = Qwen2_5_VLForConditionalGeneration
    config = describe(**_shape(shape), **tokens, **others, tie_word_embeddings=True)
    with torch.device(setting.device):
        model = make._from_config(config, dtype=getattr(torch, setting.dtype))
    return model.to(setting.device).eval()


def _shape(name: str) -> dict[str, Any]:
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


def prompts(model: Any, batch: int) -> dict[str, Tensor]:
    """Prompts of one picture and text, of slightly different lengths, padded on the left."""
    device, vocabulary = model.device, model.config.text_config.vocab_size
    length = PICTURE_TOKENS + TEXT_TOKENS
    ids_BL = torch.randint(FILLER, vocabulary, (batch, length), device=device)
    ids_BL[:, 20] = START
    ids_BL[:, 21 : 21 + PICTURE_TOKENS] = IMAGE
    ids_BL[:, 21 + PICTURE_TOKENS] = END
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


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Floating-point operations in matrix products with weights, by the usual count of two a weight and token."""

    decision: float
    sample: float


def _work(model: Any) -> Work:
    text = sum(p.numel() for name, p in model.model.language_model.named_parameters() if "embed" not in name)
    vision = sum(p.numel() for p in model.model.visual.parameters())
    head = model.lm_head.weight.numel()
    tokens, patches = PICTURE_TOKENS + TEXT_TOKENS + ANSWER_TOKENS, GRID[0] * GRID[1]
    forward = 2.0 * (text * tokens + vision * patches + head * ANSWER_TOKENS)
    # Backward through a frozen layer costs a forward again; its weights' own gradients, which LoRA spares, another.
    return Work(decision=forward, sample=forward + 2.0 * (text * tokens + head * ANSWER_TOKENS))


def _matrix_rate(setting: Setting) -> float:
    size = 8192 if setting.device == "cuda" else 512
    left = torch.randn(size, size, device=setting.device, dtype=getattr(torch, setting.dtype))
    seconds = _seconds(lambda: left @ left, setting, repeats=10)
    return 2.0 * size**3 / seconds


def _seconds(work: Callable[[], object], setting: Setting, *, repeats: int = 0) -> float:
    """Mean seconds of `work` after a rehearsal."""
    repeats = repeats or setting.repeats
    work()
    _settle(setting)
    started_s = time.perf_counter()
    for _ in range(repeats):
        work()
    _settle(setting)
    return (time.perf_counter() - started_s) / repeats


def _settle(setting: Setting) -> None:
    if setting.device == "cuda":
        torch.cuda.synchronize()


# --- decisions ------------------------------------------------------------------------------------------------------


def _stock_answers(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        found: Tensor = model.generate(
            **inputs, do_sample=True, max_new_tokens=ANSWER_TOKENS, min_new_tokens=ANSWER_TOKENS, pad_token_id=0
        )
    return found


def _decisions(model: Any, batch: int, setting: Setting) -> Speed:
    inputs = prompts(model, batch)
    _as_stock(model)
    stock_s = _seconds(lambda: _stock_answers(model, inputs), setting)
    decoder = _fast(model, batch)
    ours_s = _seconds(lambda: decoder.answer(inputs), setting)
    return Speed(batch=batch, decisions_per_s=batch / ours_s, stock_decisions_per_s=batch / stock_s)


def _fast(model: Any, batch: int) -> Decoder:
    speed_up(model)
    longest = PICTURE_TOKENS + TEXT_TOKENS
    decoding = Decoding(num_tokens=ANSWER_TOKENS, temperature=1.0, never=NEVER)
    return Decoder(model, batch=batch, longest_prompt=longest, decoding=decoding)


def speed_up(model: Any) -> None:
    """Everything that makes a forward faster."""
    fuse_layers(model)
    speed_up_vision(model)


def _as_stock(model: Any) -> None:
    """Take everything of ours off the model again."""
    model.model.language_model.config._attn_implementation = "sdpa"
    model.model.language_model._forward_pre_hooks.clear()
    model.model.language_model._forward_pre_hooks_with_kwargs.clear()
    restore_layers(model)


def _logprob_difference(model: Any, setting: Setting) -> tuple[float, float]:
    """Largest and mean difference between what sampling recorded and what a plain stock forward says."""
    batch = min(8, setting.batches[0])
    inputs = prompts(model, batch)
    answers, _ = _fast(model, batch).answer(inputs)
    recorded, tokens = answers.logp_BA.clone(), answers.token_BA.clone()
    _as_stock(model)
    difference = (_plain_logp(model, inputs, tokens) - recorded).abs()
    return float(difference.max()), float(difference.mean())


def _stock_difference(model: Any, setting: Setting) -> float:
    inputs = prompts(model, min(8, setting.batches[0]))
    with torch.no_grad():
        found = model.generate(
            **inputs, do_sample=True, max_new_tokens=ANSWER_TOKENS, min_new_tokens=ANSWER_TOKENS, pad_token_id=0,
            suppress_tokens=list(NEVER), return_dict_in_generate=True, output_logits=True,
        )  # fmt: skip
    tokens = found.sequences[:, -ANSWER_TOKENS:]
    recorded = _chosen(torch.stack(found.logits, dim=1), tokens)
    return float((_plain_logp(model, inputs, tokens) - recorded).abs().max())


def _plain_logp(model: Any, inputs: dict[str, Tensor], tokens_BA: Tensor) -> Tensor:
    """The tokens' log-probabilities by one forward over prompt and answer."""
    with torch.no_grad():
        logits = model(**_with_answer(inputs, tokens_BA), logits_to_keep=ANSWER_TOKENS + 1).logits[:, :-1]
    return _chosen(logits, tokens_BA)


def _chosen(logits: Tensor, tokens_BA: Tensor) -> Tensor:
    logp = log_chances(logits, torch.tensor(NEVER, device=logits.device))
    return logp.gather(2, tokens_BA[..., None])[..., 0]


def _with_answer(inputs: dict[str, Tensor], tokens_BA: Tensor) -> dict[str, Tensor]:
    def longer(name: str, more: Tensor) -> Tensor:
        return torch.cat([inputs[name], more.to(inputs[name].dtype)], dim=1)

    return {
        **inputs,
        "input_ids": longer("input_ids", tokens_BA),
        "attention_mask": longer("attention_mask", torch.ones_like(tokens_BA)),
        "mm_token_type_ids": longer("mm_token_type_ids", torch.zeros_like(tokens_BA)),
    }


def _shallow_difference(setting: Setting) -> float:
    full = msgspec.structs.replace(setting, dtype="float32")
    model = build_model("shallow" if setting.device == "cuda" else "tiny", full)
    return _logprob_difference(model, full)[0]


# --- training -------------------------------------------------------------------------------------------------------


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """Training samples a second, and how far the gradients are apart."""

    ours: float
    stock: float
    gradient_difference: float


def _training(setting: Setting) -> Trained:
    model = _with_adapters(build_model(setting.shape, setting))
    inputs = prompts(model, setting.train_batch)
    answers = torch.randint(FILLER, 500, (setting.train_batch, ANSWER_TOKENS), device=model.device)
    whole = _with_answer(inputs, answers)
    labels = whole["input_ids"].clone()
    labels[:, :-ANSWER_TOKENS] = -100
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.0, fused=True)

    def step(backward: Callable[[], None]) -> None:
        optimizer.zero_grad(set_to_none=True)
        backward()
        optimizer.step()

    _checkpointing(model, on=True)
    stock_s = _seconds(lambda: step(lambda: _stock_backward(model, whole, labels)), setting)
    expected = _gradient(model)
    _checkpointing(model, on=False)
    speed_up(model)
    ours_s = _seconds(lambda: step(lambda: _our_backward(model, whole, setting.micro_batch)), setting)
    found = _gradient(model)
    return Trained(
        ours=setting.train_batch / ours_s,
        stock=setting.train_batch / stock_s,
        gradient_difference=float((found - expected).norm() / expected.norm()),
    )


def _with_adapters(model: Any) -> Any:
    from peft import LoraConfig, get_peft_model

    adapted = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules=LORA_TARGETS))
    with torch.no_grad():
        # As after some training: with B at zero, half of the gradients would be zero whatever the code does.
        for name, weights in adapted.named_parameters():
            if "lora_B" in name:
                weights.normal_(std=0.01)
    return adapted.train()


def _checkpointing(model: Any, *, on: bool) -> None:
    if on:
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    else:
        model.gradient_checkpointing_disable()


def _stock_backward(model: Any, whole: dict[str, Tensor], labels: Tensor) -> None:
    model(**whole, labels=labels).loss.backward()


def _our_backward(model: Any, whole: dict[str, Tensor], micro: int) -> None:
    """The same mean loss, micro-batch by micro-batch, with logits for the answer alone."""
    batch = len(whole["input_ids"])
    for start in range(0, batch, micro):
        part = _rows(whole, start, micro, batch)
        tokens = part["input_ids"][:, -ANSWER_TOKENS:]
        logits = model(**part, logits_to_keep=ANSWER_TOKENS + 1).logits[:, :-1].float()
        logp = logits.log_softmax(-1).gather(2, tokens[..., None])
        (-logp.sum() / (batch * ANSWER_TOKENS)).backward()


def _rows(whole: dict[str, Tensor], start: int, count: int, batch: int) -> dict[str, Tensor]:
    def cut(name: str, tensor: Tensor) -> Tensor:
        each = len(tensor) // batch if name == "pixel_values" else 1
        return tensor[start * each : (start + count) * each]

    return {name: cut(name, tensor) for name, tensor in whole.items()}


def _gradient(model: Any) -> Tensor:
    return torch.cat([p.grad.flatten().float() for p in model.parameters() if p.grad is not None])

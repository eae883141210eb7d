"""`distrl bench vlm`: decisions and training samples a second of a Qwen2.5-VL-3B-shaped model, beside the stock loop.

Random weights of the real shape, one 728x364 screenshot (338 image tokens) and 160 text tokens a prompt, 24 answer
tokens. *Stock* is what transformers does by itself: `generate` for decisions; LoRA with gradient checkpointing for
training. *Ours* are the same weights through `policies.vlm.fast_vision` and `fast_decode`. The outputs are compared:
each sampled token's log-probability with a plain forward of the stock model, and the gradients of the adapters.
Without a GPU a tiny model of the same architecture is measured, which shows that it runs and nothing about speed.
"""

from __future__ import annotations

from typing import Any

import msgspec
import torch
from torch import Tensor

from distrl.bench.base import BenchOptions
from distrl.bench.vlm_model import (
    ANSWER_TOKENS,
    CPU,
    GPU,
    NEVER,
    PICTURE_TOKENS,
    TEXT_TOKENS,
    Setting,
    build_model,
    matrix_rate,
    prompts,
    seconds,
    speed_up,
    with_answer,
    work_of,
)
from distrl.bench.vlm_training import train
from distrl.policies.vlm.fast_decode import Decoder, Decoding
from distrl.policies.vlm.fast_layers import restore_layers
from distrl.policies.vlm.tokens import log_chances

__all__ = ["ANSWER_TOKENS", "CPU", "GPU", "NEVER", "VlmSpeeds", "build_model", "prompts", "run", "speed_up"]


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


def run(options: BenchOptions) -> VlmSpeeds:
    """Measure on the GPU, or show that it runs on the CPU."""
    setting = GPU if torch.cuda.is_available() else CPU
    torch.manual_seed(0)
    shallow = _shallow_difference(setting)
    rate = matrix_rate(setting)
    model = build_model(setting.shape, setting)
    speeds = [_decisions(model, batch, setting) for batch in setting.batches[: 1 if options.quick else None]]
    logprob = _logprob_difference(model, setting)
    own = _stock_difference(model, setting)
    work = work_of(model)
    del model
    trained = train(setting)
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
    stock_s = seconds(lambda: _stock_answers(model, inputs), setting)
    decoder = _fast(model, batch)
    ours_s = seconds(lambda: decoder.answer(inputs), setting)
    return Speed(batch=batch, decisions_per_s=batch / ours_s, stock_decisions_per_s=batch / stock_s)


def _fast(model: Any, batch: int) -> Decoder:
    speed_up(model)
    longest = PICTURE_TOKENS + TEXT_TOKENS
    decoding = Decoding(num_tokens=ANSWER_TOKENS, temperature=1.0, never=NEVER)
    return Decoder(model, batch=batch, longest_prompt=longest, decoding=decoding)


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
        logits = model(**with_answer(inputs, tokens_BA), logits_to_keep=ANSWER_TOKENS + 1).logits[:, :-1]
    return _chosen(logits, tokens_BA)


def _chosen(logits: Tensor, tokens_BA: Tensor) -> Tensor:
    logp = log_chances(logits, torch.tensor(NEVER, device=logits.device))
    return logp.gather(2, tokens_BA[..., None])[..., 0]


def _shallow_difference(setting: Setting) -> float:
    full = msgspec.structs.replace(setting, dtype="float32")
    model = build_model("shallow" if setting.device == "cuda" else "tiny", full)
    return _logprob_difference(model, full)[0]

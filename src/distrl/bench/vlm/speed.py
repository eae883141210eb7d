"""`distrl bench vlm`: decisions and training samples a second of a Qwen2.5-VL-3B-shaped model, beside the stock loop.

Random weights of the real shape, one 728x364 screenshot (338 image tokens) and 160 text tokens per prompt, 24 answer
tokens. *Stock* is what transformers does by itself: `generate` for decisions; LoRA with gradient checkpointing for
training. *Ours* are the same weights through `policies.vlm.fast_vision` and `engine`, with the PyTorch settings of
a role. Decisions are also measured with adapters, separate and merged, as the workers of a LoRA run make them. Prompts
are given as tensors: tokenisation and image preparation are in none of the values.

The outputs are compared: each sampled token's log-probability with a plain forward of the stock model, and the gradients
of the adapters. Each difference is reported with that of stock's own rounding, and with the difference in float32.
Without a GPU a tiny model of the same architecture is measured, which shows that the code runs, not how fast it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import torch

from distrl.bench.base import BenchOptions
from distrl.bench.jobs import log_progress
from distrl.bench.vlm.decisions import Speed, decide_all, logprob_difference
from distrl.bench.vlm.model import CPU, GPU, VlmSetting, build_model, matrix_rate, matrix_rate_share
from distrl.bench.vlm.training import train
from distrl.runtime.factory import prepare_torch


class VlmSpeeds(msgspec.Struct, frozen=True, kw_only=True):
    """The values without a batch size in their name are those of the first one."""

    model: str
    device: str
    batch: int
    decisions_per_s: float
    stock_decisions_per_s: float
    decisions_speedup: float
    lora_decisions_per_s: float
    stock_lora_decisions_per_s: float
    lora_decisions_speedup: float
    merged_decisions_per_s: float
    by_batch: list[Speed]
    train_batch: int
    train_samples_per_s: float
    """With the image features of screenshots that were scored before."""
    train_samples_per_s_new_screens: float
    """With screenshots that go through the vision tower first, as at their first update."""
    stock_train_samples_per_s: float
    train_speedup: float
    matrix_tflops: float
    """Measured on this machine: one large matrix product in bfloat16."""
    matrix_rate_share: float
    """Share of that rate that decisions reach at the batch size at which they reach most."""
    train_matrix_rate_share: float
    """The same for training with new screenshots, whose work includes the vision tower's."""
    max_logprob_difference: float
    """Over all sampled tokens, ours against a plain stock forward, in the model's own precision."""
    mean_logprob_difference: float
    stock_max_logprob_difference: float
    """The same between stock's own sampling and its plain forward: the effect of rounding alone."""
    max_logprob_difference_fp32: float
    """The same for a shallow model in float32, where rounding does not hide a mistake."""
    fp8_tower_logprob_difference: tuple[float, float] | None
    """As the first, largest and mean, with the vision tower in float8 where it was sampled alone; the learner's is in float8 too."""
    fp8_all_logprob_difference: tuple[float, float] | None
    """The same with the language model in float8 too, which the learner's never is."""
    lora_max_logprob_difference: float
    """As the first, with separate adapters."""
    merged_max_logprob_difference: float
    """Sampled with merged adapters, against a plain stock forward with separate ones."""
    score_max_difference: float
    """Between the log-probability of a whole answer when sampled and when scored by the learner, with adapters."""
    score_mean_difference: float
    score_max_difference_fp32: float
    """The same for a shallow model in float32."""
    gradient_difference: float
    """Norm of the difference of the adapters' gradients over the norm of stock's."""
    stock_gradient_difference: float
    """The same between stock on the whole batch and stock on its halves: the effect of rounding alone."""
    gradient_difference_fp32: float
    """Ours against stock for a shallow model in float32."""


def run(options: BenchOptions) -> VlmSpeeds:
    """Measure on the GPU, or show that it runs on the CPU."""
    prepare_torch()
    setting = GPU if torch.cuda.is_available() else CPU
    torch.manual_seed(0)
    log_progress("a shallow model in float32")
    shallow = _shallow(setting)
    rate = matrix_rate(setting)
    decided = decide_all(setting, setting.batches[: 1 if options.quick else None], rate)
    log_progress("training")
    trained = train(setting)
    first = decided.speeds[0]
    return VlmSpeeds(
        model=f"Qwen2.5-VL {setting.shape} shape, random weights",
        device=torch.cuda.get_device_name() if setting.device == "cuda" else "CPU",
        batch=first.batch,
        decisions_per_s=first.decisions_per_s,
        stock_decisions_per_s=first.stock_decisions_per_s,
        decisions_speedup=first.decisions_per_s / first.stock_decisions_per_s,
        lora_decisions_per_s=first.lora_decisions_per_s,
        stock_lora_decisions_per_s=first.stock_lora_decisions_per_s,
        lora_decisions_speedup=first.lora_decisions_per_s / first.stock_lora_decisions_per_s,
        merged_decisions_per_s=first.merged_decisions_per_s,
        by_batch=decided.speeds,
        train_batch=setting.train_batch,
        train_samples_per_s=trained.ours,
        train_samples_per_s_new_screens=trained.ours_new,
        stock_train_samples_per_s=trained.stock,
        train_speedup=trained.ours / trained.stock,
        matrix_tflops=rate / 1e12,
        matrix_rate_share=max(one.matrix_rate_share for one in decided.speeds),
        train_matrix_rate_share=matrix_rate_share(trained.ours_new, decided.flops.sample, rate),
        max_logprob_difference=decided.logprob[0],
        mean_logprob_difference=decided.logprob[1],
        stock_max_logprob_difference=decided.stock_logprob,
        max_logprob_difference_fp32=shallow.logprob,
        fp8_tower_logprob_difference=decided.fp8_logprob[0] if decided.fp8_logprob else None,
        fp8_all_logprob_difference=decided.fp8_logprob[1] if decided.fp8_logprob else None,
        lora_max_logprob_difference=decided.lora_logprob,
        merged_max_logprob_difference=decided.merged_logprob,
        score_max_difference=trained.rescored[0],
        score_mean_difference=trained.rescored[1],
        score_max_difference_fp32=shallow.score,
        gradient_difference=trained.gradient_difference,
        stock_gradient_difference=decided.stock_gradient,
        gradient_difference_fp32=shallow.gradient,
    )


class _Shallow(msgspec.Struct, frozen=True, kw_only=True):
    """Differences in float32, where rounding does not hide a mistake."""

    logprob: float
    score: float
    gradient: float


def _shallow(setting: VlmSetting) -> _Shallow:
    shape = "shallow" if setting.device == "cuda" else "tiny"
    batch, micro = min(8, setting.train_batch), min(4, setting.micro_batch)
    full = msgspec.structs.replace(
        setting,
        shape=shape,
        dtype="float32",
        train_batch=batch,
        micro_batch=micro,
        repeats=1,
        stock_repeats=1,
        least_s=0.0,
    )
    with _no_tf32():
        logprob = logprob_difference(build_model(shape, full), full)[0]
        trained = train(full)
        return _Shallow(logprob=logprob, score=trained.rescored[0], gradient=trained.gradient_difference)


@contextmanager
def _no_tf32() -> Iterator[None]:
    """Float32 throughout: by default cuDNN computes stock's patch embedding in TF32."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before

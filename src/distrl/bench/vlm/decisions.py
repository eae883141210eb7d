"""The decisions of `distrl bench vlm`: the same prompts answered by stock transformers and by our decoder."""

from __future__ import annotations

from typing import Any

import msgspec
import torch
from torch import Tensor

from distrl.bench.jobs import log_progress
from distrl.bench.vlm.model import (
    ANSWER_TOKENS,
    FORBIDDEN_TOKENS,
    IMAGE_TOKENS,
    TEXT_TOKENS,
    Flops,
    VlmSetting,
    add_trained_adapters,
    build_model,
    default_attention,
    flops_of,
    matrix_rate_share,
    prompts,
    seconds,
    stock_gradient_difference,
    with_answer,
)
from distrl.policies.vlm.adapters import AdapterMerger
from distrl.policies.vlm.fast_decode import Decoder, Decoding
from distrl.policies.vlm.fast_generation import speed_up
from distrl.policies.vlm.fast_layers import restore_layers
from distrl.policies.vlm.tokens import token_logp


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """One batch size, ours beside stock."""

    batch: int
    decisions_per_s: float
    stock_decisions_per_s: float
    lora_decisions_per_s: float
    """With separate adapters, as workers have them by default."""
    stock_lora_decisions_per_s: float
    merged_decisions_per_s: float
    """With adapters merged into the weights: `policy.vlm.merge`."""
    matrix_rate_share: float
    """Share of the measured matrix rate that `decisions_per_s` reaches."""


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """All measurements of decisions."""

    speeds: list[Speed]
    logprob: tuple[float, float]
    """Largest and mean."""
    stock_logprob: float
    lora_logprob: float
    merged_logprob: float
    stock_gradient: float
    flops: Flops


def decide_all(setting: VlmSetting, batches: tuple[int, ...], rate: float) -> Decided:
    """Measure one model without adapters, then with separate ones, then with merged ones."""
    log_progress("decisions without adapters")
    model = build_model(setting.shape, setting)
    flops = flops_of(model)
    plain = [_decisions(model, batch, setting) for batch in batches]
    logprob, stock_logprob = logprob_difference(model, setting), _stock_difference(model, setting)
    log_progress("decisions with adapters, separate and merged")
    adapted = add_trained_adapters(model)
    merging = AdapterMerger(adapted)
    lora = [_decisions(model, batch, setting) for batch in batches]
    merged = [_merged_decisions(model, merging, batch, setting) for batch in batches]
    speeds = [
        Speed(
            batch=batch,
            decisions_per_s=ours,
            stock_decisions_per_s=stock,
            lora_decisions_per_s=ours_lora,
            stock_lora_decisions_per_s=stock_lora,
            merged_decisions_per_s=ours_merged,
            matrix_rate_share=matrix_rate_share(ours, flops.decision, rate),
        )
        for batch, (ours, stock), (ours_lora, stock_lora), ours_merged in zip(batches, plain, lora, merged, strict=True)
    ]
    lora_logprob = logprob_difference(model, setting)[0]
    merged_logprob = logprob_difference(model, setting, merging)[0]
    _restore_stock(model)
    return Decided(
        speeds=speeds,
        logprob=logprob,
        stock_logprob=stock_logprob,
        lora_logprob=lora_logprob,
        merged_logprob=merged_logprob,
        stock_gradient=stock_gradient_difference(adapted, setting),
        flops=flops,
    )


def _stock_answers(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        found: Tensor = model.generate(
            **inputs, do_sample=True, max_new_tokens=ANSWER_TOKENS, min_new_tokens=ANSWER_TOKENS, pad_token_id=0
        )
    return found


def _decisions(model: Any, batch: int, setting: VlmSetting) -> tuple[float, float]:
    """Decisions per second, ours and stock's."""
    inputs = prompts(model, batch)
    _restore_stock(model)
    with default_attention():
        stock_s = seconds(lambda: _stock_answers(model, inputs), setting)
    decoder = fast_decoder(model, batch)
    ours_s = seconds(lambda: decoder.answer(inputs), setting)
    return batch / ours_s, batch / stock_s


def _merged_decisions(model: Any, merging: AdapterMerger, batch: int, setting: VlmSetting) -> float:
    inputs = prompts(model, batch)
    merging.merge()
    decoder = fast_decoder(model, batch)
    ours_s = seconds(lambda: decoder.answer(inputs), setting)
    merging.unmerge()
    return batch / ours_s


def fast_decoder(model: Any, batch: int) -> Decoder:
    """Our decoder of `model`, whose layers are replaced by the fast ones."""
    speed_up(model)
    longest = IMAGE_TOKENS + TEXT_TOKENS
    decoding = Decoding(num_tokens=ANSWER_TOKENS, temperature=1.0, never=FORBIDDEN_TOKENS)
    return Decoder(model, batch=batch, longest_prompt=longest, decoding=decoding)


def _restore_stock(model: Any) -> None:
    """Undo every change of ours to the model."""
    model.model.language_model.config._attn_implementation = "sdpa"
    model.model.language_model._forward_pre_hooks.clear()
    model.model.language_model._forward_pre_hooks_with_kwargs.clear()
    restore_layers(model)


def logprob_difference(model: Any, setting: VlmSetting, merging: AdapterMerger | None = None) -> tuple[float, float]:
    """Largest and mean difference between sampled log-probabilities and those of a plain stock forward.

    With `merging`, sampling uses merged adapters; the stock forward never does.
    """
    batch = min(8, setting.batches[0])
    inputs = prompts(model, batch)
    if merging is not None:
        merging.merge()
    answers, _ = fast_decoder(model, batch).answer(inputs)
    recorded, tokens = answers.logp_BA.clone(), answers.token_BA.clone()
    if merging is not None:
        merging.unmerge()
    _restore_stock(model)
    difference = (_plain_logp(model, inputs, tokens) - recorded).abs()
    return float(difference.max()), float(difference.mean())


def _stock_difference(model: Any, setting: VlmSetting) -> float:
    inputs = prompts(model, min(8, setting.batches[0]))
    with torch.no_grad():
        found = model.generate(
            **inputs, do_sample=True, max_new_tokens=ANSWER_TOKENS, min_new_tokens=ANSWER_TOKENS, pad_token_id=0,
            suppress_tokens=list(FORBIDDEN_TOKENS), return_dict_in_generate=True, output_logits=True,
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
    logp = token_logp(logits, torch.tensor(FORBIDDEN_TOKENS, device=logits.device))
    return logp.gather(2, tokens_BA[..., None])[..., 0]

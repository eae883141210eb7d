"""The deciding half of `distrl bench vlm`: the same prompts as stock transformers answers them, and as we do."""

from __future__ import annotations

from typing import Any

import msgspec
import torch
from torch import Tensor

from distrl.bench.crew import say_on_stderr
from distrl.bench.vlm_adapters import adapt, stock_gradient_difference
from distrl.bench.vlm_model import (
    ANSWER_TOKENS,
    NEVER,
    PICTURE_TOKENS,
    TEXT_TOKENS,
    Setting,
    Work,
    attention_as_torch_chooses,
    build_model,
    prompts,
    seconds,
    speed_up,
    with_answer,
    work_of,
)
from distrl.policies.vlm.fast_decode import Decoder, Decoding
from distrl.policies.vlm.fast_layers import restore_layers
from distrl.policies.vlm.merging import Merging
from distrl.policies.vlm.tokens import log_chances


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """One batch size, ours beside stock."""

    batch: int
    decisions_per_s: float
    stock_decisions_per_s: float
    lora_decisions_per_s: float
    """With adapters beside the weights, as workers have them by default."""
    stock_lora_decisions_per_s: float
    merged_decisions_per_s: float
    """With adapters inside the weights: `policy.vlm.merge`."""
    matrix_rate_share: float
    """Of the first of these figures."""


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about decisions."""

    speeds: list[Speed]
    logprob: tuple[float, float]
    """Largest and mean."""
    stock_logprob: float
    lora_logprob: float
    merged_logprob: float
    stock_gradient: float
    work: Work


def decide_all(setting: Setting, batches: tuple[int, ...], rate: float) -> Decided:
    """Measure one model without adapters, then with them, then with them inside its weights."""
    say_on_stderr("decisions without adapters")
    model = build_model(setting.shape, setting)
    work = work_of(model)
    plain = [_decisions(model, batch, setting) for batch in batches]
    logprob, stock_logprob = logprob_difference(model, setting), _stock_difference(model, setting)
    say_on_stderr("decisions with adapters, apart and merged")
    adapted = adapt(model)
    merging = Merging(adapted)
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
            matrix_rate_share=ours * work.decision / rate,
        )
        for batch, (ours, stock), (ours_lora, stock_lora), ours_merged in zip(batches, plain, lora, merged, strict=True)
    ]
    lora_logprob = logprob_difference(model, setting)[0]
    merged_logprob = logprob_difference(model, setting, merging)[0]
    _as_stock(model)
    return Decided(
        speeds=speeds,
        logprob=logprob,
        stock_logprob=stock_logprob,
        lora_logprob=lora_logprob,
        merged_logprob=merged_logprob,
        stock_gradient=stock_gradient_difference(adapted, setting),
        work=work,
    )


def _stock_answers(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        found: Tensor = model.generate(
            **inputs, do_sample=True, max_new_tokens=ANSWER_TOKENS, min_new_tokens=ANSWER_TOKENS, pad_token_id=0
        )
    return found


def _decisions(model: Any, batch: int, setting: Setting) -> tuple[float, float]:
    """Decisions a second, ours and stock's."""
    inputs = prompts(model, batch)
    _as_stock(model)
    with attention_as_torch_chooses():
        stock_s = seconds(lambda: _stock_answers(model, inputs), setting)
    decoder = fast_decoder(model, batch)
    ours_s = seconds(lambda: decoder.answer(inputs), setting)
    return batch / ours_s, batch / stock_s


def _merged_decisions(model: Any, merging: Merging, batch: int, setting: Setting) -> float:
    inputs = prompts(model, batch)
    merging.join()
    decoder = fast_decoder(model, batch)
    ours_s = seconds(lambda: decoder.answer(inputs), setting)
    merging.part()
    return batch / ours_s


def fast_decoder(model: Any, batch: int) -> Decoder:
    """Makes our answers, of a model that is given its fast forms."""
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


def logprob_difference(model: Any, setting: Setting, merging: Merging | None = None) -> tuple[float, float]:
    """Largest and mean difference between what sampling recorded and what a plain stock forward says.

    With `merging`, sampling has the adapters inside the weights; the stock forward never has.
    """
    batch = min(8, setting.batches[0])
    inputs = prompts(model, batch)
    if merging is not None:
        merging.join()
    answers, _ = fast_decoder(model, batch).answer(inputs)
    recorded, tokens = answers.logp_BA.clone(), answers.token_BA.clone()
    if merging is not None:
        merging.part()
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

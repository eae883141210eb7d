"""The decisions of `distrl bench vlm`: the same prompts answered by stock transformers and by our decoder."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import torch
from torch import Tensor

from distrl.bench.jobs import log_progress
from distrl.bench.vlm.model import (
    ANSWER_TOKENS,
    FORBIDDEN_TOKENS,
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
    stock_seconds,
    with_answer,
)
from distrl.policies.vlm.adapters import AdapterMerger
from distrl.policies.vlm.engine import Engine, Finished, prompts_of
from distrl.policies.vlm.fast_generation import speed_up
from distrl.policies.vlm.fast_layers import restore_layers
from distrl.policies.vlm.fast_text import FastText
from distrl.policies.vlm.fast_vision import FastVision
from distrl.policies.vlm.image_processor import UnpaddedInputs
from distrl.policies.vlm.network import VlmNetwork
from distrl.policies.vlm.packed import Image, pack
from distrl.policies.vlm.rows import has_fp8
from distrl.policies.vlm.tokens import Vocabulary, token_logp

Fp8 = Literal["none", "tower", "all"]
"""As in `policy.vlm.fp8`."""
FP8: tuple[Fp8, ...] = ("tower", "all")


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
    fp8_tower_decisions_per_s: float | None
    """With the vision tower in float8, `policy.vlm.fp8`; None where the device has no such products."""
    fp8_all_decisions_per_s: float | None
    """With the language model in float8 too."""
    matrix_rate_share: float
    """Share of the measured matrix rate that `decisions_per_s` reaches."""


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """All measurements of decisions."""

    speeds: list[Speed]
    logprob: tuple[float, float]
    """Largest and mean."""
    stock_logprob: float
    fp8_logprob: list[tuple[float, float]] | None
    """With the tower in float8, and with all."""
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
    log_progress("decisions in float8")
    tower, all_ = ([_fp8_decisions(model, batch, setting, how) for batch in batches] for how in FP8)
    fp8_logprob = (
        [logprob_difference(model, setting, fp8=how) for how in FP8] if has_fp8(torch.device(setting.device)) else None
    )
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
            fp8_tower_decisions_per_s=ours_tower,
            fp8_all_decisions_per_s=ours_all,
            matrix_rate_share=matrix_rate_share(ours, flops.decision, rate),
        )
        for batch, (ours, stock), (ours_lora, stock_lora), ours_merged, ours_tower, ours_all in zip(
            batches, plain, lora, merged, tower, all_, strict=True
        )
    ]
    lora_logprob = logprob_difference(model, setting)[0]
    merged_logprob = logprob_difference(model, setting, merging)[0]
    _restore_stock(model)
    return Decided(
        speeds=speeds,
        logprob=logprob,
        stock_logprob=stock_logprob,
        fp8_logprob=fp8_logprob,
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
        stock_s = stock_seconds(lambda: _stock_answers(model, inputs), setting)
    ours = FastAnswers(model, inputs)
    ours_s = seconds(ours.answer, setting)
    return batch / ours_s, batch / stock_s


def _merged_decisions(model: Any, merging: AdapterMerger, batch: int, setting: VlmSetting) -> float:
    merging.merge()
    ours = FastAnswers(model, prompts(model, batch))
    ours_s = seconds(ours.answer, setting)
    merging.unmerge()
    return batch / ours_s


def _fp8_decisions(model: Any, batch: int, setting: VlmSetting, how: Fp8) -> float | None:
    if not has_fp8(torch.device(setting.device)):
        return None
    return batch / seconds(FastAnswers(model, prompts(model, batch), fp8=how).answer, setting)


class FastAnswers:
    """Our answers to a batch of prompts, whose tensors and screenshots are new to the model each time."""

    def __init__(self, model: Any, inputs: dict[str, Tensor], *, fp8: Fp8 = "none") -> None:
        speed_up(model)
        self._base, self._vision = model, FastVision(model.model.visual, fp8=fp8 != "none")
        self._pixels, self._grids = inputs["pixel_values"].to(model.dtype), inputs["image_grid_thw"].cpu()
        here_BL = inputs["attention_mask"].bool().cpu()
        self._ids, self._kinds = (
            [row[here].tolist() for row, here in zip(inputs[name].cpu(), here_BL, strict=True)]
            for name in ("input_ids", "mm_token_type_ids")
        )
        vocabulary = Vocabulary(ends=(), padding=0, forbidden=FORBIDDEN_TOKENS)
        network, text = VlmNetwork(model, value_width=8), FastText(model, fp8=fp8 == "all")
        self._engine = Engine(network, text, vocabulary, slots=len(self._ids), answer_tokens=ANSWER_TOKENS)

    @torch.no_grad()
    def answer(self) -> list[Finished]:
        """All of them, from images to the last token."""
        features = zip(self._vision(self._pixels, self._grids), self._grids, strict=True)
        images = [Image(features=one, grid=grid) for one, grid in features]
        unpadded = UnpaddedInputs(ids=self._ids, per_token={"mm_token_type_ids": self._kinds})
        rows = len(self._ids)
        packed = pack(unpadded, [()] * rows, self._base, images)
        shares = torch.rand(rows, ANSWER_TOKENS, dtype=torch.float64)
        self._engine.join(dict(enumerate(prompts_of(packed, [1] * rows, shares, 1.0))))
        found: list[Finished] = []
        while self._engine.num_running:
            found += self._engine.advance()
        return sorted(found, key=lambda one: one.ticket)


def _restore_stock(model: Any) -> None:
    """Undo every change of ours to the model."""
    model.model.language_model.config._attn_implementation = "sdpa"
    model.model.language_model._forward_pre_hooks.clear()
    model.model.language_model._forward_pre_hooks_with_kwargs.clear()
    restore_layers(model)


def logprob_difference(
    model: Any, setting: VlmSetting, merging: AdapterMerger | None = None, *, fp8: Fp8 = "none"
) -> tuple[float, float]:
    """Largest and mean difference between sampled log-probabilities and those of a plain stock forward.

    With `merging`, sampling uses merged adapters; the stock forward never does.
    """
    batch = min(8, setting.batches[0])
    inputs = prompts(model, batch)
    if merging is not None:
        merging.merge()
    answers = FastAnswers(model, inputs, fp8=fp8).answer()
    tokens = torch.tensor([one.answer for one in answers], device=model.device)
    recorded = torch.tensor([one.logps for one in answers], device=model.device)
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

"""Adapters in `distrl bench vlm`: the model as the workers of a LoRA run have it, and how far stock agrees with itself.

Gradients in bfloat16 hang on the order of sums: the same stock model gives other ones when the batch is cut in two. What
that makes is the measure for how far ours may be from stock's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from distrl.bench.vlm_model import ANSWER_TOKENS, FILLER, Setting, prompts, rows_of, with_answer
from distrl.config.schema import VlmConfig
from distrl.policies.vlm.adapters import add_adapters

SPREAD = 0.01
"""Of the adapters' second matrices, which start at zero: as after some training."""


def adapt(model: Any) -> Any:
    """`model` with adapters of the default settings that have an effect; it is changed in place."""
    adapted: Any = add_adapters(model, VlmConfig())
    with torch.no_grad():
        for name, weights in adapted.named_parameters():
            if "lora_B" in name:
                weights.normal_(std=SPREAD)
    return adapted.eval()


def stock_gradient_difference(adapted: Any, setting: Setting) -> float:
    """Stock's gradients of a batch at once against its own in two halves: norm of the difference over the norm."""
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
    """Of the mean loss of all answers, `size` prompts at a time."""
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

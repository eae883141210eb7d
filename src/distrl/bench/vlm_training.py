"""The training half of `distrl bench vlm`: the same LoRA update as stock transformers makes it, and as we do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import torch
from torch import Tensor

from distrl.bench.vlm_model import ANSWER_TOKENS, FILLER, Setting, build_model, prompts, seconds, speed_up, with_answer

LORA_TARGETS = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """Training samples a second, and how far the gradients are apart."""

    ours: float
    stock: float
    gradient_difference: float


def train(setting: Setting) -> Trained:
    """Time some updates of both kinds on one batch, and compare their gradients."""
    model = _with_adapters(build_model(setting.shape, setting))
    inputs = prompts(model, setting.train_batch)
    answers = torch.randint(FILLER, 500, (setting.train_batch, ANSWER_TOKENS), device=model.device)
    whole = with_answer(inputs, answers)
    labels = whole["input_ids"].clone()
    labels[:, :-ANSWER_TOKENS] = -100
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.0, fused=True)

    def step(backward: Callable[[], None]) -> None:
        optimizer.zero_grad(set_to_none=True)
        backward()
        optimizer.step()

    _checkpointing(model, on=True)
    stock_s = seconds(lambda: step(lambda: _stock_backward(model, whole, labels)), setting)
    expected = _gradient(model)
    _checkpointing(model, on=False)
    speed_up(model)
    ours_s = seconds(lambda: step(lambda: _our_backward(model, whole, setting.micro_batch)), setting)
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

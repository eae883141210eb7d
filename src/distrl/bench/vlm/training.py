"""The training of `distrl bench vlm`: the same LoRA update made by stock transformers and by the learner.

Stock is a training loop of transformers: LoRA, gradient checkpointing, the loss of the model. Ours is what
`VlmPolicy.score` runs in every update, and its backward pass, with the default settings except for the micro-batch:
with the image features of screenshots that it has seen before, and with screenshots that are all new to it.
Tokenisation and image preparation are in none: the inputs are made before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import torch
from torch import Tensor

from distrl.bench.vlm.decisions import FastAnswers
from distrl.bench.vlm.model import (
    ANSWER_TOKENS,
    FILLER,
    FORBIDDEN_TOKENS,
    VlmSetting,
    build_model,
    default_attention,
    prompts,
    seconds,
    stock_seconds,
    with_answer,
)
from distrl.config.schema import VlmConfig
from distrl.policies.nonfinite import NonFiniteGuard
from distrl.policies.vlm.adapters import add_adapters
from distrl.policies.vlm.fast_generation import speed_up
from distrl.policies.vlm.fast_vision import FastVision
from distrl.policies.vlm.image_processor import UnpaddedInputs
from distrl.policies.vlm.network import VlmNetwork
from distrl.policies.vlm.packed import Image, Packed, pack
from distrl.policies.vlm.scoring import Scorer
from distrl.policies.vlm.tokens import Vocabulary

ANY_TOKEN = Vocabulary(ends=(6,), padding=0, forbidden=())
"""As in the loss of stock, which forbids no token."""


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """Training samples per second, and the difference of the gradients."""

    ours: float
    """With the kept features of the screenshots."""
    ours_new: float
    """With screenshots that go through the vision tower first."""
    stock: float
    gradient_difference: float
    rescored: tuple[float, float]
    """Largest and mean difference between an answer's log-probability when sampled and when scored by the learner."""


def train(setting: VlmSetting) -> Trained:
    """Time some updates of both kinds on one batch, and compare their gradients."""
    config = VlmConfig(score_batch=setting.micro_batch, answer_tokens=ANSWER_TOKENS, dtype=setting.dtype)
    network = _with_adapters(build_model(setting.shape, setting), config)
    inputs = prompts(network.base, setting.train_batch)
    answers = torch.randint(FILLER, 500, (setting.train_batch, ANSWER_TOKENS), device=inputs["input_ids"].device)
    whole = with_answer(inputs, answers)
    optimizer = torch.optim.AdamW([p for p in network.parameters() if p.requires_grad], lr=0.0, fused=True)

    def update(backward: Callable[[], None]) -> Callable[[], None]:
        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            backward()
            optimizer.step()

        return step

    with default_attention():
        stock_s = stock_seconds(update(_stock_backward(network, whole)), setting)
    expected = _gradient(network)
    ours = _our_backward(network, config, whole)
    seen = partial(ours, _image_features(FastVision(network.base.model.visual), whole))
    new_s, ours_s = seconds(update(ours), setting), seconds(update(seen), setting)
    found = _gradient(network)
    return Trained(
        ours=setting.train_batch / ours_s,
        ours_new=setting.train_batch / new_s,
        stock=setting.train_batch / stock_s,
        gradient_difference=float((found - expected).norm() / expected.norm()),
        rescored=_rescored(network, config),
    )


def _with_adapters(model: Any, config: VlmConfig) -> VlmNetwork:
    network = VlmNetwork(add_adapters(model, config), value_width=config.value_width)
    with torch.no_grad():
        # As after some training: with B at zero, half of the gradients would be zero whatever the code does.
        for name, weights in network.named_parameters():
            if "lora_B" in name:
                weights.normal_(std=0.01)
    return network


def _stock_backward(network: VlmNetwork, whole: dict[str, Tensor]) -> Callable[[], None]:
    """The mean loss of the answers' tokens, computed by stock transformers."""
    network.base.gradient_checkpointing_enable()
    network.base.enable_input_require_grads()
    network.train()
    labels = whole["input_ids"].clone()
    labels[:, :-ANSWER_TOKENS] = -100
    return lambda: network.model(**whole, labels=labels).loss.backward()


def _our_backward(network: VlmNetwork, config: VlmConfig, whole: dict[str, Tensor]) -> Callable[..., None]:
    """The same loss from the log-probabilities that the learner computes; its images are looked at unless they are given."""
    base = network.base
    base.gradient_checkpointing_disable()
    base.disable_input_require_grads()
    speed_up(base)
    vision = FastVision(base.model.visual)
    scorer = Scorer(network, config, device=base.device, vocabulary=ANY_TOKEN, nonfinite=NonFiniteGuard())
    rows = {name: tensor.cpu() for name, tensor in whole.items()}

    def backward(images: list[Image] | None = None) -> None:
        seen = _image_features(vision, whole) if images is None else images
        logp_N, _, _ = scorer.score(_parts(rows, config.score_batch, base, seen))
        (-logp_N.mean() / ANSWER_TOKENS).backward()  # type: ignore[no-untyped-call]

    return backward


@torch.no_grad()
def _image_features(vision: FastVision, whole: dict[str, Tensor]) -> list[Image]:
    grids = whole["image_grid_thw"].cpu()
    features = vision(whole["pixel_values"].to(vision.dtype), grids)
    return [Image(features=one, grid=grid) for one, grid in zip(features, grids, strict=True)]


@torch.no_grad()
def _rescored(network: VlmNetwork, config: VlmConfig) -> tuple[float, float]:
    """Sample some answers and score them, both as in a run with separate adapters."""
    network.eval()
    inputs = prompts(network.base, config.score_batch)
    answers = FastAnswers(network.base, inputs).answer()
    allowed = msgspec.structs.replace(ANY_TOKEN, forbidden=FORBIDDEN_TOKENS)
    scorer = Scorer(network, config, device=network.base.device, vocabulary=allowed, nonfinite=NonFiniteGuard())
    whole = with_answer(inputs, torch.tensor([one.answer for one in answers], device=network.base.device))
    rows = {name: tensor.cpu() for name, tensor in whole.items()}
    images = _image_features(FastVision(network.base.model.visual), whole)
    logp_N, _, _ = scorer.score(_parts(rows, config.score_batch, network.base, images))
    difference = (torch.tensor([one.logp for one in answers]) - logp_N).abs()
    return float(difference.max()), float(difference.mean())


def _parts(whole: dict[str, Tensor], size: int, base: Any, images: list[Image]) -> list[Packed]:
    """Micro-batches of prompts with one image each and answers of one length."""
    here_BL = whole["attention_mask"].bool()
    rows, kinds = (
        [row[here].tolist() for row, here in zip(whole[name], here_BL, strict=True)]
        for name in ("input_ids", "mm_token_type_ids")
    )

    def part(some: slice) -> Packed:
        types = {"mm_token_type_ids": [kind[:-ANSWER_TOKENS] for kind in kinds[some]]}
        prompts = UnpaddedInputs(ids=[row[:-ANSWER_TOKENS] for row in rows[some]], per_token=types)
        return pack(prompts, [tuple(row[-ANSWER_TOKENS:]) for row in rows[some]], base, images[some])

    return [part(slice(start, start + size)) for start in range(0, len(rows), size)]


def _gradient(network: VlmNetwork) -> Tensor:
    return torch.cat([p.grad.flatten().float() for p in network.model.parameters() if p.grad is not None])

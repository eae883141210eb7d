"""Grounding of a vision-language model: makes the folder of one out of a language model's folder, and trains it on screens.

    reading    the vision encoder learns to read, alone: it is small, so it sees many screens
    language   the whole model answers queries about screens in the policy's own prompts, next steps among them

Either stage can be left to another time: the reading stage leaves `vision.safetensors` in the folder, from which the language
stage goes on; and where the folder holds a whole model and there is no reading stage, that model is trained further. Samples come from data workers, as those of the pixel policy do.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from msgspec.structs import replace

from distrl.config.schema import Config, WarmStartConfig
from distrl.errors import ConfigError
from distrl.policies.dialects.grid import COLUMNS, ROWS
from distrl.policies.vlm.prompt_tokens import PromptTokens
from distrl.policies.vlm.screen_folder import (
    VisionSize,
    has_screen_model,
    load_screen_model,
    load_vision,
    make_encoder,
    make_screen_model,
    save_screen_model,
    save_vision,
)
from distrl.pretraining.cloning import Reporter
from distrl.pretraining.grounding.language_loss import LanguageLoss, ReadingLoss
from distrl.pretraining.grounding.language_samples import language_fields, picture_size
from distrl.pretraining.grounding.losses import SamplePool
from distrl.pretraining.grounding.stream import SampleStream
from distrl.pretraining.grounding.training import GroundingProgress, pretrain_on_stream

COMMAND = (sys.executable, "-m", "distrl.pretraining.grounding.language_worker")
READING_RATE = 8e-4
"""Learning rate of the reading stage."""
READING_BATCHES = 2
"""Screens of a batch of the reading stage, in batches of the language stage."""
ENDLESS = 10**12
"""Screens of a stage that minutes end."""
Stage = Literal["reading", "language"]


class Grounding(msgspec.Struct, frozen=True, kw_only=True):
    """What is made and for how long."""

    language: Path
    """Folder of the language model; the reading stage needs its config.json and tokenizer alone."""
    folder: Path
    """Where the model goes."""
    size: VisionSize = VisionSize()
    reading_minutes: float = 0.0
    """0: no reading stage."""
    language_minutes: float = 0.0
    """0: no language stage."""


class Grounded(msgspec.Struct, frozen=True, kw_only=True):
    """How the stages ended."""

    reading: GroundingProgress | None = None
    language: GroundingProgress | None = None


def ground(config: Config, plan: Grounding, device: torch.device, reporter: Reporter) -> Grounded:
    """Train both stages on one stream of screens, and write the folder; `check_screens` comes first."""
    asked = _with_tokenizer_of(plan.language, config)
    fields, pool_size = language_fields(config), config.warm_start.grounding.pool
    with SampleStream(asked, fields, pinned=device.type == "cuda", command=COMMAND) as stream:
        pool = SamplePool(fields, pool_size, device)
        found = Grounded()
        if plan.reading_minutes:
            found = replace(found, reading=_read(config, plan, pool, stream, reporter))
        if plan.language_minutes:
            found = replace(found, language=_answer(asked, plan, pool, stream, reporter))
    return found


def check_screens(config: Config, size: VisionSize) -> None:
    """Raise where a screenshot is not as many squares as the dialect has, or the policy would see or write it otherwise."""
    width, height = picture_size(config)
    wanted, vlm = size.square * len(COLUMNS), config.policy.vlm
    problems = {
        f"devices.sim.screenshot_width = {width}": (width != wanted, f"--devices.sim.screenshot_width {wanted}"),
        f"policy.vlm.image_max_pixels = {vlm.image_max_pixels}": (
            vlm.image_max_pixels < width * height,
            f"--policy.vlm.image_max_pixels {width * height}",
        ),
        f"policy.vlm.dialect = {vlm.dialect}": (vlm.dialect != "grid", "--policy.vlm.dialect grid"),
        "policy.vlm.elements = true": (vlm.elements, "--policy.vlm.elements false"),
        "policy.vlm.history_pictures": (vlm.history_pictures > 0, "--policy.vlm.history_pictures 0"),
    }
    for seen, (wrong, fix) in problems.items():
        if wrong:
            rows, columns = len(ROWS), len(COLUMNS)
            raise ConfigError(
                seen, expected=f"screenshots alone, of {columns} × {rows} squares of {size.square} pixels", fix=fix
            )


def _with_tokenizer_of(language: Path, config: Config) -> Config:
    return replace(config, policy=replace(config.policy, vlm=replace(config.policy.vlm, path=str(language))))


def _stage(config: Config, minutes: float, **changes: Any) -> WarmStartConfig:
    warm_start = config.warm_start
    return replace(warm_start, samples=warm_start.samples or ENDLESS, minutes=minutes, **changes)


def _read(
    config: Config, plan: Grounding, pool: SamplePool, stream: SampleStream, reporter: Reporter
) -> GroundingProgress:
    """The reading stage."""
    encoder = make_encoder(plan.language, plan.size, seed=config.run.seed).to(pool.device)
    loss = ReadingLoss(encoder, width=plan.size.width, seed=config.run.seed)
    batch = READING_BATCHES * config.warm_start.batch
    stage = _stage(config, plan.reading_minutes, learning_rate=READING_RATE, batch=batch)
    last = pretrain_on_stream(loss, pool, stream, stage, reporter)
    save_vision(encoder, plan.folder)
    return last


def _answer(
    config: Config, plan: Grounding, pool: SamplePool, stream: SampleStream, reporter: Reporter
) -> GroundingProgress:
    """The language stage."""
    model, tokenizer = _model(config, plan, reporter)
    model = model.to(pool.device)
    image_tokens = len(ROWS) * len(COLUMNS) // model.config.vision_config.patches_per_token
    head = PromptTokens(config.policy.vlm, picture_size(config)).head(image_tokens)
    loss = LanguageLoss(model, head, config.warm_start.grounding, seed=config.run.seed)
    last = pretrain_on_stream(loss, pool, stream, _stage(config, plan.language_minutes), reporter)
    save_screen_model(model, tokenizer, plan.folder)
    return last


def _model(config: Config, plan: Grounding, reporter: Reporter) -> tuple[Any, Any]:
    """The whole model of the folder, where there was no reading stage; otherwise a new one that sees as its vision encoder does."""
    if not plan.reading_minutes and has_screen_model(plan.folder):
        reporter.log(f"going on with the model in {plan.folder}")
        return load_screen_model(plan.folder)
    model, tokenizer = make_screen_model(plan.language, plan.size, seed=config.run.seed)
    if not load_vision(model.model.visual, plan.folder):
        reporter.log(f"{plan.folder} holds no vision encoder that has learnt to read: this stage begins without")
    return model, tokenizer

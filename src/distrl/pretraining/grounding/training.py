"""Cloning a stream of screens: what to do next, what is called what, and what is written where, in one loss.

The pixel policy's warm start with `warm_start.samples`. Screens come from `screens`, stay for a while in a pool on the
learner's device and are drawn from there, each with other questions every time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import msgspec
import torch
from torch import Tensor

from distrl.config.schema import WarmStartConfig
from distrl.learner.update import FiniteSteps
from distrl.policies.oom import memory_errors
from distrl.policies.pixel.network import compile_layers, plain_layers
from distrl.pretraining.cloning import TELL_EVERY, cloning_steps, follow
from distrl.pretraining.grounding.data_worker import BLOCK
from distrl.pretraining.grounding.losses import SheetPool, Study

FIRST = 1024
"""Screens to have before the first batch."""
MOST_BLOCKS = 16
"""Taken in between two batches, at most."""


class Source(Protocol):
    """Where screens come from."""

    def take(self, give: Callable[[dict[str, Tensor]], None], *, most: int) -> int: ...

    def fill(self, give: Callable[[dict[str, Tensor]], None], *, blocks: int, waiting: Callable[[], None]) -> None: ...


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a stream has come, and how much of the last batch the policy knew before it learnt from it."""

    share: float
    samples: int
    """Questions that were answered so far."""
    batches: int
    per_s: float
    """Questions answered per second."""
    drawn: int
    """Screens that have come in so far."""
    drawn_per_s: float
    parts: dict[str, float]
    """Terms of the loss and shares that were known, means over the batches since the last look."""
    left_out: int
    """Batches so far whose loss or gradient was no number: nothing was learnt from them."""


class Hearing(Protocol):
    """Who hears how it goes."""

    def tell(self, now: Progress) -> None: ...

    def say(self, what: str) -> None:
        """In words, what is happening; also called while there is nothing to do."""

    def alive(self) -> None:
        """Called after every batch."""


def study_stream(study: Study, pool: SheetPool, source: Source, config: WarmStartConfig, hearing: Hearing) -> Progress:
    """Learn from `source` until `samples` questions were answered or `minutes` are over; how it stood then."""
    first = max(1, min(FIRST, config.samples // 8, pool.capacity) // BLOCK)
    source.fill(pool.put, blocks=first, waiting=lambda: hearing.say("cloning a stream: its processes are starting"))
    compiled = config.compile and pool.device.type == "cuda" and _compile(study, pool, config, hearing)
    try:
        return _study(study, pool, source, config, hearing)
    finally:
        if compiled:
            plain_layers(study.network)


def _study(study: Study, pool: SheetPool, source: Source, config: WarmStartConfig, hearing: Hearing) -> Progress:
    steps, drawn_before = _steps(study, config), pool.taken
    told = Progress(share=0.0, samples=0, batches=0, per_s=0.0, drawn=0, drawn_per_s=0.0, parts={}, left_out=0)

    def learn(batch: int) -> tuple[int, dict[str, Tensor]]:
        source.take(pool.put, most=MOST_BLOCKS)
        with memory_errors("warm_start.batch", config.batch):
            studied = study.on(pool.draw(config.batch, study.generator), measured=batch % TELL_EVERY == TELL_EVERY - 1)
            parts = {**studied.parts, "norm": steps.take(studied.total)}
        hearing.alive()
        return config.batch * config.questions, parts

    for stage, found in follow(steps, config, learn):
        told = Progress(
            share=stage.share,
            samples=stage.samples,
            batches=stage.batches,
            per_s=stage.samples / stage.spent_s,
            drawn=pool.taken,
            drawn_per_s=(pool.taken - drawn_before) / stage.spent_s,
            parts={**told.parts, **_means(found)},
            left_out=steps.left_out,
        )
        hearing.tell(told)
    return told


def _compile(study: Study, pool: SheetPool, config: WarmStartConfig, hearing: Hearing) -> bool:
    """Compile the layers and try them once; False, and all as before, where that cannot be done here."""
    hearing.say("cloning a stream: compiling the layers")
    started_s = time.monotonic()
    compile_layers(study.network)
    try:
        study.on(pool.draw(config.batch, study.generator), measured=True).total.backward()  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    except Exception as error:  # a compiler fails in more ways than can be named, and cloning goes on without it
        plain_layers(study.network)
        hearing.say(f"cloning a stream: NOT compiled, {type(error).__name__}: {str(error)[:300]}")
        return False
    hearing.say(f"cloning a stream: layers compiled in {time.monotonic() - started_s:.1f} s")
    return True


def _steps(study: Study, config: WarmStartConfig) -> FiniteSteps:
    weights = list(study.parameters())
    optimizer = torch.optim.AdamW(weights, lr=config.learning_rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    return cloning_steps(optimizer, weights)


def _means(found: list[dict[str, Tensor]]) -> dict[str, float]:
    """Of every part, over the batches that have it as a number; measured ones come once in a while."""
    names = {name for parts in found for name in parts}
    means = {}
    for name in names:
        values_N = torch.stack([parts[name].float() for parts in found if name in parts]).cpu()
        if values_N.isfinite().any():
            means[name] = float(values_N[values_N.isfinite()].mean())
    return means

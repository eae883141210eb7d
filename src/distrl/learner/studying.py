"""Cloning a stream of screens: what to do next, what is called what, and what is written where, in one loss.

The pixel policy's warm start with `warm_start.samples`. Screens come from `screens`, stay for a while in a pool on the
learner's device and are drawn from there, each with other questions every time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Protocol

import msgspec
import torch
from torch import Tensor

from distrl.config.schema import WarmStartConfig
from distrl.errors import RoleCrashed
from distrl.learner.illustrator import BLOCK
from distrl.learner.warm_start import pace
from distrl.policies.pixel.network import compile_layers, plain_layers
from distrl.policies.pixel.study import SheetPool, Study

TELL_EVERY = 25
"""Batches between two looks at the loss: each look waits for the GPU."""
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
    optimizer, started_s = _optimizer(study, config), time.monotonic()
    drawn_before, batches, share = pool.taken, 0, 0.0
    told = Progress(share=0.0, samples=0, batches=0, per_s=0.0, drawn=0, drawn_per_s=0.0, parts={})
    sums: list[dict[str, Tensor]] = []
    while share < 1.0:
        source.take(pool.put, most=MOST_BLOCKS)
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * pace(share)
        sums.append(_descend(study, pool, optimizer, config, measured=batches % TELL_EVERY == TELL_EVERY - 1))
        batches += 1
        hearing.alive()
        samples, spent_s = batches * config.batch * config.questions, max(time.monotonic() - started_s, 1e-9)
        share = max(samples / config.samples, spent_s / (60 * config.minutes) if config.minutes else 0.0)
        if len(sums) == TELL_EVERY or share >= 1.0:
            told = Progress(
                share=min(1.0, share),
                samples=samples,
                batches=batches,
                per_s=samples / spent_s,
                drawn=pool.taken,
                drawn_per_s=(pool.taken - drawn_before) / spent_s,
                parts={**told.parts, **_means(sums, samples)},
            )
            sums = []
            hearing.tell(told)
    return told


def _descend(
    study: Study, pool: SheetPool, optimizer: torch.optim.Optimizer, config: WarmStartConfig, *, measured: bool
) -> dict[str, Tensor]:
    studied = study.on(pool.draw(config.batch, study.generator), measured=measured)
    optimizer.zero_grad(set_to_none=True)
    studied.total.backward()  # type: ignore[no-untyped-call]
    norm = torch.nn.utils.clip_grad_norm_(study.parameters(), 1.0)
    optimizer.step()
    return {**studied.parts, "norm": norm.detach()}


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


def _optimizer(study: Study, config: WarmStartConfig) -> torch.optim.Optimizer:
    return torch.optim.AdamW(
        study.parameters(), lr=config.learning_rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )


def _means(sums: list[dict[str, Tensor]], samples: int) -> dict[str, float]:
    """Of every part, over the batches that have it; measured ones come once in a while."""
    names = {name for parts in sums for name in parts}
    found = {name: torch.stack([parts[name].float() for parts in sums if name in parts]).mean() for name in names}
    means = {name: float(value) for name, value in found.items()}
    if not math.isfinite(means["step"]):
        raise RoleCrashed(
            f"the loss of the warm start is {means['step']} after {samples} samples",
            expected="a number",
            fix="lower warm_start.learning_rate",
        )
    return means

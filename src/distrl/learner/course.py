"""How a stream is cloned, whatever is in it: a batch after the other, at a learning rate that rises and then falls."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from distrl.config.schema import WarmStartConfig
from distrl.learner.finite_steps import FiniteSteps

TELL_EVERY = 25
"""Batches between two looks at the steps that were taken, and at the loss of a stream: each look waits for the GPU."""
RISE, LEAST = 0.04, 0.05
"""Share of a stream in which the learning rate rises, and what is left of it at the end."""

Found = TypeVar("Found")


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """How far a stream has come."""

    share: float
    samples: int
    batches: int
    spent_s: float


def follow(
    steps: FiniteSteps,
    config: WarmStartConfig,
    learn: Callable[[int], tuple[int, Found]],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[tuple[Stage, list[Found]]]:
    """Let `learn` take batch after batch until `samples` have come or `minutes` are over.

    It is given the number of the batch, takes its step with `steps`, and says how many samples there were and what it
    found. Every `TELL_EVERY` batches and at the end come the stage and what was found since the last time.
    """
    started_s, stage = clock(), Stage(share=0.0, samples=0, batches=0, spent_s=0.0)
    found: list[Found] = []
    while stage.share < 1.0:
        for group in steps.optimizer.param_groups:
            group["lr"] = config.learning_rate * pace(stage.share)
        count, one = learn(stage.batches)
        found.append(one)
        stage = _next(stage, config, count=count, spent_s=max(clock() - started_s, 1e-9))
        if stage.share == 1.0:
            steps.end()
        elif len(found) == TELL_EVERY:
            steps.look()
        else:
            continue
        yield stage, found
        found = []


def _next(stage: Stage, config: WarmStartConfig, *, count: int, spent_s: float) -> Stage:
    samples = stage.samples + count
    share = max(samples / config.samples, spent_s / (60 * config.minutes) if config.minutes else 0.0)
    return Stage(share=min(1.0, share), samples=samples, batches=stage.batches + 1, spent_s=spent_s)


def pace(share: float) -> float:
    """What the learning rate is multiplied with when `share` of a stream is done: a rise, then half a cosine."""
    if share < RISE:
        return max(share, 0.01 * RISE) / RISE
    fall = (min(share, 1.0) - RISE) / (1.0 - RISE)
    return LEAST + (1.0 - LEAST) * 0.5 * (1.0 + math.cos(math.pi * fall))

"""Cloning oracle demonstrations, so that practice starts from a policy that sometimes succeeds.

A few of them are held in memory and gone over again and again (`clone`); many, with pictures, come as a stream and are
seen once or twice each (`clone_stream`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from distrl.algorithms.base import Episode
from distrl.config.schema import Config, WarmStartConfig
from distrl.errors import UsageError
from distrl.learner.course import TELL_EVERY, Stage, follow
from distrl.learner.demonstrations import Look, demonstrate, demonstration_tasks, no_picture
from distrl.learner.descent import Descent, Example
from distrl.policies.base import Policy
from distrl.types import Action, Observation, Task

__all__ = [
    "Cloned",
    "Example",
    "clone",
    "clone_stream",
    "demonstrate",
    "demonstrated",
    "demonstration_tasks",
    "examples_for",
]


class Cloned(msgspec.Struct, frozen=True, kw_only=True):
    """How far cloning has come, and how well the policy knew the steps of the last few batches before it learnt them."""

    share: float
    samples: int
    loss: float
    """NaN where it was no number for any of these steps."""
    certain: float
    """Share of the demonstrated choices that had more than half of the probability."""
    per_s: float
    left_out: int = 0
    """Batches so far whose loss or gradient was no number, as of the last look: nothing was learnt from them."""


def clone(
    policy: Policy[Any],
    examples: list[Example],
    config: WarmStartConfig,
    *,
    random: Random,
    tell: Callable[[Cloned], None],
    clock: Callable[[], float] = time.monotonic,
) -> float:
    """Maximum likelihood on the examples; `tell` hears of every batch. Returns the last epoch's mean loss."""
    if not examples:
        raise UsageError(
            "there is nothing to clone",
            expected="a step that the policy can say",
            fix="demonstrations of other tasks, or none: --warm_start.demonstrations 0",
        )
    descent, started_s = Descent(policy, config), clock()
    batches = -(-len(examples) // config.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        descent.optimizer, config.learning_rate, total_steps=config.epochs * batches
    )
    losses: list[float] = []
    for epoch in range(config.epochs):
        order = random.sample(examples, len(examples))
        for start in range(0, len(order), config.batch):
            part = order[start : start + config.batch]
            logp_N = descent.step(part)
            schedule.step()
            samples, done = epoch * len(order) + start + len(part), len(losses) + 1
            stage = Stage(
                share=done / (config.epochs * batches), samples=samples, batches=done, spent_s=clock() - started_s
            )
            if stage.share == 1.0:
                descent.steps.end()
            elif done % TELL_EVERY == 0:
                descent.steps.look()
            told = _sum_up([logp_N], stage, descent.steps.left_out)
            losses.append(told.loss)
            tell(told)
    known = [loss for loss in losses[-batches:] if math.isfinite(loss)]
    return sum(known) / len(known) if known else math.nan


def clone_stream(
    policy: Policy[Any],
    take: Callable[[], list[Example]],
    config: WarmStartConfig,
    *,
    tell: Callable[[Cloned], None],
    clock: Callable[[], float] = time.monotonic,
) -> Cloned:
    """Maximum likelihood on what `take` gives, until `samples` have come or `minutes` are over; how it stood then."""
    descent = Descent(policy, config)
    last = Cloned(share=0.0, samples=0, loss=0.0, certain=0.0, per_s=0.0)

    def learn(_batch: int) -> tuple[int, Tensor]:
        batch = take()
        return len(batch), descent.step(batch)

    for stage, found in follow(descent.steps, config, learn, clock):
        last = _sum_up(found, stage, descent.steps.left_out)
        tell(last)
    return last


def _sum_up(found: list[Tensor], stage: Stage, left_out: int) -> Cloned:
    logp_N = torch.cat(found).cpu()
    return Cloned(
        share=stage.share,
        samples=stage.samples,
        loss=-float(logp_N[logp_N.isfinite()].mean()),
        certain=float((logp_N > math.log(0.5)).float().mean()),
        per_s=stage.samples / max(stage.spent_s, 1e-9),
        left_out=left_out,
    )


def examples_for(policy: Policy[Any], pairs: Iterable[tuple[Observation, Action]]) -> list[Example]:
    """The demonstrations in the policy's own grammar; what it cannot say is left out."""
    found = []
    for observation, action in pairs:
        choice = policy.imitate(observation, action)
        if choice is not None:
            found.append((policy.encode(observation), choice))
    return found


def demonstrated(
    task: Task, policy: Policy[Any], config: Config, *, id: str, look: Look = no_picture
) -> Episode | None:
    """The oracle's episode as something to imitate; None where it failed or the policy can say none of it.

    It tells a critic nothing: what the oracle achieves is not what the policy may expect.
    """
    pairs = demonstrate([task], config.devices.wild, history=config.rollout.history, look=look)
    examples = examples_for(policy, pairs)
    if not examples:
        return None
    yes_T = np.ones(len(examples), np.bool_)
    reward_T = np.zeros(len(examples), np.float32)
    reward_T[-1] = 1.0
    return Episode(
        id=id,
        task=task.id,
        template=task.template,
        instruction=task.instruction,
        version=0,
        success=True,
        terminal=True,
        encoded=tuple(encoded for encoded, _ in examples),
        choices=tuple(choice for _, choice in examples),
        logp_T=np.zeros(len(examples), np.float32),
        reward_T=reward_T,
        valid_T=yes_T,
        changed_T=yes_T,
        teaches_T=yes_T,
        last_value=0.0,
        example=True,
    )

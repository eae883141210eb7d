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
from distrl.errors import RoleCrashed, UsageError
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

TELL_EVERY = 25
"""Batches between two looks at the gradients, and at the loss of a stream: each look waits for the GPU."""
RISE, LEAST = 0.04, 0.05
"""Share of a stream in which the learning rate rises, and what is left of it at the end."""


class Cloned(msgspec.Struct, frozen=True, kw_only=True):
    """How far cloning has come, and how well the policy knew the steps of the last few batches before it learnt them."""

    share: float
    samples: int
    loss: float
    certain: float
    """Share of the demonstrated choices that had more than half of the probability."""
    per_s: float
    left_out: int = 0
    """Batches so far whose gradient was no number, as far as anybody has looked: nothing was learnt from them."""


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
            samples = epoch * len(order) + start + len(part)
            share = (len(losses) + 1) / (config.epochs * batches)
            if (len(losses) + 1) % TELL_EVERY == 0 or share == 1.0:
                descent.look()
            told = _sum_up([logp_N], share=share, samples=samples, spent_s=clock() - started_s)
            told = msgspec.structs.replace(told, left_out=descent.left_out)
            losses.append(told.loss)
            tell(told)
    return sum(losses[-batches:]) / batches


def clone_stream(
    policy: Policy[Any],
    take: Callable[[], list[Example]],
    config: WarmStartConfig,
    *,
    tell: Callable[[Cloned], None],
    clock: Callable[[], float] = time.monotonic,
) -> Cloned:
    """Maximum likelihood on what `take` gives, until `samples` have come or `minutes` are over; how it stood then."""
    descent, started_s = Descent(policy, config), clock()
    last = Cloned(share=0.0, samples=0, loss=0.0, certain=0.0, per_s=0.0)
    samples, share = 0, 0.0
    found: list[Tensor] = []
    while share < 1.0:
        for group in descent.optimizer.param_groups:
            group["lr"] = config.learning_rate * pace(share)
        batch = take()
        found.append(descent.step(batch))
        samples += len(batch)
        spent_s = clock() - started_s
        share = max(samples / config.samples, spent_s / (60 * config.minutes) if config.minutes else 0.0)
        if len(found) == TELL_EVERY or share >= 1.0:
            last, found = _sum_up(found, share=min(1.0, share), samples=samples, spent_s=spent_s), []
            descent.look()
            last = msgspec.structs.replace(last, left_out=descent.left_out)
            tell(last)
    return last


def pace(share: float) -> float:
    """What the learning rate is multiplied with when `share` of a stream is done: a rise, then half a cosine."""
    if share < RISE:
        return max(share, 0.01 * RISE) / RISE
    fall = (min(share, 1.0) - RISE) / (1.0 - RISE)
    return LEAST + (1.0 - LEAST) * 0.5 * (1.0 + math.cos(math.pi * fall))


def _sum_up(found: list[Tensor], *, share: float, samples: int, spent_s: float) -> Cloned:
    logp_N = torch.cat(found).cpu()
    loss = -float(logp_N.mean())
    if not math.isfinite(loss):
        raise RoleCrashed(
            f"the loss of the warm start is {loss} after {samples} samples",
            expected="a number",
            fix="lower warm_start.learning_rate",
        )
    certain = float((logp_N > math.log(0.5)).float().mean())
    return Cloned(share=share, samples=samples, loss=loss, certain=certain, per_s=samples / max(spent_s, 1e-9))


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

"""Cloning oracle demonstrations, so that practice starts from a policy that sometimes succeeds.

A few of them are held in memory and gone over again and again (`clone`); many, with pictures, come as a stream and are
seen once or twice each (`clone_stream`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any, TypeVar

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from distrl.algorithms.base import Episode
from distrl.config.schema import Config, PolicyConfig, WarmStartConfig
from distrl.errors import ConfigError, RoleCrashed, StoreError, UsageError
from distrl.experience.store import ExperienceStore
from distrl.experience.waste import wasted
from distrl.learner.update import FiniteSteps, learning_memory
from distrl.policies.base import Policy
from distrl.pretraining.demonstrations import Look, demonstrate, demonstration_tasks, no_picture
from distrl.types import Action, Observation, Task, Trajectory

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


# --- Gradient steps that make a policy's given choices likelier; those along what is no number are l ---


Example = tuple[Any, tuple[int, ...]]
"""An encoded observation and the choice to learn."""
CLIP = 1.0
"""Largest norm of a gradient."""


class Descent:
    """Maximum likelihood on examples, a batch at a time."""

    def __init__(self, policy: Policy[Any], config: WarmStartConfig) -> None:
        self._policy, weights = policy, list(policy.network.parameters())
        self.optimizer = torch.optim.AdamW(weights, lr=config.learning_rate, weight_decay=0.01, fused=True)
        self.steps = cloning_steps(self.optimizer, weights)

    def step(self, part: list[Example]) -> Tensor:
        """One gradient step, if it leads anywhere; the log-probabilities before it, on the policy's device."""
        if not part:
            raise RoleCrashed(
                "the policy can say nothing of what was demonstrated",
                expected="tasks whose steps are in its grammar",
                fix="another --tasks.suite, or --warm_start.demonstrations 0",
            )
        policy = self._policy
        with learning_memory(policy, "warm_start.batch", len(part)):
            scores = policy.score([policy.augment(encoded) for encoded, _ in part], [choice for _, choice in part])
            self.steps.take(-scores.logp_N.mean())
        return scores.logp_N.detach()


def cloning_steps(optimizer: torch.optim.AdamW, weights: list[nn.Parameter]) -> FiniteSteps:
    """Steps of a warm start."""
    fix = "lower warm_start.learning_rate"
    return FiniteSteps(optimizer, [weights], clip=CLIP, what="batches of the warm start", fix=fix)


# --- How a stream is cloned, whatever is in it: a batch after the other, at a learning rate that ris ---


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


# --- Where a policy can say nothing of what it was shown: a reason to stop, since cloning would leav ---


def nothing_sayable(shown: int, policy: PolicyConfig, *, otherwise: str) -> ConfigError:
    """The error for `shown` steps of which none can be said; `otherwise` is what helps besides another grammar."""
    seen = f"the policy can say none of the {shown} steps that it was shown"
    if policy.kind != "vlm":
        return ConfigError(seen, expected="tasks whose steps are in its grammar", fix=otherwise)
    vlm = policy.vlm
    return ConfigError(
        seen,
        expected=f"steps that the dialect {vlm.dialect!r} has words for, of at most {vlm.answer_tokens} tokens",
        fix=f"policy.vlm.answer_tokens above {vlm.answer_tokens}, another policy.vlm.dialect, or {otherwise}",
    )


# --- What is worth imitating in stored episodes: the steps of those that succeeded, without the ones ---


CHUNK = 256
Pairs = list[tuple[Observation, Action]]
"""What was seen and done, step by step."""


class Successes(msgspec.Struct, frozen=True, kw_only=True):
    """What the successful episodes of some runs saw and did."""

    episodes: list[Pairs]
    damaged: list[str]
    """Why each of the others was passed over."""


class Lessons(msgspec.Struct, frozen=True, kw_only=True):
    """The same in one policy's own grammar."""

    examples: list[Example]
    steps: int
    """How many there were to say."""
    damaged: list[str]
    """Why episodes were passed over, those whose pictures are missing among them."""


def read_successes(stores: Iterable[ExperienceStore]) -> Successes:
    """Everything in these stores that is worth imitating, oldest first."""
    damaged: list[str] = []
    found = [
        _steps_that_helped(trajectory)
        for store in stores
        for trajectory in stored_successes(store, pass_over=lambda error: damaged.append(error.seen))
    ]
    return Successes(episodes=[pairs for pairs in found if pairs], damaged=damaged)


def lessons_for(policy: Policy[Any], found: Successes) -> Lessons:
    """What the policy can say of these episodes."""
    examples: list[Example] = []
    steps, damaged = 0, list(found.damaged)
    for pairs in found.episodes:
        try:
            examples += examples_for(policy, pairs)
        except StoreError as error:
            damaged.append(error.seen)
        else:
            steps += len(pairs)
    return Lessons(examples=examples, steps=steps, damaged=damaged)


def stored_successes(store: ExperienceStore, *, pass_over: Callable[[StoreError], None]) -> Iterator[Trajectory]:
    """The successful episodes of a store, oldest first; `pass_over` hears of each that cannot be read."""
    seq = 0
    while rows := store.after(seq, CHUNK):
        for row in rows:
            if not row.success:
                continue
            try:
                trajectory = store.read(row.id)
            except StoreError as error:
                pass_over(error)
            else:
                yield trajectory
        seq = rows[-1].seq


def _steps_that_helped(trajectory: Trajectory) -> Pairs:
    waste_T = wasted(trajectory)
    return [
        (step.observation, step.decision.action)
        for step, in_vain in zip(trajectory.steps, waste_T, strict=True)
        if not in_vain
    ]

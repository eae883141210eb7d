"""Behaviour cloning (BC) of oracle demonstrations and stored successes: training then starts from a policy that sometimes succeeds.

    L = -mean log pi(demonstrated choice)

A few demonstrations are held in memory and used for several epochs (`clone`); many, with screenshots, come as a stream
and are used once or twice each (`clone_stream`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any, Protocol, TypeVar

import msgspec
import torch
from torch import Tensor, nn

from distrl.config.schema import PolicyConfig, WarmStartConfig
from distrl.errors import ConfigError, RoleCrashed, StoreError, UsageError
from distrl.experience.noop import noop_steps
from distrl.experience.store import ExperienceStore
from distrl.learner.update import GuardedOptimizer
from distrl.policies.base import Policy
from distrl.policies.oom import oom_errors_of
from distrl.types import Action, Observation, Trajectory

Example = tuple[Any, tuple[int, ...]]
"""An encoded observation and the choice to learn."""
Pairs = list[tuple[Observation, Action]]
"""What was observed and done, step by step."""
Result = TypeVar("Result")

REPORT_EVERY = 25
"""Batches between two reports of a stream: each one waits for the GPU."""
WARMUP_SHARE, FINAL_RATE = 0.04, 0.05
"""Share of a stream over which the learning rate warms up, and what is left of it at the end."""
GRADIENT_CLIP = 1.0
"""Largest norm of a gradient."""
CHUNK = 256
"""Episodes that are listed from a store at once."""


# Who hears of it


class Reporter(Protocol):
    """The role that a warm start runs in: heartbeat, metrics and log."""

    def say(self, what: str) -> None:
        """Heartbeat with what is being done; ends the process where it is asked to stop."""

    def alive(self) -> None:
        """Heartbeat with what was said last."""

    def measured(self, values: dict[str, float]) -> None:
        """Figures for the metrics, by their name below `warm_start/`."""

    def log(self, what: str) -> None:
        """Write to the role's log."""


# Schedule of a stream


class ScheduleState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a stream has come."""

    share: float
    samples: int
    batches: int
    elapsed_s: float


def lr_factor(share: float) -> float:
    """What the learning rate is multiplied with when `share` of a stream is done: linear warm-up, then cosine decay."""
    if share < WARMUP_SHARE:
        return max(share, 0.01 * WARMUP_SHARE) / WARMUP_SHARE
    decay = (min(share, 1.0) - WARMUP_SHARE) / (1.0 - WARMUP_SHARE)
    return FINAL_RATE + (1.0 - FINAL_RATE) * 0.5 * (1.0 + math.cos(math.pi * decay))


def run_schedule(
    steps: GuardedOptimizer,
    config: WarmStartConfig,
    learn: Callable[[int], tuple[int, Result]],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[tuple[ScheduleState, list[Result]]]:
    """Call `learn` batch after batch until `samples` have come or `minutes` are over.

    `learn` gets the number of the batch, takes its step with `steps`, and returns the number of samples and a result.
    Every `REPORT_EVERY` batches and at the end come the state and the results since the last time.
    """
    started_s, state = clock(), ScheduleState(share=0.0, samples=0, batches=0, elapsed_s=0.0)
    results: list[Result] = []
    while state.share < 1.0:
        for group in steps.optimizer.param_groups:
            group["lr"] = config.learning_rate * lr_factor(state.share)
        count, result = learn(state.batches)
        results.append(result)
        state = _advance(state, config, count=count, elapsed_s=max(clock() - started_s, 1e-9))
        if state.share == 1.0:
            steps.end()
        elif len(results) == REPORT_EVERY:
            steps.check()
        else:
            continue
        yield state, results
        results = []


def _advance(state: ScheduleState, config: WarmStartConfig, *, count: int, elapsed_s: float) -> ScheduleState:
    samples = state.samples + count
    share = max(samples / config.samples, elapsed_s / (60 * config.minutes) if config.minutes else 0.0)
    return ScheduleState(share=min(1.0, share), samples=samples, batches=state.batches + 1, elapsed_s=elapsed_s)


# Optimizer steps


class BCTrainer:
    """Maximum likelihood on examples, a batch at a time."""

    def __init__(self, policy: Policy[Any], config: WarmStartConfig) -> None:
        self._policy, weights = policy, list(policy.network.parameters())
        self.optimizer = torch.optim.AdamW(weights, lr=config.learning_rate, weight_decay=0.01, fused=True)
        self.steps = bc_optimizer_steps(self.optimizer, weights)

    def step(self, batch: list[Example]) -> Tensor:
        """One gradient step, skipped where it is NaN; returns the log-probabilities before it, on the policy's device."""
        if not batch:
            raise RoleCrashed(
                "the policy can express none of the demonstrated steps of a batch",
                expected="tasks whose steps are in its grammar",
                fix="another --tasks.suite, or --warm_start.demonstrations 0",
            )
        policy = self._policy
        with oom_errors_of(policy, "warm_start.batch", len(batch)):
            scores = policy.score([policy.augment(encoded) for encoded, _ in batch], [choice for _, choice in batch])
            self.steps.step(-scores.logp_N.mean())
        return scores.logp_N.detach()


def bc_optimizer_steps(optimizer: torch.optim.AdamW, weights: list[nn.Parameter]) -> GuardedOptimizer:
    """Clipped optimizer steps of a warm start; those along NaN are skipped."""
    fix = "lower warm_start.learning_rate"
    return GuardedOptimizer(optimizer, [weights], clip=GRADIENT_CLIP, what="batches of the warm start", fix=fix)


class CloningProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far behaviour cloning has come, and how well the policy knew the latest batches before it learnt them."""

    share: float
    samples: int
    loss: float
    """NaN where it was NaN for all of these steps."""
    certain: float
    """Share of the demonstrated choices that had more than half of the probability."""
    per_s: float
    skipped: int = 0
    """Batches so far whose loss or gradient was NaN or infinite, as of the last check: no step was taken."""


def _progress(logps: list[Tensor], state: ScheduleState, skipped: int) -> CloningProgress:
    logp_N = torch.cat(logps).cpu()
    return CloningProgress(
        share=state.share,
        samples=state.samples,
        loss=-float(logp_N[logp_N.isfinite()].mean()),
        certain=float((logp_N > math.log(0.5)).float().mean()),
        per_s=state.samples / max(state.elapsed_s, 1e-9),
        skipped=skipped,
    )


# Demonstrations in memory


def examples_for(policy: Policy[Any], pairs: Iterable[tuple[Observation, Action]]) -> list[Example]:
    """The demonstrated steps in the policy's own grammar; inexpressible ones are skipped."""
    found = []
    for observation, action in pairs:
        choice = policy.imitate(observation, action)
        if choice is not None:
            found.append((policy.encode(observation), choice))
    return found


def clone(
    policy: Policy[Any],
    examples: list[Example],
    config: WarmStartConfig,
    *,
    random: Random,
    report: Callable[[CloningProgress], None],
    clock: Callable[[], float] = time.monotonic,
) -> float:
    """Clone the examples for `epochs`; `report` is called after every batch. Returns the last epoch's mean loss."""
    if not examples:
        raise UsageError(
            "there is nothing to clone",
            expected="a step that the policy can express",
            fix="demonstrations of other tasks, or none: --warm_start.demonstrations 0",
        )
    trainer, started_s, samples = BCTrainer(policy, config), clock(), 0
    per_epoch = -(-len(examples) // config.batch)
    total = config.epochs * per_epoch
    schedule = torch.optim.lr_scheduler.OneCycleLR(trainer.optimizer, config.learning_rate, total_steps=total)
    losses: list[float] = []
    for done, batch in enumerate(_batches(examples, config, random), 1):
        logp_N = trainer.step(batch)
        schedule.step()
        samples += len(batch)
        if done == total:
            trainer.steps.end()
        elif done % REPORT_EVERY == 0:
            trainer.steps.check()
        state = ScheduleState(share=done / total, samples=samples, batches=done, elapsed_s=clock() - started_s)
        progress = _progress([logp_N], state, trainer.steps.skipped)
        losses.append(progress.loss)
        report(progress)
    finite = [loss for loss in losses[-per_epoch:] if math.isfinite(loss)]
    return sum(finite) / len(finite) if finite else math.nan


def _batches(examples: list[Example], config: WarmStartConfig, random: Random) -> Iterator[list[Example]]:
    """The batches of all epochs, each epoch in an order of its own."""
    for _ in range(config.epochs):
        order = random.sample(examples, len(examples))
        yield from (order[start : start + config.batch] for start in range(0, len(order), config.batch))


def nothing_expressible(num_steps: int, policy: PolicyConfig, *, otherwise: str) -> ConfigError:
    """The error for `num_steps` demonstrated steps of which the policy can express none; `otherwise` also helps."""
    seen = f"the policy can express none of the {num_steps} demonstrated steps"
    if policy.kind != "vlm":
        return ConfigError(seen, expected="tasks whose steps are in its grammar", fix=otherwise)
    vlm = policy.vlm
    return ConfigError(
        seen,
        expected=f"steps that the dialect {vlm.dialect!r} can express in at most {vlm.answer_tokens} tokens",
        fix=f"policy.vlm.answer_tokens above {vlm.answer_tokens}, another policy.vlm.dialect, or {otherwise}",
    )


# Streamed demonstrations


def clone_stream(
    policy: Policy[Any],
    take: Callable[[], list[Example]],
    config: WarmStartConfig,
    *,
    report: Callable[[CloningProgress], None],
    clock: Callable[[], float] = time.monotonic,
) -> CloningProgress:
    """Clone the batches that `take` gives, until `samples` have come or `minutes` are over; the progress at the end."""
    trainer = BCTrainer(policy, config)
    last = CloningProgress(share=0.0, samples=0, loss=0.0, certain=0.0, per_s=0.0)

    def learn(_batch: int) -> tuple[int, Tensor]:
        batch = take()
        return len(batch), trainer.step(batch)

    for state, logps in run_schedule(trainer.steps, config, learn, clock):
        last = _progress(logps, state, trainer.steps.skipped)
        report(last)
    return last


# Stored successes


class Successes(msgspec.Struct, frozen=True, kw_only=True):
    """What the successful episodes of some runs observed and did."""

    episodes: list[Pairs]
    damaged: list[str]
    """Why each of the others was skipped."""


class StoredExamples(msgspec.Struct, frozen=True, kw_only=True):
    """The same in one policy's own grammar."""

    examples: list[Example]
    num_steps: int
    """How many steps there were, inexpressible ones included."""
    damaged: list[str]
    """Why episodes were skipped, those whose screenshots are missing among them."""


def read_successes(stores: Iterable[ExperienceStore]) -> Successes:
    """The successful episodes of these stores without their no-op steps, oldest first."""
    damaged: list[str] = []
    found = [
        _without_no_ops(trajectory)
        for store in stores
        for trajectory in stored_successes(store, on_damaged=lambda error: damaged.append(error.seen))
    ]
    return Successes(episodes=[pairs for pairs in found if pairs], damaged=damaged)


def stored_examples(policy: Policy[Any], found: Successes) -> StoredExamples:
    """What the policy can express of these episodes."""
    examples: list[Example] = []
    num_steps, damaged = 0, list(found.damaged)
    for pairs in found.episodes:
        try:
            examples += examples_for(policy, pairs)
        except StoreError as error:
            damaged.append(error.seen)
        else:
            num_steps += len(pairs)
    return StoredExamples(examples=examples, num_steps=num_steps, damaged=damaged)


def stored_successes(store: ExperienceStore, *, on_damaged: Callable[[StoreError], None]) -> Iterator[Trajectory]:
    """The successful episodes of a store, oldest first; `on_damaged` is called for each that cannot be read."""
    seq = 0
    while rows := store.after(seq, CHUNK):
        for row in rows:
            if not row.success:
                continue
            try:
                trajectory = store.read(row.id)
            except StoreError as error:
                on_damaged(error)
            else:
                yield trajectory
        seq = rows[-1].seq


def _without_no_ops(trajectory: Trajectory) -> Pairs:
    return [
        (step.observation, step.decision.action)
        for step, no_op in zip(trajectory.steps, noop_steps(trajectory), strict=True)
        if not no_op
    ]

"""Grounding pretraining of the pixel policy: next steps, pointing and OCR on a stream of screens, in one loss.

This is the warm start of `policy.kind = pixel` with `warm_start.samples`. Samples come from data workers (`stream`), stay for
a while in a pool on the learner's device and are drawn from there, each with other queries every time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec
import torch
from torch import Tensor, nn

from distrl.config.schema import Config, WarmStartConfig
from distrl.learner.update import GuardedOptimizer
from distrl.policies.oom import oom_errors
from distrl.policies.pixel.policy import PixelPolicy
from distrl.pretraining.cloning import REPORT_EVERY, Reporter, bc_optimizer_steps, run_schedule
from distrl.pretraining.grounding.data_worker import BLOCK
from distrl.pretraining.grounding.losses import GroundingLoss, LossTerms, SamplePool
from distrl.pretraining.grounding.samples import sample_fields
from distrl.pretraining.grounding.stream import SampleStream

FIRST_SCREENS = 1024
"""Screens to have before the first batch."""
MAX_BLOCKS = 16
"""Taken in between two batches, at most."""
STARTING = "grounding pretraining: the data workers are starting"
SHOWN = ("step", "steps_known", "points_known", "hidden_known", "texts_known", "letters_known", "names_known")
"""Terms that the heartbeat names."""


class SampleSource(Protocol):
    """Where samples come from: `SampleStream`."""

    def take(self, give: Callable[[dict[str, Tensor]], None], *, most: int) -> int:
        """Pass on at most so many blocks that have come, without waiting; how many there were."""

    def fill(self, give: Callable[[dict[str, Tensor]], None], *, blocks: int, on_wait: Callable[[], None]) -> None:
        """Pass on so many blocks, however long they take; `on_wait` is called meanwhile."""


class StreamLoss(Protocol):
    """What is trained on a stream: `GroundingLoss`."""

    generator: torch.Generator
    """Draws batches and what is random about them, on the pool's device."""

    @property
    def queries(self) -> int:
        """Queries about each screen."""

    def parameters(self) -> Sequence[nn.Parameter]:
        """What is trained."""

    def compute(self, samples: Mapping[str, Tensor], *, measured: bool) -> LossTerms:
        """The loss on a batch; with `measured`, also the shares that were predicted right."""

    def compile(self) -> None:
        """Let torch compile the layers."""

    def uncompile(self) -> None:
        """Undo that: compiled layers are made for one batch size."""


class GroundingProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far pretraining has come, and how much of the latest batches the policy knew before it learnt from them."""

    share: float
    samples: int
    """Queries so far."""
    batches: int
    per_s: float
    """Queries per second."""
    drawn: int
    """Screens that have come in so far."""
    drawn_per_s: float
    parts: dict[str, float]
    """Terms of the loss and shares that were predicted right, means over the batches since the last report."""
    skipped: int
    """Batches so far whose loss or gradient was NaN or infinite: no step was taken."""


class Pretrained(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a pretraining."""

    samples: int
    loss: float
    auxiliary_loss: Callable[[], Tensor] | None
    """Added to the loss of every later update where `auxiliary_screens` is above 0."""


def pretrain(policy: PixelPolicy, config: Config, reporter: Reporter) -> Pretrained:
    """Start the data workers and pretrain the policy on what they draw."""
    here, grounding = next(policy.network.parameters()).device, config.warm_start.grounding
    fields = sample_fields(config.policy.pixel)
    with SampleStream(config, fields, pinned=here.type == "cuda") as stream:
        loss = GroundingLoss(policy.network, config.policy.pixel, grounding, seed=config.run.seed)
        pool = SamplePool(fields, grounding.pool, here)
        last = pretrain_on_stream(loss, pool, stream, config.warm_start, reporter)
    count = grounding.auxiliary_screens
    auxiliary_loss = loss.auxiliary_loss(pool, count) if count else None
    del pool, loss
    if here.type == "cuda":
        torch.cuda.empty_cache()  # workers on the same GPU need the memory
    return Pretrained(samples=last.samples, loss=last.parts["step"], auxiliary_loss=auxiliary_loss)


def pretrain_on_stream(
    loss: StreamLoss, pool: SamplePool, source: SampleSource, config: WarmStartConfig, reporter: Reporter
) -> GroundingProgress:
    """Train on `source` until there were `samples` queries or `minutes` are over; the progress at the end."""
    first = max(1, min(FIRST_SCREENS, config.samples // 8, pool.capacity) // BLOCK)
    reporter.log(STARTING)
    source.fill(pool.put, blocks=first, on_wait=lambda: reporter.say(STARTING))
    compiled = config.grounding.compile and pool.device.type == "cuda" and _compile(loss, pool, config, reporter)
    try:
        return _train(loss, pool, source, config, reporter)
    finally:
        if compiled:
            loss.uncompile()


def _train(
    loss: StreamLoss, pool: SamplePool, source: SampleSource, config: WarmStartConfig, reporter: Reporter
) -> GroundingProgress:
    steps, drawn_before = _optimizer_steps(loss, config), pool.taken
    last = GroundingProgress(share=0.0, samples=0, batches=0, per_s=0.0, drawn=0, drawn_per_s=0.0, parts={}, skipped=0)

    def learn(batch: int) -> tuple[int, dict[str, Tensor]]:
        source.take(pool.put, most=MAX_BLOCKS)
        with oom_errors("warm_start.batch", config.batch):
            measured = batch % REPORT_EVERY == REPORT_EVERY - 1
            terms = loss.compute(pool.draw(config.batch, loss.generator), measured=measured)
            parts = {**terms.parts, "norm": steps.step(terms.total)}
        reporter.alive()
        return config.batch * loss.queries, parts

    for state, found in run_schedule(steps, config, learn):
        last = GroundingProgress(
            share=state.share,
            samples=state.samples,
            batches=state.batches,
            per_s=state.samples / state.elapsed_s,
            drawn=pool.taken,
            drawn_per_s=(pool.taken - drawn_before) / state.elapsed_s,
            parts={**last.parts, **_means(found)},
            skipped=steps.skipped,
        )
        _report(last, reporter)
    return last


def _report(now: GroundingProgress, reporter: Reporter) -> None:
    reporter.measured(
        {
            "samples": now.samples,
            "per_s": now.per_s,
            "drawn": now.drawn,
            "drawn_per_s": now.drawn_per_s,
            "skipped": now.skipped,
            **{"loss" if name == "step" else name: value for name, value in now.parts.items()},
        }
    )
    rates = f"{now.share:.0%}, {now.samples} queries, {now.per_s:.0f}/s, {now.drawn_per_s:.0f} screens/s drawn"
    terms = ", ".join(f"{name} {now.parts[name]:.3f}" for name in SHOWN if name in now.parts)
    reporter.say(f"grounding pretraining: {rates}, {terms}")


def _compile(loss: StreamLoss, pool: SamplePool, config: WarmStartConfig, reporter: Reporter) -> bool:
    """Compile the layers and try them once; False, and all as before, where that fails."""
    reporter.log("grounding pretraining: compiling the layers")
    reporter.say("grounding pretraining: compiling the layers")
    started_s = time.monotonic()
    loss.compile()
    try:
        loss.compute(pool.draw(config.batch, loss.generator), measured=True).total.backward()  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    except (RuntimeError, ImportError, OSError) as error:  # torch's compiler, Triton or a C compiler that is missing
        loss.uncompile()
        reporter.log(f"grounding pretraining: NOT compiled, {type(error).__name__}: {str(error)[:300]}")
        return False
    reporter.log(f"grounding pretraining: layers compiled in {time.monotonic() - started_s:.1f} s")
    return True


def _optimizer_steps(loss: StreamLoss, config: WarmStartConfig) -> GuardedOptimizer:
    weights = list(loss.parameters())
    optimizer = torch.optim.AdamW(weights, lr=config.learning_rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    return bc_optimizer_steps(optimizer, weights)


def _means(found: list[dict[str, Tensor]]) -> dict[str, float]:
    """The mean of every term over the batches in which it is finite; shares are measured only now and then."""
    names = {name for parts in found for name in parts}
    means = {}
    for name in names:
        values_N = torch.stack([parts[name].float() for parts in found if name in parts]).cpu()
        if values_N.isfinite().any():
            means[name] = float(values_N[values_N.isfinite()].mean())
    return means

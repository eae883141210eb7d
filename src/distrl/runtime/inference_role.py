"""An inference actor in its process: a policy that decides for workers and an evaluator which hold none, its heartbeat and its metrics."""

from __future__ import annotations

import asyncio
import time

from distrl.experience.frames import FrameCache
from distrl.rollout.batching import Batcher
from distrl.rollout.serving import DecisionServer
from distrl.runtime.base import RoleContext
from distrl.runtime.factory import FRAMES_IN_MEMORY, batching, log_notices, make_policy, prepare_torch

BEAT_S = 0.25
METRICS_EVERY = 20
"""Beats between two lines of metrics."""


def decide_for_workers(context: RoleContext) -> None:
    """Answer what workers ask until asked to stop."""
    prepare_torch()
    asyncio.run(_serve(context))


async def _serve(context: RoleContext) -> None:
    frames = FrameCache(FRAMES_IN_MEMORY, context.transport.frames)
    policy = make_policy(context.config, frames)
    log_notices(policy, context.log)
    seed = f"{context.config.run.seed} {context.name} {context.incarnation}"
    batcher = Batcher(policy, context.transport.weights, batching(context.config, seed))
    await _have_weights(context, batcher)
    server = DecisionServer(policy, batcher, frames, context.transport.weights)
    deciding = asyncio.create_task(batcher.run(), name="decisions")
    context.requests.serve(server.answer)
    started_s, beats = time.monotonic(), 0
    while not context.stopping():
        await asyncio.wait({deciding}, timeout=BEAT_S)
        if deciding.done():
            deciding.result()  # an error in the policy ends the actor, and is told with its traceback
        _beat(context, batcher, server, time.monotonic() - started_s)
        beats += 1
        if beats % METRICS_EVERY == 0:
            figures = {f"inference/{name}": value for name, value in context.heartbeat.figures.items()}
            context.metrics.write("inference", role=context.name, **figures)
            batcher.spans.write(context.log)
    deciding.cancel()


async def _have_weights(context: RoleContext, batcher: Batcher) -> None:
    while batcher.version < 0 and not context.stopping():
        batcher.swap()
        if batcher.version < 0:
            context.heartbeat.starting("waiting for the first version of the weights")
            await asyncio.sleep(BEAT_S)


def _beat(context: RoleContext, batcher: Batcher, server: DecisionServer, lived_s: float) -> None:
    context.heartbeat.figures.update(
        {
            "progress": batcher.num_decisions + server.pinned.num_decisions,
            "decisions": batcher.num_decisions,
            "pinned": server.pinned.num_decisions,
            "queued": server.num_queued,
            "dropped": server.num_dropped,
            "batch/mean": batcher.num_decisions / max(1, batcher.num_batches),
            "batch/halved": batcher.num_halved,
            "deciding": batcher.busy_s / max(1e-9, lived_s),
            "version": batcher.version,
            **batcher.skipped_counters,
        }
    )
    if server.num_queued:
        context.heartbeat.doing(f"deciding: {server.num_queued} decisions")
    else:
        context.heartbeat.waiting("what workers ask")

"""A worker in its process: the worker itself, its heartbeat and its metrics."""

from __future__ import annotations

import asyncio

import msgspec

from distrl.devices.health import UP
from distrl.rollout.balance import WorkerBalance, WorkerLoad
from distrl.rollout.worker import Worker, WorkerParts
from distrl.runtime.base import RoleContext
from distrl.runtime.factory import hand_over_left, make_worker_parts, prepare_torch
from distrl.tasks.judges import judge_figures
from distrl.threads import beside

BEAT_S = 0.25
LEFT_S = 60.0
"""How long a worker that ends waits for the store to take what earlier workers have left."""
SCREENS_EVERY = 4
"""Beats between two looks at the devices, for people: about a second."""
METRICS_EVERY = 20
"""Beats between two lines of metrics."""


def collect(context: RoleContext) -> None:
    """Play tasks until asked to stop."""
    prepare_torch()
    asyncio.run(_collect(context))


async def _collect(context: RoleContext) -> None:
    parts = make_worker_parts(context)
    worker = Worker(parts)
    working = asyncio.create_task(worker.run(), name=context.name)
    left = beside(lambda: hand_over_left(context), name="left-spools")
    beats, balancing = 0, Balancing(context, worker, parts)
    while not working.done():
        await asyncio.wait({working}, timeout=BEAT_S)
        stopping = context.stopping()
        if stopping:
            worker.stop()
        else:
            meter = worker.meter
            decided = {"decisions": float(parts.batcher.num_decisions)}
            context.heartbeat.figures.update(busy_s=meter.busy_s(), device_s=meter.device_s(), **decided)
            balancing.look()
        _beat(context, worker, parts)
        beats += 1
        if beats % SCREENS_EVERY == 0 and not stopping:  # the last ones stay, for who looks later
            context.screens.show(worker.shown.views())
        if beats % METRICS_EVERY == 0:
            figures = {f"worker/{name}": value for name, value in context.heartbeat.figures.items()}
            context.metrics.write("worker", role=context.name, **figures)
            parts.batcher.spans.write(context.log)
    working.result()
    parts.batcher.spans.write(context.log)
    await _end(left, context)


class Balancing:
    """Measures a worker's load, and moves its settings where `balance` is on."""

    def __init__(self, context: RoleContext, worker: Worker, parts: WorkerParts) -> None:
        self._context, self._worker, self._parts = context, worker, parts
        self._config, self._clock = context.config.balance, parts.tools.clock
        wait_s = parts.batcher.batch_wait_s
        self._balance = WorkerBalance(self._config, devices=parts.pool.num_in_use, batch_wait_s=wait_s)
        self._started_s, self._before = self._clock(), self._now()

    def _now(self) -> tuple[float, float, float]:
        """The time, and for how long the policy and the devices have been at work by then."""
        return self._clock(), self._parts.batcher.busy_s, self._worker.meter.busy_s()

    def look(self) -> None:
        """Say how busy the policy is and, every now and then, change what the load asks for."""
        now_s, deciding_s, busy_s = self._now()
        self._context.heartbeat.figures["deciding"] = deciding_s / max(1e-9, now_s - self._started_s)
        spent_s = now_s - self._before[0]
        if not self._config.enabled or spent_s < self._config.every_s:
            return
        episodes, (_, deciding_before_s, busy_before_s) = max(1, self._balance.episodes), self._before
        load = WorkerLoad(
            deciding=(deciding_s - deciding_before_s) / spent_s,
            on_devices=(busy_s - busy_before_s) / spent_s / episodes,
        )
        self._before = now_s, deciding_s, busy_s
        # A worker that has no weights yet, or no devices, is idle for another reason.
        change = self._balance.turn(load, devices=self._parts.pool.num_in_use) if load.deciding else None
        if change is not None:
            self._worker.most_at_once = self._balance.episodes
            self._parts.batcher.batch_wait_s = self._balance.batch_wait_s
            self._context.log.write("balanced", **msgspec.to_builtins(change))


async def _end(left: asyncio.Future[int], context: RoleContext) -> None:
    """Wait for what other workers have left in their spools; a disk that does not answer keeps it for the next session."""
    for _ in range(round(LEFT_S / BEAT_S)):
        if left.done():
            break
        context.heartbeat.waiting("the store, which takes over the spools of earlier workers")
        await asyncio.wait({left}, timeout=BEAT_S)
    error = left.exception() if left.done() else TimeoutError(f"no answer within {LEFT_S:g} s")
    if error is not None:
        context.log.write("spools_left", why=str(error))
    elif left.result():
        context.log.write("spools_taken_over", episodes=left.result())


def _beat(context: RoleContext, worker: Worker, parts: WorkerParts) -> None:
    heartbeat = context.heartbeat
    heartbeat.figures.update(_figures(worker, parts))
    if parts.batcher.waiting:
        heartbeat.waiting(parts.batcher.waiting)
    elif worker.num_playing:
        waits = (parts.lockstep.waiting if parts.lockstep else "") or worker.waiting
        heartbeat.doing(f"playing: {worker.num_playing} episodes{waits and f'; others wait for {waits}'}")
    elif worker.num_storing:
        heartbeat.waiting(f"the store: {worker.num_storing} trajectories")
    elif worker.waiting:
        heartbeat.waiting(worker.waiting)
    else:
        heartbeat.waiting("its next episode")


def _figures(worker: Worker, parts: WorkerParts) -> dict[str, float]:
    counts, batcher, health = worker.counts, parts.batcher, worker.health()
    relabeller = parts.relabeller
    return {
        "progress": counts.steps,
        "episodes": counts.episodes,
        "success/recent": sum(counts.recent) / max(1, len(counts.recent)),
        "recent": len(counts.recent),
        "steps": counts.steps,
        "invalid/share": counts.invalid / max(1, counts.steps),
        "losses": counts.losses,
        "truncated": counts.truncated,
        "unjudged": counts.unjudged,
        "unjudged_in_a_row": counts.unjudged_in_a_row,
        "judging": worker.num_judging,
        "relabelled": relabeller.num_relabelled if relabeller else 0,
        "unrelabelled": counts.unrelabelled,
        "inexpressible": relabeller.num_inexpressible if relabeller else 0,
        "batch/mean": batcher.num_decisions / max(1, batcher.num_batches),
        "batch/halved": batcher.num_halved,
        "batch/wait_ms": 1000 * batcher.batch_wait_s,
        "at_once": worker.most_at_once or parts.pool.num_in_use,
        "version": batcher.version,
        "storing": worker.num_storing,
        "spooled": worker.num_spooled,
        "healthy": sum(health[str(up)] for up in UP),
        "restarting": health["restarting"] + health["quarantined"],
        "absent": health["absent"],
        "acknowledge_ms": 1000 * counts.acknowledge_s / max(1, counts.episodes),
        **batcher.skipped_counters,
        **{f"judge/{name}": value for name, value in judge_figures(parts.judge).items()},
    }

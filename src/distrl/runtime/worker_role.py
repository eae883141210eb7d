"""A worker in its process: the worker itself, its heartbeat and its metrics."""

from __future__ import annotations

import asyncio

from distrl.devices.sim.device import SimDevice
from distrl.rollout.worker import Worker, WorkerParts
from distrl.runtime.assembly import make_devices, make_worker_parts, prepare_torch
from distrl.runtime.role import Life

BEAT_S = 0.25
METRICS_EVERY = 20
"""Beats between two lines of metrics."""


def collect(life: Life) -> None:
    """Play tasks until asked to stop."""
    prepare_torch()
    asyncio.run(_collect(life))


async def _collect(life: Life) -> None:
    devices = make_devices(life.config, life.name)
    parts = make_worker_parts(life.run, life.config, life.name, devices, life.log)
    worker = Worker(parts)
    working = asyncio.create_task(worker.run(), name=life.name)
    beats = 0
    while not working.done():
        await asyncio.wait({working}, timeout=BEAT_S)
        stopping = life.stopping()
        if stopping:
            worker.stop()
        _beat(life, worker, parts, [] if stopping else devices)
        beats += 1
        if beats % METRICS_EVERY == 0:
            life.metrics.write(
                "worker", role=life.name, **{f"worker/{name}": value for name, value in life.pulse.figures.items()}
            )
    working.result()


def _beat(life: Life, worker: Worker, parts: WorkerParts, devices: list[SimDevice]) -> None:
    life.pulse.figures.update(_figures(worker, parts))
    if devices:
        life.pulse.figures["busy_s"] = sum(device.busy_s for device in devices)
    if worker.num_playing:
        waits = (parts.lockstep.waiting if parts.lockstep else "") or worker.waiting
        life.pulse.doing(f"playing: {worker.num_playing} episodes{waits and f'; others wait for {waits}'}")
    elif worker.num_storing:
        life.pulse.waiting(f"the store: {worker.num_storing} trajectories")
    elif worker.waiting:
        life.pulse.waiting(worker.waiting)
    else:
        life.pulse.doing("playing: 0 episodes")


def _figures(worker: Worker, parts: WorkerParts) -> dict[str, float]:
    tally, batcher, health = worker.tally, parts.batcher, worker.health()
    return {
        "progress": tally.steps,
        "episodes": tally.episodes,
        "success/recent": sum(tally.recent) / max(1, len(tally.recent)),
        "recent": len(tally.recent),
        "steps": tally.steps,
        "invalid/share": tally.invalid / max(1, tally.steps),
        "losses": tally.losses,
        "cut": tally.cut,
        "batch/mean": batcher.num_decisions / max(1, batcher.num_batches),
        "batch/halved": batcher.num_halved,
        "version": batcher.version,
        "storing": worker.num_storing,
        "healthy": health["healthy"] + health["leased"],
        "restarting": health["restarting"] + health["quarantined"],
        "acknowledge_ms": 1000 * tally.acknowledge_s / max(1, tally.episodes),
        **batcher.passed_over,
    }

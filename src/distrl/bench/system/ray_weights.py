"""`distrl bench ray_weights`: the delay from the call of `publish` to the first decision with the new weights, on a Ray of three nodes.

The learner publishes into the run folder on the head, as `bench weights` does. The workers are Ray actors on two
other nodes, eight on each: they hear of a version from the hub, a node fetches it once through the object store, and each of them checks it
and loads it before a batch of decisions, as in a run. Nodes are real raylets with object stores of their own that share this machine's
cores, so all copies and checksums of all workers are done by these.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from distrl.bench.base import BenchOptions
from distrl.bench.jobs import log_progress
from distrl.bench.system.ray_nodes import ray_nodes
from distrl.bench.system.weights import (
    InUse,
    Measured,
    Phones,
    Published,
    PublishSpec,
    compute_until,
    deadline_s,
    decide_until_last,
    delays,
    make_phones,
    padded_policy,
    quantile,
    small_config,
    version_of,
)
from distrl.config.load import config_hash
from distrl.config.schema import Config
from distrl.rollout.batching import Batcher, Batching
from distrl.runtime.factory import prepare_torch
from distrl.transport.ray.client import HubTransport
from distrl.transport.ray.connection import HubConnection
from distrl.transport.ray.hub import Hub
from distrl.transport.ray.wire import Caller
from distrl.transport.weight_files import WeightsFolder

SIZE_MB, WORKERS, VERSIONS = 100.0, (4, 16), 20
QUICK_SIZE_MB, QUICK_WORKERS, QUICK_VERSIONS = 10.0, (2,), 5
EVERY_S = 3.0
PHONES = 32
"""To a worker: one of them asks for a decision about every 25 ms."""
NODES = 2
START_S = 120.0
"""How long all workers may take to have loaded the first version."""


class RayWeightsFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Delays; the lists have an entry per number of workers."""

    size_mb: list[float]
    workers: list[int]
    p50_s: list[float]
    p95_s: list[float]
    longest_s: list[float]
    publish_p50_s: list[float]
    """Of that, until `publish` has returned."""
    versions: int
    phones: int
    """To a worker."""
    nodes: int
    runtime: str
    seeds: int
    config_hash: str


def run(options: BenchOptions) -> RayWeightsFigures:
    """Measure everything that `distrl bench ray_weights` reports."""
    size_mb, fleets, versions = (
        (QUICK_SIZE_MB, QUICK_WORKERS, QUICK_VERSIONS) if options.quick else (SIZE_MB, WORKERS, VERSIONS)
    )
    prepare_torch()
    found = []
    with ray_nodes(NODES) as cluster:
        ray.init(address=cluster.address, namespace="bench", log_to_driver=False, logging_level=logging.ERROR)
        try:
            for workers in fleets:
                found.append(measure(size_mb, workers, versions))
                log_progress(f"{workers} workers: p95 {quantile(found[-1].delays_s, 0.95):.3f} s")
        finally:
            ray.shutdown()
    return RayWeightsFigures(
        size_mb=[one.size_mb for one in found],
        workers=[one.workers for one in found],
        p50_s=[quantile(one.delays_s, 0.5) for one in found],
        p95_s=[quantile(one.delays_s, 0.95) for one in found],
        longest_s=[round(max(one.delays_s), 4) for one in found],
        publish_p50_s=[quantile(one.publish_s, 0.5) for one in found],
        versions=versions,
        phones=PHONES,
        nodes=1 + NODES,
        runtime="ray",
        seeds=1,
        config_hash=config_hash(Config()),
    )


def measure(size_mb: float, workers: int, versions: int) -> Measured:
    """Publish so many versions to so many workers."""
    with tempfile.TemporaryDirectory(prefix="distrl-weights-") as folder:
        spec = PublishSpec(folder=folder, size_mb=size_mb, versions=versions, every_s=EVERY_S, seed=0)
        head, *others = [node["NodeID"] for node in ray.nodes()]  # type: ignore[no-untyped-call]
        own = str(ray.get_runtime_context().get_node_id())
        others = [node for node in (head, *others) if node != own]
        hub = _start(Hub, own).remote(folder, str(Path(folder, "metrics.jsonl")), 2)
        ray.get(hub.ready.remote(), timeout=START_S)
        order = msgspec.json.encode(spec)
        fleet = [
            _start(WeightsWorker, others[number % NODES]).remote(
                order, hub, f"worker-{number}", f"node-{number % NODES}"
            )
            for number in range(workers)
        ]
        try:
            published, used = _publish(spec, fleet)
        finally:
            for actor in (*fleet, hub):
                ray.kill(actor)
    return Measured(
        size_mb=size_mb,
        workers=workers,
        delays_s=[delay for one in used for delay in delays(published, one)],
        publish_s=[line.done_s - line.called_s for line in published[1:]],
    )


def _start(kind: type, node: str) -> Any:
    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(kind).options(num_cpus=0, scheduling_strategy=strategy)


def _publish(spec: PublishSpec, fleet: list[Any]) -> tuple[list[Published], list[list[InUse]]]:
    folder, policy = (
        WeightsFolder(Path(spec.folder, "weights"), keep=2),
        padded_policy(small_config(spec.seed), spec.size_mb),
    )
    published: list[Published] = []
    working: list[Any] = []
    for number in range(spec.versions + 1):
        started_s = time.monotonic()
        folder.publish(policy, version_of(number))
        published.append(Published(version=number, called_s=started_s, done_s=time.monotonic()))
        if number == 0:
            ray.get([worker.ready.remote() for worker in fleet], timeout=START_S)
            working = [worker.work.remote() for worker in fleet]
            started_s = time.monotonic()
        compute_until(started_s + spec.every_s)
    lines = ray.get(working, timeout=deadline_s(spec))
    return published, [msgspec.json.decode(line, type=list[InUse]) for line in lines]


class WeightsWorker:
    """A worker that decides until the last version is in use. It has no coroutine, or Ray would give it an event loop of its own."""

    def __init__(self, spec: bytes, hub: Any, name: str, node: str) -> None:
        prepare_torch()
        self._spec = msgspec.json.decode(spec, type=PublishSpec)
        line = HubConnection(hub, Caller(role=name, incarnation=1))
        folder = Path(self._spec.folder, node)
        folder.mkdir(exist_ok=True)
        self._transport = HubTransport(line, node=folder)
        config = small_config(self._spec.seed)
        batching = Batching(
            batch_size=config.rollout.batch_size,
            batch_wait_s=config.rollout.batch_wait_s,
            temperature=1.0,
            seed=self._spec.seed,
        )
        self._batcher = Batcher(padded_policy(config, self._spec.size_mb), self._transport.weights, batching)
        self._used: list[InUse] = []
        self._phones: Phones = make_phones(self._batcher, config, Random(name), self._used.append)

    def ready(self) -> int:
        """Load the first version; which it was."""
        until_s = time.monotonic() + START_S
        while self._batcher.version < 0 and time.monotonic() < until_s:
            self._batcher.swap()
            time.sleep(0.05)
        return self._batcher.version

    def work(self) -> bytes:
        """What was first decided with each version."""
        asyncio.run(decide_until_last(self._batcher, self._phones, self._spec, count=PHONES))
        return msgspec.json.encode(self._used)

"""Several Ray nodes on this machine, for benchmarks: real raylets and object stores that share its cores, disk and memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NICENESS = "RAY_worker_niceness"
PHONE = "phone"
"""The resource that nodes of a benchmark declare for their simulated phones."""
STORE_BYTES = 300 * 2**20
"""Of each node's object store: weights of 100 MB have to fit."""
CPUS, MANY = 64, 10_000.0
"""CPUs in name, and more phones than any benchmark asks for: what is real is shared anyway."""


@contextmanager
def ray_nodes(count: int, **head: Any) -> Iterator[Any]:
    """Ray's own cluster utility with a head, of these settings, and `count` nodes that have phones."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault(NICENESS, "0")  # as roles of the local runtime have it, beside which these are measured
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "180")  # Ray's own 30 s are too few on a busy machine
    from ray.cluster_utils import Cluster

    cluster: Any = Cluster()
    try:
        cluster.add_node(num_cpus=0, object_store_memory=STORE_BYTES, include_dashboard=False, **head)
        for _ in range(count):
            add_phones(cluster)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        cluster.shutdown()


def add_phones(cluster: Any) -> Any:
    """One more node."""
    return cluster.add_node(
        num_cpus=CPUS, resources={PHONE: MANY}, object_store_memory=STORE_BYTES, include_dashboard=False
    )


def on_cluster(cluster: Any) -> dict[str, str]:
    """Settings of a run that uses these nodes."""
    return {
        "runtime.kind": "ray",
        "runtime.address": cluster.address,
        "runtime.device_resource": PHONE,
        "runtime.worker_cpus": "0.1",
    }

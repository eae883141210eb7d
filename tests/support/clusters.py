"""A real Ray on this machine, of one node or several, each with its own raylet and object store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # before ray is loaded: tests tell nobody anything
os.environ.setdefault("RAY_raylet_start_wait_time_s", "180")  # Ray's own 30 s are too few on a busy machine

import ray
from ray.cluster_utils import Cluster

TESTS = Path(__file__).parent.parent
STORE_BYTES = 100 * 2**20
"""Of each node's object store: Ray takes no less than 75 MB."""


@contextmanager
def a_cluster(*nodes: dict[str, Any], join: bool = True) -> Iterator[Cluster]:
    """A head node with the first of these resources, and one further node for each of the others; this process is on the head.

    Not to `join` it is for tests that kill the head: Ray ends every process that has joined.
    """
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(TESTS), before)))  # for actors that tests define
    cluster = Cluster()
    try:
        for node in nodes:
            add_node(cluster, **node)
        if join:
            ray.init(address=cluster.address, namespace="tests", log_to_driver=False, logging_level="error")
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def add_node(
    cluster: Cluster, *, num_cpus: float = 1, resources: dict[str, float] | None = None, **settings: Any
) -> Any:
    """One more node."""
    own = {"object_store_memory": STORE_BYTES, "include_dashboard": False, **settings}
    return cluster.add_node(num_cpus=num_cpus, resources=resources or {}, **own)

"""A node behind a network that is cut, by the kernel: its worker plays on, spools, and hands over what it has once the network is back."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

ray = pytest.importorskip("ray", reason="needs the extra [ray]")

from distrl.bench.system.ray_networks import HEAD, NetworkNode, network_nodes, networks  # noqa: E402
from distrl.runtime.run_folder import RunFolder  # noqa: E402
from distrl.runtime.spools import SpoolRecord  # noqa: E402
from distrl.runtime.summary import read_status  # noqa: E402
from support.clusters import a_cluster  # noqa: E402
from support.runs import ENDLESS, SLOW, Training, check_exactly_once, num_episodes  # noqa: E402

RAY_WAITS_S = 50.0
"""Less than Ray's own minute (`RAY_gcs_rpc_server_reconnect_timeout_s`), which the cluster here does not keep to."""


@pytest.fixture
def beyond(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, NetworkNode]]:
    """A cluster, and its node with three phones beyond a cable. On a busy machine a cut takes longer than Ray waits for a node."""
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "600")
    monkeypatch.setenv("RAY_health_check_failure_threshold", "100")
    with networks(1) as made:
        if not made:
            pytest.skip("only root may make networks, with `ip netns`")
        with (
            a_cluster({"num_cpus": 2, "node_ip_address": HEAD}) as cluster,
            network_nodes(cluster, 1, cpus=1, phones=3) as (node,),
        ):
            yield cluster, node


def spooled(run: RunFolder) -> set[Path]:
    """Episodes that wait on the node's own disk, which is this machine's."""
    record = msgspec.json.decode(run.spools.read_bytes(), type=SpoolRecord)
    place = Path(tempfile.gettempdir()).resolve()
    return {path for folder in record.folders for path in (place / Path(folder).name).glob("worker-0*/*.ep")}


@pytest.mark.long
def test_a_worker_beyond_a_cut_network_plays_on_and_hands_over_what_it_has_when_it_is_back(
    beyond: tuple[Any, NetworkNode], tmp_path: Path
) -> None:
    cluster, node = beyond
    settings = {key.replace(".", "__"): value for key, value in SLOW.items()}
    training = Training.begin(
        tmp_path, **settings, run__episodes=ENDLESS, rollout__workers=1, runtime__kind="ray", runtime__address=cluster.address,
        runtime__device_resource="phone", runtime__silent_after_s=600,
    )  # fmt: skip
    run = training.run
    try:
        training.until(lambda: num_episodes(run) > 10)
        cut_s = time.time()
        node.cut()
        training.until(lambda: note_of(run, "worker-0").startswith("silent for "))
        training.until(lambda: len(spooled(run)) > 3)
        first_s = min(path.stat().st_mtime for path in spooled(run)) - cut_s
        stored = num_episodes(run)
        node.mend()
        training.until(lambda: num_episodes(run) > stored + 10)
        training.until(lambda: not note_of(run, "worker-0"))
        training.process.send_signal(signal.SIGINT)
        summary = training.finish()
    finally:
        training.stop()
    assert first_s < RAY_WAITS_S, "or Ray would have ended the worker with what it has in memory"
    assert (summary["lost_episodes"], summary["duplicate_episodes"], summary["unacknowledged_episodes"]) == (0, 0, 0)
    assert summary["restarts"] == 0, "it was the network, and not the worker"
    assert summary["episodes"] == check_exactly_once(run)
    assert not spooled(run)


def note_of(run: RunFolder, role: str) -> str:
    """What `distrl status` says of a role."""
    return {found.role: found.note for found in read_status(run, now_s=time.time()).roles}.get(role, "")

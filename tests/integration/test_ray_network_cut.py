"""A node behind a network that is cut, by the kernel: its worker plays on, spools, and hands over what it has once the network is back."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

ray = pytest.importorskip("ray", reason="pip install 'distrl[ray]'")

from distrl.runtime.run_folder import RunFolder  # noqa: E402
from distrl.runtime.spools import SpoolRecord  # noqa: E402
from distrl.runtime.summary import read_status  # noqa: E402
from support.clusters import STORE_BYTES, a_cluster  # noqa: E402
from support.runs import ENDLESS, PATIENCE_S, SLOW, Training, check_exactly_once, num_episodes  # noqa: E402

HEAD, NODE = "10.213.7.1", "10.213.7.2"
RAY_WAITS_S = 50.0
"""Less than Ray's own minute (`RAY_gcs_rpc_server_reconnect_timeout_s`), which the cluster here does not keep to."""
NAMESPACE, HERE, THERE = "distrl-cut", "distrl-cut0", "distrl-cut1"


def ip(*words: str, check: bool = True) -> bool:
    try:
        return subprocess.run(["ip", *words], check=check, capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.fixture
def cable() -> Iterator[None]:
    """A network of its own for one node, and the cable to it."""
    with ExitStack() as undo:
        if not ip("netns", "add", NAMESPACE, check=False):
            pytest.skip("only root may make networks, and ip has to be installed")
        undo.callback(ip, "netns", "del", NAMESPACE, check=False)
        if not ip("link", "add", HERE, "type", "veth", "peer", "name", THERE, "netns", NAMESPACE, check=False):
            pytest.skip("this machine has no veth")
        undo.callback(ip, "link", "del", HERE, check=False)
        ip("addr", "add", f"{HEAD}/30", "dev", HERE)
        ip("link", "set", HERE, "up")
        for words in (
            ("addr", "add", f"{NODE}/30", "dev", THERE),
            ("link", "set", THERE, "up"),
            ("link", "set", "lo", "up"),
        ):
            ip("-n", NAMESPACE, *words)
        yield


@pytest.fixture
def cluster(cable: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The run folder's node, and beyond the cable one with three phones. On a busy machine a cut takes longer than Ray waits for a node."""
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "600")
    monkeypatch.setenv("RAY_health_check_failure_threshold", "100")
    with a_cluster({"num_cpus": 2, "node_ip_address": HEAD}) as made:
        start = [
            str(Path(sys.executable).with_name("ray")), "start", f"--address={made.address}", f"--node-ip-address={NODE}", "--num-cpus=1",
            '--resources={"phone": 3}', f"--object-store-memory={STORE_BYTES}", "--block",
        ]  # fmt: skip
        started = subprocess.Popen(["ip", "netns", "exec", NAMESPACE, *start], stdout=subprocess.DEVNULL)
        try:
            until_s = time.monotonic() + PATIENCE_S
            while sum(node["Alive"] for node in ray.nodes()) < 2:
                assert started.poll() is None
                assert time.monotonic() < until_s
                time.sleep(0.1)
            yield made
        finally:
            started.terminate()
            started.wait()


def spooled(run: RunFolder) -> set[Path]:
    """Episodes that wait on the node's own disk, which is this machine's."""
    record = msgspec.json.decode(run.spools.read_bytes(), type=SpoolRecord)
    place = Path(tempfile.gettempdir()).resolve()
    return {path for folder in record.folders for path in (place / Path(folder).name).glob("worker-0*/*.ep")}


@pytest.mark.long
def test_a_worker_beyond_a_cut_network_plays_on_and_hands_over_what_it_has_when_it_is_back(
    cluster: Any, tmp_path: Path
) -> None:
    settings = {key.replace(".", "__"): value for key, value in SLOW.items()}
    training = Training.begin(
        tmp_path, **settings, run__episodes=ENDLESS, rollout__workers=1, runtime__kind="ray", runtime__address=cluster.address,
        runtime__device_resource="phone", runtime__silent_after_s=600,
    )  # fmt: skip
    run = training.run
    try:
        training.until(lambda: num_episodes(run) > 10)
        cut_s = time.time()
        ip("link", "set", HERE, "down")
        training.until(lambda: note_of(run, "worker-0").startswith("silent for "))
        training.until(lambda: len(spooled(run)) > 3)
        first_s = min(path.stat().st_mtime for path in spooled(run)) - cut_s
        stored = num_episodes(run)
        ip("link", "set", HERE, "up")
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

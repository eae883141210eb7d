"""The head of a Ray cluster is killed under a run: the run ends with the cause and goes on elsewhere, or outlives it where the head keeps what it knows."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("ray", reason="needs the extra [ray]")

from distrl.bench.system.processes import tree
from distrl.bench.system.ray_networks import HEAD, networks
from distrl.runtime.ray.head_watch import RECONNECT
from distrl.runtime.run_folder import RunFolder, held
from distrl.runtime.summary import read_status
from distrl.telemetry.events import events_of
from support.clusters import STORE_BYTES, a_cluster
from support.runs import (
    ENDLESS,
    PATIENCE_S,
    SLOW,
    Training,
    check_exactly_once,
    heartbeat,
    num_episodes,
    restarted,
    wait_until,
)

pytestmark = pytest.mark.long
NODES: tuple[dict[str, Any], ...] = ({"num_cpus": 0}, {"num_cpus": 2, "resources": {"phone": 6}})
RAY = str(Path(sys.executable).with_name("ray"))
AWAY, PORT = "10.213.7.2", 6379
"""Where the head is that has a network of its own."""
ROLES = ("learner", "worker-0", "worker-1", "evaluator")


@contextmanager
def trained(training: Training) -> Iterator[Training]:
    try:
        yield training
    finally:
        training.stop()


def begin(cluster: Any, root: Path) -> Training:
    return begin_at(cluster.address, root)


def begin_at(address: str, root: Path) -> Training:
    own = {"runtime__kind": "ray", "runtime__address": address, "runtime__device_resource": "phone"}
    own |= {"runtime__worker_cpus": "0.5", "runtime__silent_after_s": "15"}
    slow = {key.replace(".", "__"): value for key, value in SLOW.items()}
    return Training.begin(root, run__episodes=ENDLESS, rollout__workers=2, **own, **slow)


def note_of(run: RunFolder, role: str) -> str:
    """What `distrl status` says of a role."""
    return {found.role: found.note for found in read_status(run, now_s=time.time()).roles}.get(role, "")


def process_of(cluster: Any, kind: str) -> int:
    return int(cluster.head_node.all_processes[kind][0].process.pid)


@pytest.mark.parametrize(
    ("killed", "number", "said"),
    [
        (("gcs_server",), signal.SIGKILL, "the head of the Ray cluster (its GCS at "),
        (("gcs_server",), signal.SIGSTOP, "the head of the Ray cluster (its GCS at "),
        (("raylet",), signal.SIGKILL, "this machine is no node of the Ray cluster any more"),
        (("raylet", "gcs_server"), signal.SIGKILL, "the head of the Ray cluster (its GCS at "),
    ],
    ids=["gcs", "gcs-stopped", "raylet", "both"],
)
def test_without_its_head_a_run_ends_with_the_cause_and_goes_on_on_another_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: tuple[str, ...], number: int, said: str
) -> None:
    monkeypatch.setenv(RECONNECT, "24")  # of a minute
    with a_cluster(*NODES, join=False) as cluster, trained(begin(cluster, tmp_path)) as training:
        training.until(lambda: num_episodes(training.run) > 10)
        for kind in killed:
            os.kill(process_of(cluster, kind), number)
        _, errors = training.process.communicate(timeout=PATIENCE_S)
        assert training.process.returncode == 4, errors
        assert said in errors
        assert "distrl train --resume" in errors.splitlines()[-1]
        assert "Traceback" not in errors
    run = training.run
    wait_until(lambda: not any(held(run.lock(role)) for role in ROLES))
    monkeypatch.delenv(RECONNECT)
    seen = num_episodes(run)
    with a_cluster(*NODES, join=False) as cluster, trained(resume(run, cluster)) as training:
        training.until(lambda: num_episodes(run) > seen + 10)
        check_good_end(training, logs_whole=False)


def resume(run: RunFolder, cluster: Any) -> Training:
    return Training.resume(run, runtime__address=cluster.address)


def check_good_end(training: Training, *, logs_whole: bool = True) -> None:
    training.process.send_signal(signal.SIGINT)
    summary = training.finish()
    assert (summary["lost_episodes"], summary["duplicate_episodes"]) == (0, 0)
    assert summary["episodes"] == check_exactly_once(training.run, logs_whole=logs_whole)


@contextmanager
def rocksdb(folder: Path) -> Iterator[dict[str, str]]:
    yield {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(folder)}


@contextmanager
def redis(folder: Path) -> Iterator[dict[str, str]]:
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("needs redis-server (Debian and Ubuntu: apt install redis-server)")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: listens(port))
            yield {"RAY_REDIS_ADDRESS": f"127.0.0.1:{port}"}
        finally:
            process.terminate()


def listens(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("kept", [rocksdb, redis])
def test_a_run_outlives_a_head_that_keeps_what_it_knows_and_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: Any
) -> None:
    (tmp_path / "gcs").mkdir()
    with kept(tmp_path / "gcs") as settings:
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        with a_cluster(*NODES, join=False) as cluster, trained(begin(cluster, tmp_path / "runs")) as training:
            run = training.run
            training.until(lambda: num_episodes(run) > 10)
            cluster.head_node.kill_gcs_server()
            training.until(lambda: bool(events_of(run.log("supervisor"), "head_away", "address")))
            seen, worker = num_episodes(run), heartbeat(run, "worker-0").pid
            training.until(lambda: num_episodes(run) > seen + 10)  # without it
            os.kill(worker, signal.SIGKILL)
            training.until(lambda: note_of(run, "worker-0").startswith("silent for "))
            cluster.head_node.start_gcs_server()
            training.until(lambda: restarted(run, "worker-0", worker))
            assert events_of(run.log("supervisor"), "head", "address")
            seen = num_episodes(run)
            training.until(lambda: num_episodes(run) > seen + 10)
            check_good_end(training)


@pytest.fixture
def wired(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path for Ray's files, with a network beside this machine's; of this test's own cluster everybody has the token."""
    for name, value in {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid4().hex, "RAY_gcs_storage": "rocksdb"}.items():
        monkeypatch.setenv(name, value)
    with tempfile.TemporaryDirectory(prefix="head-", ignore_cleanup_errors=True) as folder, networks(1) as made:
        if not made:
            pytest.skip("needs root, and networks that can be made (`ip netns`)")
        yield Path(folder)


@contextmanager
def started(command: Sequence[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Ray on one more machine, ended with all that it has started."""
    surroundings = {**os.environ, **environment}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=surroundings
    ) as process:
        try:
            assert process.stdout is not None
            assert any("Ray runtime started" in line for line in process.stdout), "it ended"
            yield process
        finally:
            kill_all(process)


def kill_all(process: subprocess.Popen[str]) -> None:
    for pid in reversed(tree(process.pid)) if process.poll() is None else ():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def test_a_run_outlives_the_loss_of_the_machine_of_its_head(tmp_path: Path, wired: Path) -> None:
    small = f"--object-store-memory={STORE_BYTES}"
    # As on a machine of its own: it sees no processes but its own, and its temporary files are gone with it.
    head = ["ip", "netns", "exec", "distrl-net0", "unshare", "-m", "-p", "-f", "--mount-proc", "sh", "-c",
            f'mount -t tmpfs tmp {wired} && exec "$@"', "sh", RAY, "start", "--head", f"--node-ip-address={AWAY}", f"--port={PORT}",
            "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={wired}", small, "--block"]  # fmt: skip
    node = [RAY, "start", f"--address={AWAY}:{PORT}", f"--node-ip-address={HEAD}", "--num-cpus=3", '--resources={"phone": 6}', small, "--block"]  # fmt: skip
    kept = {"RAY_gcs_storage_path": str(tmp_path)}
    with (
        started(head, **kept) as first,
        started(node),
        trained(begin_at(f"{AWAY}:{PORT}", tmp_path / "runs")) as training,
    ):
        run = training.run
        training.until(lambda: num_episodes(run) > 10)
        kill_all(first)
        training.until(lambda: bool(events_of(run.log("supervisor"), "head_away", "address")))
        with started(head, **kept):
            training.until(lambda: bool(events_of(run.log("supervisor"), "head", "address")))
            worker = heartbeat(run, "worker-0").pid
            os.kill(worker, signal.SIGKILL)
            training.until(lambda: restarted(run, "worker-0", worker))
            seen = num_episodes(run)
            training.until(lambda: num_episodes(run) > seen + 10)
            check_good_end(training)

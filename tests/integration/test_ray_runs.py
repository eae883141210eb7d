"""Training on a real Ray of several nodes: what is killed comes back, nodes come and go, and nothing finished is lost."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

ray = pytest.importorskip("ray", reason="needs the extra [ray]")

import distrl  # noqa: E402
from distrl.experience.store import ExperienceStore  # noqa: E402
from distrl.runtime.factory import make_policy  # noqa: E402
from distrl.runtime.run_folder import RunFolder, held  # noqa: E402
from distrl.runtime.summary import read_status  # noqa: E402
from distrl.telemetry.events import events_of  # noqa: E402
from distrl.transport.files import FileHeartbeats  # noqa: E402
from support.androids import phones_behind_adb  # noqa: E402
from support.clusters import STORE_BYTES, a_cluster, add_node  # noqa: E402
from support.runs import (  # noqa: E402
    ENDLESS,
    SLOW,
    TINY,
    Training,
    check_exactly_once,
    flags,
    heartbeat,
    num_episodes,
    restarted,
    wait_until,
)

RAY = str(Path(sys.executable).with_name("ray"))
BOUND_S = 30.0
"""Within which a wrong cluster is refused, from the issue; loading libraries on a busy machine comes on top."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """The run folder's node, which has no CPU to spare; one for the learner and for actors that decide; and one with six phones."""
    learner = {"num_cpus": 1, "resources": {"decides": 2}}
    with a_cluster({"num_cpus": 0}, learner, {"num_cpus": 2, "resources": {"phone": 6}}) as made:
        yield made


@pytest.fixture
def begun() -> Iterator[list[Training]]:
    trainings: list[Training] = []
    yield trainings
    for training in trainings:
        if training.process.poll() is None:
            training.process.kill()
        training.process.communicate()


def on_ray(cluster: Any, **changes: Any) -> dict[str, Any]:
    own = {"runtime__kind": "ray", "runtime__address": cluster.address, "runtime__device_resource": "phone"}
    return {**{key.replace(".", "__"): value for key, value in SLOW.items()}, **own, **changes}


def kill_role(run: RunFolder, role: str, number: int = signal.SIGKILL) -> int:
    pid = heartbeat(run, role).pid
    os.kill(pid, number)
    return pid


def places(run: RunFolder, role: str) -> int:
    """How often a role has begun on another node than the run folder's."""
    return sum(event["role"] == role for event in events_of(run.log("supervisor"), "started", "role", "host"))


def playing(run: RunFolder) -> int:
    """Workers that live."""
    return sum(held(run.lock(f"worker-{number}")) for number in range(3))


def begins(run: RunFolder) -> int:
    """How often any worker has begun."""
    return sum(places(run, f"worker-{number}") for number in range(3))


@pytest.mark.long
def test_roles_and_a_node_are_killed_and_nodes_join_and_nothing_is_lost(
    cluster: Any, tmp_path: Path, begun: list[Training]
) -> None:
    training = Training.begin(
        tmp_path, **on_ray(cluster, run__episodes=ENDLESS, rollout__workers=3, runtime__min_workers=2)
    )
    begun.append(training)
    run = training.run
    training.until(lambda: num_episodes(run) > 10 and all(held(run.lock(role)) for role in ("learner", "evaluator")))
    assert places(run, "learner"), "on another node"
    assert not places(run, "evaluator"), "it uses the run folder itself"
    training.until(lambda: playing(run) == 2)
    assert sum(bool(places(run, f"worker-{number}")) for number in range(3)) == 2, "for the third there are no phones"
    learner = kill_role(run, "learner")
    training.until(lambda: restarted(run, "learner", learner))
    begun_workers = begins(run)
    kill_role(run, next(name for name in ("worker-0", "worker-1") if places(run, name)))
    training.until(lambda: begins(run) > begun_workers)  # it, or the one that had no place so far
    joined = add_node(cluster, num_cpus=1, resources={"phone": 3})
    training.until(lambda: all(places(run, f"worker-{number}") for number in range(3)) and playing(run) == 3)
    cluster.remove_node(joined, allow_graceful=False)  # its raylet is killed, and with it the worker
    training.until(lambda: len(events_of(run.log("supervisor"), "died")) >= 3)
    seen = num_episodes(run)
    training.until(lambda: num_episodes(run) > seen + 10)
    training.process.send_signal(signal.SIGINT)
    summary = training.finish()
    assert (summary["lost_episodes"], summary["duplicate_episodes"]) == (0, 0)
    assert summary["restarts"] >= 3
    assert summary["episodes"] == check_exactly_once(run)
    assert not any(held(run.lock(role)) for role in ("learner", "worker-0", "worker-1", "worker-2", "evaluator"))


@pytest.mark.long
def test_actors_decide_for_workers_elsewhere_and_one_is_killed_in_the_middle(
    cluster: Any, tmp_path: Path, begun: list[Training]
) -> None:
    own: dict[str, Any] = {
        "rollout__decide": "actors",
        "inference__actors": 2,
        "inference__cpus": 0,
        "inference__resource": "decides",
    }
    own["evaluation__every_s"] = 1  # by these actors too, again and again
    # Two kinds of worker, and for the second there is no node: the run does without.
    own["rollout__groups"] = '["2 devices.per_worker=3", "1 runtime.device_resource=emulator"]'
    own["runtime__min_workers"] = 2
    training = Training.begin(tmp_path, **on_ray(cluster, run__episodes=ENDLESS, learner__keep_versions=10_000, **own))
    begun.append(training)
    run = training.run
    training.until(lambda: num_episodes(run) > 10)
    training.until(lambda: all(num_decided(run, number) > 0 for number in range(2)))  # both are asked
    killed = kill_role(run, "inference-0")
    seen = num_episodes(run)
    training.until(lambda: num_episodes(run) > seen + 10)
    training.until(lambda: heartbeat(run, "inference-0").pid != killed)
    training.until(lambda: num_decided(run, 0) > 0)
    training.until(lambda: num_pinned(run) > 0)
    stopped = kill_role(run, "worker-0", signal.SIGSTOP)
    training.until(lambda: note_of(run, "worker-0").startswith("silent for "))
    os.kill(stopped, signal.SIGCONT)
    training.process.send_signal(signal.SIGINT)
    summary = training.finish()
    assert (summary["lost_episodes"], summary["duplicate_episodes"]) == (0, 0)
    assert summary["episodes"] == check_exactly_once(run)
    assert all("decisions_repeated" in heartbeat(run, f"worker-{number}").figures for number in range(2))
    unplaced = events_of(run.log("supervisor"), "unplaced", "role")
    assert [event["role"] for event in unplaced] == ["worker-2"], "at the end nobody waits for it"
    check_scores(run)


@pytest.mark.long
def test_two_kinds_of_device_on_two_nodes_feed_one_learner_each_episode_once(
    cluster: Any, tmp_path: Path, begun: list[Training]
) -> None:
    with phones_behind_adb(2) as (adb, serials):
        node = add_node(cluster, num_cpus=1, resources={"emulator": 2})
        try:
            android = {"kind": "android", "per_worker": 2, "android.port": adb.port, "android.call_s": 60}
            android |= {"android.quiet_s": 0, "android.wait_s": 0.1, "android.serials": json.dumps(serials)}
            words = [shlex.quote(f"devices.{key}={value}") for key, value in android.items()]
            groups = ["1 devices.per_worker=3", f"1 {' '.join(words)} runtime.device_resource=emulator"]
            own = {"rollout__groups": json.dumps(groups)}
            training = Training.begin(tmp_path, **on_ray(cluster, run__episodes=ENDLESS, **own))
            begun.append(training)
            run = training.run
            training.until(lambda: min(len(found) for found in by_kind(run, serials)) >= 6)
            assert places(run, "worker-1"), "on the node with the phones behind adb"
            training.process.send_signal(signal.SIGINT)
            summary = training.finish()
        finally:
            cluster.remove_node(node)
    simulated, behind_adb = by_kind(run, serials)
    assert {device.partition("/")[0] for device in simulated} == {"worker-0"}
    assert set(behind_adb) == set(serials)
    assert (summary["lost_episodes"], summary["duplicate_episodes"]) == (0, 0)
    assert summary["updates"] > 0
    assert summary["episodes"] == len(simulated) + len(behind_adb) == check_exactly_once(run)


def by_kind(run: RunFolder, serials: list[str]) -> tuple[list[str], list[str]]:
    """The devices of all episodes that were played: on simulated phones of the worker's process, and on those behind adb."""
    if not num_episodes(run):
        return [], []
    with ExperienceStore(run.experience) as store:
        played = [store.read(row.id).device for row in store.after(0, 10_000) if row.source == "played"]
    return [device for device in played if device not in serials], [device for device in played if device in serials]


def num_decided(run: RunFolder, number: int) -> float:
    """Decisions of an actor's present incarnation for workers."""
    found = FileHeartbeats(run.heartbeats).last(f"inference-{number}")
    return found.figures.get("decisions", 0) if found is not None else 0


def num_pinned(run: RunFolder) -> float:
    """Decisions that actors have made for the evaluator."""
    return sum(heartbeat(run, f"inference-{number}").figures.get("pinned", 0) for number in range(2))


def note_of(run: RunFolder, role: str) -> str:
    """What `distrl status` says of a role."""
    return {found.role: found.note for found in read_status(run, now_s=time.time()).roles}.get(role, "")


def check_scores(run: RunFolder) -> None:
    """Every step that was played has the log-probability and value that the version it names gives it here."""
    config = run.session_config()
    transport = run.transport(config)
    policy = make_policy(config)
    trajectories = [
        transport.episodes.read(row.id) for row in transport.episodes.after(0, 10_000) if row.source == "played"
    ]
    steps = [step for trajectory in trajectories for step in trajectory.steps]
    for version in {step.version for step in steps}:
        found = transport.weights.find(version)
        assert found is not None
        transport.weights.load(policy, found)
        acted = [step for step in steps if step.version == version]
        scores = policy.score(
            [policy.encode(step.observation) for step in acted], [step.decision.choice for step in acted]
        )
        recorded = torch.tensor([(step.decision.logp, step.decision.value) for step in acted])
        here = torch.stack((scores.logp_N, scores.value_logit_N.sigmoid()), dim=1).detach()
        assert torch.allclose(recorded, here, atol=1e-4)


def refusal(*arguments: object, **settings: Any) -> str:
    """What is said of a run that cannot begin: in time, in short, without a traceback, and leaving no folder."""
    words = {key.replace("__", "."): value for key, value in settings.items()}
    command = [sys.executable, "-m", "distrl", "train", *map(str, arguments), *flags({**TINY, **words})]
    started_s = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * BOUND_S, check=False)
    assert time.monotonic() - started_s < 3 * BOUND_S
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 15
    return done.stderr


def test_no_cluster_at_the_address_is_said_at_once(tmp_path: Path) -> None:
    root, own = tmp_path / "runs", {"runtime__kind": "ray", "run__root": tmp_path / "runs"}
    for address in ("127.0.0.1:1", "nowhere.invalid:6379"):
        said = refusal(**own, runtime__address=address)
        assert f"no Ray cluster at runtime.address = {address}" in said
        assert "ray get-auth-token --generate" in said  # before `ray start --head`, which without it lets everybody in
    assert "is no address" in refusal(**own, runtime__address="gpu-machine")
    assert "ray job submit" in refusal(**own, runtime__address="ray://127.0.0.1:10001")
    assert not root.exists()


def test_what_is_missing_on_the_cluster_is_said_with_how_much(cluster: Any, tmp_path: Path) -> None:
    said = refusal(**on_ray(cluster, run__root=tmp_path / "runs", rollout__workers=4))
    assert "no place for 2 of the run's roles (worker-2, worker-3): each needs 1 CPU, 3 phone on one node" in said
    assert "6 phone" in said
    assert not (tmp_path / "runs").exists()


def test_sigterm_while_a_run_waits_for_a_place_ends_it_without_the_stack_of_ray(cluster: Any, tmp_path: Path) -> None:
    settings = on_ray(cluster, run__root=tmp_path / "runs", rollout__workers=4)
    words = flags({**TINY, **{key.replace("__", "."): value for key, value in settings.items()}})
    command = [sys.executable, "-m", "distrl", "train", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = [process.stderr.readline(), process.stderr.readline()]
        process.terminate()
        rest = process.stderr.read()
    assert said[0] == f"distrl: looking for a place on the cluster at {cluster.address}\n"
    assert said[1] == "distrl: waiting up to 20 s for a place for worker-2, worker-3\n"
    assert (process.returncode, rest) == (-signal.SIGTERM, "")
    assert not (tmp_path / "runs").exists()


def test_other_versions_of_ray_on_the_cluster_are_refused_by_name(cluster: Any, tmp_path: Path) -> None:
    from ray._private.ray_constants import KV_NAMESPACE_CLUSTER
    from ray._private.worker import global_worker

    store, key = global_worker.gcs_client, b"CLUSTER_METADATA"
    before = store.internal_kv_get(key, namespace=KV_NAMESPACE_CLUSTER)
    other = {**json.loads(before), "ray_version": "1.2.3"}
    store.internal_kv_put(key, json.dumps(other).encode(), overwrite=True, namespace=KV_NAMESPACE_CLUSTER)
    try:
        said = refusal(**on_ray(cluster, run__root=tmp_path / "runs"))
    finally:
        store.internal_kv_put(key, before, overwrite=True, namespace=KV_NAMESPACE_CLUSTER)
    assert "has other versions" in said
    assert "1.2.3" in said
    assert f"install ray=={ray.__version__}" in said
    assert not (tmp_path / "runs").exists()


BROKEN = """
from distrl.config.schema import PointerConfig
from distrl.policies.pointer.policy import PointerPolicy

class Broken(PointerPolicy):
    def __init__(self, settings, context):
        super().__init__(PointerConfig(width=16, layers=1), context)

    def decide(self, observations, *, temperature, generator):
        raise ZeroDivisionError("a bug in the policy")
"""


def test_a_role_that_keeps_crashing_ends_the_run_with_exit_code_4_and_its_first_traceback_last(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ['PYTHONPATH']}")
    own = on_ray(cluster, run__root=tmp_path, rollout__workers=1, policy__kind="broken:Broken", runtime__max_restarts=1)
    settings = {**TINY, **{key.replace("__", "."): value for key, value in own.items()}}
    given = {key: value for key, value in settings.items() if not key.startswith("policy.pointer")}
    command = [sys.executable, "-m", "distrl", "train", "--no-view", *flags(given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10 * BOUND_S, check=False)
    assert done.returncode == 4, done.stderr
    assert done.stderr.rstrip().splitlines()[-1] == "ZeroDivisionError: a bug in the policy"
    assert "died 2 times in a row" in done.stderr
    assert "Traceback (most recent call last):" in done.stderr


SMALL = ("--num-cpus=1", f"--object-store-memory={STORE_BYTES}", "--block")


@pytest.fixture
def secured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a cluster whose head was started as in docs/cluster.md, by whoever is at home here: it asks for a token."""
    port, home = free_port(), tmp_path / "home"
    home.mkdir()
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    monkeypatch.setenv("HOME", str(home))
    subprocess.run([RAY, "get-auth-token", "--generate"], check=True, capture_output=True)
    head = [RAY, "start", "--head", f"--port={port}", "--include-dashboard=false", *SMALL]
    started = subprocess.Popen(head, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers(port))
        yield f"127.0.0.1:{port}"
    finally:
        started.terminate()
        started.wait()


def test_without_the_token_of_the_cluster_a_run_is_refused(
    secured: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    said = refusal(runtime__kind="ray", runtime__address=secured, run__root=tmp_path / "runs")
    assert "does not let this machine in" in said
    assert "copy ~/.ray/auth_token" in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.long
def test_a_second_machine_joins_as_in_the_docs_and_a_run_finds_it(secured: str, tmp_path: Path) -> None:
    second = [RAY, "start", f"--address={secured}", '--resources={"phone": 8}', *SMALL]
    with subprocess.Popen(
        second,
        env={**os.environ, "RAY_AUTH_MODE": "token"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as joined:
        assert joined.stdout is not None
        try:
            assert any("Ray runtime started" in line for line in joined.stdout), "it ended"
            own = {"runtime__device_resource": "phone", "devices__per_worker": 9}
            said = refusal(runtime__kind="ray", runtime__address=secured, run__root=tmp_path / "runs", **own)
            assert "8 phone" in said
        finally:
            joined.terminate()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


def change(package: Path) -> None:
    """Another version: what an actor is told to do has a field more, so that neither understands the other."""
    actor = package / "runtime" / "ray" / "role_actor.py"
    line = "    name: str\n"
    text = actor.read_text()
    assert line in text
    actor.write_text(text.replace(line, f"{line}    of_another_day: str\n", 1))


def take_ray_out(package: Path) -> None:
    """An old version: one that knows nothing of Ray."""
    shutil.rmtree(package / "runtime" / "ray")


@pytest.mark.parametrize(
    ("other", "said_of_it"),
    [
        (change, "has distrl 0.1.0+"),
        pytest.param(take_ray_out, "No module named 'distrl.runtime.ray'", marks=pytest.mark.long),
    ],
    ids=["changed", "old"],
)
def test_a_worker_with_other_code_is_refused(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: Callable[[Path], None], said_of_it: str
) -> None:
    source = Path(distrl.__file__).parent
    shutil.copytree(source, tmp_path / "other" / "distrl", ignore=shutil.ignore_patterns("__pycache__"))
    other(tmp_path / "other" / "distrl")
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{tmp_path / 'other'}:{os.environ['PYTHONPATH']}")
        node = add_node(cluster, num_cpus=1, resources={"old_phone": 3})
    try:
        own = {"run__root": tmp_path, "rollout__workers": 1, "runtime__device_resource": "old_phone"}
        said = refusal(**{**on_ray(cluster), **own})
        assert "worker-0" in said
        assert said_of_it in said
        assert "the same code of distrl on all machines" in said
    finally:
        cluster.remove_node(node)

"""Runs on Ray, as far as they need no cluster: who finds a place, spools of a node, and what a role's actor is sent."""

from __future__ import annotations

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("ray", reason="needs the extra [ray]")

from distrl.config.load import load_config
from distrl.errors import ConfigError, StoreError
from distrl.runtime.base import role_names
from distrl.runtime.ray.cluster import Needs, Node, code_version, needs_of, refuse, without_place
from distrl.runtime.ray.node_spools import NodeSpools
from distrl.runtime.ray.role_actor import Order
from distrl.transport.ray.verified import VERIFIED, VerifiedWeights
from distrl.types import PolicyVersion, Value


def a_node(**free: float) -> Node:
    return Node(id="n", host="lab", free=free)


def missing(needs: list[Needs], *nodes: Node) -> list[str]:
    return [need.role for need in without_place(needs, list(nodes))]


def needs(**changes: object) -> list[Needs]:
    config = load_config(None, {key.replace("__", "."): value for key, value in changes.items()})  # type: ignore[misc]
    return needs_of(config, role_names(config), gpus=0.0)


def test_workers_go_where_the_phones_are_and_the_learner_takes_no_place_from_them() -> None:
    wanted = needs(rollout__workers=2, devices__per_worker=4, runtime__device_resource="phone")
    assert missing(wanted, a_node(CPU=2.0, phone=8.0), a_node(CPU=1.0)) == []
    assert missing(wanted, a_node(CPU=2.0, phone=8.0)) == ["learner"]
    assert missing(wanted, a_node(CPU=8.0, phone=7.0)) == ["worker-1"]
    assert missing(wanted, a_node(CPU=8.0)) == ["worker-0", "worker-1"]


def test_groups_of_workers_ask_for_what_each_of_them_needs() -> None:
    groups = (
        "1 devices.per_worker=4 runtime.device_resource=phone",
        "2 devices.per_worker=2 runtime.device_resource=emulator runtime.worker_cpus=3",
    )
    wanted = needs(rollout__groups=groups)
    found = {need.role: need.resources for need in wanted if need.role.startswith("worker")}
    assert found == {
        "worker-0": {"CPU": 1.0, "phone": 4.0},
        "worker-1": {"CPU": 3.0, "emulator": 2.0},
        "worker-2": {"CPU": 3.0, "emulator": 2.0},
    }
    assert missing(wanted, a_node(CPU=2.0, phone=4.0), a_node(CPU=7.0, emulator=4.0)) == []
    assert missing(wanted, a_node(CPU=9.0, phone=4.0), a_node(CPU=5.0, emulator=4.0)) == ["worker-2"]


def test_parts_of_cpus_add_up() -> None:
    wanted = needs(rollout__workers=10, runtime__worker_cpus=0.1)
    assert missing(wanted, a_node(CPU=2.0)) == []
    assert missing(wanted, a_node(CPU=1.9)) != []


def test_a_learner_that_computes_on_a_gpu_asks_for_one() -> None:
    config = load_config(None, {"policy.kind": "pixel", "rollout.keep_screenshots": True, "learner.device": "cuda"})
    (learner, *_) = needs_of(config, role_names(config), gpus=0.0)
    assert learner.resources == {"CPU": 1.0, "GPU": 1.0}


def test_a_learner_and_an_inference_actor_share_the_only_gpu() -> None:
    own: dict[str, Value] = {
        "policy.kind": "pixel", "rollout.keep_screenshots": True, "learner.device": "cuda", "runtime.kind": "ray", "rollout.decide": "actors",
        "inference.gpus": 0.5,
    }  # fmt: skip
    node = [a_node(CPU=9.0, GPU=1.0)]
    whole, shared = (load_config(None, {**own, "runtime.learner_gpu_share": share}) for share in (1.0, 0.5))
    roles = ("learner", "inference-0")
    assert len(without_place(needs_of(whole, roles, gpus=1.0), node)) == 1
    assert without_place(needs_of(shared, roles, gpus=1.0), node) == []
    with pytest.raises(ConfigError, match=r"learner.gpus = 2 and runtime.learner_gpu_share = 0.5"):
        load_config(None, {**own, "runtime.learner_gpu_share": 0.5, "learner.gpus": 2})


def test_the_refusal_says_which_roles_what_they_need_and_what_is_free() -> None:
    config = load_config(None, {"runtime.device_resource": "phone", "devices.per_worker": 4})
    nodes = [a_node(CPU=2.0, phone=3.0, memory=1e9)]
    said = str(refuse(without_place(needs_of(config, ("worker-0",), gpus=0.0), nodes), nodes, config.runtime))
    assert "no place for 1 of the run's roles (worker-0): each needs 1 CPU, 4 phone on one node" in said
    assert "lab: 2 CPU, 3 phone free" in said
    assert "memory" not in said


def test_the_settings_of_a_run_arrive_as_they_were_sent() -> None:
    config = load_config(
        None, {"policy.kind": "pixel", "rollout.keep_screenshots": True, "telemetry.sinks": "tensorboard"}
    )
    order = Order(
        name="worker-0", incarnation=3, config=config, run="/runs/r", node="n", spools=("a", "b"), imports=(),
    )  # fmt: skip
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(order), type=Order) == order


def test_the_fingerprint_of_the_code_is_the_same_in_every_process() -> None:
    code = "from distrl.runtime.ray.cluster import code_version; print(code_version())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == code_version()


def test_a_spool_belongs_to_one_living_process_and_is_left_to_others_after_it(tmp_path: Path) -> None:
    one, other = NodeSpools(("s1",), tmp_path), NodeSpools(("s1",), tmp_path)
    spool = one.claim("worker-0")
    (spool / "0.ep").write_bytes(b"an episode")
    assert list(other.left()) == []
    second = other.claim("worker-0", wait_s=0.0)
    assert second != spool, "whoever holds up the first one, which may take hours, ends no run"
    assert second.parent == spool.parent
    one.close()
    assert list(other.left()) == [spool], "what waits there stays"
    other.close()
    assert not second.exists()
    assert other.claim("worker-0") == spool
    assert list(other.left()) == [], "its own is not left by anyone"


def test_a_spool_that_somebody_stopped_handing_over_is_free_again(tmp_path: Path) -> None:
    earlier = NodeSpools(("s1",), tmp_path)
    (earlier.claim("worker-0") / "0.ep").write_bytes(b"an episode")
    earlier.close()
    one, other = NodeSpools(("s1",), tmp_path), NodeSpools(("s1",), tmp_path)
    handing_over = one.left()
    assert next(handing_over).name == "worker-0"
    assert list(other.left()) == []
    handing_over.close()  # type: ignore[attr-defined]
    assert [path.name for path in other.left()] == ["worker-0"]


def test_spools_of_earlier_sessions_are_found_and_empty_ones_go(tmp_path: Path) -> None:
    earlier = NodeSpools(("s1",), tmp_path)
    (earlier.claim("worker-7") / "0.ep").write_bytes(b"an episode")
    earlier.claim("worker-8")
    earlier.close()
    now = NodeSpools(("s1", "s2"), tmp_path)
    now.claim("worker-0")
    assert [path.name for path in now.left()] == ["worker-7"]
    now.close()
    assert not (tmp_path / "s2").exists()


def test_the_last_role_of_a_node_leaves_nothing_behind(tmp_path: Path) -> None:
    one, other = NodeSpools(("s1",), tmp_path), NodeSpools(("s1",), tmp_path)
    one.claim("worker-0"), other.claim("worker-1")
    verified = VerifiedWeights(one.folder / VERIFIED)
    published = PolicyVersion(
        version=1, file="1", sha256=sha256(b"w").hexdigest(), size_bytes=1, updates=1, episodes=1, published_s=1.0
    )
    verified.check("place", memoryview(b"w"), published)
    one.close()
    assert (one.folder / VERIFIED).exists(), "the other one goes on"
    other.close()
    assert list(tmp_path.iterdir()) == []
    verified.check("place", memoryview(b"w"), published)  # of a thread that is late
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("made", ["s1", "worker-0"])
def test_a_role_that_comes_while_another_tidies_up_gets_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str
) -> None:
    spools, mkdir, tidied = NodeSpools(("s1",), tmp_path), Path.mkdir, list[Path]()

    def late(path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        if made == "s1":
            mkdir(path, mode, parents, exist_ok)
        if path.name == made and not tidied:
            tidied.append(path)
            spools.folder.rmdir()  # by whoever leaves in this moment
        if made != "s1":
            mkdir(path, mode, parents, exist_ok)

    monkeypatch.setattr(Path, "mkdir", late)
    assert spools.claim("worker-0").is_dir()
    assert tidied


def test_a_folder_that_someone_else_can_enter_is_neither_used_nor_looked_into(tmp_path: Path) -> None:
    (tmp_path / "s1" / "worker-0").mkdir(parents=True)
    (tmp_path / "s1").chmod(0o777)
    spools = NodeSpools(("s1",), tmp_path)
    assert list(spools.left()) == []
    with pytest.raises(StoreError, match="belongs to someone else"):
        spools.claim("worker-0")


def test_the_refusal_says_what_there_is_of_what_is_missing_and_how_much_would_do() -> None:
    config = load_config(None, {"runtime.device_resource": "phone", "devices.per_worker": 72})
    nodes = [Node(id="0", host="here", free={"CPU": 4.0})]
    said = str(refuse(without_place(needs_of(config, ("worker-0",), gpus=0.0), nodes), nodes, config.runtime))
    assert "there are 1: here: 4 CPU, 0 phone free" in said
    assert """--resources '{"phone": 72}'""" in said

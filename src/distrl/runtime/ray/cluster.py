"""The Ray cluster that a run uses: found and joined, or refused with the reason, and what there is on its nodes.

Ray's own authentication stays as it is. A cluster asks for a token where there was one (`~/.ray/auth_token`) when its head was started;
whoever has none is refused here.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from math import ceil
from pathlib import Path
from threading import current_thread, main_thread

import msgspec
import ray
from ray.exceptions import AuthenticationError, RayError

import distrl
from distrl.config.load import config_of
from distrl.config.schema import Config, RuntimeConfig
from distrl.errors import ConfigError
from distrl.runtime.base import inference_names, worker_names
from distrl.threads import in_thread

PROBE_S = 5.0
"""How long a machine may take to answer at all."""
JOIN_S = 25.0
"""How long joining a cluster may take."""
GIB = 2**30
LOCAL_STORE_BYTES = GIB // 4
"""Of the object store of a cluster that a run starts for itself."""

log = logging.getLogger(__name__)
Resources = dict[str, float]


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What one role has to find on one node."""

    role: str
    resources: Resources

    def __str__(self) -> str:
        return describe(self.resources)


def describe(resources: Mapping[str, float]) -> str:
    """Resources in words."""
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items() if amount) or "nothing"


def needs_of(config: Config, roles: tuple[str, ...], *, gpus: float) -> list[Needs]:
    """What each role needs, the learner first; `gpus` are those that the cluster has."""
    return [Needs(role=role, resources=_resources(config, role, gpus)) for role in roles]


def _resources(config: Config, role: str, gpus: float) -> Resources:
    own_config = config_of(config, role)
    runtime = own_config.runtime
    if role == "learner":
        device = config.learner.device
        wants_gpu = device.startswith("cuda") or (device == "auto" and config.policy.kind != "pointer" and gpus >= 1)
        num = float(config.learner.gpus)
        return {"CPU": 1.0, "GPU": num * runtime.learner_gpu_share} if wants_gpu else {"CPU": num}
    if role == "evaluator":
        return {}  # it runs at a lower priority, beside whatever is there
    if role in inference_names(config):
        own = config.inference
        needs = {"CPU": own.cpus, "GPU": own.gpus, **({own.resource: 1.0} if own.resource else {})}
        return {name: amount for name, amount in needs.items() if amount}
    found = {"CPU": runtime.worker_cpus, "GPU": runtime.worker_gpus}
    if runtime.device_resource:
        found[runtime.device_resource] = float(own_config.devices.per_worker)
    return {name: amount for name, amount in found.items() if amount}


def connect(config: Config) -> None:
    """Join the cluster at `runtime.address`, or start one; nothing where this process has joined one. `ConfigError` with the fix."""
    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    runtime = config.runtime
    if runtime.address == "local":
        log.warning("starting Ray on this machine")
        _start(config)
        return
    address = _address(runtime)
    log.warning("looking for a place on the cluster at %s", address)

    def join() -> None:
        if address != "auto":
            _show_token(address)
        ray.init(address=address, namespace="distrl", log_to_driver=False, logging_level=logging.ERROR)

    try:
        with _same_sigterm():
            error = in_thread(join, name="join").exception(timeout=JOIN_S)
    except TimeoutError:
        raise _no_cluster(runtime.address, f"nothing there answered as a Ray cluster within {JOIN_S:g} s") from None
    if error is not None:
        raise _refusal(runtime.address, error) from error


@contextmanager
def _same_sigterm() -> Iterator[None]:
    """SIGTERM does afterwards what it did before: joined in a thread, Ray answers it with the stack of its own code."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None and current_thread() is main_thread():
            signal.signal(signal.SIGTERM, before)


def _show_token(address: str) -> None:
    """Have Ray use this machine's token where the cluster asks for one: by itself it does so only for a cluster that it finds here."""
    try:
        from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available
        from ray._raylet import GcsClient  # type: ignore[attr-defined]
    except ImportError:  # another version of Ray: `RAY_AUTH_MODE=token` does the same
        return
    try:
        GcsClient(address=address)
    except AuthenticationError:
        if not maybe_enable_token_auth_if_token_available(warn_if_disabled=False):
            raise
        GcsClient(address=address)
    except RayError:
        return  # joining says what it is


def _start(config: Config) -> None:
    """A cluster of this machine alone, as large as the run."""
    own: Resources = {}
    for need in needs_of(config, (*inference_names(config), *worker_names(config)), gpus=0.0):
        for name, amount in need.resources.items():
            own[name] = own.get(name, 0.0) + amount
    cpus = 2 + own.pop("CPU", 0.0)
    own.pop("GPU", None)  # as many as there are
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's own 15 leaves roles next to nothing beside other programs
    ray.init(
        address="local",
        num_cpus=max(os.cpu_count() or 1, ceil(cpus)),
        resources=own,
        include_dashboard=False,
        object_store_memory=LOCAL_STORE_BYTES,
        namespace="distrl",
        log_to_driver=False,
        logging_level=logging.ERROR,
    )


def _address(runtime: RuntimeConfig) -> str:
    address = runtime.address
    if address == "auto":
        return os.environ.get("RAY_ADDRESS", "auto")
    if address.startswith("ray://"):
        raise ConfigError(
            f"runtime.address = {address}: a run has its folder on a node of the cluster, and this machine is none",
            expected='"auto", "local" or HOST:PORT of the cluster that this machine belongs to',
            fix="run the command on a node: by ssh, `kubectl exec` or, where ray[default] is installed, `ray job submit -- distrl train …`",
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(
            f"runtime.address = {address[:100]!r} is no address",
            expected='"auto", "local" or HOST:PORT',
            fix="--runtime.address 192.0.2.7:6379, as `ray start --head` printed it",
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_S).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, str(error)) from error
    return address


def _no_cluster(address: str, why: str) -> ConfigError:
    return ConfigError(
        f"no Ray cluster at runtime.address = {address}: {why}",
        expected="a cluster that this machine belongs to",
        fix="`ray get-auth-token --generate` and `ray start --head --port 6379` here, then the same command again, once other machines have "
        "the token and have joined (docs/cluster.md); or --runtime.address local",
    )


def _refusal(address: str, error: BaseException) -> ConfigError:
    text = " ".join(str(error).split())
    if "ersion mismatch" in text:
        return ConfigError(
            f"the cluster at {address} has other versions: {text[:600]}",
            expected="the same versions of Ray and Python on all machines",
            fix=f"install ray=={ray.__version__} and this Python there, or the cluster's versions here",
        )
    if "uthenticat" in text or "token" in text:
        return ConfigError(
            f"the cluster at {address} does not let this machine in: {text[:400]}",
            expected="the token of the cluster",
            fix="copy ~/.ray/auth_token from its head node (readable by you alone), or set RAY_AUTH_TOKEN_PATH; leave RAY_AUTH_MODE at token",
        )
    return _no_cluster(address, text[:400] or type(error).__name__)


# --- what there is ----------------------------------------------------------------------------------------------------


PLACE_S = 20.0
"""How long a run waits for its cluster, joining it included, to have enough to spare: another one may just be ending."""
LOOK_S = 0.5


def check_cluster(config: Config) -> None:
    """Join the run's cluster; `ConfigError` where there is none, or where it has no place for the run's roles."""
    started_s = time.monotonic()
    connect(config)
    workers, few = worker_names(config), config.runtime.min_workers
    # Actors that decide join as nodes do, and one has to be there.
    deciding = inference_names(config)[: 1 if few else None]
    required, told = ("learner", *deciding, *(workers[:few] if few else workers)), False
    while True:
        nodes = living_nodes()
        missing = without_place(needs_of(config, required, gpus=num_gpus()), nodes)
        if not missing:
            return
        if time.monotonic() - started_s >= PLACE_S:
            raise refuse(missing, nodes, config.runtime)
        if not told:
            told = True
            log.warning("waiting up to %g s for a place for %s", PLACE_S, _names(missing))
        time.sleep(LOOK_S)


def num_gpus() -> float:
    """The GPUs of the cluster."""
    return float(ray.cluster_resources().get("GPU", 0.0))  # type: ignore[no-untyped-call]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A living node of the cluster."""

    id: str
    host: str
    free: Resources


def living_nodes() -> list[Node]:
    """The nodes of the cluster, and what nobody uses on each."""
    from ray._private.state import available_resources_per_node

    free = available_resources_per_node()  # type: ignore[no-untyped-call]
    return [
        Node(id=node["NodeID"], host=node["NodeManagerHostname"], free=dict(free.get(node["NodeID"], {})))
        for node in ray.nodes()  # type: ignore[no-untyped-call]
        if node["Alive"]
    ]


def without_place(needs: list[Needs], nodes: list[Node]) -> list[Needs]:
    """The roles for which no node has enough left once others are placed, those first that cannot run anywhere."""
    free = [dict(node.free) for node in nodes]
    missing = []
    for need in sorted(needs, key=lambda need: -len(need.resources)):
        fitting = [left for left in free if all(left.get(name, 0.0) >= n - 1e-9 for name, n in need.resources.items())]
        if not fitting:
            missing.append(need)
            continue
        # As spread out as it can be, which is how Ray places them.
        chosen = max(fitting, key=lambda left: (-len(left.keys() - need.resources.keys()), left.get("CPU", 0.0)))
        for name, amount in need.resources.items():
            chosen[name] -= amount
    return missing


def refuse(missing: list[Needs], nodes: list[Node], runtime: RuntimeConfig) -> ConfigError:
    """The error of a run for which the cluster is too small: which roles, what they need, and what is there."""
    wanted = "; ".join(dict.fromkeys(str(need) for need in missing))
    names = dict.fromkeys(("CPU", *(name for need in missing for name in need.resources)))
    there = "; ".join(
        f"{node.host}: {', '.join(f'{node.free.get(name, 0.0):g} {name}' for name in names)} free" for node in nodes[:8]
    )
    return ConfigError(
        f"the cluster has no place for {len(missing)} of the run's roles ({_names(missing)}): each needs {wanted} on one node",
        expected=f"nodes with that much to spare; there are {len(nodes)}: {there}",
        fix=f"add nodes{_declaring(missing, runtime)}, --rollout.workers for fewer workers, --runtime.worker_cpus 0.5 for smaller "
        "ones, or --runtime.min_workers 1 to begin with those that find a place",
    )


def _names(missing: list[Needs]) -> str:
    return ", ".join(need.role for need in missing[:8]) + (", …" if len(missing) > 8 else "")


def _declaring(missing: list[Needs], runtime: RuntimeConfig) -> str:
    name = runtime.device_resource
    most = max((need.resources.get(name, 0.0) for need in missing), default=0.0)
    return f" (ray start … --resources '{{\"{name}\": {most:g}}}' for each worker's devices)" if most else ""


# --- which code ---------------------------------------------------------------------------------------------------------


def code_version() -> str:
    """The version of distrl that this process runs, with a fingerprint of its source files."""
    root, digest = Path(distrl.__file__).parent, sha256()
    for path in sorted(root.rglob("*.py")):
        with suppress(OSError):  # removed in this moment
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{distrl.__version__}+{digest.hexdigest()[:12]}"

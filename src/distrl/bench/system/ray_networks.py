"""Ray nodes in networks of their own on this machine, joined by a bridge: the cable of each can be pulled, by the kernel.

What is cut is the network alone. The processes of the node go on, and neither they nor the rest of the cluster hear of each other until
the cable is back. Only root may make such networks (`ip netns`), on a system that has them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from distrl.bench.system.ray_nodes import CPUS, MANY, PHONE, STORE_BYTES
from distrl.errors import DistrlError

BRIDGE, HEAD = "distrl-br", "10.213.7.1"
START_S, END_S, POLL_S = 180.0, 30.0, 0.1


class NetworkNode:
    """A node with a cable."""

    def __init__(self, number: int, process: subprocess.Popen[bytes]) -> None:
        self.number, self.process = number, process

    def cut(self) -> None:
        """Pull the cable."""
        _ip("link", "set", _cable(self.number), "down")

    def end(self) -> None:
        """Stop the node."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=END_S)
        self.process.kill()

    def mend(self) -> None:
        """Put it back."""
        _ip("link", "set", _cable(self.number), "up")


@contextmanager
def networks(count: int) -> Iterator[bool]:
    """A bridge of this machine and networks that hang on it; False, and none of them, where they cannot be made."""
    with ExitStack() as undo:
        try:
            _make_networks(count, undo)
        except (OSError, subprocess.CalledProcessError):
            undo.close()
            yield False
            return
        yield True


def _make_networks(count: int, undo: ExitStack) -> None:
    _ip("link", "add", BRIDGE, "type", "bridge", "forward_delay", "0")  # or every mended cable stays dead for 15 s
    undo.callback(_ip, "link", "del", BRIDGE, check=False)
    _ip("addr", "add", f"{HEAD}/24", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")
    for number in range(count):
        name, cable = _namespace(number), _cable(number)
        _ip("netns", "add", name)
        undo.callback(_ip, "netns", "del", name, check=False)
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        undo.callback(_ip, "link", "del", cable, check=False)
        _ip("link", "set", cable, "master", BRIDGE, "up")
        _ip("-n", name, "addr", "add", f"{_address(number)}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _ip("-n", name, "link", "set", device, "up")


@contextmanager
def network_nodes(cluster: Any, count: int, *, cpus: float = CPUS, phones: float = MANY) -> Iterator[list[NetworkNode]]:
    """A node with phones in each of `count` networks, in a cluster whose head is at `HEAD`."""
    before, nodes = _living(cluster), list[NetworkNode]()
    with ExitStack() as undo:
        said = undo.enter_context(tempfile.TemporaryFile())
        for number in range(count):
            command = [
                "ip", "netns", "exec", _namespace(number), str(Path(sys.executable).with_name("ray")), "start", f"--address={cluster.address}",
                f"--node-ip-address={_address(number)}", f"--num-cpus={cpus:g}", f'--resources={{"{PHONE}": {phones:g}}}',
                f"--object-store-memory={STORE_BYTES}", "--block",
            ]  # fmt: skip
            node = NetworkNode(number, subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT))
            undo.callback(node.end)
            nodes.append(node)
        until_s = time.monotonic() + START_S
        while _living(cluster) < before + count:
            if time.monotonic() > until_s or any(node.process.poll() is not None for node in nodes):
                said.seek(0)
                words = " ".join(said.read().decode(errors="replace").split())[-300:]
                raise DistrlError(f"a node of Ray in a network of its own did not start: {words}")
            time.sleep(POLL_S)
        yield nodes


def _living(cluster: Any) -> int:
    return sum(bool(node["Alive"]) for node in cluster.global_state.node_table())


def _namespace(number: int) -> str:
    return f"distrl-net{number}"


def _cable(number: int) -> str:
    return f"distrl-cable{number}"


def _address(number: int) -> str:
    return f"10.213.7.{number + 2}"


def _ip(*words: str, check: bool = True) -> None:
    command = ["ip", *words]
    subprocess.run(command, check=check, capture_output=True)

"""News of weights over a connection to a hub that does not bring them: whoever has weights already goes on."""

from __future__ import annotations

from hashlib import sha256
from threading import Event

from distrl.threads import in_thread
from distrl.transport.ray.client import Subscription
from distrl.transport.ray.wire import Broadcast
from distrl.types import PolicyVersion

PATIENCE_S = 30.0


def a_version(number: int, weights: bytes) -> PolicyVersion:
    return PolicyVersion(
        version=number,
        file="",
        sha256=sha256(weights).hexdigest(),
        size_bytes=len(weights),
        updates=0,
        episodes=0,
        published_s=0.0,
    )


class HangingHub:
    """A connection whose hub gives the first weights and dies over the second ones."""

    def __init__(self) -> None:
        self.first, self.second = a_version(1, b"first"), a_version(2, b"second")
        self.publish, self.asked, self.revive = Event(), Event(), Event()

    def ask(self, name: str, *arguments: object, type: type) -> Broadcast:
        return Broadcast(latest=self.first, collected_s=0.0)

    def watch(self, known: Broadcast | None) -> Broadcast:
        assert self.publish.wait(PATIENCE_S)
        return Broadcast(latest=self.second, collected_s=1.0)

    def weights(self, version: PolicyVersion) -> memoryview:
        if version.version == 1:
            return memoryview(b"first")
        self.asked.set()
        assert self.revive.wait(PATIENCE_S)
        return memoryview(b"second")


def test_whoever_loads_weights_that_are_here_waits_for_no_others() -> None:
    hub = HangingHub()
    subscription = Subscription(hub, at_once=False)  # type: ignore[arg-type]
    subscription.broadcast()
    assert bytes(subscription.weights(hub.first)) == b"first"
    hub.publish.set()
    assert hub.asked.wait(PATIENCE_S), "the thread beside the role asks for the next ones"
    assert subscription.broadcast().latest == hub.first
    loading = in_thread(lambda: bytes(subscription.weights(hub.first)), name="loading")
    assert loading.result(timeout=PATIENCE_S / 3) == b"first", "while the next ones do not come"
    hub.revive.set()
    subscription.close()

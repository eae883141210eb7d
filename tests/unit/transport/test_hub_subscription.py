"""What goes on beside a role's loop over a connection to a hub that takes its time: news of weights, and what the role says."""

from __future__ import annotations

import fcntl
from hashlib import sha256
from pathlib import Path
from threading import Event

import pytest

from distrl.errors import StoreError
from distrl.threads import in_thread
from distrl.transport.ray import verified
from distrl.transport.ray.client import Sender, Subscription
from distrl.transport.ray.verified import KEPT, VerifiedWeights
from distrl.transport.ray.wire import Broadcast, Caller, Upload
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

    def weights(self, version: PolicyVersion) -> tuple[str, memoryview]:
        if version.version == 1:
            return "a", memoryview(b"first")
        self.asked.set()
        assert self.revive.wait(PATIENCE_S)
        return "b", memoryview(b"second")


def test_whoever_loads_weights_that_are_here_waits_for_no_others(tmp_path: Path) -> None:
    hub = HangingHub()
    subscription = Subscription(hub, VerifiedWeights(tmp_path / "verified"), at_once=False)  # type: ignore[arg-type]
    subscription.broadcast()
    assert bytes(subscription.weights(hub.first)) == b"first"
    hub.publish.set()
    assert hub.asked.wait(PATIENCE_S), "the thread beside the role asks for the next ones"
    assert subscription.broadcast().latest == hub.first
    loading = in_thread(lambda: bytes(subscription.weights(hub.first)), name="loading")
    assert loading.result(timeout=PATIENCE_S / 3) == b"first", "while the next ones do not come"
    hub.revive.set()
    subscription.close()


def test_weights_are_verified_once_for_each_object_of_a_node_and_damage_is_never_taken_for_verified(
    tmp_path: Path,
) -> None:
    first, file = a_version(1, b"first"), tmp_path / "verified"
    one, other = VerifiedWeights(file), VerifiedWeights(file)
    for _ in range(2):
        with pytest.raises(StoreError, match="another checksum"):
            one.check("a", memoryview(b"fjrst"), first)
    one.check("a", memoryview(b"first"), first)
    other.check("a", memoryview(b"not read again: objects never change"), first)
    with pytest.raises(StoreError, match="another checksum"):
        other.check("b", memoryview(b"fjrst"), first)
    with pytest.raises(StoreError, match="another checksum"):
        other.check("a", memoryview(b"first"), a_version(2, b"second"))
    for number in range(3 * KEPT):
        one.check(f"object-{number}", memoryview(b"first"), first)
    with pytest.raises(StoreError, match="another checksum"):
        one.check("a", memoryview(b"fjrst"), first)  # forgotten


def test_a_role_that_stands_still_while_it_verifies_holds_nobody_up_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verified, "WAIT_S", 0.2)
    first, file = a_version(1, b"first"), tmp_path / "verified"
    with file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        VerifiedWeights(file).check("a", memoryview(b"first"), first)
        with pytest.raises(StoreError, match="another checksum"):
            VerifiedWeights(file).check("a", memoryview(b"fjrst"), first)
    (tmp_path / "a-file").write_text("")
    VerifiedWeights(tmp_path / "a-file" / "verified").check("a", memoryview(b"first"), first)


class SlowHub:
    """A connection whose hub takes the first upload and is long about it."""

    caller = Caller(role="worker-0", incarnation=1)

    def __init__(self) -> None:
        self.taken, self.asked, self.answer = list[str](), Event(), Event()

    def ask_raw(self, name: str, upload: Upload) -> bytes:
        self.taken += [event.event for event in upload.events]
        self.asked.set()
        assert self.answer.wait(PATIENCE_S)
        return b""


def test_what_a_role_says_last_is_sent_though_it_ends_while_something_is_on_its_way() -> None:
    hub = SlowHub()
    sender = Sender(hub, at_once=False)  # type: ignore[arg-type]
    sender.event("worker-0", "finished", {})
    assert hub.asked.wait(PATIENCE_S)
    sender.event("worker-0", "acknowledged", {})
    closing = in_thread(sender.close, name="closing")
    while not sender._closing.is_set():
        pass
    hub.answer.set()
    closing.result(timeout=PATIENCE_S)
    assert hub.taken == ["finished", "acknowledged"]

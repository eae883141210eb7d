"""The transport of a role that is not where its run folder is: everything goes through the hub.

`latest` and `collected_s` are asked all the time, so they are answered from the last broadcast, which a thread keeps asking
for; it has fetched a version's weights by the time that it names the version. Heartbeats and events are handed over by
another thread, so a role waits for no network to say what it does. While the hub cannot be reached, a role goes on with
what it has: the newest weights that it knows, and its spool.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future, wait
from functools import cached_property
from math import isfinite
from pathlib import Path
from threading import Event as Signal
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from distrl.devices.base import DeviceLeases
from distrl.errors import StoreError
from distrl.experience.index import IndexRow, StoreStats
from distrl.experience.store import Audit
from distrl.telemetry.heartbeat import Heartbeat
from distrl.threads import in_thread, raise_failure
from distrl.transport.base import BudgetUsed, Event
from distrl.transport.lease_files import FileLeases
from distrl.transport.ray.connection import HubConnection
from distrl.transport.ray.service import METRICS
from distrl.transport.ray.verified import VERIFIED, VerifiedWeights
from distrl.transport.ray.wire import Broadcast, LoggedEvent, Upload
from distrl.types import PolicyVersion, Trajectory, Value

if TYPE_CHECKING:  # torch is loaded only where weights are
    from distrl.policies.base import Policy

SEND_S = 0.05
"""How long what a role says may wait to be sent with what it says next."""
MOST_UNSENT = 10_000
"""Events that wait for a hub that cannot be reached; older ones are dropped first, and counted."""
READ_AHEAD = 32
"""Episodes that are fetched with one call, by whoever reads them in order."""


class HubTransport:
    """`transport.base.Transport` over a hub.

    `node` is a folder that all roles of the run on this machine share. With `at_once` nothing is kept back or known from
    before: every call is made when it is asked for.
    """

    def __init__(self, hub: HubConnection, *, node: Path, at_once: bool = False) -> None:
        self._hub, self._leases = hub, node / "leases"
        self._sender = Sender(hub, at_once=at_once)
        self._subscription = Subscription(hub, VerifiedWeights(node / VERIFIED), at_once=at_once)
        self.episodes = HubEpisodes(hub)
        self.frames = HubFrames(hub)
        self.weights = HubWeights(hub, self._subscription)
        self.heartbeats = HubHeartbeats(hub, self._sender)
        self.checkpoints = HubCheckpoints(hub)
        self.events = HubEvents(hub, self._sender)
        self.reports = HubReports(hub)
        self.budget = HubBudget(hub)

    @cached_property
    def metrics(self) -> HubLog:
        """Where the run's metrics go."""
        return HubLog(self._sender, METRICS)

    def claims(self, owner: str, *, lifetime_s: float) -> HubClaims:
        """The claims of one worker among those of all."""
        return HubClaims(self._hub, owner, lifetime_s)

    def forget_claims(self) -> None:
        """End the claims of all workers."""
        self._hub.tell("forget_claims")

    def leases(self, owner: str) -> DeviceLeases:
        """The devices that several roles of this machine share: a device hangs on one machine, so no hub is asked."""
        return FileLeases(self._leases, owner)

    def collected_s(self) -> float:
        """How long the run has been collecting, as of a few seconds ago."""
        return self._subscription.broadcast().collected_s

    def close(self) -> None:
        """Hand over what was said, within a deadline."""
        self._subscription.close()
        self._sender.close()


class Sender:
    """Takes what a role says to the hub, in order, in a thread of its own."""

    def __init__(self, hub: HubConnection, *, at_once: bool, deadline_s: float = 10.0) -> None:
        self._hub, self._at_once, self._deadline_s = hub, at_once, deadline_s
        self._id = uuid4().hex
        self._events: list[tuple[float, LoggedEvent]] = []
        self._heartbeat: Heartbeat | None = None
        self._ahead_s: float | None = None
        """By how much the monotonic clock of the hub's machine is ahead; None: nobody has asked yet."""
        self._number = self._num_dropped = 0
        self._lock, self._something, self._closing = Lock(), Signal(), Signal()
        self._sending: Future[None] | None = None

    def event(self, log: str, event: str, values: dict[str, Value]) -> None:
        """Have an event written; raises what became of those before where the hub could not write them."""
        raise_failure(self._sending)
        with self._lock:
            self._events.append((time.monotonic(), LoggedEvent(log=log, event=event, values=values, age_s=0.0)))
            if len(self._events) > MOST_UNSENT:
                del self._events[0]
                self._num_dropped += 1
        self._wake()

    def heartbeat(self, heartbeat: Heartbeat) -> None:
        """Have a heartbeat kept, unless a newer one comes before it is sent. Its times become those of the hub's clock."""
        raise_failure(self._sending)
        with self._lock:
            self._heartbeat = msgspec.structs.replace(heartbeat, figures=dict(heartbeat.figures))
        self._wake()

    def close(self) -> None:
        """Send the rest; what the hub does not take within the deadline is gone."""
        self._closing.set()
        self._something.set()
        if self._sending is not None:
            wait([self._sending], self._deadline_s)
            self._sending = None
        self._closing.clear()

    def _wake(self) -> None:
        if self._at_once:
            self._send()
            return
        if self._sending is None:
            self._sending = in_thread(self._run, name="send")
        self._something.set()

    def _run(self) -> None:
        while True:
            self._something.wait()
            self._something.clear()
            closing = self._closing.is_set()  # looked at first: what is said while this sends is sent before it ends
            self._send()
            if closing:
                return
            time.sleep(SEND_S)

    def _send(self) -> None:
        if self._heartbeat is not None and self._ahead_s is None:
            self._ahead_s = self._hub.clock_ahead_s()
        upload = self._pack()
        if upload is None:
            return
        self._hub.ask_raw("upload", upload)

    def _pack(self) -> Upload | None:
        with self._lock:
            events, heartbeat = self._events, self._heartbeat
            self._events, self._heartbeat = [], None
            num_dropped, self._num_dropped = self._num_dropped, 0
        if not events and heartbeat is None:
            return None
        if heartbeat is not None and self._ahead_s:
            since_s, beat_s = heartbeat.since_s + self._ahead_s, heartbeat.beat_s + self._ahead_s
            heartbeat = replace(heartbeat, since_s=since_s, beat_s=beat_s)
        now_s, self._number = time.monotonic(), self._number + 1
        sent = [replace(event, age_s=now_s - at_s) for at_s, event in events]
        if num_dropped:
            role = self._hub.caller.role
            sent.append(LoggedEvent(log=role, event="events_dropped", values={"count": num_dropped}, age_s=0.0))
        return Upload(sender=self._id, number=self._number, heartbeat=heartbeat, events=tuple(sent))


class Subscription:
    """The newest broadcast. The weights that it names are here by the time that it is shown to anyone who loads any."""

    def __init__(self, hub: HubConnection, verified: VerifiedWeights, *, at_once: bool) -> None:
        self._hub, self._verified, self._at_once = hub, verified, at_once
        self._broadcast: Broadcast | None = None
        self._weights: dict[str, memoryview] = {}
        """By checksum: those of the broadcast, and those that are to be in the next one."""
        self._fetching = False
        """Whether anyone here loads weights at all: the learner publishes them and loads none."""
        self._watching: Future[None] | None = None
        self._closed, self._lock = Signal(), Lock()

    def broadcast(self) -> Broadcast:
        """What is known at present; the first time it is asked for."""
        raise_failure(self._watching)
        if self._broadcast is None or self._at_once:
            self._broadcast = self._hub.ask("broadcast", type=Broadcast)
        if not self._at_once:
            self._start()
        return self._broadcast

    def weights(self, version: PolicyVersion) -> memoryview:
        """The weights of a version, verified; `StoreError` where they are damaged or gone."""
        self._fetching = True
        held = self._weights.get(version.sha256)
        if held is None:
            # Under no lock: whoever loads what is here already must not wait for what the hub does not bring.
            held = self._fetch(version)
            with self._lock:
                kept = list(self._weights.items())[-1:]
                self._weights = {**dict(kept), version.sha256: held}
        return held

    def close(self) -> None:
        """Ask for nothing more."""
        self._closed.set()

    def _fetch(self, version: PolicyVersion) -> memoryview:
        place, data = self._hub.weights(version)
        self._verified.check(place, data, version)
        return data

    def _start(self) -> None:
        if self._watching is None:
            self._watching = in_thread(self._run, name="watch")

    def _run(self) -> None:
        while not self._closed.is_set():
            self._look()

    def _look(self) -> None:
        before = self._broadcast
        found = self._hub.watch(before)
        version = found.latest
        if self._fetching and version is not None and (before is None or version != before.latest):
            try:
                self.weights(version)
            except StoreError:
                # Newer ones have taken its place by now, or it is damaged: whoever loads it hears of that.
                if self._hub.watch(None).latest != version:
                    return
        self._broadcast = found


class HubEpisodes:
    """Trajectories and their pictures, durable on the hub's disk once `add` returns."""

    def __init__(self, hub: HubConnection) -> None:
        self._hub = hub

    def add(self, trajectory: Trajectory, frames: Mapping[str, bytes]) -> None:
        """Have the hub keep a trajectory; waits for as long as it cannot be reached."""
        self._hub.tell("add", trajectory, dict(frames))

    def after(self, seq: int, limit: int) -> list[IndexRow]:
        """Up to `limit` rows behind the cursor, in order."""
        return self._hub.ask("after", seq, limit, type=list[IndexRow])

    def read(self, id: str) -> Trajectory:
        """A trajectory, verified."""
        return self._hub.ask("read", id, type=Trajectory)

    def count_of(self, version: int, *, worker: str = "", after: int = 0) -> tuple[int, int]:
        """How many episodes a version began, and the cursor to count on from."""
        return self._hub.ask("count_of", version, worker, after, type=tuple[int, int])

    def stats(self, after: int = 0) -> StoreStats:
        """Totals over the episodes that were played behind a cursor."""
        return self._hub.ask("stats", after, type=StoreStats)

    def recover(self) -> int:
        """Index whole files that a killed process left without a row."""
        return self._hub.ask("recover", type=int)

    def audit(self) -> Audit:
        """Look at every episode."""
        return self._hub.ask("audit", type=Audit)


class HubFrames:
    """Screenshots."""

    def __init__(self, hub: HubConnection) -> None:
        self._hub = hub

    def put(self, picture: bytes) -> str:
        """Keep a picture; its reference."""
        return self._hub.ask("put_frame", picture, type=str)

    def get(self, reference: str) -> bytes:
        """A picture, verified."""
        return self._hub.ask("get_frame", reference, type=bytes)


class HubWeights:
    """Published policy versions."""

    def __init__(self, hub: HubConnection, subscription: Subscription) -> None:
        self._hub, self._subscription = hub, subscription

    def latest(self) -> PolicyVersion | None:
        """The newest version that is known here."""
        return self._subscription.broadcast().latest

    def find(self, version: int) -> PolicyVersion | None:
        """A version that is still kept, by its number."""
        return self._hub.ask("find", version, type=PolicyVersion | None)  # type: ignore[arg-type]

    def load(self, policy: Policy[Any], version: PolicyVersion) -> None:
        """Put a version's weights into `policy`."""
        policy.restore(self._subscription.weights(version), source=f"version {version.version} from the hub")

    def publish(self, policy: Policy[Any], version: PolicyVersion) -> PolicyVersion:
        """Make the policy's weights the newest version."""
        return self._hub.ask("publish", version, policy.dump(), type=PolicyVersion)


class HubHeartbeats:
    """What every role says it is doing."""

    def __init__(self, hub: HubConnection, sender: Sender) -> None:
        self._sender, self._hub = sender, hub

    def beat(self, heartbeat: Heartbeat) -> None:
        """Replace the role's last heartbeat."""
        self._sender.heartbeat(heartbeat)

    def last(self, role: str) -> Heartbeat | None:
        """A role's last heartbeat."""
        return self._hub.ask("last", role, type=Heartbeat | None)  # type: ignore[arg-type]


class HubLog:
    """`EventSink` of one log."""

    def __init__(self, sender: Sender, name: str) -> None:
        self._sender, self._name = sender, name

    def write(self, event: str, **values: Value) -> None:
        """Have an event written, with the time that it is now; non-finite values are left out."""
        kept = {name: value for name, value in values.items() if not isinstance(value, float) or isfinite(value)}
        self._sender.event(self._name, event, kept)


class HubEvents:
    """A log per role."""

    def __init__(self, hub: HubConnection, sender: Sender) -> None:
        self._hub, self._sender = hub, sender

    def log(self, role: str) -> HubLog:
        """Where a role writes."""
        self._hub.tell("open_log", role)
        return HubLog(self._sender, role)

    def roles(self) -> tuple[str, ...]:
        """The roles that have a log."""
        return self._hub.ask("logs", type=tuple[str, ...])

    def read(self, role: str) -> list[Event]:
        """All whole events of a role."""
        return self._hub.ask("read_log", role, type=list[Event])


class HubCheckpoints:
    """The learner's state."""

    def __init__(self, hub: HubConnection) -> None:
        self._hub = hub

    def newest(self) -> Mapping[str, bytes] | None:
        """The newest checkpoint that is whole."""
        return self._hub.ask("newest_checkpoint", type=dict[str, bytes] | None)  # type: ignore[arg-type]

    def write(self, files: Mapping[str, bytes]) -> None:
        """Save durably."""
        self._hub.tell("write_checkpoint", {name: bytes(data) for name, data in files.items()})


class HubReports:
    """Evaluation reports."""

    def __init__(self, hub: HubConnection) -> None:
        self._hub = hub

    def has(self, name: str) -> bool:
        """Whether there is such a report."""
        return self._hub.ask("has_report", name, type=bool)

    def write(self, name: str, report: msgspec.Struct) -> None:
        """Keep a report."""
        self._hub.tell("write_report", name, msgspec.json.encode(report))

    def read(self, name: str) -> bytes | None:
        """A report as JSON."""
        return self._hub.ask("read_report", name, type=bytes | None)  # type: ignore[arg-type]

    def remove(self, name: str) -> None:
        """Forget a report."""
        self._hub.tell("remove_report", name)


class HubBudget:
    """What a run has used."""

    def __init__(self, hub: HubConnection) -> None:
        self._hub = hub

    def read(self) -> BudgetUsed:
        """What had been used when it was last written."""
        return self._hub.ask("read_budget", type=BudgetUsed)

    def write(self, used: BudgetUsed) -> None:
        """Replace it, durably."""
        self._hub.tell("write_budget", used)


class HubClaims:
    """The claims of one owner among those of all."""

    def __init__(self, hub: HubConnection, owner: str, lifetime_s: float) -> None:
        self._hub, self._owner, self._lifetime_s = hub, owner, lifetime_s
        hub.tell("open_claims", owner, lifetime_s)

    def take(self, version: int, count: int, limit: int) -> list[int]:
        """Claim up to `count` of the `limit` episodes that a version is played for."""
        return self._hub.ask("take_claims", self._owner, self._lifetime_s, (version, count, limit), type=list[int])

    def settle(self, number: int) -> None:
        """End one claim, and prolong the others of this owner."""
        self._hub.tell("settle_claim", self._owner, self._lifetime_s, number)

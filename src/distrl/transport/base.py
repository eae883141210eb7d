"""The transport seam: everything that travels between roles, as small protocols.

Roles get a `Transport` from their runtime and never learn what is behind it: files of a run folder on one machine
(`transport.files`), memory in tests and the single-process trainer (`transport.memory`), or a cluster.
What `EpisodeSink.add` and `CheckpointStore.write` have returned from survives anything; the rest may be lost with a process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from distrl.devices.base import DeviceLeases
from distrl.errors import DistrlError
from distrl.experience.frames import FrameStorage
from distrl.experience.index import IndexRow, StoreStats
from distrl.experience.store import Audit
from distrl.telemetry.heartbeat import Heartbeat
from distrl.types import PolicyVersion, Trajectory, Value

__all__ = [
    "ActorLost", "Audit", "Budget", "BudgetUsed", "CheckpointStore", "Claims", "DecisionRequests", "Delivered", "EpisodeSink", "EpisodeSource", "Episodes", "Event", "EventSink",
    "Events", "Heartbeats", "IndexRow", "Inference", "Reports", "StoreStats", "Transport", "Weights",
]  # fmt: skip

if TYPE_CHECKING:  # torch is loaded only where weights are
    from distrl.policies.base import Policy


class EpisodeSink(Protocol):
    """Where finished trajectories go."""

    def add(self, trajectory: Trajectory, frames: Mapping[str, bytes]) -> object:
        """Keep a trajectory and its pictures, once by its id; returning means that both are durable."""


class EpisodeSource(Protocol):
    """Where acknowledged trajectories are found."""

    def after(self, seq: int, limit: int) -> list[IndexRow]:
        """Up to `limit` rows behind the cursor `seq` (0: from the start), in order."""

    def read(self, id: str) -> Trajectory:
        """A trajectory, verified; `StoreError` where it is damaged or gone."""

    def count_of(self, version: int, *, worker: str = "", after: int = 0) -> tuple[int, int]:
        """How many episodes a version began, by one worker or by all, and the cursor to count on from."""

    def stats(self, after: int = 0) -> StoreStats:
        """Totals over the episodes that were played behind a cursor."""


class Episodes(EpisodeSink, EpisodeSource, Protocol):
    """Both ends."""

    def recover(self) -> int:
        """Take up what a killed process left half done; how many episodes that brought."""

    def audit(self) -> Audit:
        """Look at every episode, for a run whose roles have all ended; what they left half done is taken up first."""


class Weights(Protocol):
    """Published policy versions, for the one learner that writes and the many that read.

    Version 0, against which progress is measured, stays for as long as the run does; of the others, the newest few.
    """

    def latest(self) -> PolicyVersion | None:
        """The newest published version; cheap enough to ask before every batch."""

    def find(self, version: int) -> PolicyVersion | None:
        """A version that is still kept, by its number; None where it is not."""

    def load(self, policy: Policy[Any], version: PolicyVersion) -> None:
        """Put a version's weights into `policy`, verified; `StoreError` where they are damaged or gone."""

    def publish(self, policy: Policy[Any], version: PolicyVersion) -> PolicyVersion:
        """Make the policy's weights the newest version; `file`, checksum and size are filled in."""


class ActorLost(DistrlError):
    """An actor that was asked for decisions is gone."""


class VersionGone(DistrlError):
    """No actor has the version any more by which it was asked to decide."""


class Inference(Protocol):
    """Actors that decide for workers, as one worker reaches them."""

    def actors(self) -> tuple[str, ...]:
        """Those that are known to answer at present; cheap enough to ask before every batch."""

    async def ask(self, actor: str, request: bytes) -> bytes:
        """What an actor answers, however long that takes; `ActorLost` where it is gone."""


class DecisionRequests(Protocol):
    """What workers ask of an actor, as the actor gets it."""

    def serve(self, answer: Callable[[bytes], Awaitable[bytes]]) -> None:
        """Have requests answered on the event loop that runs now, from now on."""


class Heartbeats(Protocol):
    """What every role says it is doing."""

    def beat(self, heartbeat: Heartbeat) -> None:
        """Replace the role's last heartbeat."""

    def last(self, role: str) -> Heartbeat | None:
        """A role's last heartbeat; None where there was none."""


class Claims(Protocol):
    """Which episodes of a round are being played, and by whom; one owner's view of what all workers share."""

    def take(self, version: int, count: int, limit: int) -> list[int]:
        """Claim up to `count` of the `limit` episodes that a version is played for; the numbers of the claims.

        There are as many as are left: neither in the store nor claimed. Both are counted while nobody else can claim or
        settle, so an episode that is stored before it is settled is never missing from both counts.
        """

    def settle(self, number: int) -> None:
        """End one claim, and prolong the others of this owner."""


class Delivered:
    """How many episodes that a version began are in the store; each row is looked at once."""

    def __init__(self, episodes: EpisodeSource) -> None:
        self._episodes = episodes
        self._version, self._found, self._cursor = -1, 0, 0

    def __call__(self, version: int) -> int:
        if version != self._version:
            self._version, self._found, self._cursor = version, 0, 0
        fresh, self._cursor = self._episodes.count_of(version, after=self._cursor)
        self._found += fresh
        return self._found


class CheckpointStore(Protocol):
    """The learner's state as named files that appear together, newest first."""

    def newest(self) -> Mapping[str, bytes] | None:
        """The newest checkpoint that is whole; None where there was never one; `StoreError` where all are damaged."""

    def write(self, files: Mapping[str, bytes]) -> object:
        """Save durably."""


class EventSink(Protocol):
    """Where a role writes its events or its metrics."""

    def write(self, event: str, **values: Value) -> None:
        """Append one event with the time; non-finite values are left out."""


Event = dict[str, Value]
"""What happened: `time_s`, `event` and the values of that event."""


class Events(Protocol):
    """What roles write down of what they do, for whoever sums the run up."""

    def log(self, role: str) -> EventSink:
        """Where a role writes; what it wrote before stays."""

    def roles(self) -> tuple[str, ...]:
        """The roles that have a log, by name."""

    def read(self, role: str) -> list[Event]:
        """All whole events of a role, over all its incarnations, in order; none where it has no log."""


class Reports(Protocol):
    """Evaluation reports by name: `before`, `v000012`, `after`."""

    def has(self, name: str) -> bool:
        """Whether there is such a report."""

    def write(self, name: str, report: msgspec.Struct) -> None:
        """Keep a report."""

    def read(self, name: str) -> bytes | None:
        """A report as JSON; None where there is none."""

    def remove(self, name: str) -> None:
        """Forget a report that is out of date; nothing where there is none."""


class BudgetUsed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run has used so far, over all its sessions: time and restarts.

    Every field has a default, so that unknown ones are all that tells a foreign file from one of a new run.
    """

    wall_s: float = 0.0
    collect_s: float = 0.0
    """Of that, in which workers were collecting."""
    busy_s: float = 0.0
    """Device time, summed over the devices."""
    device_s: float = 0.0
    """Time that the devices were there while workers were collecting, summed over the devices."""
    restarts: int = 0

    @property
    def device_utilisation(self) -> float:
        """Share of their time in which devices were busy; 0 before there was any."""
        return self.busy_s / self.device_s if self.device_s else 0.0


class Budget(Protocol):
    """What a run has used: its supervisor writes, whoever has to know reads."""

    def read(self) -> BudgetUsed:
        """What had been used when it was last written; nothing at all for a new run."""

    def write(self, used: BudgetUsed) -> None:
        """Replace it, durably."""


class Transport(Protocol):
    """All of it, as one role sees it."""

    @property
    def episodes(self) -> Episodes:
        """Trajectories."""

    @property
    def frames(self) -> FrameStorage:
        """Screenshots."""

    @property
    def weights(self) -> Weights:
        """Policy versions."""

    @property
    def heartbeats(self) -> Heartbeats:
        """What roles are doing."""

    @property
    def checkpoints(self) -> CheckpointStore:
        """The learner's state."""

    @property
    def events(self) -> Events:
        """What roles have written down."""

    @property
    def reports(self) -> Reports:
        """Evaluations."""

    @property
    def budget(self) -> Budget:
        """What the run has used."""

    def claims(self, owner: str, *, lifetime_s: float) -> Claims:
        """The claims of one worker among those of all."""

    def forget_claims(self) -> None:
        """End the claims of all workers; for a session that begins, before its roles do."""

    def leases(self, owner: str) -> DeviceLeases:
        """The devices that several roles share, as one role leases them."""

    def collected_s(self) -> float:
        """How long the run has been collecting, over all its sessions, as of about a second ago."""

    def close(self) -> None:
        """Let go of whatever is open; what was written stays."""

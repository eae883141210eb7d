"""The transport seam: everything that travels between roles, as small protocols.

Roles get a `Transport` from their runtime and never learn what is behind it: files of a run folder on one machine
(`transport.files`), memory in tests and the single-process trainer (`transport.memory`), or a cluster.
What `EpisodeSink.add` and `CheckpointStore.write` have returned from survives anything; the rest may be lost with a process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from distrl.experience.frames import FrameStorage
from distrl.experience.index import IndexRow, StoreStats
from distrl.telemetry.heartbeat import Heartbeat
from distrl.types import PolicyVersion, Trajectory, Value

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


class Weights(Protocol):
    """Published policy versions, for the one learner that writes and the many that read."""

    def latest(self) -> PolicyVersion | None:
        """The newest published version; cheap enough to ask before every batch."""

    def find(self, version: int) -> PolicyVersion | None:
        """A version that is still kept, by its number; None where it is not."""

    def load(self, policy: Policy[Any], version: PolicyVersion) -> None:
        """Put a version's weights into `policy`, verified; `StoreError` where they are damaged or gone."""

    def publish(self, policy: Policy[Any], version: PolicyVersion) -> PolicyVersion:
        """Make the policy's weights the newest version; `file`, checksum and size are filled in."""


class Heartbeats(Protocol):
    """What every role says it is doing."""

    def beat(self, heartbeat: Heartbeat) -> None:
        """Replace the role's last heartbeat."""

    def last(self, role: str) -> Heartbeat | None:
        """A role's last heartbeat; None where there was none."""


class Claims(Protocol):
    """Which episodes of a round are being played, and by whom; one owner's view of what all workers share."""

    def take(self, version: int, count: int, free: Callable[[], int]) -> list[int]:
        """Claim up to `count` episodes of a version; the numbers of the claims, as many as were left.

        `free` says how many are not delivered yet. It is asked while nobody else can claim or settle.
        """

    def settle(self, number: int) -> None:
        """End one claim, and prolong the others of this owner."""


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


class Reports(Protocol):
    """Evaluation reports by name: `before`, `v000012`, `after`."""

    def has(self, name: str) -> bool:
        """Whether there is such a report."""

    def write(self, name: str, report: msgspec.Struct) -> None:
        """Keep a report."""


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
    def reports(self) -> Reports:
        """Evaluations."""

    def claims(self, owner: str, *, lifetime_s: float) -> Claims:
        """The claims of one worker among those of all."""

    def collected_s(self) -> float:
        """How long the run has been collecting, over all its sessions, as of about a second ago."""

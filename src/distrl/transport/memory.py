"""The transport in memory, for tests and the single-process trainer. Nothing survives the process.

Every form keeps the promises of `transport.base` but durability. One transport may be shared by roles on several threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from threading import Lock
from typing import Any

import msgspec

from distrl.errors import StoreError
from distrl.experience.frames import reference_of
from distrl.experience.index import IndexRow, StoreStats
from distrl.policies.base import Policy
from distrl.telemetry.heartbeat import Heartbeat
from distrl.types import PolicyVersion, Trajectory


class MemoryEpisodes:
    """Trajectories in the order in which they came."""

    def __init__(self, frames: MemoryFrames | None = None, *, forget_read: bool = False) -> None:
        self._frames, self._forget_read = frames, forget_read
        self._held: dict[str, Trajectory] = {}
        self._rows: list[IndexRow] = []
        self._seq_of: dict[str, int] = {}
        self._lock = Lock()

    def add(self, trajectory: Trajectory, frames: Mapping[str, bytes] = {}) -> int:
        """Keep a trajectory once by its id; its number."""
        with self._lock:
            if trajectory.id in self._seq_of:
                return self._seq_of[trajectory.id]
            if self._frames is not None:
                for picture in frames.values():
                    self._frames.put(picture)
            seq = len(self._rows) + 1
            self._held[trajectory.id], self._seq_of[trajectory.id] = trajectory, seq
            self._rows.append(_row(seq, trajectory))
            return seq

    def after(self, seq: int, limit: int) -> list[IndexRow]:
        """Up to `limit` rows behind the cursor, in order."""
        return self._rows[seq : seq + limit]

    def read(self, id: str) -> Trajectory:
        """A trajectory; with `forget_read` it is gone afterwards."""
        with self._lock:
            found = self._held.pop(id, None) if self._forget_read else self._held.get(id)
        if found is None:
            raise StoreError(f"no episode {id!r} is in memory", expected="an id that was added", fix="add it first")
        return found

    def count_of(self, version: int, *, worker: str = "", after: int = 0) -> tuple[int, int]:
        """How many episodes a version began, by one worker or by all, and the cursor to count on from."""
        rows = self._rows[after:]
        found = [row for row in rows if row.source == "played" and row.version == version]
        return sum(not worker or row.worker == worker for row in found), after + len(rows)

    def stats(self, after: int = 0) -> StoreStats:
        """Totals over the episodes that were played behind a cursor."""
        rows = [row for row in self._rows[after:] if row.source == "played"]
        return StoreStats(
            episodes=len(rows),
            steps=sum(row.steps for row in rows),
            successes=sum(row.success for row in rows),
            wall_s=sum(row.wall_s for row in rows),
            size_bytes=0,
            last_seq=len(self._rows),
        )

    def recover(self) -> int:
        """Nothing is ever left half done in memory."""
        return 0


def _row(seq: int, trajectory: Trajectory) -> IndexRow:
    return IndexRow(
        seq=seq,
        id=trajectory.id,
        task=trajectory.task.id,
        template=trajectory.task.template,
        version=trajectory.version,
        steps=len(trajectory.steps),
        success=trajectory.verdict.success,
        source=trajectory.source,
        ending=trajectory.ending,
        wall_s=trajectory.wall_s,
        worker=trajectory.worker,
        created_s=time.time(),
        size_bytes=0,
    )


class MemoryFrames:
    """Pictures by reference."""

    def __init__(self) -> None:
        self._held: dict[str, bytes] = {}

    def put(self, picture: bytes) -> str:
        """Keep a picture; its reference."""
        reference = reference_of(picture)
        self._held[reference] = picture
        return reference

    def get(self, reference: str) -> bytes:
        """The picture behind a reference."""
        if reference not in self._held:
            raise StoreError(f"no frame {reference[:80]!r} is in memory", fix="put it there first")
        return self._held[reference]


class MemoryWeights:
    """The last few versions as bytes."""

    def __init__(self, *, keep: int = 4) -> None:
        self._keep = keep
        self._held: dict[int, tuple[PolicyVersion, bytes]] = {}

    def latest(self) -> PolicyVersion | None:
        """The newest version."""
        return self._held[max(self._held)][0] if self._held else None

    def oldest(self) -> PolicyVersion | None:
        """The oldest version that is kept: an actor that takes it lags behind by `keep - 1` versions."""
        return self._held[min(self._held)][0] if self._held else None

    def find(self, version: int) -> PolicyVersion | None:
        """A version that is still kept, by its number."""
        return self._held[version][0] if version in self._held else None

    def load(self, policy: Policy[Any], version: PolicyVersion) -> None:
        """Put a version's weights into `policy`."""
        held, data = self._held.get(version.version, (None, b""))
        if held is None or held.sha256 != version.sha256:
            raise StoreError(
                f"version {version.version} is gone", expected="a published version", fix="keep more of them"
            )
        policy.restore(data, source=f"version {version.version} in memory")

    def publish(self, policy: Policy[Any], version: PolicyVersion) -> PolicyVersion:
        """Make the policy's weights the newest version."""
        data = policy.dump()
        name, checksum = f"v{version.version:06d}", sha256(data).hexdigest()
        done = msgspec.structs.replace(version, file=name, sha256=checksum, size_bytes=len(data))
        self._held[version.version] = (done, data)
        for old in sorted(self._held)[: -self._keep]:
            del self._held[old]
        return done


class MemoryHeartbeats:
    """The last heartbeat of every role."""

    def __init__(self) -> None:
        self._held: dict[str, Heartbeat] = {}

    def beat(self, heartbeat: Heartbeat) -> None:
        """Replace the role's last heartbeat."""
        self._held[heartbeat.role] = heartbeat

    def last(self, role: str) -> Heartbeat | None:
        """A role's last heartbeat."""
        return self._held.get(role)


class MemoryCheckpoints:
    """The newest checkpoint."""

    def __init__(self) -> None:
        self._newest: dict[str, bytes] | None = None

    def newest(self) -> Mapping[str, bytes] | None:
        """The newest checkpoint."""
        return self._newest

    def write(self, files: Mapping[str, bytes]) -> None:
        """Replace it."""
        self._newest = dict(files)


class MemoryReports:
    """Evaluation reports by name."""

    def __init__(self) -> None:
        self.held: dict[str, msgspec.Struct] = {}

    def has(self, name: str) -> bool:
        """Whether there is such a report."""
        return name in self.held

    def write(self, name: str, report: msgspec.Struct) -> None:
        """Keep a report."""
        self.held[name] = report


class ClaimTable:
    """Claims of all owners: number to version, owner and deadline."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.rows: dict[int, tuple[int, str, float]] = {}
        self.last = 0


class MemoryClaims:
    """The claims of one owner among those of all."""

    def __init__(
        self, table: ClaimTable, owner: str, *, lifetime_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._table, self._owner, self._lifetime_s, self._clock = table, owner, lifetime_s, clock
        with table.lock:
            table.rows = {number: row for number, row in table.rows.items() if row[1] != owner}

    def take(self, version: int, count: int, free: Callable[[], int]) -> list[int]:
        """Claim up to `count` episodes of a version; the numbers of the claims."""
        table, now_s = self._table, self._clock()
        with table.lock:
            table.rows = {number: row for number, row in table.rows.items() if row[2] >= now_s}
            playing = sum(row[0] == version for row in table.rows.values())
            numbers = list(range(table.last + 1, table.last + 1 + max(0, min(count, free() - playing))))
            table.last += len(numbers)
            table.rows |= dict.fromkeys(numbers, (version, self._owner, now_s + self._lifetime_s))
        return numbers

    def settle(self, number: int) -> None:
        """End one claim, and prolong the others of this owner."""
        until_s = self._clock() + self._lifetime_s
        with self._table.lock:
            self._table.rows.pop(number, None)
            for other, (version, owner, _) in list(self._table.rows.items()):
                if owner == self._owner:
                    self._table.rows[other] = (version, owner, until_s)


class MemoryTransport:
    """`transport.base.Transport` in memory."""

    def __init__(self, *, keep_versions: int = 4, forget_read: bool = False) -> None:
        self.frames = MemoryFrames()
        self.episodes = MemoryEpisodes(self.frames, forget_read=forget_read)
        self.weights = MemoryWeights(keep=keep_versions)
        self.heartbeats = MemoryHeartbeats()
        self.checkpoints = MemoryCheckpoints()
        self.reports = MemoryReports()
        self.collect_s = 0.0
        self._claims = ClaimTable()

    def claims(self, owner: str, *, lifetime_s: float) -> MemoryClaims:
        """The claims of one worker among those of all."""
        return MemoryClaims(self._claims, owner, lifetime_s=lifetime_s)

    def collected_s(self) -> float:
        """What was set from outside."""
        return self.collect_s

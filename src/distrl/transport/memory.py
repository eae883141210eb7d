"""The transport in memory, for tests and the single-process trainer. Nothing survives the process.

Every form keeps the promises of `transport.base` but durability. One transport may be shared by roles on several threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from math import isfinite
from threading import Lock
from typing import Any

import msgspec

from distrl.devices.base import is_own
from distrl.errors import StoreError
from distrl.experience.frames import reference_of
from distrl.experience.index import IndexRow, StoreStats
from distrl.experience.store import Audit
from distrl.policies.base import Policy
from distrl.telemetry.heartbeat import Heartbeat
from distrl.transport.base import BudgetUsed, Delivered, EpisodeSource, Event
from distrl.types import PolicyVersion, Trajectory, Value


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

    def audit(self) -> Audit:
        """Nothing is ever lost from memory, nor there twice."""
        return Audit(episodes=len(self._rows), missing=(), orphans=(), duplicates=())


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
    """Version 0 and the last few as bytes."""

    def __init__(self, *, keep: int = 4) -> None:
        self._keep = keep
        self._held: dict[int, tuple[PolicyVersion, bytes]] = {}
        self._lock = Lock()

    def latest(self) -> PolicyVersion | None:
        """The newest version."""
        with self._lock:
            return self._held[max(self._held)][0] if self._held else None

    def oldest(self) -> PolicyVersion | None:
        """The oldest of the last `keep` versions: an actor that takes it lags behind by `keep - 1`."""
        with self._lock:
            return self._held[self._last()[0]][0] if self._held else None

    def find(self, version: int) -> PolicyVersion | None:
        """A version that is still kept, by its number."""
        with self._lock:
            return self._held[version][0] if version in self._held else None

    def load(self, policy: Policy[Any], version: PolicyVersion) -> None:
        """Put a version's weights into `policy`."""
        with self._lock:
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
        with self._lock:
            self._held[version.version] = (done, data)
            for old in self._held.keys() - {0, *self._last()}:
                del self._held[old]
        return done

    def _last(self) -> list[int]:
        return sorted(self._held)[-self._keep :]


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


class MemoryLog:
    """The events of one role."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.held: list[Event] = []

    def write(self, event: str, **values: Value) -> None:
        """Append one event with the time; non-finite values are left out."""
        finite = {name: value for name, value in values.items() if not isinstance(value, float) or isfinite(value)}
        self.held.append({"time_s": round(self._clock(), 3), "event": event, **finite})


class MemoryEvents:
    """Events by role."""

    def __init__(self) -> None:
        self._held: dict[str, MemoryLog] = {}

    def log(self, role: str) -> MemoryLog:
        """The role's one log."""
        return self._held.setdefault(role, MemoryLog())

    def roles(self) -> tuple[str, ...]:
        """The roles that have a log."""
        return tuple(sorted(self._held))

    def read(self, role: str) -> list[Event]:
        """All events of a role."""
        return list(self._held[role].held) if role in self._held else []


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

    def read(self, name: str) -> bytes | None:
        """A report as JSON."""
        return msgspec.json.encode(self.held[name]) if name in self.held else None

    def remove(self, name: str) -> None:
        """Forget a report."""
        self.held.pop(name, None)


class MemoryBudget:
    """What a run has used."""

    def __init__(self) -> None:
        self.used = BudgetUsed()

    def read(self) -> BudgetUsed:
        """What was written last."""
        return self.used

    def write(self, used: BudgetUsed) -> None:
        """Replace it."""
        self.used = used


class ClaimTable:
    """Claims of all owners: number to version, owner and deadline."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.rows: dict[int, tuple[int, str, float]] = {}
        self.last = 0


class MemoryClaims:
    """The claims of one owner among those of all."""

    def __init__(
        self,
        table: ClaimTable,
        owner: str,
        episodes: EpisodeSource,
        *,
        lifetime_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table, self._owner, self._lifetime_s, self._clock = table, owner, lifetime_s, clock
        self._delivered = Delivered(episodes)
        with table.lock:
            table.rows = {number: row for number, row in table.rows.items() if row[1] != owner}

    def take(self, version: int, count: int, limit: int) -> list[int]:
        """Claim up to `count` of the `limit` episodes that a version is played for; the numbers of the claims."""
        table, now_s = self._table, self._clock()
        with table.lock:
            table.rows = {number: row for number, row in table.rows.items() if row[2] >= now_s}
            playing = sum(row[0] == version for row in table.rows.values())
            granted = max(0, min(count, limit - self._delivered(version) - playing))
            numbers = list(range(table.last + 1, table.last + 1 + granted))
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


class LeaseTable:
    """Who holds a device that roles share, and who is the next to have it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.holder: dict[str, str] = {}
        self.next: dict[str, str] = {}


class MemoryLeases:
    """The leases of one role among those of all; `devices.base.DeviceLeases`."""

    def __init__(self, table: LeaseTable, owner: str) -> None:
        self._table, self._owner = table, owner

    def take(self, device: str) -> bool:
        """Whether the device is this role's from now on; where it is not, the role is next if nobody else is."""
        if is_own(device, self._owner):
            return True
        table = self._table
        with table.lock:
            if table.holder.get(device) == self._owner:
                return False
            if table.next.setdefault(device, self._owner) != self._owner or device in table.holder:
                return False
            table.holder[device] = table.next.pop(device)
        return True

    def give_back(self, device: str) -> None:
        """Let the next role have it."""
        with self._table.lock:
            if self._table.holder.get(device) == self._owner:
                del self._table.holder[device]

    def stop_waiting(self) -> None:
        """Give up every place as the next one."""
        with self._table.lock:
            self._table.next = {device: owner for device, owner in self._table.next.items() if owner != self._owner}


class MemoryTransport:
    """`transport.base.Transport` in memory."""

    def __init__(self, *, keep_versions: int = 4, forget_read: bool = False) -> None:
        self.frames = MemoryFrames()
        self.episodes = MemoryEpisodes(self.frames, forget_read=forget_read)
        self.weights = MemoryWeights(keep=keep_versions)
        self.heartbeats = MemoryHeartbeats()
        self.checkpoints = MemoryCheckpoints()
        self.events = MemoryEvents()
        self.reports = MemoryReports()
        self.budget = MemoryBudget()
        self._claims = ClaimTable()
        self._leases = LeaseTable()

    def claims(self, owner: str, *, lifetime_s: float) -> MemoryClaims:
        """The claims of one worker among those of all."""
        return MemoryClaims(self._claims, owner, self.episodes, lifetime_s=lifetime_s)

    def forget_claims(self) -> None:
        """End the claims of all workers."""
        with self._claims.lock:
            self._claims.rows = {}

    def leases(self, owner: str) -> MemoryLeases:
        """The devices that several roles share, as one role leases them."""
        return MemoryLeases(self._leases, owner)

    def collected_s(self) -> float:
        """How long the run has been collecting."""
        return self.budget.used.collect_s

    def close(self) -> None:
        """Nothing is open."""

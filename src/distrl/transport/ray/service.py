"""What the hub does for roles on other machines: a run folder's `FileTransport`, call by call.

Every call is checked before it is carried out: its arguments by their types, names by their letters, and the caller by
its incarnation. A role that was cut off and has been started again elsewhere may come back: from then on its calls are
refused, but for episodes, which are kept once by their id whoever brings them.

All state is in the folder: a hub that is killed is as good as new once it runs again. What repeats after that
(an episode, a report, a heartbeat) may be repeated.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock

import msgspec

from distrl.errors import StoreError
from distrl.experience.durable import storage_errors
from distrl.experience.index import IndexRow, StoreStats
from distrl.experience.store import Audit
from distrl.telemetry.events import EventLog
from distrl.telemetry.heartbeat import Heartbeat
from distrl.transport.base import Budget, BudgetUsed, Event
from distrl.transport.files import FileClaims, FileLayout, FileTransport
from distrl.transport.ray.wire import Broadcast, Caller, Encoded, Superseded, Upload
from distrl.types import PolicyVersion, Trajectory

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)
METRICS = ""
"""The name of the log that holds the run's metrics."""
ANYBODY = frozenset({"add", "put_frame"})
"""Calls that are carried out also for an incarnation that has a successor."""


class HubService:
    """One run folder for callers from elsewhere. Safe to share between threads."""

    def __init__(
        self,
        folder: Path,
        *,
        keep_versions: int,
        metrics: Path,
        storage: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._layout, self._metrics, self._clock = FileLayout(folder), metrics, clock
        self.files = FileTransport(self._layout, keep_versions=keep_versions, storage=storage)
        # Opened now and not by whichever threads come first, which might each open one.
        self._episodes, self._frames, self._weights = self.files.episodes, self.files.frames, self.files.weights
        self._logs: dict[str, EventLog] = {}
        self._claims: dict[str, FileClaims] = {}
        self._incarnations: dict[str, int] = {}
        self._uploaded: dict[str, int] = {}
        """The number of the last upload of each sender."""
        self._lock = Lock()

    def answer(self, caller: Caller, name: str, request: bytes) -> bytes:
        """Carry a call out, if the caller is who it says it is."""
        with storage_errors(self._layout.path):
            if name not in ANYBODY:
                self._refuse_superseded(caller)
            if name == "upload":
                self._upload(request)
                return b""
            return CALLS.call(self, name, request)

    # --- who calls ----------------------------------------------------------------------------------------------------

    def begin(self, role: str, incarnation: int) -> None:
        """A new incarnation of a role begins: from now on its predecessors are refused."""
        with self._lock:
            newest = self._newest(role)
            if incarnation < newest:
                raise _superseded(role, incarnation, newest)
            self._incarnations[role] = incarnation
            if incarnation > newest:
                self._log(role).write("started", incarnation=incarnation)

    def _refuse_superseded(self, caller: Caller) -> None:
        with self._lock:
            newest = self._newest(caller.role)
        if caller.incarnation < newest:
            raise _superseded(caller.role, caller.incarnation, newest)

    def _newest(self, role: str) -> int:
        if role not in self._incarnations:
            _check(role)
            events = self.files.events.read(role)
            told = (event.get("incarnation", 0) for event in events if event["event"] == "started")
            self._incarnations[role] = max((number for number in told if isinstance(number, int)), default=0)
        return self._incarnations[role]

    # --- episodes and pictures ----------------------------------------------------------------------------------------

    def add(self, trajectory: Trajectory, frames: dict[str, bytes]) -> None:
        """Keep an episode durably, its pictures first."""
        self._episodes.add(trajectory, frames)

    def after(self, seq: int, limit: int) -> list[IndexRow]:
        """Up to `limit` rows behind the cursor."""
        return self._episodes.after(seq, limit)

    def read(self, id: str) -> Trajectory:
        """An episode, verified."""
        return self._episodes.read(id)

    def count_of(self, version: int, worker: str, after: int) -> tuple[int, int]:
        """How many episodes a version began, and the cursor to count on from."""
        return self._episodes.count_of(version, worker=worker, after=after)

    def stats(self, after: int) -> StoreStats:
        """Totals behind a cursor."""
        return self._episodes.stats(after)

    def recover(self) -> int:
        """Take up what a killed process left half done."""
        return self._episodes.recover()

    def audit(self) -> Audit:
        """Look at every episode."""
        return self._episodes.audit()

    def put_frame(self, picture: bytes) -> str:
        """Keep a picture; its reference."""
        return self._frames.put(picture)

    def get_frame(self, reference: str) -> bytes:
        """A picture, verified."""
        return self._frames.get(reference)

    # --- weights ------------------------------------------------------------------------------------------------------

    def broadcast(self) -> Broadcast:
        """What all roles have to know at any time."""
        return Broadcast(latest=self._weights.latest(), collected_s=self._budget.read().collect_s)

    def find(self, version: int) -> PolicyVersion | None:
        """A version that is still kept."""
        return self._weights.find(version)

    def publish(self, version: PolicyVersion, data: bytes) -> PolicyVersion:
        """Make weights the newest version, durably."""
        return self._weights.publish_packed([memoryview(data)], version)

    def clock(self) -> tuple[str, float]:
        """Which start of which machine this is, and what its monotonic clock says."""
        return boot_id(), time.monotonic()

    # --- what roles say -----------------------------------------------------------------------------------------------

    def _upload(self, request: bytes) -> None:
        upload = UPLOADS.decode(request)
        with self._lock:
            if self._uploaded.get(upload.sender, 0) >= upload.number:
                return
            for event in upload.events:
                # As of when it was, on this machine's clock. Values that a JSON line cannot hold are left out there.
                values = {**event.values, "time_s": round(time.time() - event.age_s, 3)}
                self._log(event.log).write(event.event, **values)
            self._uploaded[upload.sender] = upload.number
        if upload.heartbeat is not None:
            self.beat(upload.heartbeat)

    def beat(self, heartbeat: Heartbeat) -> None:
        """Replace a role's last heartbeat."""
        _check(heartbeat.role)
        self.files.heartbeats.beat(heartbeat)

    def last(self, role: str) -> Heartbeat | None:
        """A role's last heartbeat."""
        _check(role)
        return self.files.heartbeats.last(role)

    def open_log(self, log: str) -> None:
        """Have a log there, if it were an empty one."""
        with self._lock:
            self._log(log)

    def _log(self, name: str) -> EventLog:
        if name not in self._logs:
            if name != METRICS:
                _check(name)
            path = self._metrics if name == METRICS else self._layout.logs / f"{name}.jsonl"
            self._logs[name] = EventLog(path)
        return self._logs[name]

    def logs(self) -> tuple[str, ...]:
        """The roles that have a log."""
        return self.files.events.roles()

    def read_log(self, role: str) -> list[Event]:
        """All whole events of a role."""
        _check(role)
        return self.files.events.read(role)

    # --- checkpoints, reports, the budget -----------------------------------------------------------------------------

    def newest_checkpoint(self) -> dict[str, bytes] | None:
        """The newest checkpoint that is whole."""
        return self.files.checkpoints.newest()

    def write_checkpoint(self, files: dict[str, bytes]) -> None:
        """Save durably."""
        for name in files:
            _check(name.replace(".", "_"))
        self.files.checkpoints.write(files)

    def has_report(self, name: str) -> bool:
        """Whether there is such a report."""
        _check(name)
        return self.files.reports.has(name)

    def write_report(self, name: str, report: bytes) -> None:
        """Keep a report, as JSON."""
        _check(name)
        self.files.reports.write_json(name, report)

    def read_report(self, name: str) -> bytes | None:
        """A report as JSON."""
        _check(name)
        return self.files.reports.read(name)

    def remove_report(self, name: str) -> None:
        """Forget a report."""
        _check(name)
        self.files.reports.remove(name)

    def read_budget(self) -> BudgetUsed:
        """What the run has used."""
        return self._budget.read()

    def write_budget(self, used: BudgetUsed) -> None:
        """Replace it, durably."""
        self._budget.write(used)

    @property
    def _budget(self) -> Budget:
        return self.files.budget

    # --- claims -------------------------------------------------------------------------------------------------------

    def open_claims(self, owner: str, lifetime_s: float) -> None:
        """A new incarnation of an owner begins: what an earlier one has claimed is free."""
        self._open_claims(owner, lifetime_s, again=False)

    def _open_claims(self, owner: str, lifetime_s: float, *, again: bool) -> FileClaims:
        before = self._claims.pop(owner, None)
        if before is not None:
            before.close()
        made = FileClaims(
            self._layout.claims, owner, self._episodes, lifetime_s=lifetime_s, clock=self._clock, again=again
        )
        self._claims[owner] = made
        return made

    def take_claims(self, owner: str, lifetime_s: float, wanted: tuple[int, int, int]) -> list[int]:
        """Claim episodes of a version: its number, how many, and of how many it is played for."""
        return self._claims_of(owner, lifetime_s).take(*wanted)

    def settle_claim(self, owner: str, lifetime_s: float, number: int) -> None:
        """End one claim."""
        self._claims_of(owner, lifetime_s).settle(number)

    def _claims_of(self, owner: str, lifetime_s: float) -> FileClaims:
        # An owner that this hub does not know began before the hub was killed: what it has claimed still counts.
        return self._claims.get(owner) or self._open_claims(owner, lifetime_s, again=True)

    def forget_claims(self) -> None:
        """End the claims of all workers."""
        for claims in self._claims.values():
            claims.close()
        self._claims.clear()
        self.files.forget_claims()


CALLS = Encoded(HubService, but="answer")
UPLOADS = msgspec.msgpack.Decoder(Upload)
STORING = frozenset({"add", "put_frame", "get_frame"})
"""Calls that may wait for a target elsewhere, and must not keep others waiting."""
CLAIMS = frozenset({"open_claims", "take_claims", "settle_claim", "forget_claims"})
"""Calls that have to come from one thread: SQLite's connections belong to one."""


def boot_id() -> str:
    """A name for this start of this machine; empty where the system gives none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _check(name: str) -> None:
    """`StoreError` where a name could be a path."""
    if not _NAME.fullmatch(name):
        raise StoreError(
            f"{name[:100]!r} is no name of a role or a report",
            expected="letters, digits, - and _",
            fix="install the same version of distrl on all machines of the run",
        )


def _superseded(role: str, incarnation: int, newest: int) -> Superseded:
    return Superseded(
        f"{role} was started again elsewhere: this is its incarnation {incarnation}, and {newest} has begun",
        expected="one incarnation at a time",
        fix="nothing: this one ends",
    )

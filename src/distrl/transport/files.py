"""The transport on files of one machine: what a run folder holds is what travels.

Any number of processes may use it at the same time. Files appear whole or not at all (`experience.durable`); the index of
episodes and the table of claims are SQLite, which wants a local disk.

The table of claims says nothing of the past: a claim ends when its owner settles it, when its owner's next incarnation
opens the table, or at its deadline, so a process that is killed holds nobody up for good. A session begins without claims.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import msgspec

from distrl.errors import StoreBusy, StoreError
from distrl.experience.durable import replace, storage_errors, sync_folder
from distrl.experience.frames import FrameStorage, FrameStore
from distrl.experience.index import IndexRow, StoreStats
from distrl.experience.store import Added, Audit, ExperienceStore
from distrl.experience.target import Target
from distrl.telemetry.events import EventLog, read_events
from distrl.telemetry.heartbeat import Heartbeat
from distrl.transport.base import BudgetUsed, Delivered, EpisodeSource, Event
from distrl.transport.lease_files import FileLeases
from distrl.transport.stored_elsewhere import FramesElsewhere, StoredElsewhere
from distrl.transport.weight_files import WeightsFolder
from distrl.types import Trajectory

KEEP_CHECKPOINTS = 2
MANIFEST = "manifest.json"
LOG_SUFFIX = ".jsonl"
LOOK_EVERY_S = 1.0
"""How often the budget that the supervisor writes down is read again."""


class FileLayout:
    """Where in a run folder what travels lies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.experience = path / "experience"
        self.weights = path / "weights"
        self.checkpoints = path / "checkpoints"
        self.heartbeats = path / "heartbeats"
        self.claims = self.heartbeats / "round.sqlite"
        self.leases = self.heartbeats / "leases"
        self.logs = path / "logs"
        self.evaluations = path / "evaluations"
        self.budget = path / "budget.json"


class FileTransport:
    """`transport.base.Transport` over one folder."""

    def __init__(self, layout: FileLayout, *, keep_versions: int = 4, storage: str = "") -> None:
        """`storage`: where episodes and pictures are durable first; empty: in the folder alone."""
        self._layout, self._keep_versions = layout, keep_versions
        self._elsewhere = StoredElsewhere(Target(storage).below(layout.path.name)) if storage else None
        self.budget = FileBudget(layout.budget)
        self._collected = _CollectedTime(self.budget)

    @cached_property
    def episodes(self) -> FileEpisodes:
        """Trajectories, opened on first use."""
        return FileEpisodes(self._layout.experience, self._elsewhere)

    @cached_property
    def frames(self) -> FrameStorage:
        """Screenshots, opened on first use."""
        frames = FrameStore(self._layout.experience)
        return frames if self._elsewhere is None else FramesElsewhere(frames, self._elsewhere)

    @cached_property
    def weights(self) -> WeightsFolder:
        """Policy versions."""
        return WeightsFolder(self._layout.weights, keep=self._keep_versions)

    @cached_property
    def heartbeats(self) -> FileHeartbeats:
        """What roles are doing."""
        return FileHeartbeats(self._layout.heartbeats)

    @cached_property
    def checkpoints(self) -> CheckpointFolder:
        """The learner's state."""
        return CheckpointFolder(self._layout.checkpoints)

    @cached_property
    def events(self) -> FileEvents:
        """What roles have written down."""
        return FileEvents(self._layout.logs)

    @cached_property
    def reports(self) -> FileReports:
        """Evaluations."""
        return FileReports(self._layout.evaluations)

    def claims(self, owner: str, *, lifetime_s: float) -> FileClaims:
        """The claims of one worker among those of all."""
        return FileClaims(self._layout.claims, owner, self.episodes, lifetime_s=lifetime_s)

    def forget_claims(self) -> None:
        """Remove the table of claims."""
        forget_claims(self._layout.claims)

    def leases(self, owner: str) -> FileLeases:
        """The devices that several roles share, as one role leases them."""
        return FileLeases(self._layout.leases, owner)

    def collected_s(self) -> float:
        """How long the run has been collecting, as its supervisor wrote it down."""
        return self._collected.read()

    def close(self) -> None:
        """Close the index of episodes; the next use opens it again."""
        episodes = self.__dict__.pop("episodes", None)  # where `cached_property` keeps it
        if episodes is not None:
            episodes.close()


class FileEpisodes:
    """Trajectories and their pictures in one folder."""

    def __init__(self, folder: Path, elsewhere: StoredElsewhere | None = None) -> None:
        self.store = ExperienceStore(folder)
        self._folder, self._elsewhere = folder, elsewhere
        self._frames: FrameStore | None = None

    def add(self, trajectory: Trajectory, frames: Mapping[str, bytes]) -> Added:
        """Make the trajectory durable, its pictures first.

        An index that someone else keeps locked is a store that does not answer: this waits until it does. How long to wait for
        that, and what to do meanwhile, is the caller's. The same holds for a target elsewhere, which has it all first.
        """
        if self._elsewhere is not None:
            self._elsewhere.keep(trajectory, frames.values())
        if frames:
            self._frames = self._frames or FrameStore(self._folder)
            self._frames.put_all(frames.values())
        while True:
            with suppress(StoreBusy):  # each try waits for the lock as long as the index does
                return self.store.add(trajectory)

    def after(self, seq: int, limit: int) -> list[IndexRow]:
        """Up to `limit` rows behind the cursor, in order."""
        return self.store.after(seq, limit)

    def read(self, id: str) -> Trajectory:
        """A trajectory, verified."""
        return self.store.read(id)

    def count_of(self, version: int, *, worker: str = "", after: int = 0) -> tuple[int, int]:
        """How many episodes a version began, and the cursor to count on from."""
        return self.store.count_of(version, worker=worker, after=after)

    def stats(self, after: int = 0) -> StoreStats:
        """Totals over the episodes that were played behind a cursor."""
        return self.store.stats(after)

    def recover(self) -> int:
        """Index whole files that a killed process left without a row."""
        return self.store.recover()

    def audit(self) -> Audit:
        """Read every file and compare with the index."""
        self.store.recover(temporary_age_s=0.0)
        return self.store.audit()

    def close(self) -> None:
        """Close the index."""
        self.store.close()


class FileHeartbeats:
    """One small file per role, replaced with every beat."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def beat(self, heartbeat: Heartbeat) -> None:
        """Replace the role's file. Not synced: a heartbeat that is lost in a power cut is of no use to anyone."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{heartbeat.role}.json"
        draft = path.with_suffix(".tmp")
        try:
            draft.write_bytes(msgspec.json.encode(heartbeat))
            draft.replace(path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise

    def last(self, role: str) -> Heartbeat | None:
        """A role's last heartbeat; None where there was none, or its file is damaged."""
        try:
            return msgspec.json.decode((self._folder / f"{role}.json").read_bytes(), type=Heartbeat)
        except (FileNotFoundError, IsADirectoryError, ValueError):  # ValueError: no JSON, another record, or no UTF-8
            return None


class CheckpointFolder:
    """Checkpoints as folders that appear whole under their final name; a manifest holds the checksum of every file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, files: Mapping[str, bytes]) -> Path:
        """Save durably; older checkpoints but one are removed."""
        # A number of its own, never one that is taken: replacing a folder has a moment in which neither is there.
        taken = self._paths()
        name = f"{int(taken[-1].name) + 1 if taken else 0:08d}"
        path, draft = self._folder / name, self._folder / f".{name}.partial"
        manifest = msgspec.json.encode({file: sha256(data).hexdigest() for file, data in files.items()})
        with storage_errors(self._folder):
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            for file, data in {**files, MANIFEST: manifest}.items():
                replace(draft / file, data)
            draft.rename(path)
            sync_folder(self._folder)
        for old in self._paths()[:-KEEP_CHECKPOINTS]:
            shutil.rmtree(old, ignore_errors=True)
        return path

    def newest(self) -> dict[str, bytes] | None:
        """The newest checkpoint that is whole; None where there was never one; `StoreError` where all are damaged."""
        problems = []
        for path in reversed(self._paths()):
            try:
                return read_checkpoint(path)
            except StoreError as error:
                problems.append(error)
        if problems:
            raise problems[0]
        return None

    def _paths(self) -> list[Path]:
        return sorted(path for path in self._folder.glob("[0-9]" * 8) if path.is_dir())


def read_checkpoint(path: Path) -> dict[str, bytes]:
    """The files of the checkpoint in this folder, verified."""
    try:
        manifest = msgspec.json.decode((path / MANIFEST).read_bytes(), type=dict[str, str])
        files = {name: (path / Path(name).name).read_bytes() for name in manifest}
    except (OSError, ValueError) as error:
        raise _damaged(path, str(error)) from error
    for name, data in files.items():
        if sha256(data).hexdigest() != manifest[name]:
            raise _damaged(path, f"the checksum of {name} differs")
    return files


def _damaged(path: Path, why: str) -> StoreError:
    return StoreError(
        f"checkpoint {path} is damaged: {why}",
        expected=f"{MANIFEST} and the files that it names, as they were written",
        fix=f"remove {path} to go on from the checkpoint before it, or start a new run",
    )


class FileEvents:
    """A log per role, a line per event."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def log(self, role: str) -> EventLog:
        """Opens the role's file to append to it."""
        return EventLog(self._folder / f"{role}{LOG_SUFFIX}")

    def roles(self) -> tuple[str, ...]:
        """The roles that have a file."""
        return tuple(sorted(path.stem for path in self._folder.glob(f"*{LOG_SUFFIX}")))

    def read(self, role: str) -> list[Event]:
        """All whole lines; one that a kill cut off or that was damaged is skipped."""
        return read_events(self._folder / f"{role}{LOG_SUFFIX}")


class FileReports:
    """Evaluation reports, a JSON file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def has(self, name: str) -> bool:
        """Whether there is such a report."""
        return (self._folder / f"{name}.json").exists()

    def write(self, name: str, report: msgspec.Struct) -> None:
        """Keep a report."""
        self.write_json(name, msgspec.json.encode(report))

    def write_json(self, name: str, report: bytes) -> None:
        """Keep a report that is JSON already."""
        self._folder.mkdir(parents=True, exist_ok=True)
        replace(self._folder / f"{name}.json", msgspec.json.format(report))

    def read(self, name: str) -> bytes | None:
        """A report as JSON."""
        try:
            return (self._folder / f"{name}.json").read_bytes()
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        """Forget a report."""
        (self._folder / f"{name}.json").unlink(missing_ok=True)


class FileBudget:
    """What a run has used, in one small file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> BudgetUsed:
        """What had been used when it was last written; `StoreError` where the file is damaged."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=BudgetUsed)
        except FileNotFoundError:
            return BudgetUsed()
        except ValueError as error:
            raise StoreError(
                f"{self._path} is damaged: {error}",
                expected="what the run wrote there",
                fix=f"remove {self._path}: the run then counts its time from 0 again",
            ) from error

    def write(self, used: BudgetUsed) -> None:
        """Replace the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace(self._path, msgspec.json.encode(used))


class _CollectedTime:
    """How long a run has been collecting: what its supervisor wrote down, so that it outlives whoever asks."""

    def __init__(self, budget: FileBudget, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget, self._clock = budget, clock
        self._read_s, self._found_s = float("-inf"), 0.0

    def read(self) -> float:
        """Seconds, a few less than it is by now."""
        now_s = self._clock()
        if now_s - self._read_s >= LOOK_EVERY_S:
            self._read_s, self._found_s = now_s, self._budget.read().collect_s
        return self._found_s


# --- claims -----------------------------------------------------------------------------------------------------------


BUSY_S = 30.0
"""How long a process waits for another one's transaction before it gives up."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS claims (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    version INTEGER NOT NULL,
    owner TEXT NOT NULL,
    until_s REAL NOT NULL
)
"""
_CLAIM = "INSERT INTO claims (version, owner, until_s) VALUES (?, ?, ?)"


class FileClaims:
    """The claims of one owner among those of all. At most one process may use a name at a time."""

    def __init__(
        self,
        path: Path,
        owner: str,
        episodes: EpisodeSource,
        *,
        lifetime_s: float,
        clock: Callable[[], float] = time.monotonic,
        again: bool = False,
    ) -> None:
        """With `again`, the same incarnation of the owner goes on, and its claims stay."""
        self._path, self._owner, self._lifetime_s, self._clock = path, owner, lifetime_s, clock
        self._delivered = Delivered(episodes)
        with storage_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
            self._connection.execute("PRAGMA synchronous = OFF")
        with self._transaction() as ask:
            ask(_SCHEMA)
            if not again:
                ask(
                    "DELETE FROM claims WHERE owner = ?", owner
                )  # of an earlier incarnation: nobody plays these any more

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def take(self, version: int, count: int, limit: int) -> list[int]:
        """Claim up to `count` of the `limit` episodes that a version is played for; the numbers of the claims."""
        with self._transaction() as ask:
            now_s = self._clock()
            ask("DELETE FROM claims WHERE until_s < ?", now_s)
            ((playing,),) = ask("SELECT count(*) FROM claims WHERE version = ?", version)
            granted = max(0, min(count, limit - self._delivered(version) - int(playing)))
            numbers = []
            for _ in range(granted):
                ask(_CLAIM, version, self._owner, now_s + self._lifetime_s)
                numbers += [int(number) for (number,) in ask("SELECT last_insert_rowid()")]
        return numbers

    def settle(self, number: int) -> None:
        """End one claim, and prolong the others of this owner; one whose deadline has passed is gone already."""
        with self._transaction() as ask:
            ask("DELETE FROM claims WHERE id = ?", number)
            ask("UPDATE claims SET until_s = ? WHERE owner = ?", self._clock() + self._lifetime_s, self._owner)

    @contextmanager
    def _transaction(self) -> Iterator[Callable[..., list[tuple[int, ...]]]]:
        def ask(statement: str, *values: object) -> list[tuple[int, ...]]:
            return self._connection.execute(statement, values).fetchall()

        with storage_errors(self._path.parent):
            self._connection.execute("BEGIN IMMEDIATE")
            ended_by = "ROLLBACK"
            try:
                yield ask
                ended_by = "COMMIT"
            finally:
                self._connection.execute(ended_by)


def forget_claims(path: Path) -> None:
    """Remove the table and what belongs to it; for a session that begins, before anyone opens it."""
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink(missing_ok=True)

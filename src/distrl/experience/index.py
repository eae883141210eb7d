"""The SQLite table of what the store holds: one row per episode, numbered in the order in which they became visible.

Several processes write at once. SQLite lets one of them commit at a time, so a reader that has seen number n will
never find a smaller one appear later: a number is a safe cursor. Every insertion is its own synced transaction.
Readers wait for no writer, in this process or another.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote

import msgspec

from distrl.errors import StoreError
from distrl.experience.durable import link_once, sync_folder, temporary_name
from distrl.experience.episode_file import FORMAT, EpisodeFile, other_format
from distrl.types import Ending, Source

BUSY_S = 30.0
"""How long a process waits for another one's transaction before it gives up."""

_SCHEMA = """
CREATE TABLE episodes (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    task TEXT NOT NULL,
    template TEXT NOT NULL,
    version INTEGER NOT NULL,
    steps INTEGER NOT NULL,
    success INTEGER NOT NULL,
    source TEXT NOT NULL,
    ending TEXT NOT NULL,
    wall_s REAL NOT NULL,
    worker TEXT NOT NULL,
    created_s REAL NOT NULL,
    size_bytes INTEGER NOT NULL
)
"""

_INSERT = """
INSERT INTO episodes (id, task, template, version, steps, success, source, ending, wall_s, worker, created_s, size_bytes)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING
"""

_STATS = """
SELECT count(*), coalesce(sum(steps), 0), coalesce(sum(success), 0), coalesce(sum(wall_s), 0.0),
       coalesce(sum(size_bytes), 0), (SELECT coalesce(max(seq), ?) FROM episodes WHERE seq > ?)
FROM episodes WHERE seq > ? AND source = 'played'
"""

_COUNT_OF = """
SELECT count(*) FILTER (WHERE version = ? AND source = 'played' AND (worker = ? OR ? = '')), coalesce(max(seq), ?) FROM episodes WHERE seq > ?
"""


class IndexRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an episode without opening its file."""

    seq: int
    """Grows with every episode; pass it to `after` to get what came later."""
    id: str
    task: str
    template: str
    version: int
    """The oldest policy version that acted in it."""
    steps: int
    success: bool
    source: Source
    """Played, or made from what was played or demonstrated: only played ones are counted as episodes."""
    ending: Ending
    wall_s: float
    worker: str
    created_s: float
    size_bytes: int


class StoreStats(msgspec.Struct, frozen=True, kw_only=True):
    """Totals over the episodes that were played after a cursor."""

    episodes: int
    steps: int
    successes: int
    wall_s: float
    size_bytes: int
    last_seq: int
    """The cursor to ask from next time."""


class Index:
    """The table in one file. Safe to share between threads; every process opens its own."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        if not read_only and not path.exists():
            _create(path)
        try:
            self._open(_read_only(path) if read_only else _uri(path), path)
        except sqlite3.OperationalError:
            if not read_only:
                raise
            # A killed run without the third file, in a folder that nobody may write to: all but what was added last.
            self._open(f"{_uri(path)}?immutable=1", path)

    def _open(self, place: str, path: Path) -> None:
        with ExitStack() as half_done:
            # Two, so that a thread that asks does not wait for one whose insertion someone else's lock holds up.
            self._reader, self._writer = _Connection(place), _Connection(place)
            half_done.callback(self.close)
            _check_format(self._reader, path)
            self._writer.ask("PRAGMA synchronous = FULL")
            half_done.pop_all()  # whole: it stays open

    def close(self) -> None:
        """Let go of the file."""
        self._reader.close()
        self._writer.close()

    def insert(self, episode: EpisodeFile) -> int:
        """The number of the episode's row, which is made unless it is there."""
        trajectory = episode.trajectory
        self._writer.ask(
            _INSERT,
            trajectory.id,
            trajectory.task.id,
            trajectory.task.template,
            trajectory.version,
            len(trajectory.steps),
            trajectory.verdict.success,
            trajectory.source,
            trajectory.ending.value,
            trajectory.wall_s,
            trajectory.worker,
            episode.created_s,
            episode.size_bytes,
        )
        seq = self.find(trajectory.id)
        if seq is None:
            raise StoreError(
                f"episode {trajectory.id} left the index while it was added", fix="run a single distrl here"
            )
        return seq

    def find(self, id: str) -> int | None:
        """The number of an episode, or None where there is none."""
        rows = self._ask("SELECT seq FROM episodes WHERE id = ?", id)
        return int(rows[0][0]) if rows else None

    def after(self, seq: int, limit: int) -> list[IndexRow]:
        """The first `limit` rows behind a cursor, in order."""
        rows = self._ask("SELECT * FROM episodes WHERE seq > ? ORDER BY seq LIMIT ?", seq, limit)
        names = IndexRow.__struct_fields__
        return [msgspec.convert(dict(zip(names, row, strict=True)), IndexRow, strict=False) for row in rows]

    def ids(self) -> list[str]:
        """All ids, in order."""
        return [id for (id,) in self._ask("SELECT id FROM episodes ORDER BY seq")]

    def count(self) -> int:
        """How many episodes were played."""
        return int(self._ask("SELECT count(*) FROM episodes WHERE source = 'played'")[0][0])

    def count_of(self, version: int, *, worker: str, after: int) -> tuple[int, int]:
        """How many episodes behind a cursor a version began, those of one worker or of all, and the next cursor."""
        ((count, last_seq),) = self._ask(_COUNT_OF, version, worker, worker, after, after)
        return int(count), int(last_seq)

    def stats(self, after: int) -> StoreStats:
        """Totals behind a cursor."""
        (row,) = self._ask(_STATS, after, after, after)
        return msgspec.convert(dict(zip(StoreStats.__struct_fields__, row, strict=True)), StoreStats)

    def _ask(self, statement: str, *values: object) -> list[Any]:
        return self._reader.ask(statement, *values)


class _Connection:
    """A connection that threads take turns at."""

    def __init__(self, uri: str) -> None:
        self._lock = Lock()
        self._connection = sqlite3.connect(uri, timeout=BUSY_S, isolation_level=None, check_same_thread=False, uri=True)

    def ask(self, statement: str, *values: object) -> list[Any]:
        with self._lock:
            return self._connection.execute(statement, values).fetchall()

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def _uri(path: Path) -> str:
    return f"file:{quote(os.fsencode(path))}"


def _read_only(path: Path) -> str:
    """Where to read an index without making the files beside it that SQLite wants for write-ahead logging.

    While someone writes, and after a kill, they are there already. Once all have ended well they are gone, and the
    index alone holds everything.
    """
    log = path.with_name(f"{path.name}-wal")
    # Beside an empty index SQLite removes the log, even where it may only read.
    is_written = all(file.exists() and file.stat().st_size > 0 for file in (path, log))
    return f"{_uri(path)}?{'mode=ro' if is_written else 'immutable=1'}"


def _create(path: Path) -> None:
    # Two processes that switch one new file to write-ahead logging at once can meet "database is locked" whatever the
    # time-out, so each prepares a file of its own and the first to link it wins.
    temporary = temporary_name(path)
    try:
        with closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(_SCHEMA)
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        link_once(temporary, path)
    finally:
        for leftover in path.parent.glob(f"{temporary.name}*"):
            leftover.unlink(missing_ok=True)
    sync_folder(path.parent)


def _check_format(connection: _Connection, path: Path) -> None:
    ((number,),) = connection.ask("PRAGMA user_version")
    if number >= 1 and number != FORMAT:
        raise other_format(path, number)
    if number < 1:
        raise StoreError(f"{path} is no index of episodes", fix="move that file away, or choose another folder")

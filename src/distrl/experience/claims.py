"""Which episodes are being played at the moment, and by whom: a small table that all workers of a run share.

A claim ends when its owner settles it, when its owner's next life opens the table, or at its deadline, so a process
that is killed holds nobody up for good. Whoever settles one claim is alive, and its others last a whole lifetime from
then on: what waits for a slow disk behind others is not given out again while they get through. The table says nothing
of the past: it is not synced, and a session begins without.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from distrl.experience.durable import storage_errors

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


class Claims:
    """The claims of one owner among those of all. At most one process may use a name at a time."""

    def __init__(self, path: Path, owner: str, *, lifetime_s: float, clock: Callable[[], float] = time.time) -> None:
        self._path, self._owner, self._lifetime_s, self._clock = path, owner, lifetime_s, clock
        with storage_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
            self._connection.execute("PRAGMA synchronous = OFF")
        with self._transaction() as ask:
            ask(_SCHEMA)
            ask("DELETE FROM claims WHERE owner = ?", owner)  # of an earlier life: nobody plays these any more

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def take(self, version: int, count: int, free: Callable[[], int]) -> list[int]:
        """Claim up to `count` episodes of a version; the numbers of the claims, as many as were left.

        `free` says how many are not delivered yet. It is asked while nobody else can claim or settle: an episode that is
        delivered before it is settled is never missing from both counts.
        """
        with self._transaction() as ask:
            now_s = self._clock()
            ask("DELETE FROM claims WHERE until_s < ?", now_s)
            ((playing,),) = ask("SELECT count(*) FROM claims WHERE version = ?", version)
            granted = max(0, min(count, free() - int(playing)))
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
            try:
                yield ask
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")


def forget_claims(path: Path) -> None:
    """Remove the table and what belongs to it; for a session that begins, before anyone opens it."""
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink(missing_ok=True)

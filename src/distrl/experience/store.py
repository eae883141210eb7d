"""Where episodes live: one immutable file each, and an index that says in which order they came.

    <folder>/index.sqlite · <folder>/episodes/<00..ff>/<id>.ep

What `add` has acknowledged survives `kill -9` and a power cut, is there exactly once by its id, and never changes.
Any number of processes may add and read at the same time. Which episodes are sampled, and how often, is left to
`replay`; pictures are left to `frames`.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import msgspec

from distrl.errors import StoreError
from distrl.experience.durable import TEMPORARY, make_fan, publish, storage_errors
from distrl.experience.episode_file import EpisodeFile, creation_time, encode, load
from distrl.experience.index import Index, IndexRow, StoreStats
from distrl.types import Trajectory

__all__ = ["Added", "Audit", "ExperienceStore", "IndexRow", "StoreStats", "has_index"]

SUFFIX = ".ep"
TEMPORARY_AGE_S = 60.0
"""A temporary file older than this belongs to nobody: writing one takes milliseconds."""

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=+-]{0,119}")


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an addition; the episode is safe either way."""

    status: Literal["added", "duplicate"]
    seq: int


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at every file of a store found."""

    episodes: int
    """Rows of the index."""
    missing: tuple[str, ...]
    """Acknowledged ids whose file is gone or damaged: lost episodes."""
    orphans: tuple[str, ...]
    """Files that no row names, relative to the store: never acknowledged, so not lost."""
    duplicates: tuple[str, ...]
    """Ids that are held more than once."""

    @property
    def healthy(self) -> bool:
        """True where nothing is lost and nothing is there twice."""
        return not self.missing and not self.duplicates


class ExperienceStore:
    """All episodes of a run."""

    def __init__(self, folder: Path, *, read_only: bool = False, clock: Callable[[], float] = time.time) -> None:
        """Open the store, or make it; with `read_only` nothing in its folder is created or changed."""
        self.folder = folder
        self._clock = clock
        self._episodes = folder / "episodes"
        with storage_errors(folder):
            if not read_only:
                folder.mkdir(parents=True, exist_ok=True)
                make_fan(self._episodes)
            self._index = Index(folder / "index.sqlite", read_only=read_only)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the index. Nothing needs saving: every addition already is."""
        self._index.close()

    def add(self, trajectory: Trajectory) -> Added:
        """Make `trajectory` durable, once; an id that is there already changes nothing and is called a duplicate.

        A call that was cut off between the file and the row is completed by the next one with the same id, or by
        `recover`. The file that came first is the one that counts.
        """
        path = self.path(trajectory.id)
        with storage_errors(self.folder):
            seq = self._index.find(trajectory.id)
            if seq is not None:
                return Added(status="duplicate", seq=seq)
            created_s = self._clock()
            content = encode(trajectory, created_s=created_s)
            made = publish(path, content)
            ours = EpisodeFile(trajectory=trajectory, created_s=created_s, size_bytes=len(content))
            # Should the row fail, the file stays: another process may have seen it and indexed it in the meantime.
            seq = self._index.insert(ours if made else load(path))
        return Added(status="added" if made else "duplicate", seq=seq)

    def read(self, id: str) -> Trajectory:
        """The episode, verified; `StoreError` names the file where it is damaged or gone."""
        path = self.path(id)
        if not path.exists():
            self._refuse_unknown(id)
        trajectory = load(path).trajectory
        if trajectory.id != id:
            raise StoreError(f"{path} holds episode {trajectory.id}", fix="copy the right file back from a backup")
        return trajectory

    def _refuse_unknown(self, id: str) -> None:
        """Raise where there never was such an episode, and not one whose file is gone."""
        with storage_errors(self.folder):
            known = id in self._index.ids()
        if not known:
            raise StoreError(
                f"{self.folder} holds no episode {id}",
                expected="the id of a stored episode",
                fix=f"distrl view {self.folder.parent} lists them, and in Python `distrl.open_run(…).index()`",
            )

    def after(self, seq: int, limit: int) -> list[IndexRow]:
        """Up to `limit` rows newer than the cursor `seq` (0: from the start), in order."""
        with storage_errors(self.folder):
            return self._index.after(seq, limit)

    def count(self) -> int:
        """How many episodes were played."""
        with storage_errors(self.folder):
            return self._index.count()

    def count_of(self, version: int, *, worker: str = "", after: int = 0) -> tuple[int, int]:
        """How many episodes a version began, by one worker or by all, and the cursor to count on from."""
        with storage_errors(self.folder):
            return self._index.count_of(version, worker=worker, after=after)

    def stats(self, after: int = 0) -> StoreStats:
        """Totals over the episodes newer than the cursor."""
        with storage_errors(self.folder):
            return self._index.stats(after)

    def recover(self, *, temporary_age_s: float = TEMPORARY_AGE_S) -> int:
        """Index the whole files that a killed process left without a row, remove unfinished ones; how many were indexed.

        Safe while others add: whoever inserts second finds the row there. Also rebuilds an index that was lost.
        """
        with storage_errors(self.folder):
            self._remove_temporaries(self._clock() - temporary_age_s)
            known = set(self._index.ids())
            orphans = [path for path in self._files() if path.stem not in known]
            # By age, so that a rebuilt index keeps the order in which the episodes came; one at a time in memory.
            found = 0
            for path in sorted(orphans, key=creation_time):
                if (episode := _whole(path)) is not None:
                    self._index.insert(episode)
                    found += 1
        return found

    def audit(self) -> Audit:
        """Read every file and compare with the index. Call it when nobody adds: a file on its way in looks like an orphan."""
        with storage_errors(self.folder):
            files = sorted(self._files())
            ids = self._index.ids()
        held = {path: episode.trajectory.id for path in files if (episode := _whole(path))}
        named = {self.path(id) for id in ids}
        rows, copies = Counter(ids), Counter(held.values())
        return Audit(
            episodes=len(ids),
            missing=tuple(id for id in ids if held.get(self.path(id)) != id),
            orphans=tuple(str(path.relative_to(self.folder)) for path in files if path not in named),
            duplicates=tuple(sorted(id for id in rows | copies if rows[id] > 1 or copies[id] > 1)),
        )

    def path(self, id: str) -> Path:
        """Where the file of an episode is, or would be."""
        if not _ID.fullmatch(id):
            raise StoreError(
                f"{id!r} cannot be the id of an episode",
                expected="1 to 120 letters, digits and _.=+- with a letter, digit or _ first",
                fix="give the trajectory an id made of the worker's name and a counter, or a UUID",
            )
        return self._episodes / blake2b(id.encode(), digest_size=1).hexdigest() / f"{id}{SUFFIX}"

    def _files(self) -> Iterator[Path]:
        return self._episodes.glob(f"*/[!.]*{SUFFIX}")

    def _remove_temporaries(self, before_s: float) -> None:
        for path in self.folder.glob(f"**/.*{TEMPORARY}*"):
            try:
                if path.stat().st_mtime < before_s:
                    path.unlink()
            except FileNotFoundError:
                continue  # its owner was only slow, and has just finished


def has_index(folder: Path) -> bool:
    """Whether a store is in this folder; `StoreError` where its episodes are there and its index is gone."""
    if (folder / "index.sqlite").exists():
        return True
    if not any((folder / "episodes").glob(f"*/[!.]*{SUFFIX}")):
        return False
    raise StoreError(
        f"{folder / 'index.sqlite'} is gone, and the episodes are there",
        expected="the index of the episodes",
        fix=f"put it back, or distrl train --resume {folder.parent}, which rebuilds it from the episode files",
    )


def _whole(path: Path) -> EpisodeFile | None:
    try:
        return load(path)
    except StoreError:
        return None

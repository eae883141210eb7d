"""Where the workers of a run spool what its folder does not take, and how a later session finds that again.

A spool covers a run folder whose disk hangs, so it lies on another one: in the machine's folder for temporary files, in a
folder of this user alone whose name nobody can guess. The run folder keeps the names of all that it has used. So a run that was
moved, that has another `TMPDIR` or fewer workers still finds what waits there; the first worker hands it over. A copy of
a run leaves the spools to the original.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import msgspec

from distrl.config.schema import Config
from distrl.errors import StoreError
from distrl.experience.durable import replace, storage_errors
from distrl.runtime.base import worker_names
from distrl.runtime.run_folder import RunFolder, held


class SpoolRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a run folder keeps of its spools."""

    run: str
    """Where the run folder was when this was written: a copy finds its original there."""
    folders: tuple[str, ...] = ()
    """Each with a folder per worker; the newest last."""


def prepare_spools(run: RunFolder) -> Path:
    """The folder for the spools of a session, of this user alone; a name that someone else has taken is given up.

    For the one process that begins the session: roles are told the folder.
    """
    place = Path(tempfile.gettempdir()).resolve()
    with storage_errors(place, flag="TMPDIR"):
        folders = _folders(run)
        here = (folder for folder in reversed(folders) if Path(folder).parent == place)
        found = next((folder for folder in here if _make_private(Path(folder))), None) or str(_make_new(place))
    record = SpoolRecord(run=str(run.path.resolve()), folders=tuple(dict.fromkeys((*folders, found))))
    with storage_errors(run.path):
        replace(run.spools, msgspec.json.encode(record))
    return Path(found)


def spool_names(run: RunFolder) -> tuple[str, ...]:
    """The names of the folders that the run has spooled in so far, wherever they are; that of the present session last."""
    return tuple(dict.fromkeys(Path(folder).name for folder in _folders(run)))


def left_spools(run: RunFolder, config: Config, current: Path) -> Iterator[Path]:
    """Spools of this run that none of its workers uses any more; touches disks that may hang.

    A worker that a killed supervisor left behind keeps its own until it has ended.
    """
    names = worker_names(config)
    for folder in map(Path, _folders(run)):
        if not _is_private(folder):
            continue
        for spool in sorted(path for path in folder.iterdir() if path.is_dir()):
            in_use = folder == current and spool.name in names
            if not in_use and (spool.name in names or not held(run.lock(spool.name))):
                yield spool


def remove_empty(folder: Path) -> None:
    """Tidy up behind a session whose store has taken everything."""
    with suppress(OSError):
        for spool in folder.iterdir():
            with suppress(OSError):  # something still waits there
                spool.rmdir()
        folder.rmdir()


def _folders(run: RunFolder) -> tuple[str, ...]:
    """Where this run has spooled so far; nothing for a copy whose original is still there."""
    record = _read(run)
    if record is None:
        return ()
    if record.run != str(run.path.resolve()):
        original = _read(RunFolder(Path(record.run)))
        if original is not None and {*original.folders} & {*record.folders}:
            return ()
    return record.folders


def _read(run: RunFolder) -> SpoolRecord | None:
    try:
        return msgspec.json.decode(run.spools.read_bytes(), type=SpoolRecord)
    except OSError:
        return None
    except ValueError as error:
        raise StoreError(
            f"{run.spools} is damaged: {error}",
            expected="what the run wrote there",
            fix=f"remove {run.spools}; episodes that wait in a spool are then left there",
        ) from error


def _make_new(place: Path) -> Path:
    folder = place / f"distrl-spool-{uuid4().hex}"
    folder.mkdir(mode=0o700)
    return folder


def _make_private(folder: Path) -> bool:
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    return _is_private(folder)


def _is_private(folder: Path) -> bool:
    """Whether it is a folder, and no link to one, that belongs to this user and that nobody else may enter."""
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o077

"""Files that appear whole or not at all, under a name that is given out once.

A file is written and synced under a temporary name and then linked to its final one. A link never replaces what is
there, so of any number of processes exactly one makes the file, and a process killed at any instant leaves at most a
temporary name behind. What the content means is left to the callers.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from distrl.errors import StoreBusy, StoreError

BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
"""SQLite's codes for a file that another process keeps locked."""
TEMPORARY = ".tmp"
"""How the names of unfinished files end."""
MANY = ("episodes", "frames")
"""Folders of a run's store whose files are not looked at before they are read."""

FIXES = {
    errno.ENOSPC: "free some space on that disk, or choose another one with {flag}",
    errno.EDQUOT: "ask for a larger quota, or choose another disk with {flag}",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f)",
    errno.EACCES: "give yourself the right to write there (chmod, chown), or choose another folder with {flag}",
    errno.EPERM: "use a local disk that knows hard links and that you may write to: {flag} FOLDER",
    errno.EROFS: "choose a folder on a disk that is not read-only: {flag} FOLDER",
    errno.ENOTDIR: "move the file away that stands where the folder should be, or choose another with {flag}",
    errno.EISDIR: "move the folder away that stands where a file should be",
    errno.EEXIST: "move the file away that stands where the folder should be, or choose another with {flag}",
}


@contextmanager
def storage_errors(folder: Path, *, flag: str = "--run.root") -> Iterator[None]:
    """Turn what the operating system and SQLite say into a `StoreError` that names the folder and the fix.

    A lock that did not open in time is a `StoreBusy`. `flag` is what chooses another folder on the command line.
    """
    try:
        yield
    except OSError as error:
        fix = FIXES.get(error.errno or 0, "check the disk, or choose another folder with {flag}")
        seen = f"cannot use {_place(error, folder)}: {error.strerror or error}"
        raise StoreError(seen, expected="a folder that can be read and written", fix=fix.format(flag=flag)) from error
    except sqlite3.Error as error:
        kind = StoreBusy if getattr(error, "sqlite_errorcode", 0) & 0xFF in BUSY else StoreError
        raise kind(f"cannot use the index in {folder}: {error}", fix=_index_fix(error).format(flag=flag)) from error


def refusal_at(path: Path) -> str:
    """Why nothing can be written at this path, in words; empty: it can. Nothing is made."""
    nearest = path.absolute()
    try:
        while not nearest.exists():
            nearest = nearest.parent
    except OSError as error:
        return error.strerror or str(error)
    usable = os.access(nearest, os.W_OK) and (nearest.is_dir() or nearest == path.absolute())
    return "" if usable else f"{nearest} is no folder that you may write to"


def _place(error: OSError, folder: Path) -> Path:
    """What is in the way, where the system says so: a folder in the place of a file, or the folder in which nothing may be written."""
    if not isinstance(error.filename, str):
        return folder
    found = Path(error.filename)
    if error.errno == errno.EISDIR:
        return found
    # Not the file itself: it is a draft under a temporary name.
    return found.parent if isinstance(error, PermissionError) and folder in found.parents else folder


def publish(path: Path, content: bytes) -> bool:
    """Make `path` hold `content` durably; False, and nothing changed, where there is such a file already.

    The folder is synced in both cases: another process may have made the file and not yet come to that.
    """
    return path in publish_all({path: content})


def publish_all(files: Mapping[Path, bytes]) -> set[Path]:
    """Make each path hold its content durably; those that were made, and not there already.

    All are written before the first is synced, and each folder is synced once: the disk then does most of it at once.
    """
    drafts = {path: temporary_name(path) for path in files if not path.exists()}
    try:
        for path, draft in drafts.items():
            _write(draft, files[path], sync=False)
        for draft in drafts.values():
            _sync_file(draft)
        made = {path for path, draft in drafts.items() if link_once(draft, path)}
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)
    for folder in {path.parent for path in files}:
        sync_folder(folder)
    return made


def replace(path: Path, *content: bytes | memoryview) -> None:
    """Make `path` hold `content` durably, in place of whatever it held; a reader sees the old or the new, whole.

    Content in several pieces is written one behind the other.
    """
    temporary = temporary_name(path)
    try:
        _write(temporary, *content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def link_once(source: Path, path: Path) -> bool:
    """Give `source` its final name unless that is taken, and remove its temporary one."""
    try:
        os.link(source, path)
    except FileExistsError:
        return False
    finally:
        source.unlink(missing_ok=True)
    return True


def is_pipe(path: Path) -> bool:
    """Whether it is a pipe, a socket or a device, from which reading may never end; also by way of a link."""
    try:
        mode = path.stat().st_mode
    except OSError:  # not there, or not to be seen: whoever reads it says so
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def refuse_pipes(folder: Path) -> None:
    """Raise where a folder of somebody else holds a pipe, a socket or a device: reading one may never end.

    Episodes and screenshots are many; who reads one looks at it then.
    """
    for inside, folders, files in os.walk(folder):
        for name in files:
            path = Path(inside, name)
            if is_pipe(path):
                raise StoreError(
                    f"{path} is a pipe, a socket or a device, and no file of a run",
                    expected="files and folders alone",
                    fix=f"rm {path}, and do not trust whom this folder came from",
                )
        if Path(inside).name == "experience":
            folders[:] = [name for name in folders if name not in MANY]


def temporary_name(path: Path) -> Path:
    """A name beside `path` that nobody else uses."""
    return path.with_name(f".{path.name}-{uuid4().hex}{TEMPORARY}")


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` survive a power cut."""
    _sync(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))


def _sync_file(path: Path) -> None:
    _sync(os.open(path, os.O_RDONLY))


def _sync(handle: int) -> None:
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_fan(folder: Path) -> None:
    """Make `folder` and its 256 subfolders 00 to ff, so that no folder grows too long to list."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {f"{number:02x}" for number in range(256)} - set(os.listdir(folder))
    for name in names:
        (folder / name).mkdir(exist_ok=True)
    if names:
        sync_folder(folder)


def _write(path: Path, *content: bytes | memoryview, sync: bool = True) -> None:
    with path.open("xb") as file:
        for piece in content:
            file.write(piece)
        file.flush()
        if sync:
            os.fsync(file.fileno())


def _index_fix(error: sqlite3.Error) -> str:
    if "full" in str(error):
        return FIXES[errno.ENOSPC]
    if "locked" in str(error):
        return "end the process that holds the index, or put the run on a faster disk with {flag}"
    if "readonly" in str(error):
        return FIXES[errno.EACCES]
    if "disk I/O" in str(error):
        return "check the disk: it may be full, or over a quota or a limit on file sizes (ulimit -f); or choose another with {flag}"
    return "move index.sqlite and its -wal and -shm away: the next start rebuilds it from the episode files"

"""The folder of one run: everything about it, safe to zip and send.

Its `FORMAT` says which layout it has; a folder of another format is refused, whatever else is in it.

Locks (one session per run, one incarnation of a role at a time) are the operating system's: they end with their holder,
however it ends, so there is no stale one to clear away. The file says who holds it, for people.
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO

import msgspec

from distrl.config.load import UnreadableFile, config_hash, dump_toml, load, load_config
from distrl.config.schema import Config
from distrl.errors import ConfigError, StoreError, UsageError, closest
from distrl.experience.durable import refuse_pipes, replace, storage_errors
from distrl.runtime.exported import is_export
from distrl.telemetry.gpu import ask_driver
from distrl.transport.files import LOG_SUFFIX, FileLayout, FileTransport
from distrl.types import SettingValue

FORMAT = 2
"""Of the run folder. Raised whenever its layout, its records or the names of its settings change their meaning."""
DISK = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS, errno.EIO, errno.EISDIR, errno.ENOTDIR,
)  # fmt: skip
"""What the owner of a disk can mend; the last two: a folder stands where a file should be, or the other way round."""
NEWEST = 5
"""How many runs are named where a folder of runs is taken for one."""
PACKAGES = ("distrl", "torch", "numpy", "msgspec", "pillow", "safetensors", "gymnasium", "transformers", "peft")


class RunFolder(FileLayout):
    """Paths of a run; making one never touches what another run wrote."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.format_file = path / "FORMAT"
        self.config_file = path / "config.toml"
        self.session_file = path / "session.toml"
        self.metrics = path / "metrics.jsonl"
        self.spools = path / "spools.json"
        self.summary = path / "summary.json"

    def transport(self, config: Config) -> FileTransport:
        """What the roles of this run send each other things by."""
        return FileTransport(self, keep_versions=config.learner.keep_versions, storage=config.run.storage)

    @property
    def name(self) -> str:
        """The last part of its path: date, time and `run.name`."""
        return self.path.name

    def config(self, flags: Mapping[str, SettingValue] | None = None) -> Config:
        """The resolved configuration, with what its owner has edited since the last session began, then the flags."""
        try:
            return load_config(self.config_file, flags)
        except UnreadableFile as error:
            copy = f"cp {self.session_file} {self.config_file}, which brings back the settings of the last session"
            fix = copy if self.session_file.exists() else "put it back from a copy of the run"
            raise StoreError(error.seen, expected="the settings of this run", fix=fix) from None

    def session_config(self) -> Config:
        """What the newest session began with, and its roles keep to; before the first one, what it will begin with."""
        if not self.session_file.exists():
            return self.config()
        try:
            found = load(self.session_file)
            # The first and the last section: nothing was cut off.
            if found.sources["run.name"] == found.sources["runtime.kind"] == "file":
                return found.config
            seen = f"{self.session_file} is not whole"
        except ConfigError as error:
            seen = error.seen
        raise StoreError(
            seen,
            expected="the settings of the last session, as they were written",
            fix=f"compare with {self.config_file}, whose settings count once you rm {self.session_file}",
        )

    def lock(self, role: str) -> Path:
        """What the living process of a role, or of the supervisor, holds."""
        return self.heartbeats / f"{role}.lock"

    def log(self, role: str) -> Path:
        """Where a role writes its events."""
        return self.logs / f"{role}{LOG_SUFFIX}"

    def console(self, role: str) -> Path:
        """Where a role's own output goes: only bugs write there."""
        return self.logs / f"{role}.out"


def create_run(config: Config, *, now: datetime) -> RunFolder:
    """A new run folder with its configuration and a description of the machine."""
    root = Path(config.run.root)
    with storage_errors(root):
        path = _make_unused(root / f"{now:%Y%m%d-%H%M%S}-{config.run.name}")
        with ExitStack() as half_done:
            half_done.callback(shutil.rmtree, path, ignore_errors=True)
            run = _fill(RunFolder(path), config)
            half_done.pop_all()  # whole: nothing is to be undone
        return run


def _fill(run: RunFolder, config: Config) -> RunFolder:
    replace(run.format_file, f"{FORMAT}\n".encode())
    replace(run.config_file, dump_toml(config).encode())
    replace(run.path / "env.json", msgspec.json.format(msgspec.json.encode(describe_machine(config))))
    run.logs.mkdir()
    return run


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn a full, read-only or forbidden disk into a `StoreError` with the fix; any other error is a bug and stays."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK:
            raise
        with storage_errors(folder):
            raise


@contextmanager
def read_errors(folder: Path) -> Iterator[None]:
    """Turn what the system says of a file that is read into a `StoreError` that names the file and the fix."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno not in DISK:
            raise  # of a network or a process, not of a file
        place = os.fsdecode(error.filename or folder)
        stands_there = error.errno == errno.EISDIR
        raise StoreError(
            f"cannot read {place[:300]}: {error.strerror or error}",
            expected="a file of the run" if stands_there else "a run folder that you may read",
            fix="move that folder away: a file belongs there"
            if stands_there
            else "check the path and your rights to it",
        ) from error


def as_path(value: object, name: str) -> Path:
    """An argument of the Python API as a path; `UsageError` where it is none."""
    if not isinstance(value, str | os.PathLike):
        raise UsageError(
            f"{name} = {value!r:.100} is no path", expected="a path as text or a Path", fix=f'{name}="runs/…"'
        )
    return Path(value)


def open_run(path: Path) -> RunFolder:
    """The run in this folder; a `StoreError` names the ones that exist, or says that it is an export."""
    with read_errors(path):
        return _open(path)


def _open(path: Path) -> RunFolder:
    run = RunFolder(path)
    if is_export(path) and not run.format_file.exists():
        raise StoreError(
            f"{path} is an export, not a run: it holds a policy, and neither episodes nor checkpoints",
            expected="a run folder, or a command that takes an export",
            fix=f"distrl watch {path}, or distrl evaluate {path}; in Python, distrl.load_policy and distrl.evaluate",
        )
    if run.config_file.is_file():
        return _of_this_format(run)
    if run.session_file.is_file():
        raise StoreError(
            f"{run.config_file} is gone",
            expected="the settings of this run",
            fix=f"cp {run.session_file} {run.config_file}, which brings back the settings of the last session",
        )
    known = _known_runs(path)
    raise StoreError(
        f"{path} is no run folder",
        expected=known or "a folder that `distrl train` made",
        fix=f"{'name one of them, or ' if known else ''}start a run with `distrl train`",
    )


def _of_this_format(run: RunFolder) -> RunFolder:
    """`run`, where this version of distrl can read it."""
    refuse_pipes(run.path)
    try:
        found = run.format_file.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        found = "1"
    if found == str(FORMAT):
        return run
    raise StoreError(
        f"{run.path} has run-folder format {found[:20]}, and this distrl reads format {FORMAT}",
        expected=f"a run of this version: format {FORMAT}",
        fix=f"use {_writer(run)} that wrote it, or start a new run with `distrl train`{_lost_format(run)}",
    )


def _lost_format(run: RunFolder) -> str:
    """The fix for a run of this format whose FORMAT is gone: the oldest format had no such file."""
    return "" if run.format_file.exists() else f"; where only its FORMAT was lost: echo {FORMAT} > {run.format_file}"


def _writer(run: RunFolder) -> str:
    """The version of distrl that wrote a run, in words, as far as its `env.json` says."""
    try:
        found = msgspec.json.decode((run.path / "env.json").read_bytes(), type=_Machine).packages["distrl"]
    except (OSError, ValueError, KeyError):
        return "the version of distrl"
    return f"distrl {found}" if found[:1].isdigit() else "the version of distrl"


class _Machine(msgspec.Struct, frozen=True):
    """What is read of `env.json`."""

    packages: dict[str, str]


def _known_runs(path: Path) -> str:
    """The newest runs in the folder where one was expected, or else those beside it or in `runs` that sound like it."""
    if inside := _runs_in(path):
        more = f", … ({len(inside)} in all)" if len(inside) > NEWEST else ""
        return f"one of {', '.join(inside[:NEWEST])}{more}"
    beside = _runs_in(path.parent) or _runs_in(Path("runs"))
    return closest(str(path), beside) if beside else ""


def _runs_in(folder: Path) -> list[str]:
    """The newest first: their names begin with the time."""
    found = (file.parent for file in folder.glob("*/config.toml"))
    return sorted((str(path) for path in found if not is_export(path)), reverse=True)


def describe_machine(config: Config) -> dict[str, str | int | dict[str, str]]:
    """Where and with what a run was made; no paths, no names of people, no environment variables."""
    return {
        "python": sys.version.split()[0],
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "gpus": ", ".join(ask_driver("name")),
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "config_hash": config_hash(config),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _make_unused(path: Path) -> Path:
    """A new folder with this name, or with a number behind it where two runs begin in one second."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number, candidate = 2, path
    while True:
        try:
            candidate.mkdir()
        except FileExistsError:
            candidate, number = path.with_name(f"{path.name}-{number}"), number + 1
        else:
            return candidate


# --- locks ------------------------------------------------------------------------------------------------------------


POLL_S = 0.05


class Lock:
    """A held lock; `release` it, or die."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def release(self) -> None:
        """Let the next one in."""
        self._file.truncate(0)
        self._file.close()


def take(path: Path, *, wait_s: float, what: str) -> Lock:
    """The lock at `path`; `StoreError` where someone else still holds it after `wait_s`."""
    with storage_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab", buffering=0)
    until_s = time.monotonic() + wait_s
    while not _try(file):
        if time.monotonic() >= until_s:
            file.close()
            raise _held(path, what)
        time.sleep(POLL_S)
    with storage_errors(path.parent):
        file.truncate(0)
        file.write(str(os.getpid()).encode())
    return Lock(file)


def held(path: Path) -> bool:
    """Whether a living process holds the lock."""
    try:
        with path.open("rb") as file:
            # Shared, so that two that only look do not take each other for the holder.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def holder_of(path: Path) -> int:
    """The process that holds the lock; 0: nobody does, or it does not say."""
    if not held(path):
        return 0
    said = path.read_text(encoding="ascii", errors="replace").strip()
    return int(said) if said.isdecimal() else 0


def _try(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _held(path: Path, what: str) -> StoreError:
    holder = path.read_text(encoding="ascii").strip() or "unknown"
    return StoreError(
        f"{what} is in use by process {holder}",
        expected="a run that nobody else is working on",
        fix=f"wait for its end, or stop it with `kill {holder}`; one that is stopped or hangs needs `kill -9 {holder}`",
    )

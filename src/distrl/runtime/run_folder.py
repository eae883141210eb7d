"""The folder of one run: everything about it, safe to zip and send."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from distrl.config.load import config_hash, dump_toml, load_config
from distrl.config.schema import Config
from distrl.errors import StoreError, closest
from distrl.experience.durable import replace, storage_errors
from distrl.telemetry.gpu import ask_driver

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS, errno.EIO)
"""What the owner of a disk can mend."""
NEWEST = 5
"""How many runs are named where a folder of runs is taken for one."""
PACKAGES = ("distrl", "torch", "numpy", "msgspec", "pillow", "safetensors", "gymnasium", "transformers", "peft")


class RunFolder:
    """Paths of a run; making one never touches what another run wrote."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.session_file = path / "session.toml"
        self.experience = path / "experience"
        self.frames = path / "experience"
        self.weights = path / "weights"
        self.checkpoints = path / "checkpoints"
        self.pulses = path / "pulses"
        self.claims = self.pulses / "round.sqlite"
        self.logs = path / "logs"
        self.metrics = path / "metrics.jsonl"
        self.evaluations = path / "evaluations"
        self.progress = path / "progress.json"
        self.summary = path / "summary.json"

    @property
    def name(self) -> str:
        """The last part of its path: date, time and `run.name`."""
        return self.path.name

    def config(self) -> Config:
        """The resolved configuration, with what its owner has edited since the last session began."""
        return load_config(self.config_file)

    def session_config(self) -> Config:
        """What the newest session began with, and its roles keep to; before the first one, what it will begin with."""
        return load_config(self.session_file) if self.session_file.exists() else self.config()

    def lock(self, role: str) -> Path:
        """What the living process of a role, or of the supervisor, holds."""
        return self.pulses / f"{role}.lock"

    def log(self, role: str) -> Path:
        """Where a role writes its events."""
        return self.logs / f"{role}.jsonl"

    def console(self, role: str) -> Path:
        """Where a role's own output goes: only bugs write there."""
        return self.logs / f"{role}.out"


def create_run(config: Config, *, now: datetime) -> RunFolder:
    """A new run folder with its configuration and a description of the machine."""
    root = Path(config.run.root)
    with storage_errors(root):
        path = _make_unused(root / f"{now:%Y%m%d-%H%M%S}-{config.run.name}")
        try:
            return _fill(RunFolder(path), config)
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise


def _fill(run: RunFolder, config: Config) -> RunFolder:
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


def open_run(path: Path) -> RunFolder:
    """The run in this folder, or an error that names the ones that exist."""
    if (path / "config.toml").is_file():
        return RunFolder(path)
    known = _known_runs(path)
    raise StoreError(
        f"{path} is no run folder",
        expected=known or "a folder that `distrl train` made",
        fix=f"{'name one of them, or ' if known else ''}start a run with `distrl train`",
    )


def _known_runs(path: Path) -> str:
    """The newest runs in the folder where one was expected, or else those beside it that sound like it."""
    if inside := _runs_in(path):
        more = f", … ({len(inside)} in all)" if len(inside) > NEWEST else ""
        return f"one of {', '.join(inside[:NEWEST])}{more}"
    beside = _runs_in(path.parent if path.parent.is_dir() else Path("runs"))
    return closest(str(path), beside) if beside else ""


def _runs_in(folder: Path) -> list[str]:
    """The newest first: their names begin with the time."""
    return sorted((str(found.parent) for found in folder.glob("*/config.toml")), reverse=True)


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

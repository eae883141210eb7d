"""Results of single runs on disk, so that an interrupted benchmark continues where it stopped.

A result is stored under its spec, a record of everything that decides the outcome, the whole configuration included, and
under the version of the training code. Where either differs, the run is made again; a result of another spec or of other
code is never returned. Benchmarks that need the same run share it. Results may come from several machines with the
same code: copy them into one folder. A result of the single-process trainer names the machine that made it.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import msgspec

import distrl
from distrl.bench.base import BenchOptions
from distrl.bench.jobs import log_progress
from distrl.errors import DistrlError
from distrl.experience.durable import replace, storage_errors

R = TypeVar("R")
FOLDER = ".run-cache"
"""Name of the cache's folder, beside the results files."""
NOT_TRAINING = ("cli", "bench")
"""Packages that may change without changing the outcome of a run, except for the modules in `TRAINING`."""
TRAINING = ("bench/learning/single_process.py", "bench/learning/trainer_runs.py", "bench/learning/timed_runs.py")
PROGRESS = ".progress"


class JobFile(msgspec.Struct, frozen=True, kw_only=True):
    """A run to be made, as its child process reads it."""

    code: str
    kind: str
    spec: msgspec.Raw


class _CachedResult(JobFile, frozen=True, kw_only=True):
    """The same with its result."""

    result: msgspec.Raw


class ResultCache:
    """A folder of results, all made by one version of the code."""

    def __init__(self, folder: Path, code: Callable[[], str] | None = None) -> None:
        self._folder, self._code_now = folder, code or code_version
        self._code = self._code_now()
        with storage_errors(folder, flag="--out"):
            folder.mkdir(parents=True, exist_ok=True)

    def path(self, spec: msgspec.Struct, suffix: str) -> Path:
        """The file of a run with this suffix: `.json` is its result."""
        text = msgspec.json.encode([self._code, _kind(spec), spec])
        return self._folder / f"{_kind(spec)}-{sha256(text).hexdigest()[:16]}{suffix}"

    def read(self, spec: msgspec.Struct, type: type[R]) -> R | None:
        """The result of exactly this spec and code; None where there is none, or none that can be read."""
        try:
            kept = msgspec.json.decode(self.path(spec, ".json").read_bytes(), type=_CachedResult)
            if (kept.code, kept.kind, bytes(kept.spec)) != (self._code, _kind(spec), msgspec.json.encode(spec)):
                return None
            return msgspec.json.decode(kept.result, type=type)
        except (FileNotFoundError, ValueError):
            return None

    def discard(self, spec: msgspec.Struct) -> None:
        """Remove a result, so that the run is made again."""
        self.path(spec, ".json").unlink(missing_ok=True)

    def write_job_file(self, spec: msgspec.Struct) -> Path:
        """Write the spec for the child process that makes the run."""
        path = self.path(spec, ".job")
        path.with_suffix(PROGRESS).unlink(missing_ok=True)  # of an earlier attempt that failed
        job_file = JobFile(code=self._code, kind=_kind(spec), spec=msgspec.Raw(msgspec.json.encode(spec)))
        with storage_errors(self._folder, flag="--out"):
            replace(path, msgspec.json.encode(job_file))
        return path

    def check_code(self) -> None:
        """Raise where the source has changed since the benchmark began: its runs would no longer be comparable."""
        if self._code_now() != self._code:
            raise DistrlError(
                "the source of distrl has changed since this benchmark began",
                expected="one version of the code for all runs",
                fix="start the benchmark again; runs of the earlier code are made again as well",
            )


def cache_for(options: BenchOptions, code: Callable[[], str] | None = None) -> ResultCache:
    """The cache beside the results; without `--out`, in the folder of the runs."""
    folder = (options.out or Path("runs")) / FOLDER
    log_progress(f"finished runs are kept in {folder}: after an interruption the same command continues from there")
    return ResultCache(folder, code)


def read_job_file(path: Path, type: type[R]) -> R:
    """The spec that a child process was given."""
    return msgspec.json.decode(msgspec.json.decode(path.read_bytes(), type=JobFile).spec, type=type)


def write_result(path: Path, result: msgspec.Struct) -> None:
    """Store the result of the run in this job file, whole or not at all."""
    given = msgspec.json.decode(path.read_bytes(), type=JobFile)
    found = msgspec.Raw(msgspec.json.encode(result))
    kept = _CachedResult(code=given.code, kind=given.kind, spec=given.spec, result=found)
    replace(path.with_suffix(".json"), msgspec.json.encode(kept))
    path.with_suffix(PROGRESS).unlink(missing_ok=True)


def write_progress(path: Path, share: float) -> None:
    """Publish the share of the run in this job file that is done."""
    path.with_suffix(PROGRESS).write_text(f"{share:.3f}", encoding="ascii")


def read_progress(path: Path) -> float:
    """The share that was last published; 0 where none was."""
    try:
        return float(path.with_suffix(PROGRESS).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0.0


def _kind(spec: msgspec.Struct) -> str:
    return type(spec).__name__.lower()


def code_version(*, whole: bool = False) -> str:
    """A fingerprint that changes with every source file that may change the outcome of a training run; `whole`: with every one."""
    root, digest = Path(distrl.__file__).parent, sha256()
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        if whole or inside.parts[0] not in NOT_TRAINING or inside.as_posix() in TRAINING:
            digest.update(f"{inside}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]

"""Results of single runs, kept so that an interrupted benchmark goes on where it stopped.

A part is known by its job: a record that holds everything which decides the outcome, the whole configuration included,
and by the version of the code that trains. Change either, and the part is made anew; what another job or other code
has made is never taken for it. Benchmarks that need the same run share it. Parts may come from several machines with the
same code: copy them into one folder. A laboratory run says itself what it was made on.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import msgspec

import distrl
from distrl.bench.base import BenchOptions
from distrl.bench.crew import say_on_stderr
from distrl.errors import DistrlError
from distrl.experience.durable import replace, storage_errors

R = TypeVar("R")
DECIDES_NOTHING = ("cli", "bench")
"""Packages that may change without changing what a run comes to; of the last, `DECIDES` are excepted."""
DECIDES = ("lab.py", "lab_runs.py", "timed_runs.py", "timed_versions.py", "outcomes.py")
PROGRESS = ".progress"


class Sheet(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be made, as a child process reads it."""

    code: str
    kind: str
    job: msgspec.Raw


class _Kept(Sheet, frozen=True, kw_only=True):
    """The same with what came of it."""

    result: msgspec.Raw


class Parts:
    """A folder of parts, all made by one version of the code."""

    def __init__(self, folder: Path, code: Callable[[], str] | None = None) -> None:
        self._folder, self._code_now = folder, code or code_version
        self._code = self._code_now()
        with storage_errors(folder, flag="--out"):
            folder.mkdir(parents=True, exist_ok=True)

    def path(self, job: msgspec.Struct, ending: str) -> Path:
        """Where something about a job stands: `.json` is its result."""
        text = msgspec.json.encode([self._code, _kind(job), job])
        return self._folder / f"{_kind(job)}-{sha256(text).hexdigest()[:16]}{ending}"

    def read(self, job: msgspec.Struct, type: type[R]) -> R | None:
        """The result of exactly this job, by exactly this code; None where there is none, or none that can be read."""
        try:
            kept = msgspec.json.decode(self.path(job, ".json").read_bytes(), type=_Kept)
            if (kept.code, kept.kind, bytes(kept.job)) != (self._code, _kind(job), msgspec.json.encode(job)):
                return None
            return msgspec.json.decode(kept.result, type=type)
        except (FileNotFoundError, ValueError):
            return None

    def forget(self, job: msgspec.Struct) -> None:
        """Make the job be done anew."""
        self.path(job, ".json").unlink(missing_ok=True)

    def write_sheet(self, job: msgspec.Struct) -> Path:
        """The job as a file, for the process that does it."""
        path = self.path(job, ".job")
        path.with_suffix(PROGRESS).unlink(missing_ok=True)  # of an attempt that came to nothing
        sheet = Sheet(code=self._code, kind=_kind(job), job=msgspec.Raw(msgspec.json.encode(job)))
        with storage_errors(self._folder, flag="--out"):
            replace(path, msgspec.json.encode(sheet))
        return path

    def check_code(self) -> None:
        """Raise where the source has changed since the benchmark began: its runs would no longer be of one kind."""
        if self._code_now() != self._code:
            raise DistrlError(
                "the source of distrl has changed since this benchmark began",
                expected="one version of the code for all runs",
                fix="start the benchmark again; what the new code leaves unchanged has to be made anew as well",
            )


def parts_for(options: BenchOptions) -> Parts:
    """The parts beside the results; without `--out`, in the folder of the runs."""
    folder = (options.out or Path("runs")) / ".parts"
    say_on_stderr(f"finished runs are kept in {folder}: interrupted, the same command goes on from there")
    return Parts(folder)


def read_sheet(path: Path, type: type[R]) -> R:
    """The job that a child process was given."""
    return msgspec.json.decode(msgspec.json.decode(path.read_bytes(), type=Sheet).job, type=type)


def keep_result(sheet_path: Path, result: msgspec.Struct) -> None:
    """Keep what came of the job on this sheet, whole or not at all."""
    sheet = msgspec.json.decode(sheet_path.read_bytes(), type=Sheet)
    found = msgspec.Raw(msgspec.json.encode(result))
    kept = _Kept(code=sheet.code, kind=sheet.kind, job=sheet.job, result=found)
    replace(sheet_path.with_suffix(".json"), msgspec.json.encode(kept))
    sheet_path.with_suffix(PROGRESS).unlink(missing_ok=True)


def tell_share(sheet_path: Path, share: float) -> None:
    """Say how much of the job on this sheet is done."""
    sheet_path.with_suffix(PROGRESS).write_text(f"{share:.3f}", encoding="ascii")


def read_share(sheet_path: Path) -> float:
    """What was last said of it; 0 where nothing was."""
    try:
        return float(sheet_path.with_suffix(PROGRESS).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0.0


def _kind(job: msgspec.Struct) -> str:
    return type(job).__name__.lower()


def code_version() -> str:
    """Changes with any source file that may change what a training run comes to."""
    root, digest = Path(distrl.__file__).parent, sha256()
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        if inside.parts[0] not in DECIDES_NOTHING or (inside.parts[0] == "bench" and inside.name in DECIDES):
            digest.update(f"{inside}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]

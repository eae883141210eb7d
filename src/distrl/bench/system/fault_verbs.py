"""Run one command of distrl in a process of its own, and judge how it ended.

The processes are forked from one that has loaded torch and the verbs, so that a hundred commands take seconds. A verb ends
well in two ways: with exit code 0 and something said, or with a message of at most 15 lines that names a fix.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Literal

import msgspec

Verb = Literal["status", "runs show", "evaluate", "resume"]
READERS: tuple[Verb, ...] = ("status", "runs show", "evaluate")
LIMIT_S = {"status": 20.0, "runs show": 20.0, "evaluate": 60.0, "resume": 240.0}
"""How long a verb may take, by its name; generous, since machines are busy."""
MOST_LINES = 15
PRELOADED = (
    "distrl.cli.status",
    "distrl.cli.runs",
    "distrl.cli.evaluate",
    "distrl.cli.train",
    "distrl.cli.progress",
    "distrl.runtime.playing",
    "distrl.runtime.factory",
    "distrl.runtime.session",
    "distrl.runtime.summary",
    "distrl.policies.pointer.policy",
    "distrl.bench.system.fault_verbs",
)
"""What the verbs import when they run; loaded once, before the processes are forked."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended."""

    code: int | None
    """None: it did not end in time."""
    out: str
    err: str

    @property
    def traceback(self) -> bool:
        """Whether it shows a bug instead of a message."""
        return "Traceback (most recent call last)" in self.out + self.err

    @property
    def silent(self) -> bool:
        """Whether it did not end in time, or said nothing."""
        return self.code is None or not (self.out + self.err).strip()

    @property
    def outcome(self) -> str:
        """`goes on`, `refused`, or what is wrong with its end."""
        if self.traceback:
            return "traceback"
        if self.code is None:
            return "did not end"
        if self.silent:
            return "silent"
        if self.code == 0:
            return "goes on"
        lines = self.err.strip().splitlines()
        message = lines[max((n for n, line in enumerate(lines) if line.startswith("distrl: ")), default=0) :]
        if self.code < 0:
            return f"killed by signal {-self.code}"
        return (
            "refused" if any(line.startswith("try: ") for line in message) and len(message) <= MOST_LINES else "no fix"
        )


def words_of(verb: Verb, run: Path, *, episodes: int = 0) -> list[str]:
    """The arguments of a verb on a run; a resumed one goes on to so many episodes."""
    match verb:
        case "status":
            return ["status", str(run)]
        case "runs show":
            return ["runs", "show", str(run)]
        case "evaluate":
            return ["evaluate", str(run), "--episodes", "1"]
        case "resume":
            return ["train", "--resume", str(run), "--run.episodes", str(episodes)]


def run_verb(words: list[str], limit_s: float, *, powerless: bool = False) -> Ended:
    """Run a command to its end or to its limit; `powerless`: permissions count, also for root."""
    forked = multiprocessing.get_context("forkserver")
    forked.set_forkserver_preload(list(PRELOADED))
    with tempfile.TemporaryDirectory(prefix="distrl-verb-") as folder:
        process = forked.Process(target=_become, args=(words, folder, powerless), daemon=False)
        process.start()
        process.join(limit_s)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
        out, err = (_text(Path(folder, name)) for name in ("out", "err"))
        return Ended(code=code, out=out, err=err)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _become(words: list[str], folder: str, powerless: bool) -> None:
    """Be `distrl WORDS`, as far as the world can tell."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(Path(folder, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), number)
    if powerless:
        drop_powers()
    sys.argv = ["distrl", *words]
    runpy.run_module("distrl", run_name="__main__", alter_sys=False)


# --- permissions ------------------------------------------------------------------------------------------------------

PR_CAPBSET_DROP = 24
"""Of prctl(2)."""
CAPABILITY_VERSION = 0x20080522
PASSES_OVER = (1, 2)
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: what lets root write where permissions forbid it."""


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def drop_powers() -> None:
    """Have permissions count for this process and all that it starts, also where it is root's."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for number in PASSES_OVER:
        libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    header, sets = _Header(CAPABILITY_VERSION, 0), (_Sets * 2)()
    libc.capget(ctypes.byref(header), sets)
    keep = ~sum(1 << number for number in PASSES_OVER) & 0xFFFFFFFF
    for name in ("effective", "permitted", "inheritable"):
        setattr(sets[0], name, getattr(sets[0], name) & keep)
    libc.capset(ctypes.byref(header), sets)

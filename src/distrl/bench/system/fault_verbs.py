"""Run one command of distrl in a process of its own, or read a run by the Python API there, and judge how that ended.

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
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from distrl.errors import DistrlError

if TYPE_CHECKING:
    from distrl import Run

Verb = Literal[
    "status", "runs show", "runs list", "runs prune", "evaluate", "watch", "export", "sft --data", "Python", "resume"
]
"""`runs prune` says what would go; `sft --data` learns from the run in a new one; `Python`: what `API` reads."""
READERS: tuple[Verb, ...] = (
    "status", "runs show", "runs list", "runs prune", "evaluate", "watch", "export", "sft --data", "Python"
)  # fmt: skip
"""They leave the run as it is."""
QUICK_READERS: tuple[Verb, ...] = ("status", "runs show", "runs list", "runs prune", "Python")
"""Those that load no weights."""
LIMIT_S: dict[Verb, float] = {verb: 20.0 if verb in QUICK_READERS else 60.0 for verb in READERS} | {"resume": 480.0}
"""How long a verb may take; generous, since machines are busy."""
SFT = "small.toml", "[policy.pointer]\nwidth = 16\nlayers = 1\n[warm_start]\nepochs = 1\n"
"""A file with the settings of the new run that `sft --data` makes, and what is in it."""
MOST_LINES = 15
PRELOADED = (
    "distrl.cli.status",
    "distrl.cli.runs",
    "distrl.cli.evaluate",
    "distrl.cli.watch",
    "distrl.cli.export",
    "distrl.cli.sft",
    "distrl.cli.train",
    "distrl.cli.progress",
    "distrl.api",
    "distrl.evaluation.film",
    "distrl.evaluation.playback",
    "distrl.learner.loop",
    "distrl.pretraining.cloning",
    "distrl.runtime.playing",
    "distrl.runtime.source",
    "distrl.runtime.factory",
    "distrl.runtime.session",
    "distrl.runtime.summary",
    "distrl.policies.pointer.policy",
    "distrl.bench.system.fault_verbs",
    "torch._dynamo",
)
"""What the verbs import when they run, torch's optimizers included; loaded once, before the processes are forked."""


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
        case "status" | "Python":
            return [verb, str(run)]
        case "runs show" | "runs prune":
            return [*verb.split(), str(run)]
        case "runs list":
            return ["runs", "list", "--root", str(run.parent)]
        case "evaluate":
            return ["evaluate", str(run), "--episodes", "1"]
        case "watch":
            return ["watch", str(run), "--gif", "watch.gif"]
        case "export":
            return ["export", str(run), "exported"]
        case "sft --data":
            return ["sft", SFT[0], "--data", str(run)]
        case "resume":
            return ["train", "--no-view", "--resume", str(run), "--run.episodes", str(episodes)]


def run_verb(words: list[str], limit_s: float, *, powerless: bool = False) -> Ended:
    """Run a command to its end or to its limit, in a folder of its own; `powerless`: permissions count, also for root."""
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
    os.chdir(folder)
    Path(SFT[0]).write_text(SFT[1], encoding="utf-8")
    if words[0] == "Python":
        sys.exit(read_by_api(words[1]))
    sys.argv = ["distrl", *words]
    runpy.run_module("distrl", run_name="__main__", alter_sys=False)


# --- Python -----------------------------------------------------------------------------------------------------------

API: dict[str, Callable[[Run], object]] = {
    "config": lambda run: run.config,
    "summary": lambda run: run.summary,
    "status": lambda run: run.status(),
    "evaluations": lambda run: run.evaluations(),
    "metrics": lambda run: run.metrics(),
    "episodes": lambda run: sum(1 for _ in run.episodes(source=None)),
}
"""What the Python API reads of a run."""


def read_by_api(path: str) -> int:
    """Read a run by the Python API, each part by itself; 2, with one of the messages, where a part is refused."""
    import distrl

    refused = []
    try:
        run = distrl.open_run(path)
    except DistrlError as error:
        sys.stderr.write(f"distrl: {error}\n")
        return error.exit_code
    for name, read in API.items():
        try:
            sys.stdout.write(f"{name} {read(run) is not None}\n")
        except DistrlError as error:
            refused.append(error)
    if refused:  # one without a fix, if there is any
        sys.stderr.write(f"distrl: {min(refused, key=lambda error: bool(error.fix))}\n")
    return 2 if refused else 0


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


if __name__ == "__main__":
    sys.exit(read_by_api(sys.argv[1]))

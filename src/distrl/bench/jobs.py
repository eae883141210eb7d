"""Runs many child processes, a few at a time: starts them, reports their progress, ends those that take too long.

A job that fails is reported at once, with its last error message. The others continue, so that their results are kept.
After a few failures no further job is started, because the rest would most likely fail as well.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from distrl.bench.base import num_cores
from distrl.errors import DistrlError

POLL_S = 0.05
PROGRESS_EVERY_S = 20.0
MAX_FAILURES = 3
"""Failed jobs after which no other is started."""
ERROR_PREFIX = "distrl: "
"""How the command line begins an error message."""
MAX_NAMED = 4
"""Failed jobs that the final error names."""
MAX_ERROR_LETTERS = 300


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One child process."""

    label: str
    """Its name in progress and error messages."""
    command: tuple[str, ...]
    log: Path
    """Takes its stdout and stderr."""
    deadline_s: float
    progress: Callable[[float], float] = lambda elapsed_s: 0.0
    """The share of it that is done, given the seconds since its start."""
    core: int | None = None
    """The only core that it and its children may use; None: any."""


class JobRunner(msgspec.Struct, frozen=True, kw_only=True):
    """How jobs are run."""

    max_parallel: int
    report: Callable[[str], None]
    """Gets a line for what is running, how far it is and what failed."""
    before_each: Callable[[], None] = lambda: None
    """Called before each start; may raise to end everything."""
    clock: Callable[[], float] = time.monotonic

    def run(self, title: str, jobs: Sequence[Job]) -> None:
        """Run all jobs in their order; raises at the end where some failed, and names them."""
        if jobs:
            with _sigterm_as_ctrl_c():
                _Batch(title, jobs, self).run()


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Let SIGTERM raise as Ctrl-C does, so that the children are ended: otherwise they would go on for hours."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Process:
    """A job and its process."""

    def __init__(self, job: Job, now_s: float) -> None:
        self.job, self.started_s = job, now_s
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with job.log.open("wb") as log:
            self.process = subprocess.Popen(
                job.command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=one_thread,
                preexec_fn=_pin_to(job.core),
            )  # fmt: skip

    def failure(self, now_s: float) -> str | None:
        """Why it failed; empty: it succeeded; None: it is still running."""
        code = self.process.poll()
        if code is None and now_s - self.started_s > self.job.deadline_s:
            self.end()
            return f"took longer than {self.job.deadline_s:.0f} s"
        return None if code is None else "" if code == 0 else f"exit code {code}: {_last_error(self.job.log)}"

    def end(self) -> None:
        """Kill it, if it is still running."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class _Batch:
    """All jobs of one call, from the first start to the last end."""

    def __init__(self, title: str, jobs: Sequence[Job], runner: JobRunner) -> None:
        self._title, self._num, self._runner = title, len(jobs), runner
        self._waiting = list(jobs)
        self._running: list[_Process] = []
        self._failed: list[str] = []
        self._done = 0
        self._started_s = self._reported_s = runner.clock()

    def run(self) -> None:
        """Run all jobs; raises at the end where some failed."""
        runner = self._runner
        runner.report(f"{self._title}: {self._num} runs, {min(runner.max_parallel, self._num)} at a time")
        try:
            while self._running or self._may_start():
                self._start()
                ended = [process for process in self._running if self._has_ended(process)]
                self._running = [process for process in self._running if process not in ended]
                self._done += len(ended)
                if ended or runner.clock() - self._reported_s >= PROGRESS_EVERY_S:
                    self._report()
                time.sleep(0.0 if ended else POLL_S)
        finally:
            for process in self._running:
                process.end()
        self._raise_failures()

    def _start(self) -> None:
        while self._may_start() and len(self._running) < self._runner.max_parallel:
            self._runner.before_each()
            self._running.append(_Process(self._waiting.pop(0), self._runner.clock()))

    def _may_start(self) -> bool:
        return bool(self._waiting) and len(self._failed) < MAX_FAILURES

    def _has_ended(self, process: _Process) -> bool:
        failure = process.failure(self._runner.clock())
        if failure:
            self._failed.append(f"{process.job.label} ({failure}; {process.job.log})")
            self._runner.report(f"failed: {self._failed[-1]}")
        return failure is not None

    def _report(self) -> None:
        now_s = self._reported_s = self._runner.clock()
        shares = [min(1.0, process.job.progress(now_s - process.started_s)) for process in self._running]
        done = self._done + sum(shares)
        left_s = (now_s - self._started_s) * (self._num - done) / done if done else 0.0
        left = f", about {_minutes(left_s)} left" if left_s else ""
        now = ", ".join(
            f"{process.job.label} {share:.0%}" for process, share in zip(self._running, shares, strict=True)
        )
        self._runner.report(f"{self._title}: {self._done} of {self._num} done{left}" + (f"; now {now}" if now else ""))

    def _raise_failures(self) -> None:
        if not self._failed:
            return
        named = "\n".join(self._failed[:MAX_NAMED])
        skipped = f", {len(self._waiting)} not started" if self._waiting else ""
        raise DistrlError(
            f"{len(self._failed)} of {self._num} runs failed{skipped}:\n{named}",
            fix="read these logs, repair the cause and start the same command again: finished runs are kept",
        )


def log_progress(line: str) -> None:
    """Write a line for whoever waits to stderr, beside the results on stdout."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def usable_cores() -> list[int]:
    """The cores that this process may use, by number."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(num_cores()))


def run_as_child(work: Callable[[Path], None]) -> None:
    """The main function of a child process: do `work` on the job file in its arguments, or exit with the error message.

    The process ends when its parent is gone, because nobody would read its result.
    """
    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), name="parent watch", daemon=True).start()
    try:
        work(Path(sys.argv[1]))
    except DistrlError as error:
        sys.exit(f"{ERROR_PREFIX}{error}")


def _exit_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _pin_to(core: int | None) -> Callable[[], None] | None:
    """What a child calls first to stay on its core; None where it may use any, or where the system cannot pin."""
    if core is None or not hasattr(os, "sched_setaffinity"):
        return None
    return lambda: os.sched_setaffinity(0, {core})


def _last_error(log: Path) -> str:
    """The last error message in a log, or else its last line."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [at for at, line in enumerate(lines) if line.startswith(ERROR_PREFIX)]
    return "; ".join(lines[errors[-1] if errors else -1 :])[:MAX_ERROR_LETTERS] or "no output"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"

"""Many child processes, a few at a time: starts them, says how far they are, ends those that take too long.

A process that fails is named at once, with the last that it said. The others go on, so that what they make is kept;
after a few failures nothing new is started, because the rest would most likely fail as well.
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
TELL_EVERY_S = 20.0
MOST_FAILURES = 3
ERROR = "distrl: "
"""How the command line begins an error message."""
SHOWN = 4
"""Runs that a line names."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One child process."""

    label: str
    """What people call it."""
    command: tuple[str, ...]
    log: Path
    """Takes all that it says."""
    deadline_s: float
    share: Callable[[float], float] = lambda elapsed_s: 0.0
    """How much of it is done, given the seconds since it began."""
    core: int | None = None
    """The only core that it and its children may use; None: any."""


class _Child:
    """A work and the process that does it."""

    def __init__(self, work: Work, now_s: float) -> None:
        self.work, self.began_s = work, now_s
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with work.log.open("wb") as log:
            self.process = subprocess.Popen(
                work.command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=one_thread,
                preexec_fn=_pin_to(work.core),
            )  # fmt: skip

    def failure(self, now_s: float) -> str | None:
        """Why it failed; empty: it came to a good end; None: it is still at work."""
        code = self.process.poll()
        if code is None and now_s - self.began_s > self.work.deadline_s:
            self.end()
            return f"took longer than {self.work.deadline_s:.0f} s"
        return None if code is None else "" if code == 0 else f"exit code {code}: {_last_words(self.work.log)}"

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Crew(msgspec.Struct, frozen=True, kw_only=True):
    """How works are done."""

    at_once: int
    say: Callable[[str], None]
    """Hears what runs, how far it is and what failed."""
    before_each: Callable[[], None] = lambda: None
    """Called before each start; may raise to end it all."""
    clock: Callable[[], float] = time.monotonic


def do_all(what: str, works: Sequence[Work], crew: Crew) -> None:
    """Do all works; raises at the end where some failed, and names them."""
    if works:
        with _ended_as_by_ctrl_c():
            _Shift(what, works, crew).do()


@contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """Let SIGTERM raise as Ctrl-C does, so that the children are ended: left alone, they would go on for hours."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears signals
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Shift:
    """Works of one kind, from the first to the last."""

    def __init__(self, what: str, works: Sequence[Work], crew: Crew) -> None:
        self._what, self._num, self._crew = what, len(works), crew
        self._waiting = list(works)
        self._running: list[_Child] = []
        self._failed: list[str] = []
        self._done = 0
        self._began_s = self._told_s = crew.clock()

    def do(self) -> None:
        crew = self._crew
        crew.say(f"{self._what}: {self._num} runs, {min(crew.at_once, self._num)} at a time")
        try:
            while self._running or self._goes_on():
                self._start()
                ended = [child for child in self._running if self._has_ended(child)]
                self._running = [child for child in self._running if child not in ended]
                self._done += len(ended)
                if ended or crew.clock() - self._told_s >= TELL_EVERY_S:
                    self._tell()
                time.sleep(0.0 if ended else POLL_S)
        finally:
            for child in self._running:
                child.end()
        self._raise_failures()

    def _start(self) -> None:
        while self._goes_on() and len(self._running) < self._crew.at_once:
            self._crew.before_each()
            self._running.append(_Child(self._waiting.pop(0), self._crew.clock()))

    def _goes_on(self) -> bool:
        return bool(self._waiting) and len(self._failed) < MOST_FAILURES

    def _has_ended(self, child: _Child) -> bool:
        failure = child.failure(self._crew.clock())
        if failure:
            self._failed.append(f"{child.work.label} ({failure}; {child.work.log})")
            self._crew.say(f"failed: {self._failed[-1]}")
        return failure is not None

    def _tell(self) -> None:
        now_s = self._told_s = self._crew.clock()
        shares = [min(1.0, child.work.share(now_s - child.began_s)) for child in self._running]
        spent = self._done + sum(shares)
        left_s = (now_s - self._began_s) * (self._num - spent) / spent if spent else 0.0
        left = f", about {_minutes(left_s)} left" if left_s else ""
        now = ", ".join(f"{child.work.label} {share:.0%}" for child, share in zip(self._running, shares, strict=True))
        self._crew.say(f"{self._what}: {self._done} of {self._num} done{left}" + (f"; now {now}" if now else ""))

    def _raise_failures(self) -> None:
        if not self._failed:
            return
        named = "\n".join(self._failed[:SHOWN])
        skipped = f", {len(self._waiting)} not begun" if self._waiting else ""
        raise DistrlError(
            f"{len(self._failed)} of {self._num} runs failed{skipped}:\n{named}",
            fix="read what they said there, mend it and start the same command again: finished runs are kept",
        )


def say_on_stderr(line: str) -> None:
    """Tell whoever waits, beside the results."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def usable_cores() -> list[int]:
    """The cores that this process may use, by number."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(num_cores()))


def do_as_child(job: Callable[[Path], None]) -> None:
    """The whole of a child process: do the job on the sheet that it was given, or say as the command line does why not.

    It ends when the process that started it is gone: nobody would read what it makes.
    """
    threading.Thread(target=_end_with, args=(os.getppid(),), name="parent watch", daemon=True).start()
    try:
        job(Path(sys.argv[1]))
    except DistrlError as error:
        sys.exit(f"{ERROR}{error}")


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _pin_to(core: int | None) -> Callable[[], None] | None:
    """What a child does first to keep to its core; None where it may use any, or where systems know no pinning."""
    if core is None or not hasattr(os, "sched_setaffinity"):
        return None
    return lambda: os.sched_setaffinity(0, {core})


def _last_words(log: Path) -> str:
    """Its last error message, or else its last line."""
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [at for at, line in enumerate(lines) if line.startswith(ERROR)]
    return "; ".join(lines[errors[-1] if errors else -1 :])[:300] or "it said nothing"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"

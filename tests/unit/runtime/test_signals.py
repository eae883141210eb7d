"""What roles and the supervisor make of signals, in processes of their own."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

ROLE = """
import os, signal, subprocess, sys
from distrl.runtime.role import _Stop, _tell_where
stop = _Stop(os.getppid(), asked=False)
_tell_where()
print("ready", flush=True)
for line in sys.stdin:
    if line.strip() == "child":
        code = "import signal; print(signal.getsignal(signal.SIGUSR1))"
        print(subprocess.check_output([sys.executable, "-c", code], text=True).strip(), flush=True)
    else:
        print(stop.stopping(), flush=True)
"""
SUPERVISOR = """
import sys
from types import SimpleNamespace
from distrl.cli.train import _stop_politely
session = SimpleNamespace(interrupted=False)
_stop_politely(session)
print("ready", flush=True)
for line in sys.stdin:
    print(session.interrupted, flush=True)
"""


def _as_from_a_shell() -> None:
    """Tests that `nohup` has started hand on that the end of a terminal is ignored, and a supervisor keeps to that."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextmanager
def process(script: str, *, before: str = "") -> Iterator[subprocess.Popen[str]]:
    """A process that answers a line for a line once it is ready."""
    running = subprocess.Popen(
        [sys.executable, "-c", before + script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True, preexec_fn=_as_from_a_shell,
    )  # fmt: skip
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        yield running
    finally:
        running.kill()
        running.communicate()


def ask(running: subprocess.Popen[str], question: str = "stopping") -> str:
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(f"{question}\n")
    running.stdin.flush()
    return running.stdout.readline().strip()


@pytest.mark.parametrize("name", ["INT", "HUP", "PIPE", "USR1", "USR2", "ALRM", "XCPU", "QUIT"])
def test_a_role_goes_on_after_signals_that_are_for_its_supervisor(name: str) -> None:
    with process(ROLE) as role:
        role.send_signal(getattr(signal, f"SIG{name}"))
        assert ask(role) == "False"
        role.terminate()
        assert ask(role) == "True"


def test_what_a_role_starts_hears_signals_as_usual() -> None:
    with process(ROLE) as role:
        assert ask(role, "child") == str(signal.SIG_DFL)


def test_a_role_says_where_it_stands_when_it_is_asked_and_when_it_crashes() -> None:
    with process(ROLE) as role:
        role.send_signal(signal.SIGQUIT)
        assert ask(role) == "False"
        role.send_signal(signal.SIGSEGV)
        _, told = role.communicate()
        assert role.returncode == -signal.SIGSEGV
        asked, crash, where = told.partition("Fatal Python error: Segmentation fault")
        assert crash
        assert all("most recent call first" in stack and "<module>" in stack for stack in (asked, where))


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "USR1", "USR2", "ALRM", "XCPU"])
def test_a_supervisor_saves_at_the_end_of_its_terminal_and_at_the_limit_of_its_job(name: str) -> None:
    with process(SUPERVISOR) as supervisor:
        supervisor.send_signal(getattr(signal, f"SIG{name}"))
        assert ask(supervisor) == "True"


@pytest.mark.parametrize("name", ["HUP", "USR1"])
def test_a_signal_that_the_supervisor_was_started_to_ignore_stays_ignored(name: str) -> None:
    ignored = f"import signal; signal.signal(signal.SIG{name}, signal.SIG_IGN)\n"
    with process(SUPERVISOR, before=ignored) as supervisor:
        supervisor.send_signal(getattr(signal, f"SIG{name}"))
        assert ask(supervisor) == "False"

"""The entry of every role's process: `python -m distrl.runtime.role NAME RUN_FOLDER`, as the supervisor starts it.

It builds the role's context from the run folder, runs the role, and tells the supervisor why it gave up. A role whose
supervisor is gone ends: while it is still starting at once, later in good order. What it has started ends with it.
"""

from __future__ import annotations

import argparse
import atexit
import ctypes
import faulthandler
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from distrl.config.load import config_of
from distrl.errors import DistrlError
from distrl.runtime.base import NoInference, RoleContext, inference_names, worker_names
from distrl.runtime.local_inference import SocketInference, SocketRequests, socket_of
from distrl.runtime.run_folder import RunFolder, disk_errors, take
from distrl.runtime.spools import left_spools, prepare_spools
from distrl.telemetry.events import EventLog
from distrl.telemetry.heartbeat import HeartbeatWriter
from distrl.telemetry.live import FileScreens
from distrl.transport.base import EventSink

PR_SET_PDEATHSIG = 1
"""Of prctl(2)."""
FOR_SUPERVISOR = ("SIGUSR1", "SIGUSR2", "SIGALRM", "SIGXCPU")
"""Announce a limit, often to every process of a job: the supervisor heeds them, and then asks the roles."""
PREDECESSOR_S = 40.0
"""How long to wait for a process that a killed supervisor left behind: it ends by itself once it notices."""


class _Stop:
    """Whether this process should come to an end: asked by a signal, or left alone by its supervisor."""

    def __init__(self, supervisor: int, *, asked: bool) -> None:
        self._supervisor, self._asked = supervisor, asked
        self.is_starting: Callable[[], bool] = lambda: True
        """Whether there is nothing yet that could be brought to a good end."""
        signal.signal(signal.SIGTERM, self._ask)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the supervisor, which then asks the roles
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # so is the end of its terminal
        for name in FOR_SUPERVISOR:
            signal.signal(getattr(signal, name), _do_nothing)
        _end_with_supervisor()
        self._check_orphaned()  # it may have ended before

    def stopping(self) -> bool:
        """True once the supervisor asked for an end, or is no longer there to ask."""
        return self._asked or self.orphaned()

    def orphaned(self) -> bool:
        """True once the supervisor is gone."""
        return os.getppid() != self._supervisor

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        self._check_orphaned()

    def _check_orphaned(self) -> None:
        if self.orphaned() and self.is_starting():
            end_group()


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Unlike a signal that is ignored, one with a handler has its usual effect on what this process starts."""


def _tell_where() -> None:
    """Have a crash in compiled code, and SIGQUIT at any time, write to the role's output what every thread is at."""
    faulthandler.enable()
    faulthandler.register(signal.SIGQUIT)


def _end_with_supervisor() -> None:
    """Have the kernel send SIGTERM once the supervisor is gone, however it ended; elsewhere than on Linux, roles look themselves."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class WarningLog(logging.Handler):
    """Writes warnings of the package, and of plug-ins that log under its name, into the role's log as `warning`."""

    def __init__(self, log: EventSink) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one; what was written as an event is one already."""
        if not record.name.startswith("distrl.events"):
            self._log.write("warning", logger=record.name, text=record.getMessage()[:2000])


def end_group() -> None:
    """End this process now, and all that it has started."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


def main(argv: list[str]) -> int:
    """Run one role; an error that the run's owner can mend goes to the supervisor in its own words."""
    given = _parse(argv)
    run = RunFolder(given.run)
    _tell_where()
    atexit.register(gc.freeze)  # on its way out Python would look through all of torch for garbage: half a second
    try:
        with disk_errors(run.path):
            stop = _Stop(given.supervisor, asked=given.finish)
            # Held until the process ends, so that a role runs once at a time.
            lock = take(run.lock(given.role), wait_s=PREDECESSOR_S, what=f"{given.role} of {run.path}")
            context = make_context(given.role, run, stop, given.spools or prepare_spools(run))
            stop.is_starting = lambda: context.heartbeat.is_starting
            logging.getLogger("distrl").addHandler(WarningLog(context.log))
            context.heartbeat.starting("loading its libraries")
            run_role(context)
            context.heartbeat.stopped("finished")
            lock.release()
            if stop.orphaned():
                end_group()  # nobody is left to end what this process has started
    except DistrlError as error:
        _give_reason(error, given, run)
        return error.exit_code
    return 0


def make_context(name: str, run: RunFolder, stop: _Stop, spools: Path) -> RoleContext:
    """The context of a role of this run, on files; it spools in a folder of its own in `spools`."""
    config = config_of(run.session_config(), name)
    transport = run.transport(config)
    incarnation = 1 + sum(event["event"] == "started" for event in transport.events.read(name))
    log = transport.events.log(name)
    log.write("started", incarnation=incarnation)
    decides, here = name in inference_names(config), NoInference()
    return RoleContext(
        name=name,
        config=config,
        incarnation=incarnation,
        transport=transport,
        heartbeat=HeartbeatWriter(
            transport.heartbeats.beat, name, interval_s=config.runtime.heartbeat_s, incarnation=incarnation
        ),
        log=log,
        metrics=EventLog(run.metrics),
        spool=spools / name,
        left_spools=lambda: left_spools(run, config, spools) if name == worker_names(config)[0] else iter(()),
        stopping=stop.stopping,
        screens=FileScreens(run.heartbeats, name),
        orphaned=stop.orphaned,
        inference=here if decides or not inference_names(config) else SocketInference(spools, inference_names(config)),
        requests=SocketRequests(socket_of(spools, name)) if decides else here,
    )


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="distrl.runtime.role")
    parser.add_argument("role")
    parser.add_argument("run", type=Path)
    parser.add_argument("--supervisor", type=int, default=os.getppid(), help="process whose end is this one's end")
    parser.add_argument("--exit-reason", type=int, help="file descriptor that hears why the role gave up")
    parser.add_argument("--spools", type=Path, help="folder of the spools of this session")
    parser.add_argument("--finish", action="store_true", help="take up what is left, finish it and end")
    return parser.parse_args(argv)


def _give_reason(error: DistrlError, given: argparse.Namespace, run: RunFolder) -> None:
    # Through a pipe first: on a full disk, no file can take the words.
    if given.exit_reason is not None:
        os.write(given.exit_reason, str(error).encode()[:4000])
    with suppress(OSError):
        EventLog(run.log(given.role)).write("failed", why=str(error))


def run_role(context: RoleContext) -> None:
    """Do the work of the role of this name until it should end; for any runtime, in a process of the role's own."""
    with context.heartbeat.while_loading():
        _run_role(context)


def _run_role(context: RoleContext) -> None:
    if context.name == "learner":
        from distrl.runtime.learner_role import learn

        learn(context)
    elif context.name == "evaluator":
        from distrl.runtime.evaluator_role import keep_evaluating

        keep_evaluating(context)
    elif context.name.startswith("inference-"):
        from distrl.runtime.inference_role import decide_for_workers

        decide_for_workers(context)
    else:
        from distrl.runtime.worker_role import collect

        collect(context)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

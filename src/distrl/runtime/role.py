"""The entry of every role's process: `python -m distrl.runtime.role NAME RUN_FOLDER`, as the supervisor starts it.

It builds the role's context from the run folder, runs the role, and tells the supervisor why it gave up.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from types import FrameType

from distrl.errors import DistrlError
from distrl.runtime.base import RoleContext
from distrl.runtime.run_folder import RunFolder, disk_errors, take
from distrl.telemetry.events import EventLog, read_events
from distrl.telemetry.heartbeat import HeartbeatWriter

PREDECESSOR_S = 40.0
"""How long to wait for a process that a killed supervisor left behind: it ends by itself once it notices."""


class _Stop:
    """Whether this process should come to an end: asked by a signal, or left alone by its supervisor."""

    def __init__(self, supervisor: int, *, asked: bool) -> None:
        self._supervisor, self._asked = supervisor, asked
        signal.signal(signal.SIGTERM, self._ask)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the supervisor, which then asks the roles

    def stopping(self) -> bool:
        """True once the supervisor asked for an end, or is no longer there to ask."""
        return self._asked or self.orphaned()

    def orphaned(self) -> bool:
        """True once the supervisor is gone."""
        return os.getppid() != self._supervisor

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked = True


def main(argv: list[str]) -> int:
    """Run one role; an error that the run's owner can mend goes to the supervisor in its own words."""
    given = _parse(argv)
    run = RunFolder(given.run)
    try:
        with disk_errors(run.path):
            stop = _Stop(given.supervisor, asked=given.finish)
            # Held until the process ends, so that a role runs once at a time.
            lock = take(run.lock(given.role), wait_s=PREDECESSOR_S, what=f"{given.role} of {run.path}")
            context = make_context(given.role, run, stop)
            context.heartbeat.starting("loading its libraries")
            _run(context)
            context.heartbeat.stopped("finished")
            lock.release()
    except DistrlError as error:
        _give_reason(error, given, run)
        return error.exit_code
    return 0


def make_context(name: str, run: RunFolder, stop: _Stop) -> RoleContext:
    """The context of a role of this run, on files."""
    config = run.session_config()
    transport = run.transport(config)
    log = EventLog(run.log(name))
    incarnation = 1 + sum(event["event"] == "started" for event in read_events(run.log(name)))
    log.write("started", incarnation=incarnation)
    return RoleContext(
        name=name,
        config=config,
        incarnation=incarnation,
        transport=transport,
        heartbeat=HeartbeatWriter(transport.heartbeats.beat, name, interval_s=config.runtime.heartbeat_s),
        log=log,
        metrics=EventLog(run.metrics),
        spool=spool_folder(run.path, name),
        stopping=stop.stopping,
        orphaned=stop.orphaned,
    )


def spool_folder(run: Path, role: str) -> Path:
    """Where a role spools what the run folder does not take: on this machine's disk for temporary files."""
    key = sha256(str(run.resolve()).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"distrl-spool-{os.getuid()}-{key}" / role


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="distrl.runtime.role")
    parser.add_argument("role")
    parser.add_argument("run", type=Path)
    parser.add_argument("--supervisor", type=int, default=os.getppid(), help="process whose end is this one's end")
    parser.add_argument("--exit-reason", type=int, help="file descriptor that hears why the role gave up")
    parser.add_argument("--finish", action="store_true", help="take up what is left, finish it and end")
    return parser.parse_args(argv)


def _give_reason(error: DistrlError, given: argparse.Namespace, run: RunFolder) -> None:
    # Through a pipe first: on a full disk, no file can take the words.
    if given.exit_reason is not None:
        os.write(given.exit_reason, str(error).encode()[:4000])
    with suppress(OSError):
        EventLog(run.log(given.role)).write("failed", why=str(error))


def _run(context: RoleContext) -> None:
    if context.name == "learner":
        from distrl.runtime.learner_role import learn

        learn(context)
    elif context.name == "evaluator":
        from distrl.runtime.evaluator_role import keep_evaluating

        keep_evaluating(context)
    else:
        from distrl.runtime.worker_role import collect

        collect(context)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

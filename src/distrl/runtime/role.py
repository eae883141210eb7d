"""The entry of every role's process: `python -m distrl.runtime.role NAME RUN_FOLDER`, as the supervisor starts it."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType

from distrl.config.schema import Config
from distrl.errors import DistrlError
from distrl.runtime.locks import take
from distrl.runtime.run_folder import RunFolder, disk_errors
from distrl.telemetry.events import EventLog
from distrl.telemetry.pulse import Pulse

EARLIER_LIFE_S = 40.0
"""How long to wait for a life that a killed supervisor left behind: it ends by itself once it notices."""


class Life:
    """One life of a role: its name, its run, its pulse, and whether it should come to an end."""

    def __init__(self, name: str, run: RunFolder, *, supervisor: int, finish: bool = False) -> None:
        self._supervisor, self._asked = supervisor, finish
        signal.signal(signal.SIGTERM, self._ask)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the supervisor, which then asks the roles
        self.name, self.run = name, run
        self.config: Config = run.session_config()
        self._lock = take(run.lock(name), wait_s=EARLIER_LIFE_S, what=f"{name} of {run.path}")
        self.pulse = Pulse(run.pulses, name, interval_s=self.config.runtime.heartbeat_s)
        self.log = EventLog(run.log(name))
        self.metrics = EventLog(run.metrics)

    def stopping(self) -> bool:
        """True once the supervisor asked for an end, or is no longer there to ask."""
        return self._asked or self.orphaned()

    def orphaned(self) -> bool:
        """True once the supervisor is gone."""
        return os.getppid() != self._supervisor

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked = True


def main(argv: list[str]) -> int:
    """Live one life; an error that the run's owner can mend goes to the supervisor in its own words."""
    given = _parse(argv)
    run = RunFolder(given.run)
    try:
        with disk_errors(run.path):
            life = Life(given.role, run, supervisor=given.supervisor, finish=given.finish)
            life.pulse.starting("loading its libraries")
            _live(life)
            life.pulse.stopped("finished")
    except DistrlError as error:
        _say_last(error, given, run)
        return error.exit_code
    return 0


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="distrl.runtime.role")
    parser.add_argument("role")
    parser.add_argument("run", type=Path)
    parser.add_argument("--supervisor", type=int, default=os.getppid(), help="process whose end is this one's end")
    parser.add_argument("--last-words", type=int, help="file descriptor that hears why the role gave up")
    parser.add_argument("--finish", action="store_true", help="take up what is left, finish it and end")
    return parser.parse_args(argv)


def _say_last(error: DistrlError, given: argparse.Namespace, run: RunFolder) -> None:
    # Through a pipe first: on a full disk, no file can take the words.
    if given.last_words is not None:
        os.write(given.last_words, str(error).encode()[:4000])
    with suppress(OSError):
        EventLog(run.log(given.role)).write("failed", why=str(error))


def _live(life: Life) -> None:
    if life.name == "learner":
        from distrl.runtime.learner_role import learn

        learn(life)
    elif life.name == "evaluator":
        from distrl.runtime.evaluator_role import keep_evaluating

        keep_evaluating(life)
    else:
        from distrl.runtime.worker_role import collect

        collect(life)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

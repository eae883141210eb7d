"""The entry of every role's process: `python -m distrl.runtime.role NAME RUN_FOLDER`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType

from distrl.config.schema import Config
from distrl.errors import DistrlError
from distrl.runtime.run_folder import RunFolder
from distrl.telemetry.events import EventLog
from distrl.telemetry.pulse import Pulse


class Life:
    """One life of a role: its name, its run, its pulse, and whether it should come to an end."""

    def __init__(self, name: str, run: RunFolder) -> None:
        self.name, self.run = name, run
        self.config: Config = run.config()
        self.pulse = Pulse(run.pulses, name, interval_s=self.config.runtime.heartbeat_s)
        self.log = EventLog(run.log(name))
        self.metrics = EventLog(run.metrics)
        self._parent = os.getppid()
        self._asked = False
        signal.signal(signal.SIGTERM, self._ask)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the supervisor, which then asks the roles

    def stopping(self) -> bool:
        """True once the supervisor asked for an end, or is no longer there to ask."""
        return self._asked or os.getppid() != self._parent

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked = True


def main(argv: list[str]) -> int:
    """Live one life; an error that the run's owner can mend is logged in its own words."""
    life = Life(argv[0], RunFolder(Path(argv[1])))
    life.pulse.starting("loading its libraries")
    try:
        _live(life)
    except DistrlError as error:
        life.log.write("failed", why=str(error))
        life.pulse.stopped(error.seen)
        print(error, file=sys.stderr)  # noqa: T201
        return error.exit_code
    life.pulse.stopped("finished")
    return 0


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

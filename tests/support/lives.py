"""Lives of roles without processes of their own."""

from __future__ import annotations

from pathlib import Path

from distrl.config.schema import Config
from distrl.runtime.role import Life
from distrl.runtime.run_folder import RunFolder
from distrl.telemetry.events import EventLog
from distrl.telemetry.pulse import Pulse


class QuietLife(Life):
    """A life in the process of the test: no signals, no lock, no supervisor. It is to end after so many `turns`."""

    def __init__(self, name: str, path: Path, config: Config, *, turns: int = 0) -> None:
        self.name, self.run, self.config, self._turns = name, RunFolder(path), config, turns
        self.pulse = Pulse(path / "pulses", name, interval_s=0.0)
        self.log, self.metrics = EventLog(self.run.log(name)), EventLog(self.run.metrics)

    def stopping(self) -> bool:
        self._turns -= 1
        return self._turns < 0

    def orphaned(self) -> bool:
        return False

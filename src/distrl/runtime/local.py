"""Roles as supervised processes on this machine.

A role that dies is started again after a back-off that doubles with each death in a row; progress ends the row. A
role whose heart has not beaten for `silent_after_s` is named, killed and started again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from distrl.config.schema import RuntimeConfig
from distrl.errors import RoleCrashed
from distrl.runtime.base import RoleStatus
from distrl.runtime.run_folder import RunFolder
from distrl.telemetry.events import EventLog
from distrl.telemetry.pulse import Heartbeat, read_heartbeat

STARTING_GRACE_S = 60.0
"""A process that loads its libraries on a busy machine may be silent for so long."""
LONGEST_BACKOFF_S = 10.0


class _Role:
    """A role and the process that is its present life."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None
        self.restarts = 0
        self.in_a_row = 0
        self.start_at_s = 0.0
        self.started_s = 0.0
        self.note = ""
        self.done = False
        self.past_busy_s = 0.0
        """Device time of earlier lives."""


class LocalRuntime:
    """`runtime.base.Runtime` with one process per role."""

    def __init__(self, run: RunFolder, config: RuntimeConfig, *, clock: Callable[[], float] = time.time) -> None:
        self._run, self._config, self._clock = run, config, clock
        self._roles: dict[str, _Role] = {}
        self._log = EventLog(run.log("supervisor"))

    def start(self, roles: tuple[str, ...]) -> None:
        for name in roles:
            self._roles[name] = _Role(name)
            self._launch(self._roles[name])

    def tend(self) -> None:
        for role in self._roles.values():
            if role.done:
                continue
            if role.process is None:
                if self._clock() >= role.start_at_s:
                    self._launch(role)
            elif (code := role.process.poll()) is not None:
                self._ended(role, code)
            else:
                self._listen(role)

    def ask_to_finish(self, role: str) -> None:
        found = self._roles[role]
        found.done = True
        if found.process is not None and found.process.poll() is None:
            found.process.send_signal(signal.SIGTERM)

    def alive(self, role: str) -> bool:
        process = self._roles[role].process
        return process is not None and process.poll() is None

    def kill(self, role: str, why: str) -> None:
        process = self._roles[role].process
        if process is not None and process.poll() is None:
            self._log.write("killed", role=role, why=why)
            process.kill()
            process.wait()

    def status(self) -> list[RoleStatus]:
        return [
            RoleStatus(
                role=role.name,
                alive=role.process is not None and role.process.poll() is None,
                restarts=role.restarts,
                note=role.note,
                heartbeat=read_heartbeat(self._run.pulses, role.name),
            )
            for role in self._roles.values()
        ]

    def stop(self) -> None:
        for role in self._roles.values():
            role.done = True
            if role.process is not None and role.process.poll() is None:
                role.process.kill()
                role.process.wait()

    @property
    def restarts(self) -> int:
        """Restarts of all roles together."""
        return sum(role.restarts for role in self._roles.values())

    def busy_s(self) -> float:
        """Device time of all roles in all their lives."""
        now = {role.name: self._own(role) for role in self._roles.values()}
        return sum(role.past_busy_s for role in self._roles.values()) + sum(
            heartbeat.figures.get("busy_s", 0.0) for heartbeat in now.values() if heartbeat is not None
        )

    def _launch(self, role: _Role) -> None:
        command = [sys.executable, "-m", "distrl.runtime.role", role.name, str(self._run.path)]
        # One thread per process: more of them collapse under contention on few cores.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        with self._run.console(role.name).open("ab") as output:
            role.process = subprocess.Popen(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
            )
        role.started_s, role.note = self._clock(), ""
        self._log.write("started", role=role.name, pid=role.process.pid, restarts=role.restarts)

    def _ended(self, role: _Role, code: int) -> None:
        if code == 0:
            role.done, role.note = True, "finished"
            return
        why = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self._restart_later(role, why)

    def _listen(self, role: _Role) -> None:
        heartbeat = self._own(role)
        silent_s = self._clock() - (heartbeat.beat_s if heartbeat else role.started_s)
        started = heartbeat is not None and heartbeat.phase != "starting"
        limit_s = self._config.silent_after_s if started else STARTING_GRACE_S
        if silent_s > limit_s and role.process is not None:
            what = heartbeat.what if heartbeat else "starting"
            role.process.kill()
            role.process.wait()
            self._restart_later(role, f"silent for {silent_s:.0f} s while {what}")

    def _own(self, role: _Role) -> Heartbeat | None:
        """The heartbeat of the role's present life."""
        heartbeat = read_heartbeat(self._run.pulses, role.name)
        pid = role.process.pid if role.process else 0
        return heartbeat if heartbeat is not None and heartbeat.pid == pid else None

    def _restart_later(self, role: _Role, why: str) -> None:
        last = self._own(role)
        role.in_a_row = 1 if last is not None and last.figures.get("progress", 0.0) > 0 else role.in_a_row + 1
        role.past_busy_s += last.figures.get("busy_s", 0.0) if last else 0.0
        role.process = None
        role.restarts += 1
        if role.in_a_row > self._config.max_restarts:
            raise RoleCrashed(
                f"{role.name} died {role.in_a_row} times in a row, last: {why}",
                expected="a role that makes progress between two deaths",
                fix=f"read {self._run.console(role.name)}",
            )
        wait_s = min(LONGEST_BACKOFF_S, self._config.backoff_s * 2 ** (role.in_a_row - 1))
        role.start_at_s = self._clock() + wait_s
        role.note = f"{why}; starts again in {wait_s:.1f} s"
        self._log.write("died", role=role.name, why=why, restarts=role.restarts, again_in_s=wait_s)

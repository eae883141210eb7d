"""Roles as supervised processes on this machine.

A role that dies is started again after a back-off that doubles with each death in a row; progress ends the row. A
role whose last heartbeat is older than `silent_after_s` is named, killed and started again. A role that gave up over
something that the owner of the run can mend ends the run with its exit reason: starting it again would not help.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from distrl.config.schema import RuntimeConfig
from distrl.errors import DistrlError, RoleCrashed
from distrl.runtime.base import RoleStatus
from distrl.runtime.run_folder import RunFolder
from distrl.telemetry.events import EventLog
from distrl.telemetry.heartbeat import Heartbeat
from distrl.transport.files import FileHeartbeats

LONGEST_BACKOFF_S = 10.0

Command = Callable[[str], list[str]]
"""What to run for a role; the supervisor adds its flags."""


class _Role:
    """A role and the process of its present incarnation."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None
        self.reason_pipe = -1
        """Where its process says why it gave up."""
        self.restarts = 0
        self.in_a_row = 0
        self.start_at_s = 0.0
        self.started_s = 0.0
        self.note = ""
        self.finishing = False
        self.needed = True
        self.done = False
        self.past_busy_s = 0.0
        """Device time of earlier incarnations."""

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def exit_reason(self) -> str:
        """Why its process gave up, once it has ended; empty: it did not say."""
        if self.reason_pipe < 0:
            return ""
        said = os.read(self.reason_pipe, 4096).decode(errors="replace")
        os.close(self.reason_pipe)
        self.reason_pipe = -1
        return said


class LocalRuntime:
    """`runtime.base.Runtime` with one process per role."""

    def __init__(
        self,
        run: RunFolder,
        config: RuntimeConfig,
        *,
        clock: Callable[[], float] = time.time,
        command: Command | None = None,
    ) -> None:
        self._run, self._config, self._clock = run, config, clock
        self._command = command or (lambda role: [sys.executable, "-m", "distrl.runtime.role", role, str(run.path)])
        self._heartbeats = FileHeartbeats(run.heartbeats)
        self._roles: dict[str, _Role] = {}
        self._log = EventLog(run.log("supervisor"))

    def start(self, roles: tuple[str, ...]) -> None:
        """Start these roles."""
        for name in roles:
            self._roles[name] = _Role(name)
            self._launch(self._roles[name])

    def supervise(self) -> None:
        """Notice what died or fell silent and start it again."""
        for role in self._roles.values():
            if role.done:
                continue
            if role.process is None:
                if self._clock() >= role.start_at_s:
                    self._launch(role)
            elif (code := role.process.poll()) is not None:
                self._ended(role, code)
            else:
                self._check_silence(role)

    def ask_to_finish(self, role: str, *, needed: bool) -> None:
        """Ask a role to come to a good end."""
        found = self._roles[role]
        found.finishing, found.needed = True, needed
        if found.alive and found.process is not None:
            found.process.send_signal(signal.SIGTERM)
        elif found.process is None and not needed:
            found.done = True

    def ended(self, role: str) -> bool:
        """Whether the role has ended for good."""
        return self._roles[role].done

    def kill(self, role: str, why: str) -> None:
        """End a role that did not end when asked."""
        found = self._roles[role]
        found.done = True
        if found.alive:
            self._log.write("killed", role=role, why=why)
            found.kill()

    def status(self) -> list[RoleStatus]:
        """How every role is."""
        return [
            RoleStatus(
                role=role.name,
                alive=role.alive,
                restarts=role.restarts,
                note=role.note,
                heartbeat=self._own(role) if role.alive else self._heartbeats.last(role.name),
            )
            for role in self._roles.values()
        ]

    def stop(self) -> None:
        """End everything now."""
        for role in self._roles.values():
            role.done = True
            role.kill()

    def restarts(self) -> int:
        """Restarts of all roles together."""
        return sum(role.restarts for role in self._roles.values())

    def busy_s(self) -> float:
        """Device time of all roles in all their incarnations."""
        now = {role.name: self._own(role) for role in self._roles.values()}
        return sum(role.past_busy_s for role in self._roles.values()) + sum(
            heartbeat.figures.get("busy_s", 0.0) for heartbeat in now.values() if heartbeat is not None
        )

    def _launch(self, role: _Role) -> None:
        # One thread per process: more of them collapse under contention on few cores.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        role.reason_pipe, theirs = os.pipe()
        flags = ["--supervisor", str(os.getpid()), "--exit-reason", str(theirs), *(["--finish"] * role.finishing)]
        try:
            with self._run.console(role.name).open("ab") as output:
                role.process = subprocess.Popen(
                    [*self._command(role.name), *flags],
                    stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                    env=environment, start_new_session=True, pass_fds=(theirs,),
                )  # fmt: skip
        finally:
            os.close(theirs)
        role.started_s, role.note = self._clock(), ""
        self._log.write("started", role=role.name, pid=role.process.pid, restarts=role.restarts)

    def _ended(self, role: _Role, code: int) -> None:
        self._raise_reason(role, code)
        if role.finishing and (code == 0 or not role.needed):
            role.done, role.note = True, "finished"
            return
        named = "it ended without being asked" if code == 0 else f"exit code {code}"
        self._restart_later(role, f"killed by {signal.Signals(-code).name}" if code < 0 else named)

    def _raise_reason(self, role: _Role, code: int) -> None:
        """Raise what a role that has ended said about why; nothing where it said nothing."""
        reason = role.exit_reason()
        if reason:
            self._log.write("failed", role=role.name, why=reason)
            error = DistrlError(f"{role.name}: {reason}")
            error.exit_code = code if code > 0 else error.exit_code
            raise error

    def _check_silence(self, role: _Role) -> None:
        heartbeat = self._own(role)
        silent_s = self._clock() - (heartbeat.beat_s if heartbeat else role.started_s)
        started = heartbeat is not None and heartbeat.phase != "starting"
        limit_s = self._config.silent_after_s if started else self._config.start_grace_s
        if silent_s > limit_s:
            what = heartbeat.what if heartbeat else "starting"
            role.kill()
            # It may have given up and then hung on its way out, such as in a thread that the disk does not let go.
            self._raise_reason(role, code=0)
            self._restart_later(role, f"silent for {silent_s:.0f} s while {what}")

    def _own(self, role: _Role) -> Heartbeat | None:
        """The heartbeat of the role's present incarnation."""
        heartbeat = self._heartbeats.last(role.name)
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

"""Roles as supervised processes on this machine.

A role that dies is started again after a back-off that doubles with each death in a row; progress ends the row. A
role that has not been heard of for `NAMED_AFTER_S` is named, and after `silent_after_s` it is killed and started again. A role
that gave up over something that the owner of the run can mend ends the run with its exit reason: starting it again would
not help.

Silence is counted in the supervisor's own looks: time in which it did not look either, since all processes were stopped
or the machine was asleep, is nobody's silence. A role is the leader of a process group, and is killed with it; when it ends,
whatever it left running is killed too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from distrl.config.schema import RuntimeConfig
from distrl.errors import DistrlError, RoleCrashed
from distrl.runtime.base import RoleStatus, describe_silence
from distrl.runtime.run_folder import RunFolder, holder_of
from distrl.runtime.spools import prepare_spools, remove_empty
from distrl.telemetry.events import EventLog
from distrl.telemetry.heartbeat import Heartbeat
from distrl.transport.files import FileTransport

LONGEST_BACKOFF_S = 10.0
LONGEST_LOOK_S = 1.0
"""What the time between two looks of the supervisor counts as a role's silence, at most."""
KILL_S = 10.0
"""How long a process that is killed may take to be gone."""
DEVICE_TIMES = ("busy_s", "device_s")
"""Figures of a worker's heartbeat that are summed over its incarnations."""

Command = Callable[[str], list[str]]
"""What to run for a role; the supervisor adds its flags."""


class _Role:
    """A role and the process of its present incarnation."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None
        self.group_gone = False
        """Whether its process group has been killed: from then on its number may be another's."""
        self.reason_pipe = -1
        """Where its process says why it gave up."""
        self.restarts = 0
        self.in_a_row = 0
        self.start_at_s = 0.0
        self.heard = self.stale = (0, 0.0)
        """The last heartbeat that was seen, and the last one from before its process was started: incarnation and time."""
        self.silent_s = 0.0
        """For how long there has been none since, as far as the supervisor looked."""
        self.note = ""
        self.finishing = False
        self.needed = True
        self.done = False
        self.past_s: dict[str, float] = dict.fromkeys(DEVICE_TIMES, 0.0)
        """Device time of earlier incarnations, by figure."""

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """End its process and all that the process has started; once that is done, nothing."""
        if self.process is None or self.group_gone:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # a disk that hangs holds it: the next incarnation waits for its lock
            self.process.wait(KILL_S)
            self.group_gone = True

    def exit_reason(self) -> str:
        """Why its process gave up, once it has ended; empty: it did not say."""
        if self.reason_pipe < 0:
            return ""
        try:
            said = os.read(self.reason_pipe, 4096)
        except BlockingIOError:  # nothing was said, and something that it has started still holds the other end
            said = b""
        os.close(self.reason_pipe)
        self.reason_pipe = -1
        return said.decode(errors="replace")


class LocalRuntime:
    """`runtime.base.Runtime` with one process per role."""

    def __init__(
        self,
        run: RunFolder,
        config: RuntimeConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        command: Command | None = None,
    ) -> None:
        self._run, self._config, self._clock = run, config, clock
        self._command = command or (lambda role: [sys.executable, "-m", "distrl.runtime.role", role, str(run.path)])
        self.transport = FileTransport(run)
        self._heartbeats = self.transport.heartbeats
        self._roles: dict[str, _Role] = {}
        self._looked_s = clock()
        self._spools: Path | None = None

    @cached_property
    def _log(self) -> EventLog:
        """Opened on first use: whoever only makes a runtime writes nothing."""
        return EventLog(self._run.log("supervisor"))

    def start(self, roles: tuple[str, ...]) -> None:
        """Start these roles."""
        self._spools = prepare_spools(self._run)
        for name in roles:
            self._roles[name] = _Role(name)
            self._launch(self._roles[name])

    def supervise(self) -> None:
        """Notice what died or fell silent and start it again."""
        now_s = self._clock()
        look_s, self._looked_s = min(LONGEST_LOOK_S, now_s - self._looked_s), now_s
        for role in self._roles.values():
            if role.done:
                continue
            if role.process is None:
                if self._clock() >= role.start_at_s:
                    self._launch(role)
            elif (code := role.process.poll()) is not None:
                self._ended(role, code)
            else:
                self._check_silence(role, look_s)

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
                note=self._note(role),
                heartbeat=self._own(role) if role.alive else self._heartbeats.last(role.name),
            )
            for role in self._roles.values()
        ]

    def _note(self, role: _Role) -> str:
        heartbeat = self._own(role)
        starting = heartbeat is None or heartbeat.phase == "starting"
        silence = describe_silence(role.silent_s, starting=starting, heartbeat_s=self._config.heartbeat_s)
        return (silence if role.alive else "") or role.note

    def stop(self) -> None:
        """End everything now."""
        for role in self._roles.values():
            role.done = True
            role.kill()
        if self._spools is not None:
            remove_empty(self._spools)

    def restarts(self) -> int:
        """Restarts of all roles together."""
        return sum(role.restarts for role in self._roles.values())

    def busy_s(self) -> float:
        """Device time of all roles in all their incarnations."""
        return self._total("busy_s")

    def device_s(self) -> float:
        """Time that the devices of all roles were there, in all their incarnations."""
        return self._total("device_s")

    def _total(self, figure: str) -> float:
        now = [self._own(role) for role in self._roles.values()]
        past_s = sum(role.past_s[figure] for role in self._roles.values())
        return past_s + sum(beat.figures.get(figure, 0.0) for beat in now if beat is not None)

    def _launch(self, role: _Role) -> None:
        self._wake_predecessor(role.name)
        role.stale = _identity(self._heartbeats.last(role.name))
        # One thread per process: more of them collapse under contention on few cores.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        role.reason_pipe, theirs = os.pipe()
        os.set_blocking(role.reason_pipe, False)
        flags = ["--supervisor", str(os.getpid()), "--exit-reason", str(theirs), "--spools", str(self._spools)]
        try:
            with self._run.console(role.name).open("ab") as output:
                role.process = subprocess.Popen(
                    [*self._command(role.name), *flags, *(["--finish"] * role.finishing)],
                    stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                    env=environment, start_new_session=True, pass_fds=(theirs,),
                )  # fmt: skip
        finally:
            os.close(theirs)
        role.silent_s, role.note, role.group_gone = 0.0, "", False
        self._log.write("started", role=role.name, pid=role.process.pid, restarts=role.restarts)

    def _wake_predecessor(self, role: str) -> None:
        """Let a process that an earlier supervisor left behind run on if it is stopped: it then notices and ends."""
        pid = holder_of(self._run.lock(role))
        if pid and is_role(pid):
            self._log.write("predecessor", role=role, pid=pid)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGCONT)

    def _ended(self, role: _Role, code: int) -> None:
        role.kill()  # what it has left running
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

    def _check_silence(self, role: _Role, look_s: float) -> None:
        heartbeat = self._own(role)
        heard = _identity(heartbeat) if heartbeat else role.heard
        role.silent_s = role.silent_s + look_s if heard == role.heard else 0.0
        role.heard = heard
        started = heartbeat is not None and heartbeat.phase != "starting"
        setting = "silent_after_s" if started else "start_grace_s"
        if role.silent_s > getattr(self._config, setting):
            what = heartbeat.what if heartbeat else "starting"
            role.kill()
            # It may have given up and then hung on its way out, such as in a thread that the disk does not let go.
            self._raise_reason(role, code=0)
            self._restart_later(role, f"silent for {role.silent_s:.0f} s while {what} (runtime.{setting})")

    def _own(self, role: _Role) -> Heartbeat | None:
        """The heartbeat of the role's present incarnation."""
        heartbeat = self._heartbeats.last(role.name)
        pid = role.process.pid if role.process else 0
        # In a container the process of the next session easily has the number of one of the last session.
        return heartbeat if heartbeat and heartbeat.pid == pid and _identity(heartbeat) != role.stale else None

    def _restart_later(self, role: _Role, why: str) -> None:
        last = self._own(role)
        role.in_a_row = 1 if last is not None and last.figures.get("progress", 0.0) > 0 else role.in_a_row + 1
        if last is not None:
            role.past_s = {name: past_s + last.figures.get(name, 0.0) for name, past_s in role.past_s.items()}
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


def _identity(heartbeat: Heartbeat | None) -> tuple[int, float]:
    return (heartbeat.incarnation, heartbeat.beat_s) if heartbeat else (0, 0.0)


def is_role(pid: int) -> bool:
    """Whether this process is a role of some run, and not another program that was given its number since."""
    try:
        return b"distrl.runtime.role" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False

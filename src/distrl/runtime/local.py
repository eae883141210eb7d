"""Roles as supervised processes on this machine.

What is done about deaths and silence is in `runtime.supervision`. A role is the leader of a process group, and is killed
with it; when it ends, whatever it left running is killed too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from distrl.config.schema import RuntimeConfig
from distrl.runtime.local_inference import remove_sockets
from distrl.runtime.run_folder import RunFolder, holder_of
from distrl.runtime.spools import prepare_spools, remove_empty
from distrl.runtime.supervision import SupervisedRole, Supervisor
from distrl.telemetry.heartbeat import Heartbeat
from distrl.transport.files import FileTransport

MPS_PRIORITY = "CUDA_MPS_CLIENT_PRIORITY"
"""0: normal, 1: below; of no effect without that service."""
KILL_S = 10.0
"""How long a process that is killed may take to be gone."""

Command = Callable[[str], list[str]]
"""What to run for a role; the supervisor adds its flags."""


class _Role(SupervisedRole):
    """A role and the process of its present incarnation."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.process: subprocess.Popen[bytes] | None = None
        self.group_gone = False
        """Whether its process group has been killed: from then on its number may be another's."""
        self.reason_pipe = -1
        """Where its process says why it gave up."""

    @property
    def started(self) -> bool:
        """Whether there is a process, living or dead."""
        return self.process is not None

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.poll() is None

    def exit_code(self) -> int | None:
        """Of its process; None while that runs."""
        return self.process.poll() if self.process is not None else None

    def describe_end(self, code: int) -> str:
        """An end that nobody asked for, in words."""
        named = "it ended without being asked" if code == 0 else f"exit code {code}"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else named

    def owns(self, heartbeat: Heartbeat) -> bool:
        """Whether its present process has said this."""
        # In a container the process of the next session easily has the number of one of the last session.
        return heartbeat.pid == (self.process.pid if self.process else 0)

    def ask_to_finish(self) -> None:
        """Ask its process to come to a good end."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)

    def forget(self) -> None:
        """Be without a process."""
        self.process = None

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


class LocalRuntime(Supervisor[_Role]):
    """`runtime.base.Runtime` with one process per role."""

    def __init__(
        self,
        run: RunFolder,
        config: RuntimeConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        command: Command | None = None,
    ) -> None:
        self.transport = FileTransport(run)
        super().__init__(run, config, self.transport.heartbeats, clock)
        self._command = command or (lambda role: [sys.executable, "-m", "distrl.runtime.role", role, str(run.path)])
        self._spools: Path | None = None

    def start(self, roles: tuple[str, ...]) -> None:
        """Start these roles."""
        self._spools = prepare_spools(self._run)
        for name in roles:
            self._roles[name] = _Role(name)
            self._launch(self._roles[name])

    def stop(self) -> None:
        """End everything now."""
        for role in self._roles.values():
            role.done = True
            role.kill()
        if self._spools is not None:
            remove_sockets(self._spools)
            remove_empty(self._spools)

    def _launch(self, role: _Role) -> None:
        self._wake_predecessor(role.name)
        self._begin_incarnation(role)
        # One thread per process: more of them collapse under contention on few cores.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        if role.name == "learner":  # where NVIDIA's Multi-Process Service shares a GPU out, decisions come first
            environment.setdefault(MPS_PRIORITY, "1")
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
        role.group_gone = False
        self._log.write("started", role=role.name, pid=role.process.pid, restarts=role.restarts)

    def _wake_predecessor(self, role: str) -> None:
        """Let a process that an earlier supervisor left behind run on if it is stopped: it then notices and ends."""
        pid = holder_of(self._run.lock(role))
        if pid and is_role(pid):
            self._log.write("predecessor", role=role, pid=pid)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGCONT)


def is_role(pid: int) -> bool:
    """Whether this process is a role of some run, and not another program that was given its number since."""
    try:
        return b"distrl.runtime.role" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False

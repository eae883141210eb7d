"""Signals to the processes of a run: who is hit in which phase, how soon a stopped role is named, and what is left of the run.

One run takes many signals, over as many sessions as it needs: a supervisor that ends is followed by `--resume`. At its end the
run is audited as `bench kills` does it: every acknowledged episode is there once, and the learner has read each once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread

import msgspec

from distrl.bench.jobs import log_progress
from distrl.bench.system.fault_cases import Role, SignalCase, signal_case
from distrl.bench.system.fault_files import SETTINGS, flags
from distrl.bench.system.kills import KillFigures, Kills, audit
from distrl.errors import DistrlError
from distrl.experience.store import ExperienceStore
from distrl.runtime.run_folder import RunFolder, held
from distrl.runtime.summary import read_status
from distrl.telemetry.events import events_of
from distrl.telemetry.heartbeat import Heartbeat
from distrl.transport.files import FileHeartbeats
from distrl.types import Value

SLOW: dict[str, Value] = {
    **SETTINGS,
    "rollout.keep_screenshots": False,
    "devices.sim.latency.profile": "emulator",
    "devices.sim.latency.time_scale": 0.05,
    "devices.sim.latency.stall_rate": 0,
    "run.episodes": 100_000,
}
"""Phones that take long enough for something to happen in the middle of an episode."""
ENDLESS = 100_000
"""Episodes of a session that is to go on until it is told otherwise."""
PATIENCE_S = 180.0
"""Longest wait for anything that a run has to come to."""
POLL_S = 0.02
HOLD_S = 2.0
"""How long a process stays stopped where nobody waits for it to be named."""
TRIES = 3
"""Sessions in which a signal that came too late is sent again."""
ROLES: dict[Role, str] = {"learner": "learner", "worker": "worker-0", "evaluator": "evaluator"}
"""The roles of the run by kind."""


class Signalled(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one signal."""

    case: SignalCase
    seen: str
    named_s: float | None = None
    """From a stop until `distrl status` said that the role is silent; None: it was not waited for."""


class Sessions:
    """A run and its sessions, one after the other."""

    def __init__(self, root: Path, settings: dict[str, Value], environment: dict[str, str] | None = None) -> None:
        self._root, self._settings, self._environment = root, settings, environment
        self.run = RunFolder(root / "none")
        self.episodes = 0
        """At which the session ends by itself."""
        self._num_started = 0
        """Roles that earlier sessions have started."""
        self._process: subprocess.Popen[bytes] | None = None
        self._output = bytearray()
        self._listener: Thread | None = None

    def begin(self, episodes: int = ENDLESS) -> None:
        """Start the run, or go on with it, until so many episodes; returns once its supervisor has its lock."""
        root = self._root / "runs"
        first = not self.run.config_file.exists()
        new = flags({**self._settings, "run.root": str(root), "run.episodes": episodes})
        words = new if first else ["--resume", str(self.run.path), "--run.episodes", str(episodes)]
        self.episodes, self._num_started = episodes, len(self._starts())
        self._output.clear()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "distrl", "train", *words],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, env=self._environment,
            preexec_fn=_hear_hangup,
        )  # fmt: skip
        # Through a pipe: on a full disk, no file can take its words.
        self._listener = Thread(target=self._listen, args=(self._process,), daemon=True)
        self._listener.start()
        if first:
            self.until(lambda: any(root.glob("*/config.toml")), "its folder")
            self.run = RunFolder(next(root.glob("*/config.toml")).parent)
        self.until(lambda: held(self.run.lock("supervisor")), "its lock")

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                self._output += line

    @property
    def pid(self) -> int:
        """The supervisor's process."""
        assert self._process is not None
        return self._process.pid

    @property
    def live(self) -> bool:
        """Whether a session is under way."""
        return self._process is not None and self._process.poll() is None

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait for something that the session has to come to; raises where it ends before, or takes too long."""
        until_s = time.monotonic() + PATIENCE_S
        while not holds():
            if not self.live or time.monotonic() > until_s:
                raise DistrlError(f"the run did not come to {what}: {self.said()}")
            time.sleep(POLL_S)

    def end(self) -> int | None:
        """Wait for the end of the session; its exit code, None where it did not end."""
        assert self._process is not None
        assert self._listener is not None
        try:
            code = self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            return None
        self._listener.join(HOLD_S)
        return code

    def said(self) -> str:
        """The end of what it printed."""
        return self._output.decode(errors="replace")[-1500:]

    def count(self) -> int:
        """Episodes in the store."""
        if not (self.run.experience / "index.sqlite").exists():
            return 0
        with ExperienceStore(self.run.experience) as store:
            return store.count()

    def started(self) -> dict[str, int]:
        """The process of every role that this session has started, by role."""
        return {str(event["role"]): int(event["pid"]) for event in self._starts()[self._num_started :]}

    def _starts(self) -> list[dict[str, Value]]:
        return events_of(self.run.log("supervisor"), "started", "role", "pid")

    def beat(self, role: str) -> Heartbeat | None:
        """The last heartbeat of the present incarnation of a role."""
        found = FileHeartbeats(self.run.heartbeats).last(role)
        return found if found is not None and found.pid == self.started().get(role) else None

    def stop(self) -> None:
        """End it, whatever it is doing."""
        if self._process is None:
            return
        for pid in (*self.started().values(), self._process.pid):
            _send(pid, signal.SIGCONT)
        self._process.kill()
        self._process.wait()
        gone_by_s = time.monotonic() + PATIENCE_S
        while any(held(self.run.lock(role)) for role in ROLES.values()) and time.monotonic() < gone_by_s:
            time.sleep(POLL_S)


# --- one signal -------------------------------------------------------------------------------------------------------


def hit(sessions: Sessions, case: SignalCase) -> Signalled:
    """Wait for the phase of a case, send its signal, and see what the role or the supervisor makes of it."""
    log_progress(f"faults: {case.name}")
    for _ in range(TRIES):
        _prepare(sessions, case)
        done = _hit_supervisor(sessions, case) if case.role == "supervisor" else _hit_role(sessions, case)
        if done.seen != "missed":
            break
        sessions.end()
    return done


def _prepare(sessions: Sessions, case: SignalCase) -> None:
    """Have a session under way that comes to the phase of the case."""
    finishing = case.phase == "finishing"
    if sessions.live and finishing == (sessions.episodes == ENDLESS):
        finish(sessions)
    if not sessions.live:
        sessions.begin(sessions.count() + 10 if finishing else ENDLESS)


def _hit_role(sessions: Sessions, case: SignalCase) -> Signalled:
    role = ROLES[case.role]
    _await_phase(sessions, role, case.phase)
    pid, named_s = sessions.started()[role], None
    if not _send(pid, 0):
        return Signalled(case=case, seen="missed")
    if case.signal == "STOP":
        named_s = _stop_for_a_while(sessions, case, pid)
    else:
        _send(pid, getattr(signal, f"SIG{case.signal}"))
    if case.phase == "training":
        ends = case.signal in ("TERM", "KILL")
        sessions.until(
            lambda: _is_at_work(sessions, role) and not (ends and sessions.started()[role] == pid), f"a {role} at work"
        )
    return Signalled(case=case, seen="goes on", named_s=named_s)


def _hit_supervisor(sessions: Sessions, case: SignalCase) -> Signalled:
    if case.phase == "starting":
        sessions.until(lambda: set(ROLES.values()) <= set(sessions.started()), "its roles")
    else:
        _await_phase(sessions, "evaluator" if case.phase == "finishing" else "worker-0", case.phase)
    if not sessions.live:
        return Signalled(case=case, seen="missed")
    if case.signal == "STOP":
        _stop_for_a_while(sessions, case, sessions.pid)
        return Signalled(case=case, seen="goes on")
    _send(sessions.pid, getattr(signal, f"SIG{case.signal}"))
    code = sessions.end()
    seen = {0: "saved", -signal.SIGKILL: "resumed"}
    return Signalled(case=case, seen=f"exit code {code}" if code is None else seen.get(code, f"exit code {code}"))


def _await_phase(sessions: Sessions, role: str, phase: str) -> None:
    match phase:
        case "starting":
            sessions.until(lambda: role in sessions.started(), f"a {role}")
        case "training":
            before = sessions.count()
            sessions.until(lambda: _is_at_work(sessions, role) and sessions.count() > before, f"a {role} that trains")
        case _:
            limit = sessions.episodes
            gone = role != "worker-0"  # the others are asked to finish once the workers are gone
            sessions.until(
                lambda: sessions.count() >= limit and not (gone and held(sessions.run.lock("worker-0"))), "its end"
            )


def _is_at_work(sessions: Sessions, role: str) -> bool:
    beat = sessions.beat(role)
    return beat is not None and beat.phase in ("doing", "waiting")


def _stop_for_a_while(sessions: Sessions, case: SignalCase, pid: int) -> float | None:
    """Stop a process and let it run on; how long it took to be named, where that was waited for."""
    if not _send(pid, signal.SIGSTOP):
        return None
    try:
        if case.role != "supervisor" and case.phase == "training":
            return await_named(sessions, ROLES[case.role])
        time.sleep(HOLD_S)
        return None
    finally:
        _send(pid, signal.SIGCONT)


def await_named(sessions: Sessions, role: str) -> float:
    """Seconds until `distrl status` says that a role is silent."""
    since_s = time.monotonic()

    def named() -> bool:
        notes = {found.role: found.note for found in read_status(sessions.run, now_s=time.time()).roles}
        return notes.get(role, "").startswith("silent for ")

    sessions.until(named, f"a word about the stopped {role}")
    return time.monotonic() - since_s


def _hear_hangup() -> None:
    """A bench that `nohup` started hands on that SIGHUP is ignored, and a supervisor that finds that keeps to it."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _send(pid: int, number: int) -> bool:
    """Send a signal; False where the process is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


# --- many -------------------------------------------------------------------------------------------------------------


class SignalFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A run that took signals."""

    signalled: list[Signalled]
    left: KillFigures
    """What the audit at its end found."""


def run_signals(root: Path, cases: Sequence[SignalCase]) -> SignalFigures:
    """Send these signals to one run, in this order, bring it to its end, and audit it."""
    started_s, sessions = time.monotonic(), Sessions(root, SLOW)
    try:
        done = [hit(sessions, case) for case in cases]
        if sessions.live:
            finish(sessions)
        while read_status(sessions.run, now_s=time.time()).phase != "finished":
            sessions.begin(sessions.count() + 4)
            _end_well(sessions)
        config = sessions.run.session_config()
        left = audit(sessions.run, config, Kills(by_role={}, longest_silence_s=0.0), time.monotonic() - started_s)
        return SignalFigures(signalled=done, left=left)
    finally:
        sessions.stop()


def finish(sessions: Sessions) -> None:
    """End the session that is under way in good order."""
    if sessions.episodes == ENDLESS:
        _send(sessions.pid, signal.SIGTERM)
    _end_well(sessions)


def _end_well(sessions: Sessions) -> None:
    code = sessions.end()
    if code != 0:
        raise DistrlError(f"the session ended with exit code {code}: {sessions.said()}")


def measure_stalls(root: Path, stops: int) -> list[float]:
    """Stop the roles of one run in turn; how long each took to be named."""
    sessions, found = Sessions(root, SLOW), list[float]()
    try:
        sessions.begin()
        for number in range(stops):
            done = hit(sessions, signal_case("STOP", list(ROLES)[number % len(ROLES)], "training"))
            found += [done.named_s] if done.named_s is not None else []
        finish(sessions)
        return found
    finally:
        sessions.stop()

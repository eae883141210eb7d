"""Signals to the processes of a run: who is hit in which phase, how soon a stopped role is named, and what is left of the run.

One run takes many signals, over as many sessions as it needs: a supervisor that ends is followed by `--resume`. At its end the
run is audited as `bench kills` does it: every acknowledged episode is there once, and the learner has read each once.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread

import msgspec

from distrl.bench.jobs import log_progress
from distrl.bench.system.fault_cases import ENDS_ROLES, ENDS_SUPERVISOR, OUTLIVED, Role, SignalCase
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
POLL_S = 0.05
HOLD_S = 2.0
"""How long a process stays stopped where nobody waits for it to be named."""
SETTLED_S = 0.5
"""How long after a signal a heartbeat shows that the process has outlived it."""
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
            [sys.executable, "-m", "distrl", "train", "--no-view", *words],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, env=self._environment,
            preexec_fn=_as_from_a_shell,
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

    def deaths(self, role: str = "") -> int:
        """How often a role has died in this run, or all roles together: a restart each, unless the run is given up."""
        return sum(
            role in ("", event["role"]) for event in events_of(self.run.log("supervisor"), "died", "role", "why")
        )

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


def hit(sessions: Sessions, case: SignalCase, *, until_named: bool | None = None) -> Signalled:
    """Wait for the phase of a case, send its signal, and see what the role or the supervisor makes of it.

    `until_named`: a stopped role stays so until it is called silent; by itself, one that trains does.
    """
    log_progress(f"{case.name}")
    naming = case.signal == "STOP" and (case.phase == "training" if until_named is None else until_named)
    for _ in range(TRIES):
        _prepare(sessions, case)
        done = (
            _hit_supervisor(sessions, case) if case.role == "supervisor" else _hit_role(sessions, case, naming=naming)
        )
        if done.seen != "missed":
            break
        sessions.end()
    return done


def _prepare(sessions: Sessions, case: SignalCase) -> None:
    """Have a session under way that comes to the phase of the case."""
    finishing = case.phase == "finishing"
    if sessions.live and (finishing == (sessions.episodes == ENDLESS) or _is_too_far(sessions, case)):
        finish(sessions)
    if not sessions.live:
        sessions.begin(sessions.count() + 10 if finishing else ENDLESS)


def _is_too_far(sessions: Sessions, case: SignalCase) -> bool:
    """Whether a role that is to be hit while it starts has started."""
    beat = sessions.beat(ROLES.get(case.role, "worker-0"))
    return case.phase == "starting" and beat is not None and beat.phase != "starting"


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """A signal to a role, and how things stood then."""

    case: SignalCase
    role: str
    pid: int
    sent_s: float
    """On the monotonic clock, which heartbeats go by too; of STOP, when CONT followed."""
    deaths: int
    """Of the role so far."""


def _hit_role(sessions: Sessions, case: SignalCase, *, naming: bool) -> Signalled:
    role = ROLES[case.role]
    _await_phase(sessions, role, case.phase)
    # From its first heartbeat on, it ignores most signals, and can be called silent.
    if case.phase == "starting" and (naming or case.signal not in (*ENDS_ROLES, "STOP")):
        sessions.until(lambda: sessions.beat(role) is not None, f"a heartbeat of the {role}")
    pid, deaths, named_s = sessions.started()[role], sessions.deaths(role), None
    if _has_ended(sessions, role) or not _send(pid, 0):
        return Signalled(case=case, seen="missed")
    if case.signal == "STOP":
        named_s = _stop_for_a_while(sessions, pid, role if naming else "")
    else:
        _send(pid, getattr(signal, f"SIG{case.signal}"))
    sent = Sent(case=case, role=role, pid=pid, sent_s=time.monotonic(), deaths=deaths)
    return Signalled(case=case, seen=_await_outcome(sessions, sent), named_s=named_s)


def _await_outcome(sessions: Sessions, sent: Sent) -> str:
    """What has come of a signal to a role, as soon as that can be told."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        over = not sessions.live  # before the look: what comes of it may be the session's end
        if over and sessions.end() != 0:
            return f"the session ended: {sessions.said()}"
        seen = outcome_of(sessions, sent, over=over)
        if seen or over:
            return seen or ("missed" if _has_ended(sessions, sent.role) else "nothing came of it")
        time.sleep(2 * POLL_S)
    return "nothing came of it"


def outcome_of(sessions: Sessions, sent: Sent, *, over: bool = False) -> str:
    """What has come of a signal to a role, in a session that is over or not; empty: that cannot be told yet.

    It goes on where a role that ignores the signal, or was stopped for a while, has beaten since, in the same process; and
    where one that ends of it has been started again, once, and is at work, or has come to its good end while finishing, or
    the session has (`over`: with exit code 0) before the new process had a heartbeat.
    """
    deaths, pid = sessions.deaths(sent.role) - sent.deaths, sessions.started()[sent.role]
    at_work, ended = _is_at_work(sessions, sent.role), _has_ended(sessions, sent.role)
    if deaths > 1:
        return f"died {deaths} times"
    if sent.case.signal not in ENDS_ROLES:
        return "died of it" if deaths or pid != sent.pid else "goes on" * _has_beaten(sessions, sent)
    if pid != sent.pid:
        return "goes on" * (at_work or ended or over)
    if sent.case.phase != "finishing" or (ended and sent.case.signal != "TERM"):
        return ""  # it is to be started again; or the signal came too late
    if sent.case.role == "worker":  # which is not needed any more once it has been asked to finish
        return "goes on" * (not held(sessions.run.lock(sent.role)) and (over or not deaths))
    return "goes on" * (ended and not deaths)


def _has_beaten(sessions: Sessions, sent: Sent) -> bool:
    """Whether a role has beaten since a signal: late enough for it to have taken effect, or with its good end."""
    beat = sessions.beat(sent.role)
    settled_s = 0.0 if _has_ended(sessions, sent.role) else SETTLED_S
    return beat is not None and beat.beat_s > sent.sent_s + settled_s


def _has_ended(sessions: Sessions, role: str) -> bool:
    """Whether the present incarnation of a role has come to its good end."""
    beat = sessions.beat(role)
    return beat is not None and beat.phase == "stopped"


def _hit_supervisor(sessions: Sessions, case: SignalCase) -> Signalled:
    if case.phase == "starting":
        sessions.until(lambda: set(ROLES.values()) <= set(sessions.started()), "its roles")
    else:
        _await_phase(sessions, "evaluator" if case.phase == "finishing" else "worker-0", case.phase)
    if not sessions.live:
        return Signalled(case=case, seen="missed")
    if case.signal in OUTLIVED:
        return Signalled(case=case, seen=_outlives(sessions, case))
    _send(sessions.pid, getattr(signal, f"SIG{case.signal}"))
    code = sessions.end()
    if code == 0:
        return Signalled(case=case, seen="saved" if sessions.run.summary.is_file() else "no summary")
    ends = case.signal in ENDS_SUPERVISOR and code == -getattr(signal, f"SIG{case.signal}")
    return Signalled(case=case, seen="resumed" if ends else f"exit code {code}")


def _outlives(sessions: Sessions, case: SignalCase) -> str:
    """Whether the supervisor goes on after a stop or a signal that it is not to heed, and no role died of that."""
    deaths, budget = sessions.deaths(), sessions.run.budget
    if case.signal == "STOP":
        _stop_for_a_while(sessions, sessions.pid)
    else:
        _send(sessions.pid, getattr(signal, f"SIG{case.signal}"))
    written_ns = budget.stat().st_mtime_ns if budget.exists() else 0
    until_s = time.monotonic() + PATIENCE_S
    while sessions.live and time.monotonic() < until_s:
        if budget.exists() and budget.stat().st_mtime_ns > written_ns:  # every two seconds
            break
        time.sleep(POLL_S)
    if not sessions.live:
        return "goes on" if sessions.end() == 0 else f"the session ended: {sessions.said()}"
    died = sessions.deaths() - deaths
    return f"{died} roles died" if died else "goes on" if time.monotonic() < until_s else "nothing came of it"


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


def _stop_for_a_while(sessions: Sessions, pid: int, role: str = "") -> float | None:
    """Stop a process and let it run on; how long it took to be named as this role, where that was waited for."""
    if not _send(pid, signal.SIGSTOP):
        return None
    try:
        if role:
            return await_named(sessions, role)
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


def _as_from_a_shell() -> None:
    """A bench that `nohup` or `&` started hands on which signals are ignored, and a supervisor that finds that keeps to it."""
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # crashes on purpose: nobody looks at what they leave


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


def run_signals(root: Path, cases: Sequence[SignalCase], cut: Event) -> SignalFigures:
    """Send these signals to one run, in this order, bring it to its end, and audit it; raises between two of them once it is `cut`."""
    started_s, sessions, done = time.monotonic(), Sessions(root, SLOW), list[Signalled]()
    try:
        for case in cases:
            if cut.is_set():
                raise DistrlError("the bench was ended before all signals were sent")
            done.append(hit(sessions, case))
        return SignalFigures(signalled=done, left=close(sessions, time.monotonic() - started_s))
    finally:
        sessions.stop()


def close(sessions: Sessions, wall_s: float) -> KillFigures:
    """Bring a run to its end, and audit it."""
    if sessions.live:
        finish(sessions)
    while read_status(sessions.run, now_s=time.time()).phase != "finished":
        sessions.begin(sessions.count() + 4)
        _end_well(sessions)
    return audit(sessions.run, sessions.run.session_config(), Kills(by_role={}, longest_silence_s=0.0), wall_s)


def finish(sessions: Sessions) -> None:
    """End the session that is under way in good order."""
    if sessions.episodes == ENDLESS:
        _send(sessions.pid, signal.SIGTERM)
    _end_well(sessions)


def _end_well(sessions: Sessions) -> None:
    code = sessions.end()
    if code != 0:
        raise DistrlError(f"the session ended with exit code {code}: {sessions.said()}")

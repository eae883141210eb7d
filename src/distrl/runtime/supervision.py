"""Looking after roles, wherever they run: deaths, silence, back-off, device times, and ends that were asked for.

A role that dies is started again after a back-off that doubles with each death in a row; progress ends the row. One
that dies of the same error `SAME_ERRORS` times in a row while it starts ends the run: no wait would help. A role that has not been heard of for `NAMED_AFTER_S` is named, and after `silent_after_s` it is killed and started again. A role
that gave up over something that the owner of the run can mend ends the run with its exit reason: starting it again would
not help.

Silence is counted in the supervisor's own looks: time in which it did not look either, since all processes were stopped
or the machine was asleep, is nobody's silence. How an incarnation of a role is started, asked and killed is the runtime's.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from distrl.config.schema import RuntimeConfig
from distrl.errors import DistrlError, RoleCrashed
from distrl.runtime.base import RoleStatus, describe_silence
from distrl.runtime.run_folder import RunFolder
from distrl.telemetry.events import EventLog
from distrl.telemetry.heartbeat import Heartbeat
from distrl.transport.base import Heartbeats

LONGEST_BACKOFF_S = 10.0
SAME_ERRORS = 5
"""Deaths in a row of the same error, each before the role was ready, after which the run ends."""
LONGEST_ERROR = 200
"""Characters of an error that are told beside the role's name."""
LONGEST_LOOK_S = 1.0
"""What the time between two looks of the supervisor counts as a role's silence, at most."""
DEVICE_TIMES = ("busy_s", "device_s")
"""Figures of a worker's heartbeat that are summed over its incarnations."""


class SupervisedRole(ABC):
    """A role, and its present incarnation."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.restarts = 0
        self.in_a_row = 0
        self.start_at_s = 0.0
        self.heard = self.stale = (0, 0.0)
        """The last heartbeat that was seen, and the last one from before this incarnation: incarnation and time."""
        self.silent_s = 0.0
        """For how long there has been none since, as far as the supervisor looked."""
        self.note = ""
        self.console_from = -1
        """Where in its console this session begins; -1: it has not."""
        self.incarnation_from = 0
        """Where in its console its present incarnation begins."""
        self.start_errors: list[str] = []
        """What its last incarnations died of, each the same error and before it was ready."""
        self.finishing = False
        self.needed = True
        self.done = False
        self.past_s: dict[str, float] = dict.fromkeys(DEVICE_TIMES, 0.0)
        """Device time of earlier incarnations, by figure."""

    @property
    @abstractmethod
    def started(self) -> bool:
        """Whether it has an incarnation, living or dead; False while it waits for its back-off."""

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether it runs."""

    @property
    def waits_for(self) -> str:
        """What it needs before it can run at all, such as a place on some machine; empty: nothing."""
        return ""

    @abstractmethod
    def exit_code(self) -> int | None:
        """How its incarnation has ended, 0 for a good end; None while it runs."""

    @abstractmethod
    def describe_end(self, code: int) -> str:
        """An end that nobody asked for, in words."""

    @abstractmethod
    def exit_reason(self) -> str:
        """Why its incarnation gave up, once it has ended; empty: it did not say."""

    @abstractmethod
    def owns(self, heartbeat: Heartbeat) -> bool:
        """Whether its present incarnation has said this."""

    @abstractmethod
    def ask_to_finish(self) -> None:
        """Ask its incarnation to come to a good end."""

    @abstractmethod
    def kill(self) -> None:
        """End its incarnation and all that this has started; once that is done, nothing."""

    @abstractmethod
    def forget(self) -> None:
        """Be without an incarnation."""


R = TypeVar("R", bound=SupervisedRole)


class Supervisor(ABC, Generic[R]):
    """The part of `runtime.base.Runtime` that is the same for all runtimes."""

    def __init__(
        self, run: RunFolder, config: RuntimeConfig, heartbeats: Heartbeats, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._run, self._config, self._clock = run, config, clock
        self._heartbeats = heartbeats
        self._roles: dict[str, R] = {}
        self._looked_s = clock()

    @abstractmethod
    def _launch(self, role: R) -> None:
        """Start a new incarnation."""

    @cached_property
    def _log(self) -> EventLog:
        """Opened on first use: whoever only makes a runtime writes nothing."""
        return EventLog(self._run.log("supervisor"))

    def supervise(self) -> None:
        """Notice what died or fell silent and start it again."""
        now_s = self._clock()
        look_s, self._looked_s = min(LONGEST_LOOK_S, now_s - self._looked_s), now_s
        for role in self._roles.values():
            if role.done:
                continue
            if not role.started:
                if self._clock() >= role.start_at_s:
                    self._launch(role)
            elif (code := role.exit_code()) is not None:
                self._ended(role, code)
            elif not role.waits_for:
                self._check_silence(role, look_s)

    def ask_to_finish(self, role: str, *, needed: bool) -> None:
        """Ask a role to come to a good end."""
        found = self._roles[role]
        found.finishing, found.needed = True, needed
        if found.alive:
            found.ask_to_finish()
        elif not found.started and not needed:
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

    def _note(self, role: R) -> str:
        heartbeat = self._own(role)
        starting = heartbeat is None or heartbeat.phase == "starting"
        silence = describe_silence(role.silent_s, starting=starting, heartbeat_s=self._config.heartbeat_s)
        speaks = role.alive and not _has_finished(heartbeat)
        return (silence if speaks else "") or role.waits_for or role.note

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

    def _ended(self, role: R, code: int) -> None:
        role.kill()  # what it has left running
        self._raise_reason(role, code)
        if role.finishing and (code == 0 or not role.needed):
            role.done, role.note = True, "finished"
            return
        error = last_error(self._run.console(role.name), role.incarnation_from) if code > 0 else ""
        self._restart_later(role, ": ".join(filter(None, (role.describe_end(code), error))), error)

    def _raise_reason(self, role: R, code: int) -> None:
        """Raise what a role that has ended said about why; nothing where it said nothing."""
        reason = role.exit_reason()
        if reason:
            self._log.write("failed", role=role.name, why=reason)
            error = DistrlError(f"{role.name}: {reason}")
            error.exit_code = code if code > 0 else error.exit_code
            raise error

    def _check_silence(self, role: R, look_s: float) -> None:
        heartbeat = self._own(role)
        heard = identity(heartbeat) if heartbeat else role.heard
        role.silent_s = role.silent_s + look_s if heard == role.heard else 0.0
        role.heard = heard
        started = heartbeat is not None and heartbeat.phase != "starting"
        setting = "silent_after_s" if started else "start_grace_s"
        if role.silent_s > getattr(self._config, setting):
            what = heartbeat.what if heartbeat else "starting"
            role.kill()
            # It may have given up and then hung on its way out, such as in a thread that the disk does not let go.
            self._raise_reason(role, code=0)
            if role.finishing and _has_finished(heartbeat):  # on a busy machine, leaving takes a while
                role.done, role.note = True, "finished"
                self._log.write("killed", role=role.name, why="it had finished, and did not leave")
                return
            self._restart_later(role, f"silent for {role.silent_s:.0f} s while {what} (runtime.{setting})")

    def _own(self, role: R) -> Heartbeat | None:
        """The heartbeat of the role's present incarnation."""
        heartbeat = self._heartbeats.last(role.name)
        return heartbeat if heartbeat and role.owns(heartbeat) and identity(heartbeat) != role.stale else None

    def _restart_later(self, role: R, why: str, error: str = "") -> None:
        last = self._own(role)
        before_ready = bool(error) and (last is None or last.phase == "starting")
        role.start_errors = [*(one for one in role.start_errors if one == error), error] if before_ready else []
        role.in_a_row = 1 if last is not None and last.figures.get("progress", 0.0) > 0 else role.in_a_row + 1
        if last is not None:
            role.past_s = {name: past_s + last.figures.get(name, 0.0) for name, past_s in role.past_s.items()}
        role.forget()
        role.restarts += 1
        if role.in_a_row > self._config.max_restarts or len(role.start_errors) >= SAME_ERRORS:
            crashed = RoleCrashed(
                f"{role.name} died {role.in_a_row} times in a row, last: {why}",
                expected="a role that makes progress between two deaths",
                fix=f"read {self._run.console(role.name)}",
            )
            crashed.trace = first_trace(self._run.console(role.name), role.console_from)
            raise crashed
        wait_s = min(LONGEST_BACKOFF_S, self._config.backoff_s * 2 ** (role.in_a_row - 1))
        role.start_at_s = self._clock() + wait_s
        role.note = f"{why}; starts again in {wait_s:.1f} s"
        self._log.write("died", role=role.name, why=why, restarts=role.restarts, again_in_s=wait_s)

    def _begin_incarnation(self, role: R) -> None:
        """Count silence anew from here on; what was heard before is of no incarnation that lives."""
        if role.console_from < 0:
            role.console_from = _size(self._run.console(role.name))
        role.incarnation_from = _size(self._run.console(role.name))
        role.stale = identity(self._heartbeats.last(role.name))
        role.silent_s, role.note = 0.0, ""


TRACE, LONGEST_TRACE = "Traceback (most recent call last):", 60
"""How a traceback begins, and how many of its lines are told."""


def first_trace(console: Path, start: int) -> str:
    """The first traceback behind this place of a role's console; empty where there is none."""
    text = _read_from(console, start)
    told = _traceback_at(text, text.find(TRACE))
    if len(told) > LONGEST_TRACE:  # where it began, and where it went wrong
        told = [*told[:10], "  ...", *told[11 - LONGEST_TRACE :]]
    return "\n".join(told)


def last_error(console: Path, start: int) -> str:
    """The error of the last traceback behind this place of a role's console, as one line; empty where there is none."""
    text = _read_from(console, start)
    told = _traceback_at(text, text.rfind(TRACE))
    # It may hold what a screen or a model said, and terminals obey control characters.
    plain = "".join(sign if sign.isprintable() else " " for sign in told[-1]) if told else ""
    return " ".join(plain.split())[:LONGEST_ERROR]


def _traceback_at(text: str, start: int) -> list[str]:
    """The lines of the traceback that begins there, its error the last of them; none where `start` is below 0."""
    lines = text[start:].splitlines() if start >= 0 else []
    # Its frames are indented; what follows them is the error, in one line or more.
    end = next((n for n, line in enumerate(lines[1:], 1) if line and not line.startswith(" ")), len(lines))
    return lines[: end + 1]


def _read_from(console: Path, start: int) -> str:
    try:
        return console.read_bytes()[max(0, start) :].decode(errors="replace")
    except OSError:
        return ""


def _size(console: Path) -> int:
    return console.stat().st_size if console.exists() else 0


def _has_finished(heartbeat: Heartbeat | None) -> bool:
    """Whether this is the last that a role says; what is left of its process is its end."""
    return heartbeat is not None and heartbeat.phase == "stopped"


def identity(heartbeat: Heartbeat | None) -> tuple[int, float]:
    """What tells one heartbeat of a role from the next."""
    return (heartbeat.incarnation, heartbeat.beat_s) if heartbeat else (0, 0.0)

"""The supervisor's eye on the head of the cluster: whether its GCS is there.

A run goes on without it: calls between its processes take other ways. But nothing can be started again, and Ray says nothing for a
minute (`RAY_gcs_rpc_server_reconnect_timeout_s`) and then ends every process of the run where it stands, this one too. Here the
head is named after a moment, and the run ends before Ray does it, with the cause, to be resumed. A head that comes back in
time, with what it knew (docs/cluster.md), is as if nothing had been. Silence is counted in looks, as that of roles is: a machine
that slept, or a clock that jumped, is nobody's silence.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable

from distrl.errors import RoleCrashed
from distrl.telemetry.events import EventLog

LOOK_EVERY_S = 1.0
ANSWER_S = 1.0
"""How long an answer may take; the supervisor waits for it."""
LONGEST_LOOK_S = 5.0
"""What the time between two looks counts, at most."""
TRIES = 3
"""Greetings without an answer before it counts as away for good: on a busy machine, one may be late."""
NAMED_AFTER_S = 3.0
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""How HTTP/2 begins, which gRPC speaks: its preface and empty settings. The other side has to answer with its own, or hang up."""
RECONNECT = "RAY_gcs_rpc_server_reconnect_timeout_s"
RECONNECT_S = 60.0
"""Ray's own."""
SHARE = 0.75
"""Of the time after which Ray ends everything: then the run ends by itself."""

log = logging.getLogger(__name__)


class HeadWatch:
    """Greets the GCS again and again. Belongs to one thread."""

    def __init__(self, address: str, log: EventLog, *, clock: Callable[[], float] = time.monotonic) -> None:
        host, _, port = address.rpartition(":")
        self._address, self._place = address, (host.strip("[]"), int(port))
        self._log, self._clock = log, clock
        self._limit_s = SHARE * _reconnect_s()
        self._looked_s = clock()
        self.away_s = 0.0
        """For how long it has not answered; 0: it does."""
        self._named = False

    def look(self) -> None:
        """Greet it, where it is time to; `RoleCrashed` once the head has been away for too long."""
        if self._clock() - self._looked_s >= LOOK_EVERY_S:
            self.answers()
        if self.away_s > self._limit_s:
            raise RoleCrashed(
                f"the head of the Ray cluster (its GCS at {self._address}) has not answered for {self.away_s:.0f} s",
                expected="a head that is there, or that comes back within that time knowing what it knew",
                fix="start the cluster anew, then go on with `distrl train --resume RUN`; docs/cluster.md says how a head can be started again under a run",
            )

    def answers(self) -> bool:
        """Whether it is there now."""
        now_s, before_s = self._clock(), self.away_s
        found = self._greet()
        self.away_s = 0.0 if found else before_s + min(LONGEST_LOOK_S, now_s - self._looked_s)
        self._looked_s = now_s
        away_s = before_s if found else self.away_s
        if self._named if found else (not self._named and away_s >= NAMED_AFTER_S):
            self._named = not found
            self._log.write("head" if found else "head_away", address=self._address, away_s=round(away_s, 1))
            said = "answers again" if found else f"does not answer; the run goes on without it for {self._limit_s:g} s"
            log.warning("the head of the Ray cluster (its GCS at %s) %s", self._address, said)
        return found

    def stays_away(self) -> bool:
        """Whether it answers none of several greetings."""
        return not any(self.answers() for _ in range(TRIES))

    def _greet(self) -> bool:
        """A process that is stopped takes connections too, and says nothing."""
        try:
            with socket.create_connection(self._place, timeout=ANSWER_S) as asked:
                asked.sendall(HELLO)
                asked.recv(1)
        except ConnectionResetError:
            return True
        except OSError:
            return False
        return True


def _reconnect_s() -> float:
    try:
        return float(os.environ.get(RECONNECT, RECONNECT_S))
    except ValueError:
        return RECONNECT_S

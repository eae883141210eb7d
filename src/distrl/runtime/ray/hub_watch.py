"""The supervisor's eye on the hub: whether it answers, and what is done where it does not.

Roles on other nodes are heard of through the hub. While it is being started again, their silence is not theirs. A hub that
has died, Ray starts again; one that is there and answers nothing is killed, so that Ray does. A hub that does not come
back at all ends the run. Silence is counted in looks, as that of roles is: time in which nobody looked is nobody's silence.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from distrl.errors import RoleCrashed
from distrl.telemetry.events import EventLog

ASK_EVERY_S = 0.5
AWAY_AFTER_S = 1.5
"""Without an answer for so long, the hub counts as away; an answer is due every `ASK_EVERY_S`."""
ASK_AGAIN_S = 5.0
"""After which a question that is not answered counts as lost."""
LONGEST_LOOK_S = 1.0
"""What the time between two looks counts, at most."""
LOST_AFTER_S = 600.0
"""Without an answer for so long, the run ends."""


class HubWatch:
    """Asks the hub again and again whether it is there. Belongs to one thread."""

    def __init__(
        self, hub: Any, log: EventLog, *, silent_after_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._hub, self._log, self._silent_after_s, self._clock = hub, log, silent_after_s, clock
        self._pid = self._killed = 0
        self._asked: Any = None
        self._asked_s = self._looked_s = clock()
        self._silent_s = 0.0

    @property
    def away_s(self) -> float:
        """For how long it has not answered; 0: it does."""
        return self._silent_s if self._silent_s > AWAY_AFTER_S else 0.0

    def look(self) -> None:
        """Take in what it has answered, and end it where it has been silent for too long. Waits for nothing."""
        now_s = self._clock()
        self._silent_s += min(LONGEST_LOOK_S, now_s - self._looked_s)
        self._looked_s = now_s
        if self._asked is not None and ray.wait([self._asked], timeout=0, fetch_local=False)[0]:
            self._take()
        elif now_s - self._asked_s >= (ASK_EVERY_S if self._asked is None else ASK_AGAIN_S):
            self._asked, self._asked_s = self._hub.ready.remote(), now_s
        if self.away_s > self._silent_after_s and self._pid != self._killed:
            self._log.write("hub_silent", pid=self._pid, silent_s=round(self.away_s, 1))
            self._killed = self._pid
            self.kill()
        if self.away_s > LOST_AFTER_S:
            raise RoleCrashed(
                f"the hub of the run has not answered for {self.away_s:.0f} s, and Ray has not started it again",
                expected="a process beside the run folder through which other nodes reach it",
                fix="look at Ray on this machine (`ray status`), then go on with `distrl train --resume RUN`",
            )

    def kill(self) -> None:
        """End its process, whatever Ray knows of it."""
        if self._pid:
            kill_hub(self._pid)

    def _take(self) -> None:
        asked, self._asked = self._asked, None
        try:
            pid = int(ray.get(asked, timeout=1.0))
        except (RayError, GetTimeoutError):
            return  # it is being started again
        if pid != self._pid:
            self._log.write("hub", pid=pid)
        self._pid, self._silent_s = pid, 0.0


def kill_hub(pid: int) -> None:
    """Kill a process of this machine, if it is a hub and not another program that was given its number since."""
    with suppress(OSError):
        if b"Hub" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)

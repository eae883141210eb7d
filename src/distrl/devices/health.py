"""How devices stand: the records that the pool keeps of them, and what becomes of one that failed, by the cause."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Literal

import msgspec

from distrl.devices.base import Device
from distrl.errors import LossCause

MOST_DOUBLINGS = 30
"""Of a back-off, whose limit is far below."""


class Health(StrEnum):
    """Where a device stands."""

    HEALTHY = "healthy"
    """Free to be leased."""
    LEASED = "leased"
    PROBED = "probed"
    """Idle, and being asked whether it is well."""
    RESTARTING = "restarting"
    QUARANTINED = "quarantined"
    ABSENT = "absent"
    """Not connected; it is taken back once it is."""


UP = (Health.HEALTHY, Health.LEASED, Health.PROBED)
"""Nothing is known against a device."""


class PoolLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How patient the pool is with one device."""

    restart_s: float = 60.0
    """A restart that takes longer has failed."""
    backoff_s: float = 0.5
    """Wait before the first restart; doubles with each failure in a row."""
    longest_backoff_s: float = 30.0
    """The back-off grows no further than this."""
    quarantine_after: int = 5
    """Failures in a row, without a good episode in between, that put a device in quarantine."""
    quarantine_s: float = 300.0
    """How long it stays there before it is tried again."""
    absent_s: float = 2.0
    """How often a device that is not connected is looked for; 0: that is a failure like any other."""
    probe_s: float = 60.0
    """How long a device is idle before it is asked whether it is well."""

    def backoff_of(self, failures: int) -> float:
        """The wait before the next restart, after so many failures in a row."""
        return min(self.longest_backoff_s, self.backoff_s * 2.0 ** min(failures - 1, MOST_DOUBLINGS))


def limits_of(device: Device) -> PoolLimits:
    """What the device's own time scales come to."""
    times = device.times
    return PoolLimits(
        restart_s=times.restart_s,
        backoff_s=times.backoff_s,
        longest_backoff_s=60 * times.backoff_s,
        quarantine_s=240 * times.backoff_s,
        absent_s=times.absent_s,
        probe_s=times.probe_s,
    )


class DeviceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One device as shown to people."""

    name: str
    health: Health
    failures: int
    """In a row, since the last good episode."""
    losses: int
    """In all."""
    causes: dict[str, int] = {}
    """Of these losses."""
    is_spare: bool = False
    """Whether it is leased only while others are down."""
    waiting: str
    """What it is waiting for and why; empty: for nothing but an episode."""
    waiting_s: float
    """For how long it has been as it is."""
    deadline_s: float | None
    """Seconds until that wait ends by itself; None: whoever leased it has the deadline."""


class DeviceEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a device between its episodes, for the statistics of each device."""

    kind: Literal["device_back", "device_restart_failed", "device_probe_failed", "device_joined"]
    device: str
    cause: str = ""
    why: str = ""
    down_s: float = 0.0
    """Of a device that is back: since it was lost."""


class Slot:
    """A device and its record of health."""

    def __init__(self, device: Device, limits: PoolLimits, now_s: float, *, is_spare: bool = False) -> None:
        self.device, self.limits, self.is_spare = device, limits, is_spare
        self.health = Health.HEALTHY
        self.failures = 0
        self.causes: Counter[str] = Counter()
        self.lost_at_s = now_s
        self.cause = LossCause.CRASH
        """Of the last failure."""
        self.tries = 0
        """Restarts since the loss that say nothing against the device."""
        self.waiting = ""
        self.since_s = now_s
        self.until_s: float | None = None

    def mark(self, health: Health, waiting: str, *, now_s: float, wait_s: float | None) -> None:
        """It stands so from now on, and waits for something, at most for `wait_s`."""
        self.health, self.waiting, self.since_s = health, waiting, now_s
        self.until_s = None if wait_s is None else now_s + wait_s

    def after_failure(self, cause: LossCause) -> tuple[Health, str, float]:
        """Where it stands after one more failure, what it waits for and for how long. What is not its fault is not counted."""
        limits, self.cause = self.limits, cause
        if cause is LossCause.GONE and limits.absent_s:
            return Health.ABSENT, "its connection", limits.absent_s
        if cause is LossCause.PERSON:
            return Health.QUARANTINED, "somebody to look at it", limits.longest_backoff_s
        if cause is LossCause.SERVER:
            self.tries += 1
            return Health.RESTARTING, "what it is reached through", limits.backoff_of(self.tries)
        self.failures += 1
        if self.failures >= limits.quarantine_after:
            return Health.QUARANTINED, "the end of its quarantine", limits.quarantine_s
        return Health.RESTARTING, "its next restart", limits.backoff_of(self.failures)

    def describe(self, now_s: float) -> DeviceStatus:
        """As shown to people."""
        return DeviceStatus(
            name=self.device.name,
            health=self.health,
            failures=self.failures,
            losses=self.causes.total(),
            causes=dict(self.causes),
            is_spare=self.is_spare,
            waiting=self.waiting,
            waiting_s=now_s - self.since_s,
            deadline_s=None if self.until_s is None else max(0.0, self.until_s - now_s),
        )

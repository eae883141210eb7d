"""What a run has used so far, over all its sessions, kept in its folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from distrl.config.schema import RunConfig
from distrl.errors import StoreError

LOOK_EVERY_S = 1.0
"""How often a role looks at what its supervisor writes down."""


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Time and restarts."""

    wall_s: float = 0.0
    collect_s: float = 0.0
    """Of that, in which workers were collecting."""
    busy_s: float = 0.0
    """Device time, summed over the devices."""
    device_s: float = 0.0
    """Time that the devices were there while workers were collecting, summed over the devices."""
    restarts: int = 0

    @property
    def device_utilisation(self) -> float:
        """Share of their time in which devices were busy; 0 before there was any."""
        return self.busy_s / self.device_s if self.device_s else 0.0


def is_over(limits: RunConfig, spent: Spent, episodes: int) -> bool:
    """Whether a run has used up its budget."""
    late = limits.minutes > 0 and spent.collect_s >= 60 * limits.minutes
    return late or 0 < limits.episodes <= episodes


def read_spent(path: Path) -> Spent:
    """What had been used when it was last saved; nothing at all for a new run."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Spent)
    except FileNotFoundError:
        return Spent()
    except ValueError as error:
        raise StoreError(
            f"{path} is damaged: {error}",
            expected="what the run wrote there",
            fix=f"remove {path}: the run then counts its time from 0 again",
        ) from error


class Collected:
    """How long a run has been collecting: what its supervisor wrote down, so that it outlives whoever asks."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._looked_s, self._found_s = float("-inf"), 0.0

    def __call__(self) -> float:
        """Seconds, a few less than it is by now."""
        now_s = self._clock()
        if now_s - self._looked_s >= LOOK_EVERY_S:
            self._looked_s, self._found_s = now_s, read_spent(self._path).collect_s
        return self._found_s

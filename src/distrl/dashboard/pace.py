"""How often something that costs time is worked out anew, so that a training notices no page that looks at it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

RESTS = 10
"""So many times as long as it took is waited before the next time: pages cost at most a tenth of a core for each."""


class Paced(Generic[T]):
    """What `make` gives, made at most every `fresh_s` seconds, and less often where it takes long. Its owner lets one thread at a time in."""

    def __init__(self, make: Callable[[], T], *, fresh_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._make, self._fresh_s, self._clock = make, fresh_s, clock
        self._made: list[T] = []
        self._again_s = 0.0

    def get(self) -> T:
        """As of a moment ago."""
        if self._made and self._clock() < self._again_s:
            return self._made[0]
        began_s = self._clock()
        self._made = [self._make()]
        ended_s = self._clock()
        self._again_s = ended_s + max(self._fresh_s, RESTS * (ended_s - began_s))
        return self._made[0]

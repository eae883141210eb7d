"""How long a simulated phone takes over things, drawn from a seed: at once, or as long as an Android emulator.

Emulators are slow in a heavy-tailed way: most actions take a second or two, some take many, a few stall outright, and
some of the machines they sit on are half as fast. All durations of a phone come from here; who sleeps is its owner.
"""

from __future__ import annotations

import math
from random import Random

from distrl.config.schema import LatencyConfig

RESET_S = 5.0
"""Loading a snapshot; a cold start would take minutes."""
ACTION_MEDIAN_S, ACTION_MEAN_S = 1.4, 2.0
SCREENSHOT_S = 0.3
STALL_S = (15.0, 60.0)
OUTAGE_S = (2.0, 10.0)
SLOW_FACTOR = 2.0
LONGEST_ACTION_S = SLOW_FACTOR * (STALL_S[1] + ACTION_MEAN_S)
"""A usual action on a slow machine that stalls for as long as it may."""
LONG_EPISODE_S = SLOW_FACTOR * (RESET_S + 35 * ACTION_MEAN_S)
"""An episode of 35 usual actions on a slow machine."""
SPREAD = math.sqrt(2 * math.log(ACTION_MEAN_S / ACTION_MEDIAN_S))
"""Sigma of the log-normal that has this median and this mean."""


def pace(config: LatencyConfig) -> float:
    """How many seconds pass here while one passes on a real device; 0 on phones that take no time."""
    return config.time_scale if config.profile == "emulator" else 0.0


class Latency:
    """The delays of one phone. The same settings, name and seed give the same delays in the same order."""

    def __init__(self, config: LatencyConfig, *, device: str, seed: int, slow_machine: bool = False) -> None:
        self._random = Random(f"latency {seed} {device}")
        self._stall_rate = config.stall_rate
        drawn = Random(f"machine {seed} {device}").random() < config.slow_machine_share
        self.slow_machine = slow_machine or drawn
        """Whether this phone sits on one of the machines that are half as fast."""
        scale = pace(config)
        self._scale = scale * (SLOW_FACTOR if self.slow_machine else 1.0)

    def reset_s(self) -> float:
        """Seconds to bring the phone to the start of a task, or to restart it."""
        return self._scale and self._scale * RESET_S * self._random.uniform(0.8, 1.2)

    def action_s(self) -> float:
        """Seconds to carry out one action and show the result."""
        if not self._scale:
            return 0.0
        stalled = self._random.random() < self._stall_rate
        seconds = self._random.lognormvariate(math.log(ACTION_MEDIAN_S), SPREAD)
        return self._scale * (seconds + (self._random.uniform(*STALL_S) if stalled else 0.0))

    def screenshot_s(self) -> float:
        """Seconds to fetch a picture of the screen."""
        return self._scale * SCREENSHOT_S

    def outage_s(self) -> float:
        """Seconds that a phone stays away once its connection breaks."""
        return self._scale and self._scale * self._random.uniform(*OUTAGE_S)

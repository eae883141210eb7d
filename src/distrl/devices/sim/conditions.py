"""Latency and faults of a simulated phone, drawn from a seed.

Emulators are slow in a heavy-tailed way: most actions take a second or two, some take many, a few stall outright, and
some of the machines they sit on are half as fast. All durations and
faults of a phone come from here; the device sleeps, and decides what a fault means.
"""

from __future__ import annotations

import math
from enum import StrEnum
from random import Random

from distrl.config.schema import FaultConfig, LatencyConfig

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


def time_scale(config: LatencyConfig) -> float:
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
        scale = time_scale(config)
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


# --- faults ---------------------------------------------------------------------------------------------------------


class Fault(StrEnum):
    """A way for a phone to be lost."""

    CRASH = "crash"
    FREEZE = "freeze"
    DISCONNECT = "disconnect"


class Faults:
    """The faults of one phone. The same settings, name and seed give the same faults in the same order."""

    def __init__(self, config: FaultConfig, *, device: str, seed: int) -> None:
        self._config = config
        self._random = Random(f"faults {seed} {device}")
        self._frames = Random(f"frames {seed} {device}")
        self._steps = 0
        self._fails_at = config.fail_after_steps if config.fail_device == device else 0

    def next_step(self) -> Fault | None:
        """What goes wrong in the phone's next step; None: nothing."""
        self._steps += 1
        if self._steps == self._fails_at:
            return Fault.CRASH
        config, roll = self._config, self._random.random()
        for fault, rate in (
            (Fault.CRASH, config.crash_rate),
            (Fault.FREEZE, config.freeze_rate),
            (Fault.DISCONNECT, config.disconnect_rate),
        ):
            if roll < rate:
                return fault
            roll -= rate
        return None

    def next_frame_is_damaged(self) -> bool:
        """Whether the phone's next screenshot arrives damaged."""
        return self._frames.random() < self._config.corrupt_rate

"""Latency and faults of a simulated phone, drawn from a seed.

    emulator    chosen, not measured: most actions take a second or two, some take many, a few stall outright
    digirl      the fixed waits in the environment code of DigiRL (github.com/DigiRL-agent/digirl, environment/android/env.py) and
                DistRL: 5 s before each screenshot, 15 to 30 s after the emulator is started again for an episode; and
                the times of a tap and a screenshot through adb, from docs/results/adb.json

In both some of the machines that phones sit on are half as fast. All durations and faults of a phone come from here; the
device sleeps, and decides what a fault means.
"""

from __future__ import annotations

import math
from enum import StrEnum
from random import Random

import msgspec

from distrl.config.schema import FaultConfig, LatencyConfig

OUTAGE_S = (2.0, 10.0)
SLOW_FACTOR = 2.0


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """How long a kind of phone takes, in seconds of real time."""

    reset_s: tuple[float, float]
    """To reach the start of a task: at least and at most."""
    action_median_s: float
    action_mean_s: float
    """Actions are log-normal: all take the same time where mean and median are equal."""
    screenshot_s: float
    stall_s: tuple[float, float] | None = None
    """How much longer an action takes that stalls, at least and at most; None: none stalls."""

    @property
    def spread(self) -> float:
        """Sigma of the log-normal that has this median and this mean."""
        return math.sqrt(2 * math.log(self.action_mean_s / self.action_median_s))

    @property
    def longest_action_s(self) -> float:
        """On a slow machine: a reset, or a usual action that stalls for as long as it may."""
        stall_s = self.stall_s[1] if self.stall_s else 0.0
        return SLOW_FACTOR * max(self.reset_s[1], stall_s + self.action_mean_s)

    @property
    def long_episode_s(self) -> float:
        """35 usual actions on a slow machine."""
        return SLOW_FACTOR * (sum(self.reset_s) / 2 + 35 * self.action_mean_s)


EMULATOR = Delays(reset_s=(4.0, 6.0), action_median_s=1.4, action_mean_s=2.0, screenshot_s=0.3, stall_s=(15.0, 60.0))
DIGIRL = Delays(reset_s=(20.0, 35.0), action_median_s=5.008, action_mean_s=5.008, screenshot_s=0.034)
"""After the start of the emulator comes the first screenshot, with its wait."""
DELAYS = {"instant": EMULATOR, "emulator": EMULATOR, "digirl": DIGIRL}
"""By profile; those of `instant` are multiplied by 0."""


def time_scale(config: LatencyConfig) -> float:
    """How many seconds pass here while one passes on a real device; 0 on phones that take no time."""
    return 0.0 if config.profile == "instant" else config.time_scale


class Latency:
    """The delays of one phone. The same settings, name and seed give the same delays in the same order."""

    def __init__(self, config: LatencyConfig, *, device: str, seed: int, slow_machine: bool = False) -> None:
        self._random = Random(f"latency {seed} {device}")
        self._stall_rate, self._delays = config.stall_rate, DELAYS[config.profile]
        drawn = Random(f"machine {seed} {device}").random() < config.slow_machine_share
        self.slow_machine = slow_machine or drawn
        """Whether this phone sits on one of the machines that are half as fast."""
        scale = time_scale(config)
        self._scale = scale * (SLOW_FACTOR if self.slow_machine else 1.0)

    def reset_s(self) -> float:
        """Seconds to bring the phone to the start of a task, or to restart it."""
        return self._scale and self._scale * self._random.uniform(*self._delays.reset_s)

    def action_s(self) -> float:
        """Seconds to carry out one action and show the result."""
        if not self._scale:
            return 0.0
        delays, stalled = self._delays, self._random.random() < self._stall_rate
        seconds = self._random.lognormvariate(math.log(delays.action_median_s), delays.spread)
        return self._scale * (seconds + (self._random.uniform(*delays.stall_s) if stalled and delays.stall_s else 0.0))

    def screenshot_s(self) -> float:
        """Seconds to fetch a picture of the screen."""
        return self._scale * self._delays.screenshot_s

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

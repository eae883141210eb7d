"""What goes wrong with a simulated phone, and when, drawn from a seed. What a fault means is the phone's business."""

from __future__ import annotations

from enum import StrEnum
from random import Random

from distrl.config.schema import FaultConfig


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
        self._doomed_at = config.fail_after_steps if config.fail_device == device else 0

    def next_step(self) -> Fault | None:
        """What goes wrong in the phone's next step; None: nothing."""
        self._steps += 1
        if self._steps == self._doomed_at:
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

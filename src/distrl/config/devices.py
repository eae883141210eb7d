"""The settings of devices: how many, how the simulated ones look and behave, how slow and how unreliable they are."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from distrl.config.section import Count, CountOrNone, Positive, Section, Share


class WildConfig(Section, frozen=True):
    popup_rate: Share = 0.05
    """Chance that opening an app brings up something that nobody asked for."""
    slow_rate: Share = 0.05
    """Chance that a new screen needs a few moments to load."""
    update_rate: Share = 0.05
    """Chance that one app is updated, and looks different, in the middle of an episode."""
    variants: bool = True
    """Give every phone its own wordings and layouts; false: all alike."""


class LatencyConfig(Section, frozen=True):
    profile: Literal["instant", "emulator"] = "emulator"
    """How long the phone takes: not at all, or as long as an Android emulator with its stalls and slow machines."""
    time_scale: Positive = 0.4
    """Multiplies every delay of the profile; 1 is real time."""
    stall_rate: Share = 0.002
    """Chance that a step of an emulator stalls for many seconds."""
    slow_machine_share: Share = 0.2
    """Share of the phones that sit on a machine half as fast."""
    slow_workers: CountOrNone = 0
    """So many of the workers, the last ones, sit with all their phones on machines half as fast."""


class FaultConfig(Section, frozen=True):
    crash_rate: Share = 0.0
    """Chance per step that the phone crashes; it answers again after a restart."""
    freeze_rate: Share = 0.0
    """Chance per step that the phone stops answering until it is restarted."""
    disconnect_rate: Share = 0.0
    """Chance per step that the phone is gone for a while."""
    corrupt_rate: Share = 0.0
    """Chance that a screenshot arrives damaged."""
    fail_device: str = ""
    """Name of one phone, such as worker-0/phone-3, that is made to crash on purpose, to be seen recovering; empty: none."""
    fail_after_steps: Count = 20
    """Steps after which that phone crashes."""


class DevicesConfig(Section, frozen=True):
    kind: Literal["sim"] = "sim"
    """What the workers drive."""
    per_worker: Count = 72
    """Devices that each worker process drives at once."""
    picture_width: Annotated[int, Meta(ge=48, le=1440)] = 360
    """Width of a simulated phone's screenshots in pixels, and half their height; text is hard to read below 200."""
    wild: WildConfig = WildConfig()
    latency: LatencyConfig = LatencyConfig()
    faults: FaultConfig = FaultConfig()

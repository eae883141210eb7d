"""The device seam: anything with a screen that takes gestures.

A device decides whether an action was valid, may end and reward an episode itself, and owns its time scales. It raises
`DeviceLost` when it can no longer be used; whoever drives it takes all of `DEVICE_FAULTS` so. A simulated phone, an Android over ADB and a Chromium phone all look like
this. Deadlines are the caller's; how long they are is up to the device's `times`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from distrl import plugins
from distrl.config.schema import DevicesConfig
from distrl.errors import DeviceError, LossCause
from distrl.types import Action, DeviceEnd, Task, UiElement

Clock = Callable[[], float]
"""Seconds that only ever go forward."""
Sleep = Callable[[float], Awaitable[object]]
DEVICE_FAULTS = (DeviceError, TimeoutError, OSError)
"""What a device may raise: the fault is the device's, the episode is over, and everything else goes on. An `OSError` is
a broken socket, pipe or process. Anything else that a device raises is a bug."""


class TimeScales(msgspec.Struct, frozen=True, kw_only=True):
    """How long a device may take: deadlines, not averages."""

    boot_s: float = 120.0
    """From nothing to a device that answers, before its first episode."""
    reset_s: float = 60.0
    """To the start of a task."""
    step_s: float = 30.0
    """Over one action, or one capture of the screen."""
    restart_s: float = 120.0
    """To come back after it was lost."""
    episode_s: float = 600.0
    """Over a long episode; a longer one is truncated."""
    backoff_s: float = 0.5
    """Wait before the first restart after a loss. Doubles with each loss in a row, up to 60 times; quarantine lasts 240 times."""
    absent_s: float = 2.0
    """How often one that is not connected is looked for; 0: it is started here, so that being gone is a failure like any other."""
    probe_s: float = 60.0
    """A device with a `probe` that has been idle for so long is asked whether it is well."""


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """The screen at one moment: elements and picture belong together."""

    elements: tuple[UiElement, ...] = ()
    """Empty where the device does not expose them."""
    screenshot: bytes = b""
    """JPEG or PNG; empty where none was asked for."""
    width_px: int = 0
    height_px: int = 0
    app: str = ""
    """The app in the foreground; empty: not known."""
    instruction: str = ""
    """What the device itself asks for, as pages with tasks of their own do; empty: the task says it."""


class Performed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one action."""

    valid: bool
    changed: bool
    """Whether the screen looks different from before."""
    why: str = ""
    """Why it was invalid or had no effect."""
    content: int | None = None
    """Which content the device holds now: equal numbers in one episode, equal content; 0: that of the start; None: it
    cannot tell."""
    done: bool = False
    """The device has ended the episode, as web pages do."""
    reward: float = 0.0
    """What the device itself gives for this step."""


@runtime_checkable
class Device(Protocol):
    """One screen, driven by one episode at a time."""

    name: str
    times: TimeScales

    async def reset(self, task: Task) -> None:
        """Bring the device to the start of `task`; the first one after its making may have to boot it."""

    async def capture(self, *, screenshot: bool) -> Capture:
        """The screen as it is now; the picture is drawn or fetched only where one is asked for."""

    async def perform(self, action: Action) -> Performed:
        """Carry out `action`; an impossible one is an invalid step, not an error."""

    async def end_state(self) -> DeviceEnd | None:
        """How the device stands compared with the start of its task, for the judge; None: it cannot tell."""

    async def restart(self) -> None:
        """Make a lost device usable again; it must be reset before the next episode. `DeviceLost` where that fails."""

    async def close(self) -> None:
        """Release everything that the device holds."""


@runtime_checkable
class SavesState(Protocol):
    """What a device may have besides: its whole state as bytes, to come back to."""

    async def save_state(self) -> bytes:
        """The device as it is, in the middle of its task."""

    async def load_state(self, state: bytes) -> None:
        """Go back to what `save_state` gave, in the same task."""


@runtime_checkable
class Probes(Protocol):
    """What a device may have besides: an answer to whether it is well, while no episode has it."""

    async def probe(self) -> None:
        """See that it answers, and change nothing on it; one of `DEVICE_FAULTS` where it does not."""


@runtime_checkable
class RestartsByCause(Protocol):
    """What a device may have besides: a restart that depends on why it was lost."""

    async def restart_after(self, cause: LossCause) -> None:
        """As `restart`, which is then not called by a pool."""


def cause_of(fault: BaseException) -> LossCause:
    """Why a device was lost that raised this, one of `DEVICE_FAULTS`."""
    if isinstance(fault, DeviceError):
        return fault.cause
    return LossCause.LATE if isinstance(fault, TimeoutError) else LossCause.OFFLINE


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Which devices to make: what a factory of devices is told beside its settings."""

    owner: str
    """The role that drives them, such as worker-0. A device whose name begins with `<owner>/` is that role's alone. Any other
    name, such as a serial number, is the same device for every role, and is leased episode by episode: until it is reset
    for the first time, nobody may touch it."""
    count: int
    seed: int
    purpose: Literal["collection", "evaluation"] = "collection"
    workers: tuple[str, ...] = ()
    """All workers of the run, in order."""


class DeviceLeases(Protocol):
    """Devices that several roles share: at any moment each belongs to one of them. One role's view; nothing here waits."""

    def take(self, device: str) -> bool:
        """Whether the device is this role's from now on. Where it is not, the role is the next to have it, if nobody else is."""

    def give_back(self, device: str) -> None:
        """Let the next role have it; nothing where it is not this role's."""

    def stop_waiting(self) -> None:
        """Give up every place as the next one: nobody here waits any more."""


class NoLeases:
    """`DeviceLeases` where no other role can reach the devices."""

    def take(self, device: str) -> bool:
        """It is this role's."""
        return True

    def give_back(self, device: str) -> None:
        """Nobody else wants it."""

    def stop_waiting(self) -> None:
        """Nobody waits."""


def is_own(device: str, owner: str) -> bool:
    """Whether a device's name says that it belongs to this role alone."""
    return device.startswith(f"{owner}/")


def find_devices(devices: DevicesConfig, fleet: Fleet) -> list[Device]:
    """The devices that the configuration names, for one role; `ConfigError` where its factory makes something else."""
    tables = {name: getattr(devices, name) for name in devices.__struct_fields__}
    made = plugins.make("devices", devices.kind, tables, devices.options, fleet)
    if not isinstance(made, Sequence) or not made:
        raise plugins.wrong_type("devices", devices.kind, f"{made!r:.80}", "a list of one or more devices")
    found = [plugins.check_type("devices", devices.kind, device, Device) for device in made]  # type: ignore[type-abstract]
    for device in found:
        if not isinstance(device.times, TimeScales):
            seen = f"a {type(device).__name__} whose times are {device.times!r:.80}"
            raise plugins.wrong_type("devices", devices.kind, seen, "times of the type distrl.devices.base.TimeScales")
    if len({device.name for device in found}) < len(found):
        names = ", ".join(device.name for device in found[:4])
        raise plugins.wrong_type("devices", devices.kind, f"several devices of one name: {names}", "a name for each")
    return found

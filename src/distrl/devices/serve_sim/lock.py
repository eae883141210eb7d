"""Screen and lock of a simulated Android: asleep or awake, locked by a swipe or by a PIN, as `locksettings` sets it.

A phone has no screen lock to begin with, as docs/android.md asks for. One that was given one is locked whenever its screen goes
off. While it is locked or asleep no touch reaches an app, pictures show the lock screen or nothing at all, and `uiautomator`
finds the lock screen or no window.
"""

from __future__ import annotations

from typing import Literal

from distrl.devices.base import Clock
from distrl.devices.serve_sim.shell import Done

Kind = Literal["", "swipe", "secure"]
POWER, MENU, SLEEP, WAKE_UP, ENTER = 26, 82, 223, 224, 66
DISMISS_S = 0.3
"""How long the lock screen takes to go: whoever asks at once is told that it is still there."""
NIGHT = b"\x20\x2b\x3c\xff"
"""Every pixel of the lock screen."""
KEYGUARD = (
    "<?xml version='1.0' encoding='UTF-8' standalone='yes' ?><hierarchy rotation=\"0\">"
    '<node index="0" text="" resource-id="com.android.systemui:id/keyguard_root_view" class="android.widget.FrameLayout" '
    'package="com.android.systemui" content-desc="" clickable="false" bounds="[0,0][{width},{height}]">'
    '<node index="0" text="" resource-id="com.android.systemui:id/lock_icon" class="android.widget.ImageView" '
    'package="com.android.systemui" content-desc="Locked" clickable="false" bounds="[0,0][{width},{width}]" /></node></hierarchy>'
)


class ScreenLock:
    """Whether the screen is on, and whether it is locked."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.kind: Kind = ""
        """What the screen is locked by once it goes off."""
        self.asleep = False
        self._locked, self._gone_s = False, 0.0
        self._pin, self._typed = "", ""

    @property
    def locked(self) -> bool:
        """Whether the lock screen is there."""
        return self._locked or self._clock() < self._gone_s

    @property
    def blocks(self) -> bool:
        """Whether no touch reaches an app."""
        return self.asleep or self.locked

    def lock(self, kind: Kind) -> None:
        """Turn the screen on, locked by this from now on; empty: unlocked."""
        self.kind, self.asleep, self._locked, self._gone_s = kind, False, bool(kind), 0.0

    def dismiss(self, *, pin: str = "") -> None:
        """Take the lock screen away; a secure one only with its PIN."""
        if self._locked and (self.kind != "secure" or (self._pin and pin == self._pin)):
            self._locked, self._gone_s = False, self._clock() + DISMISS_S

    def press(self, code: int) -> bool:
        """A key; whether the lock took it, so that no app is given it."""
        if code in (POWER, SLEEP, WAKE_UP):
            self._switch(asleep=code == SLEEP or (code == POWER and not self.asleep))
            return True
        if code == MENU and not self.asleep:
            self.dismiss()
        elif code == ENTER and self.blocks:
            self.dismiss(pin=self._typed)
            self._typed = ""
        return self.blocks

    def _switch(self, *, asleep: bool) -> None:
        self._locked = self._locked or (asleep and bool(self.kind))
        self.asleep, self._typed = asleep, ""

    def type(self, text: str) -> None:
        """Text for the lock screen."""
        self._typed += text

    def settings(self, words: list[str], data: bytes) -> Done:
        """`locksettings`."""
        match words[1:]:
            case ["set-pin" | "set-password", pin]:
                self._pin, self.kind = pin, "secure"
                return Done(f"Pin set to '{pin}'\n".encode())
            case ["clear", "--old", pin]:
                if pin != self._pin:
                    return Done(f"Old password '{pin}' didn't match\n".encode())
                self._pin, self.kind = "", "swipe"
                return Done(b"Lock credential cleared\n")
            case ["set-disabled", ("true" | "false") as off]:
                self.kind = "" if off == "true" else self.kind or "swipe"
                return Done(f"Lock screen disabled set to {off}\n".encode())
            case ["get-disabled"]:
                return Done(f"{str(not self.kind).lower()}\n".encode())
        return Done(err=b"lockSettings service commands:\n", code=255)

    # what it shows instead of an app

    def pixels(self, size: tuple[int, int]) -> bytes:
        """One colour; black while the screen is off."""
        return (b"\0\0\0\xff" if self.asleep else NIGHT) * (size[0] * size[1])

    def hierarchy(self, size: tuple[int, int]) -> str:
        """The lock screen; empty where the screen is off and there is no window."""
        return "" if self.asleep else KEYGUARD.format(width=size[0], height=size[1])

    def window(self) -> str:
        """Its lines in `dumpsys window`."""
        showing, secure = str(self.locked).lower(), str(self.kind == "secure").lower()
        return (
            f"  mDreamingLockscreen={showing}\n"
            f"    KeyguardServiceDelegate\n      showing={showing}\n      inputRestricted={showing}\n      secure={secure}\n"
        )

    def power(self) -> str:
        """`dumpsys power`."""
        return f"Power Manager State:\n  mWakefulness={'Asleep' if self.asleep else 'Awake'}\n"

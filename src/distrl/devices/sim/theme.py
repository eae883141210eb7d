"""The colours of a screen: light or dark, with an accent from the app that it belongs to."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from distrl.devices.sim.apps import APPS
from distrl.devices.sim.paint import BLACK, WHITE, Colour, brightness, mix, parse_colour
from distrl.devices.sim.state import PhoneState

SYSTEM_COLOUR = "#3b5bdb"


class Theme(msgspec.Struct, frozen=True, kw_only=True):
    """Every colour that a widget may use."""

    dark: bool
    background: Colour
    surface: Colour
    """Dialogs, cards, bars."""
    text: Colour
    muted: Colour
    """Second lines and hints."""
    line: Colour
    accent: Colour
    on_accent: Colour
    """Text that can be read on the accent."""
    tint: Colour
    """A breath of the accent, as a backdrop."""
    on_tint: Colour


def theme_of(state: PhoneState) -> Theme:
    """The theme of the topmost screen."""
    return app_theme(state.place.app, is_dark(state))


def is_dark(state: PhoneState) -> bool:
    """Whether the phone is set to dark colours."""
    return bool(state.tables.get("settings.pref", {}).get("dark", {}).get("on"))


@lru_cache(maxsize=128)
def app_theme(app: str, dark: bool) -> Theme:
    """The theme of an app; the system's own where there is no such app."""
    own = parse_colour(APPS[app].colour if app in APPS else SYSTEM_COLOUR)
    background, text = ((18, 19, 23), (232, 233, 237)) if dark else ((250, 250, 253), (27, 28, 33))
    accent = _readable(own, background)
    tint = mix(background, own, 0.26 if dark else 0.14)
    return Theme(
        dark=dark,
        background=background,
        surface=(33, 35, 41) if dark else WHITE,
        text=text,
        muted=mix(background, text, 0.64),
        line=mix(background, text, 0.13),
        accent=accent,
        on_accent=WHITE if brightness(accent) < 0.6 else (20, 20, 24),
        tint=tint,
        on_tint=_readable(own, tint),
    )


def _readable(colour: Colour, background: Colour) -> Colour:
    """`colour`, moved away from the background until it stands out."""
    away = BLACK if brightness(background) > 0.5 else WHITE
    while abs(brightness(colour) - brightness(background)) < 0.45:
        colour = mix(colour, away, 0.12)
    return colour

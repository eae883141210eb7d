"""The colours of a screen: light or dark, with the accent of its app or of the web shop that is open in it."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import msgspec

from distrl.devices.sim.apps import APPS
from distrl.devices.sim.paint import BLACK, WHITE, Colour, brightness, mix, parse_colour
from distrl.devices.sim.state import PhoneState

SYSTEM_COLOUR = "#3b5bdb"
SHOP_COLOURS = {"kiosko": "#d9480f", "northmart": "#12507b"}
Bar = Literal["plain", "tint", "solid"]
BARS: dict[str, Bar] = {
    "maps": "plain", "photos": "plain", "notes": "plain", "settings": "plain", "files": "plain", "clock": "plain",
    "store": "solid", "calendar": "solid", "kiosko": "solid", "mail": "solid",
}  # fmt: skip
"""How the title bar of an app is coloured; the others have a tint of their accent."""


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
    page: Colour
    """Behind cards that stand apart from their page."""
    danger: Colour
    """What destroys something."""
    bar: Colour
    """The title bar."""
    on_bar: Colour


def theme_of(state: PhoneState) -> Theme:
    """The theme of the topmost screen."""
    return app_theme(brand_of(state), is_dark(state))


def brand_of(state: PhoneState) -> str:
    """The web shop whose page is on top, or the app."""
    for place in reversed(state.stack):
        shop = place.screen.partition("-")[0]
        if place.app == "browser" and shop in SHOP_COLOURS:
            return shop
        if place.screen != "choose":
            break
    return state.place.app


def is_dark(state: PhoneState) -> bool:
    """Whether the phone is set to dark colours."""
    return bool(state.tables.get("settings.pref", {}).get("dark", {}).get("on"))


@lru_cache(maxsize=128)
def app_theme(app: str, dark: bool) -> Theme:
    """The theme of an app or a web shop; the system's own where there is no such app."""
    own = parse_colour(APPS[app].colour if app in APPS else SHOP_COLOURS.get(app, SYSTEM_COLOUR))
    background, text = ((18, 19, 23), (232, 233, 237)) if dark else ((250, 250, 253), (27, 28, 33))
    accent = _readable(own, background)
    tint = mix(background, own, 0.26 if dark else 0.14)
    bar, on_bar = _bar(BARS.get(app, "tint"), own, background, text)
    return Theme(
        page=(10, 11, 14) if dark else (240, 241, 246),
        danger=(255, 138, 128) if dark else (200, 38, 30),
        bar=bar,
        on_bar=on_bar,
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


def _bar(kind: Bar, own: Colour, background: Colour, text: Colour) -> tuple[Colour, Colour]:
    """The colour of a title bar, and of what stands on it."""
    if kind == "plain":
        return background, text
    if kind == "tint":
        return mix(background, own, 0.2 if text > background else 0.105), text
    solid = mix(own, BLACK, 0.5) if text > background else own
    return solid, WHITE if brightness(solid) < 0.6 else (20, 20, 24)


def _readable(colour: Colour, background: Colour) -> Colour:
    """`colour`, moved away from the background until it stands out."""
    away = BLACK if brightness(background) > 0.5 else WHITE
    while abs(brightness(colour) - brightness(background)) < 0.45:
        colour = mix(colour, away, 0.12)
    return colour

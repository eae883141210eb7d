"""What an app's screen is made of: widgets in a view, each with the effect that touching it has.

An effect is a pure function from one phone state to the next. Views are rebuilt from the state whenever someone
looks, so effects are never stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from distrl.devices.sim.state import PhoneState

Effect = Callable[[PhoneState], PhoneState]
WidgetKind = Literal["row", "switch", "check", "button", "field", "label", "heading", "card", "icon", "tab"]
Look = Literal["", "radio", "quiet", "danger"]
"""A tick box as one of several choices; a button that is not the main one; a button that destroys something."""
Style = Literal[
    "list", "group", "tiles", "agenda", "alarms", "chips", "sheet", "chat", "letter", "paper", "menu", "call"
]
"""How a screen draws its widgets inside their boxes; see `widget_art` and `page_art`."""
PictureAt = Literal["below", "aside", "behind"]

CLASS_NAMES: dict[WidgetKind, str] = {
    "row": "ListItem",
    "switch": "Switch",
    "check": "CheckBox",
    "button": "Button",
    "field": "EditText",
    "label": "TextView",
    "heading": "Heading",
    "card": "Card",
    "icon": "ImageButton",
    "tab": "Tab",
}


class Widget(msgspec.Struct, frozen=True, kw_only=True):
    """One thing on a screen. `id` is stable over wordings, layouts and versions of its app."""

    kind: WidgetKind
    id: str
    text: str = ""
    detail: str = ""
    """Second line of a row, or what an icon stands for."""
    icon: str = ""
    """Name of a pictogram, or `kind:name` of a picture; empty: none."""
    look: Look = ""
    """Changes the drawing and nothing that is reported."""
    checked: bool | None = None
    enabled: bool = True
    tap: Effect | None = None
    hold: Effect | None = None
    submit: Effect | None = None
    """What Enter does while this field has the focus."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What one screen shows, top to bottom."""

    title: str
    body: tuple[Widget, ...]
    top: tuple[Widget, ...] = ()
    """Icons at the right of the title bar."""
    bottom: tuple[Widget, ...] = ()
    """Tabs or main buttons that stay in place while the body scrolls."""
    shape: Literal["page", "dialog", "grid"] = "page"
    """A dialog lies over the screen below it; a grid is the home screen."""
    pages: tuple[str, ...] = ()
    """Names of the pages that a sideways swipe turns, where there are any."""
    style: Style = "list"
    picture: str = ""
    """`kind:name` of a picture that belongs to the whole screen; empty: none. It takes no room and no touches."""
    picture_at: PictureAt = "below"
    """In the space below the widgets, beside the facts at their top, or behind everything."""


def row(
    id: str, text: str, detail: str = "", *, tap: Effect | None = None, hold: Effect | None = None, icon: str = ""
) -> Widget:
    """A line of a list."""
    return Widget(kind="row", id=id, text=text, detail=detail, tap=tap, hold=hold, icon=icon)


def switch(id: str, text: str, on: bool, *, tap: Effect, detail: str = "") -> Widget:
    """A line with an on/off switch."""
    return Widget(kind="switch", id=id, text=text, detail=detail, checked=on, tap=tap)


def check(id: str, text: str, on: bool, *, tap: Effect, detail: str = "") -> Widget:
    """A line with a tick box."""
    return Widget(kind="check", id=id, text=text, detail=detail, checked=on, tap=tap)


def choice(id: str, text: str, on: bool, *, tap: Effect, icon: str = "") -> Widget:
    """One choice of several, of which one at most is on: a round radio button."""
    return Widget(kind="check", id=id, text=text, checked=on, tap=tap, look="radio", icon=icon)


def button(id: str, text: str, *, tap: Effect, enabled: bool = True, look: Look = "", icon: str = "") -> Widget:
    """A button; one that is not enabled is shown and does nothing."""
    return Widget(kind="button", id=id, text=text, tap=tap, enabled=enabled, look=look, icon=icon)


def icon(id: str, name: str, what: str, *, tap: Effect) -> Widget:
    """A pictogram that can be touched; `what` is its description for those who cannot see it."""
    return Widget(kind="icon", id=id, icon=name, detail=what, tap=tap)


def tab(id: str, text: str, here: bool, *, tap: Effect, icon: str = "") -> Widget:
    """One of several tabs; `here`: the one that is open."""
    return Widget(kind="tab", id=id, text=text, checked=here, tap=tap, icon=icon)


def label(id: str, text: str) -> Widget:
    """Plain text, one fact to a label, so that a question can be answered by pointing at it."""
    return Widget(kind="label", id=id, text=text)


def heading(id: str, text: str) -> Widget:
    """Text that stands above a group of entries."""
    return Widget(kind="heading", id=id, text=text)


def card(id: str, text: str, detail: str = "", *, tap: Effect | None = None, icon: str = "") -> Widget:
    """A tall entry with a picture: a product, a song, a place."""
    return Widget(kind="card", id=id, text=text, detail=detail, tap=tap, icon=icon)

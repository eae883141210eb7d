"""How apps look: the colours of a theme, light or dark with the app's accent, and how each kind of widget is drawn."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from zlib import crc32

import msgspec

from distrl.devices.sim.apps import APPS
from distrl.devices.sim.paint import BLACK, WHITE, Box, Canvas, Colour, Pen, brightness, mix, parse_colour, wrap
from distrl.devices.sim.state import PhoneState
from distrl.devices.sim.widgets import Widget, WidgetKind

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


# --- widgets --------------------------------------------------------------------------------------------------------

MARGIN = 16.0
THUMBNAILS = ("#5c7cfa", "#20a39e", "#e8590c", "#7048e8", "#2f9e44", "#d6336c", "#1c7ed6", "#a8672a")


class Setting(msgspec.Struct, frozen=True):
    """What a widget's look depends on besides itself."""

    theme: Theme
    focus: str = ""
    """Id of the field that has the keyboard."""
    dialog: bool = False
    bar: bool = False
    """Whether the widget stands in the bar at the bottom."""


Art = Callable[[Canvas, Widget, Box, Setting], None]


def draw_widget(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    """Draw a widget into its box."""
    ART[widget.kind](canvas, widget, box, setting)


def _row(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    left = box[0] + MARGIN
    if widget.icon:
        x, y = left + 20, (box[1] + box[3]) / 2
        canvas.disc(x, y, 20, setting.theme.tint)
        canvas.pictogram(widget.icon, x, y, 22, setting.theme.on_tint)
        left += 54
    _two_lines(canvas, widget, (left, box[1], box[2] - MARGIN, box[3]), setting)
    _divider(canvas, (left, box[1], box[2], box[3]), setting)


def _switch(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    theme, middle, right = setting.theme, (box[1] + box[3]) / 2, box[2] - MARGIN
    _two_lines(canvas, widget, (box[0] + MARGIN, box[1], right - 60, box[3]), setting)
    track = (right - 48, middle - 14, right, middle + 14)
    if widget.checked:
        canvas.rounded(track, 14, theme.accent)
        canvas.disc(right - 14, middle, 10, theme.on_accent)
    else:
        canvas.rounded(track, 14, mix(theme.background, theme.text, 0.1))
        canvas.rounded(track, 14, theme.muted, outline=1.6)
        canvas.disc(right - 34, middle, 7, theme.muted)
    _divider(canvas, (box[0] + MARGIN, box[1], box[2], box[3]), setting)


def _check(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    theme, middle, left = setting.theme, (box[1] + box[3]) / 2, box[0] + MARGIN + 2
    tick = (left, middle - 10, left + 20, middle + 10)
    if widget.checked:
        canvas.rounded(tick, 5, theme.accent)
        canvas.pictogram("check", left + 10, middle, 15, theme.on_accent)
    else:
        canvas.rounded(tick, 5, theme.muted, outline=1.8)
    _two_lines(canvas, widget, (left + 36, box[1], box[2] - MARGIN, box[3]), setting)


def _button(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    theme, inset = setting.theme, MARGIN + (4 if setting.dialog else 0)
    if setting.bar:
        inset = 10
    shape = (box[0] + inset, box[1] + 6, box[2] - inset, box[3] - (14 if setting.bar else 6))
    back, ink = (theme.tint, theme.on_tint) if setting.dialog else (theme.accent, theme.on_accent)
    if not widget.enabled:
        back, ink = mix(theme.background, theme.text, 0.1), mix(theme.background, theme.text, 0.42)
    canvas.rounded(shape, 22, back)
    _caption(canvas, widget, shape, Pen(15, ink, bold=True))


def _field(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    theme, here = setting.theme, widget.id == setting.focus
    shape = (box[0] + MARGIN, box[1] + 9, box[2] - MARGIN, box[3] - 5)
    backdrop, edge = theme.surface, theme.accent if here else theme.muted
    canvas.rounded(shape, 9, backdrop)
    canvas.rounded(shape, 9, edge, outline=2.2 if here else 1.2)
    left, middle, width = shape[0] + 14, (shape[1] + shape[3]) / 2, shape[2] - shape[0] - 28
    if widget.text or here:
        _hint_on_edge(canvas, widget.detail, (shape[0] + 10, shape[1]), Pen(12, edge), backdrop)
    if widget.text:
        canvas.text(left, middle + 2, widget.text, Pen(16, theme.text), width=width)
    elif not here:
        canvas.text(left, middle, widget.detail, Pen(16, theme.muted), width=width)
    if here:
        caret = left + canvas.length(widget.text, 16, width) + 1
        canvas.fill((caret, middle - 9, caret + 2, middle + 11), theme.accent)


def _hint_on_edge(canvas: Canvas, hint: str, at: tuple[float, float], pen: Pen, backdrop: Colour) -> None:
    if hint:
        width = canvas.length(hint, pen.size, 240)
        canvas.fill((at[0], at[1] - 2, at[0] + width + 8, at[1] + 3), backdrop)
        canvas.text(at[0] + 4, at[1], hint, pen, width=240)


def _label(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    """One line, or two small ones where the text is long."""
    left, middle, width = (
        box[0] + MARGIN + (4 if setting.dialog else 0),
        (box[1] + box[3]) / 2,
        box[2] - box[0] - 2 * MARGIN - 8,
    )
    if canvas.length(widget.text, 15, width + 1) <= width:
        return canvas.text(left, middle, widget.text, Pen(15, setting.theme.text), width=width)
    lines = wrap(widget.text, canvas.px(13), canvas.px(width))
    for index, line in enumerate(lines):
        canvas.text(left, middle + 15 * (index - (len(lines) - 1) / 2), line, Pen(13, setting.theme.text), width=width)


def _heading(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    pen = Pen(13.5, setting.theme.accent, bold=True)
    canvas.text(box[0] + MARGIN, box[3] - 13, widget.text, pen, width=box[2] - box[0] - 2 * MARGIN)


def _card(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    theme = setting.theme
    shape = (box[0] + 12, box[1] + 5, box[2] - 12, box[3] - 5)
    canvas.rounded((shape[0], shape[1] + 1.5, shape[2], shape[3] + 1.5), 14, mix(theme.background, (0, 0, 0), 0.1))
    canvas.rounded(shape, 14, theme.surface)
    side = shape[3] - shape[1] - 14
    picture = (shape[0] + 7, shape[1] + 7, shape[0] + 7 + side, shape[3] - 7)
    colour = parse_colour(THUMBNAILS[crc32((widget.icon + widget.text).encode("utf-8", "replace")) % len(THUMBNAILS)])
    canvas.rounded(picture, 10, mix(theme.surface, colour, 0.3))
    canvas.rounded((picture[0], picture[1] + side / 2, picture[2], picture[3]), 10, mix(theme.surface, colour, 0.48))
    canvas.pictogram(
        widget.icon or widget.text[:1],
        (picture[0] + picture[2]) / 2,
        (picture[1] + picture[3]) / 2,
        side * 0.52,
        _deep(colour, theme),
    )
    _two_lines(canvas, widget, (picture[2] + 12, box[1], shape[2] - 10, box[3]), setting)


def _deep(colour: Colour, theme: Theme) -> Colour:
    return mix(colour, WHITE, 0.75) if theme.dark else mix(colour, (0, 0, 0), 0.25)


def _icon(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    """A bare pictogram in a title bar, a round button in a bar, a line with its meaning elsewhere."""
    theme, x, y = setting.theme, (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    if setting.bar:
        canvas.rounded((x - 24, y - 22, x + 24, y + 22), 15, theme.tint)
        return canvas.pictogram(widget.icon, x, y, 24, theme.on_tint)
    if box[2] - box[0] > 120:
        named = msgspec.structs.replace(widget, text=widget.text or widget.detail, detail="")
        return _row(canvas, named, box, setting)
    canvas.pictogram(widget.icon, x, y, 23, theme.accent if widget.checked else theme.text)


def _tab(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    theme, x = setting.theme, (box[0] + box[2]) / 2
    middle, half = (box[1] + box[3]) / 2 - (4 if setting.bar else 0), min(52.0, (box[2] - box[0]) / 2 - 5)
    if widget.checked:
        canvas.rounded((x - half, middle - 17, x + half, middle + 17), 17, theme.tint)
    pen = Pen(13, theme.on_tint if widget.checked else theme.muted, bold=bool(widget.checked))
    if widget.icon:
        canvas.pictogram(widget.icon, x, middle - 6, 20, pen.colour)
        return canvas.text(x, middle + 11, widget.text, Pen(11, pen.colour, pen.bold), width=2 * half, anchor=0.5)
    canvas.text(x, middle, widget.text, pen, width=2 * half - 6, anchor=0.5)


def _caption(canvas: Canvas, widget: Widget, shape: Box, pen: Pen) -> None:
    x, y, width = (shape[0] + shape[2]) / 2, (shape[1] + shape[3]) / 2, shape[2] - shape[0] - 20
    if not widget.icon:
        return canvas.text(x, y, widget.text, pen, width=width, anchor=0.5)
    shown = canvas.length(widget.text, pen.size, width - 26)
    canvas.pictogram(widget.icon, x - shown / 2 - 2, y, 18, pen.colour)
    canvas.text(x + 12, y, widget.text, pen, width=width - 26, anchor=0.5)


def _two_lines(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    """Title and detail; a title without detail stands in the middle."""
    theme, middle, width = setting.theme, (box[1] + box[3]) / 2, box[2] - box[0]
    ink = theme.text if widget.enabled else mix(theme.background, theme.text, 0.42)
    if not widget.detail:
        return canvas.text(box[0], middle, widget.text, Pen(16, ink), width=width)
    canvas.text(box[0], middle - 9.5, widget.text, Pen(16, ink), width=width)
    canvas.text(box[0], middle + 10.5, widget.detail, Pen(13, theme.muted), width=width)


def _divider(canvas: Canvas, box: Box, setting: Setting) -> None:
    canvas.fill((box[0], box[3] - 1, box[2] - (MARGIN if setting.dialog else 0), box[3]), setting.theme.line)


ART: dict[WidgetKind, Art] = {
    "row": _row,
    "switch": _switch,
    "check": _check,
    "button": _button,
    "field": _field,
    "label": _label,
    "heading": _heading,
    "card": _card,
    "icon": _icon,
    "tab": _tab,
}

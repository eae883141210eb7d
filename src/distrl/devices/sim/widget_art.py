"""How each kind of widget is drawn into its box, in the style of its screen.

Boxes come from the layout and stay what they are, whatever the style: a list of places can be a column of pills over a
map, an agenda or a pile of notes, and a finger finds the same things in the same places.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from distrl.devices.sim.paint import BLACK, WHITE, Box, Canvas, Colour, Pen, mix, wrap
from distrl.devices.sim.picture_art import colour_of, draw_picture, is_picture
from distrl.devices.sim.themes import Theme
from distrl.devices.sim.widgets import Style, Widget, WidgetKind

MARGIN = 16.0
SEARCHES = ("search", "query", "address")
"""Ids of fields that are drawn as search bars."""
PAPERS: tuple[Colour, ...] = ((255, 243, 176), (214, 240, 218), (210, 232, 250), (252, 220, 226), (234, 224, 250))
SAYS_YOU = "You: "
CARDED: tuple[Style, ...] = ("group", "sheet")
"""Styles whose widgets lie on cards."""
PRICES = ("price", "total", "due", "paid")
"""Ids of labels that stand out."""


class Setting(msgspec.Struct, frozen=True):
    """What a widget's look depends on besides itself."""

    theme: Theme
    focus: str = ""
    """Id of the field that has the keyboard."""
    dialog: bool = False
    bar: bool = False
    """Whether the widget stands in the bar at the bottom."""
    style: Style = "list"
    last: bool = False
    """Whether the widget ends a card, so that no line follows it."""


Art = Callable[[Canvas, Widget, Box, Setting], None]


def draw_widget(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    """Draw a widget into its box."""
    STYLED.get((setting.style, widget.kind), ART[widget.kind])(canvas, widget, box, setting)


# --- rows -----------------------------------------------------------------------------------------------------------


def _row(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    left = box[0] + _inset(setting)
    if widget.icon:
        _row_icon(canvas, widget.icon, (left, (box[1] + box[3]) / 2), setting)
        left += 54
    right = box[2] - _inset(setting)
    if setting.style == "group" and widget.tap is not None:
        canvas.pictogram("chevron", right - 5, (box[1] + box[3]) / 2, 14, setting.theme.muted)
        right -= 20
    _two_lines(canvas, widget, (left, box[1], right, box[3]), setting)
    _divider(canvas, (left, box[1], box[2], box[3]), setting)


def _row_icon(canvas: Canvas, icon: str, at: tuple[float, float], setting: Setting) -> None:
    """A picture of 40 × 40 units, or a pictogram on a disc."""
    left, middle = at
    if is_picture(icon):
        return draw_picture(canvas, icon, (left, middle - 20, left + 40, middle + 20), dark=setting.theme.dark)
    canvas.disc(left + 20, middle, 20, setting.theme.tint)
    canvas.pictogram(icon, left + 20, middle, 22, setting.theme.on_tint)


def _chip(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    """A pill over a map, as wide as its text."""
    theme, middle = setting.theme, (box[1] + box[3]) / 2
    width = canvas.length(widget.text, 15, box[2] - box[0] - 80) + 58
    shape = (box[0] + 12, middle - 19, box[0] + 12 + width, middle + 19)
    _shadow(canvas, shape, 19, theme)
    canvas.rounded(shape, 19, theme.surface)
    canvas.disc(shape[0] + 20, middle, 14, theme.tint)
    canvas.pictogram(widget.icon, shape[0] + 20, middle, 17, theme.on_tint)
    canvas.text(shape[0] + 42, middle, widget.text, Pen(15, theme.text), width=width - 50)


def _event(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    """The time at the left, the event as a coloured block beside it."""
    theme, middle, own = setting.theme, (box[1] + box[3]) / 2, colour_of(widget.text)
    canvas.text(box[0] + 58, middle, widget.detail, Pen(13, theme.muted), width=46, anchor=1.0)
    shape = (box[0] + 70, box[1] + 4, box[2] - 12, box[3] - 4)
    canvas.rounded(shape, 9, mix(theme.background, own, 0.3 if theme.dark else 0.16))
    canvas.rounded((shape[0], shape[1], shape[0] + 5, shape[3]), 2.5, own)
    canvas.text(shape[0] + 18, middle, widget.text, Pen(15.5, theme.text), width=shape[2] - shape[0] - 28)


def _paper(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    """A slip of coloured paper with a pin where it is pinned."""
    theme = setting.theme
    paper, ink = _paper_colours(widget.text, theme)
    shape = (box[0] + 12, box[1] + 3, box[2] - 12, box[3] - 3)
    _shadow(canvas, shape, 6, theme)
    canvas.rounded(shape, 6, paper)
    canvas.rounded((shape[0], shape[1], shape[0] + 7, shape[3]), 3, mix(paper, BLACK, 0.14))
    inked = replace(setting, theme=replace(theme, text=ink, muted=mix(paper, ink, 0.6)))
    _two_lines(canvas, widget, (shape[0] + 20, box[1], shape[2] - 34, box[3]), inked)
    canvas.pictogram(widget.icon, shape[2] - 20, (box[1] + box[3]) / 2, 17, mix(paper, ink, 0.35))


def _paper_colours(text: str, theme: Theme) -> tuple[Colour, Colour]:
    paper = PAPERS[sum(colour_of(text)) % len(PAPERS)]
    return (mix(paper, BLACK, 0.72), (240, 238, 230)) if theme.dark else (paper, (54, 48, 36))


def _switch(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    left, right = box[0] + _inset(setting), box[2] - _inset(setting)
    _two_lines(canvas, widget, (left, box[1], right - 60, box[3]), setting)
    _draw_switch(canvas, widget, right, (box[1] + box[3]) / 2, setting.theme)
    _divider(canvas, (left, box[1], box[2], box[3]), setting)


def _draw_switch(canvas: Canvas, widget: Widget, right: float, middle: float, theme: Theme) -> None:
    track = (right - 48, middle - 14, right, middle + 14)
    if widget.checked:
        canvas.rounded(track, 14, theme.accent)
        canvas.disc(right - 14, middle, 10, theme.on_accent)
    else:
        canvas.rounded(track, 14, mix(theme.background, theme.text, 0.1))
        canvas.rounded(track, 14, theme.muted, outline=1.6)
        canvas.disc(right - 34, middle, 7, theme.muted)


def _alarm(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    """A card with the time in large figures; pale while it is off."""
    theme, middle = setting.theme, (box[1] + box[3]) / 2
    shape = (box[0] + 12, box[1] + 3, box[2] - 12, box[3] - 3)
    canvas.rounded(shape, 14, theme.tint if widget.checked else theme.surface)
    ink = theme.text if widget.checked else theme.muted
    canvas.text(shape[0] + 16, middle, widget.text, Pen(27, ink), width=90)
    canvas.text(shape[0] + 104, middle + 1, widget.detail, Pen(14, theme.muted), width=shape[2] - shape[0] - 176)
    _draw_switch(canvas, widget, shape[2] - 14, middle, theme)


def _check(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    """A tick box; round, with a dot in it, where one of several is chosen."""
    theme, middle = setting.theme, (box[1] + box[3]) / 2
    left = box[0] + _inset(setting) + 2
    if widget.look == "radio":
        _draw_radio(canvas, widget, left + 10, middle, theme)
    elif widget.checked:
        canvas.rounded((left, middle - 10, left + 20, middle + 10), 5, theme.accent)
        canvas.pictogram("check", left + 10, middle, 15, theme.on_accent)
    else:
        canvas.rounded((left, middle - 10, left + 20, middle + 10), 5, theme.muted, outline=1.8)
    right = box[2] - _inset(setting)
    if is_picture(widget.icon):
        draw_picture(canvas, widget.icon, (right - 100, box[1], right, box[3]), dark=theme.dark)
        right -= 104
    elif widget.icon:
        canvas.pictogram(widget.icon, right - 12, middle, 22, theme.accent if widget.checked else theme.muted)
        right -= 30
    _two_lines(canvas, widget, (left + 36, box[1], right, box[3]), setting)


def _draw_radio(canvas: Canvas, widget: Widget, x: float, middle: float, theme: Theme) -> None:
    edge = theme.accent if widget.checked else theme.muted
    canvas.rounded((x - 10, middle - 10, x + 10, middle + 10), 10, edge, outline=2.0)
    if widget.checked:
        canvas.disc(x, middle, 5.5, theme.accent)


# --- buttons and fields ---------------------------------------------------------------------------------------------


def _button(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    """Filled where it is the main one, outlined where it is not, tinted red where it destroys something."""
    theme, inset = setting.theme, _inset(setting) + (4 if setting.dialog else 0)
    if setting.bar:
        inset = 10
    shape = (box[0] + inset, box[1] + 6, box[2] - inset, box[3] - (14 if setting.bar else 6))
    pen = Pen(15, theme.on_accent, bold=True)
    if not widget.enabled:
        canvas.rounded(shape, 22, mix(theme.background, theme.text, 0.1))
        pen = Pen(15, mix(theme.background, theme.text, 0.42), bold=True)
    elif widget.look == "danger":
        canvas.rounded(shape, 22, mix(theme.surface, theme.danger, 0.1))
        pen = Pen(15, theme.danger, bold=True)
    elif widget.look == "quiet":
        canvas.rounded(shape, 22, theme.surface)
        canvas.rounded(shape, 22, mix(theme.surface, theme.accent, 0.5), outline=1.3)
        pen = Pen(15, theme.accent, bold=True)
    else:
        canvas.rounded(shape, 22, theme.accent)
    _caption(canvas, widget, shape, pen)


def _menu_button(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    """An entry of a menu: a pictogram and its meaning."""
    theme, middle = setting.theme, (box[1] + box[3]) / 2
    ink = theme.danger if widget.look == "danger" else theme.text
    canvas.pictogram(widget.icon or "dot", box[0] + 34, middle, 21, ink if widget.look == "danger" else theme.accent)
    canvas.text(box[0] + 60, middle, widget.text, Pen(16, ink), width=box[2] - box[0] - 76)


def _hang_up(canvas: Canvas, widget: Widget, box: Box, _setting: Setting) -> None:
    shape = (box[0] + 80, box[1] + 4, box[2] - 80, box[3] - 4)
    canvas.rounded(shape, 24, (217, 48, 37))
    _caption(canvas, widget, shape, Pen(16, WHITE, bold=True))


def _field(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    """An outlined box with its hint on the edge; a search bar is a pill with a lens."""
    theme, here = setting.theme, widget.id == setting.focus
    shape = (box[0] + MARGIN, box[1] + 9, box[2] - MARGIN, box[3] - 5)
    backdrop, edge = theme.surface, theme.accent if here else theme.muted
    searching = widget.id in SEARCHES or setting.style == "chat"
    left, middle, right = shape[0] + 14, (shape[1] + shape[3]) / 2, shape[2] - 14
    if searching:
        left += _draw_pill(canvas, widget, shape, setting)
    else:
        canvas.rounded(shape, 9, backdrop)
        canvas.rounded(shape, 9, edge, outline=2.2 if here else 1.2)
        if widget.text or here:
            _hint_on_edge(canvas, widget.detail, (shape[0] + 10, shape[1]), Pen(12, edge), backdrop)
    _field_text(canvas, widget, (left, middle, right), hint=searching or not here, here=here, theme=theme)


def _draw_pill(canvas: Canvas, widget: Widget, shape: Box, setting: Setting) -> float:
    """The body of a search bar; returns how far its lens moves the text."""
    theme, here, round_ = setting.theme, widget.id == setting.focus, (shape[3] - shape[1]) / 2
    if setting.style in ("chips", "sheet"):
        _shadow(canvas, shape, round_, theme)
    canvas.rounded(
        shape,
        round_,
        theme.surface if setting.style in (*CARDED, "chips", "paper") else mix(theme.surface, theme.text, 0.06),
    )
    if here:
        canvas.rounded(shape, round_, theme.accent, outline=2.2)
    if widget.id not in SEARCHES:
        return 6
    canvas.pictogram("search", shape[0] + 24, (shape[1] + shape[3]) / 2, 18, theme.accent if here else theme.muted)
    return 28


def _field_text(
    canvas: Canvas, widget: Widget, span: tuple[float, float, float], *, hint: bool, here: bool, theme: Theme
) -> None:
    left, middle, right = span
    width = right - left
    if widget.text:
        canvas.text(left, middle + 1, widget.text, Pen(16, theme.text), width=width)
    elif hint:
        gap = 5 if here else 0
        canvas.text(left + gap, middle, widget.detail, Pen(16, theme.muted), width=width - gap)
    if here:
        caret = left + (canvas.length(widget.text, 16, width) + 1 if widget.text else 0)
        canvas.fill((caret, middle - 10, caret + 2, middle + 10), theme.accent)


def _hint_on_edge(canvas: Canvas, hint: str, at: tuple[float, float], pen: Pen, backdrop: Colour) -> None:
    if hint:
        width = canvas.length(hint, pen.size, 240)
        canvas.fill((at[0], at[1] - 2, at[0] + width + 8, at[1] + 3), backdrop)
        canvas.text(at[0] + 4, at[1], hint, pen, width=240)


# --- text -----------------------------------------------------------------------------------------------------------


def _label(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    """One line, or two small ones where the text is long."""
    left, middle = box[0] + _inset(setting) + (4 if setting.dialog else 0), (box[1] + box[3]) / 2
    width = box[2] - box[0] - 2 * _inset(setting) - 8
    pen = Pen(16 if setting.style in CARDED else 15, setting.theme.text)
    if widget.id in PRICES:
        pen = Pen(18, setting.theme.accent, bold=True)
    if canvas.length(widget.text, pen.size, width + 1) <= width:
        return canvas.text(left, middle - (4 if setting.style in CARDED else 0), widget.text, pen, width=width)
    lines = wrap(widget.text, canvas.px(13), canvas.px(width))
    for index, line in enumerate(lines):
        canvas.text(left, middle + 15 * (index - (len(lines) - 1) / 2), line, Pen(13, setting.theme.text), width=width)


def _bubble(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    """What was said: the owner's words at the right, the others' at the left."""
    theme, own, middle = setting.theme, widget.text.startswith(SAYS_YOU), (box[1] + box[3]) / 2
    most = box[2] - box[0] - 96
    size = 14.5 if canvas.length(widget.text, 14.5, most + 1) <= most else 12.5
    lines = wrap(widget.text, canvas.px(size), canvas.px(most))
    width = max(canvas.length(line, size, most) for line in lines) + 26
    left = box[2] - 12 - width if own else box[0] + 12
    shape = (left, box[1] + 1.5, left + width, box[3] - 1.5)
    canvas.rounded(shape, 14, theme.accent if own else mix(theme.background, theme.text, 0.09))
    pen = Pen(size, theme.on_accent if own else theme.text)
    for index, line in enumerate(lines):
        canvas.text(left + 13, middle + 14 * (index - (len(lines) - 1) / 2), line, pen, width=most)


def _written(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    """Handwriting on ruled paper."""
    ink = (240, 232, 200) if setting.theme.dark else (70, 58, 30)
    _label(canvas, widget, box, replace(setting, theme=replace(setting.theme, text=ink)))


def _centred(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    x, middle, first = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2, widget.id == "who"
    pen = Pen(23 if first else 15, setting.theme.text if first else setting.theme.muted)
    canvas.text(x, middle + 4, widget.text, pen, width=box[2] - box[0] - 2 * MARGIN, anchor=0.5)


def _heading(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    """What stands above a group; in cards and sheets a quiet line above its value."""
    theme, left, width = setting.theme, box[0] + _inset(setting), box[2] - box[0] - 2 * _inset(setting)
    if widget.id in TITLES and canvas.length(widget.text, 18, width + 1) <= width:
        pen = Pen(18, theme.text, bold=True)
    elif not widget.id.endswith(":title"):
        pen = Pen(13.5, theme.accent, bold=True)
    elif setting.style in (*CARDED, "letter"):
        pen = Pen(12.5, theme.muted)
    else:
        pen = Pen(13, theme.accent, bold=True)
    canvas.text(left, box[3] - 13, widget.text, pen, width=width)


TITLES = ("name", "subject", "items")
"""Ids of headings that name what the whole page is about."""


# --- cards, icons and tabs ------------------------------------------------------------------------------------------


def _card(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    theme = setting.theme
    shape = (box[0] + 12, box[1] + 5, box[2] - 12, box[3] - 5)
    _shadow(canvas, shape, 14, theme)
    canvas.rounded(shape, 14, theme.surface)
    side = shape[3] - shape[1] - 14
    picture = (shape[0] + 7, shape[1] + 7, shape[0] + 7 + side, shape[3] - 7)
    draw_picture(canvas, _picture_of(widget), picture, dark=theme.dark)
    _two_lines(canvas, widget, (picture[2] + 12, box[1], shape[2] - 10, box[3]), setting)


def _flat_card(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    """A card without gaps to the next one, its picture at the right."""
    theme = setting.theme
    shape = (box[0] + 8, box[1] + 1, box[2] - 8, box[3])
    canvas.rounded(shape, 4, theme.surface)
    side = shape[3] - shape[1] - 16
    picture = (shape[2] - 8 - side, shape[1] + 8, shape[2] - 8, shape[3] - 8)
    draw_picture(canvas, _picture_of(widget), picture, dark=theme.dark)
    _two_lines(canvas, widget, (shape[0] + 18, box[1], picture[0] - 10, box[3]), setting)


def _picture_of(widget: Widget) -> str:
    return widget.icon if is_picture(widget.icon) else f"app:{widget.icon}{widget.text}"


def _photo_tile(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    """A photo with its caption on a dark foot."""
    shape = (box[0] + 4, box[1] + 4, box[2] - 4, box[3] - 4)
    icon = widget.icon if is_picture(widget.icon) else f"photo:{widget.text}"
    draw_picture(canvas, icon, shape, dark=setting.theme.dark)
    room = shape[2] - shape[0] - 32
    width = canvas.length(widget.text, 13.5, room) + 20
    foot = (shape[0] + 6, shape[3] - 30, shape[0] + 6 + width, shape[3] - 6)
    canvas.rounded(foot, 12, (24, 26, 32))
    canvas.text(foot[0] + 10, (foot[1] + foot[3]) / 2, widget.text, Pen(13.5, WHITE), width=room)


def _icon(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    """A bare pictogram in a title bar, a round button in a bar, a line with its meaning elsewhere."""
    theme, x, y = setting.theme, (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    if setting.bar:
        canvas.rounded((x - 24, y - 22, x + 24, y + 22), 15, theme.tint)
        return canvas.pictogram(widget.icon, x, y, 24, theme.on_tint)
    if box[2] - box[0] > 120:
        named = replace(widget, text=widget.text or widget.detail, detail="")
        return _row(canvas, named, box, setting)
    canvas.pictogram(widget.icon, x, y, 23, theme.accent if widget.checked else theme.text)


def _tab(canvas: Canvas, widget: Widget, box: Box, setting: Setting) -> None:
    """A pictogram above its name; the one that is open lies on a pill."""
    theme, x = setting.theme, (box[0] + box[2]) / 2
    middle, half = (box[1] + box[3]) / 2 - (4 if setting.bar else 0), min(52.0, (box[2] - box[0]) / 2 - 5)
    pen = Pen(13, theme.on_tint if widget.checked else theme.muted, bold=bool(widget.checked))
    if widget.icon:
        if widget.checked:
            canvas.rounded((x - 27, middle - 22, x + 27, middle + 4), 13, theme.tint)
        canvas.pictogram(widget.icon, x, middle - 9, 20, pen.colour)
        return canvas.text(x, middle + 14, widget.text, Pen(11.5, pen.colour, pen.bold), width=2 * half, anchor=0.5)
    if widget.checked:
        canvas.rounded((x - half, middle - 17, x + half, middle + 17), 17, theme.tint)
    canvas.text(x, middle, widget.text, pen, width=2 * half - 6, anchor=0.5)


# --- what they share ------------------------------------------------------------------------------------------------


def _inset(setting: Setting) -> float:
    """How far content stands from the edge of the screen: further where it lies on a card."""
    return MARGIN + 10 if setting.style in CARDED and not (setting.dialog or setting.bar) else MARGIN


def _shadow(canvas: Canvas, shape: Box, radius: float, theme: Theme) -> None:
    """Only the lower end of it can be seen."""
    left, _, right, bottom = shape
    canvas.rounded((left, bottom - 2 * radius, right, bottom + 1.5), radius, mix(theme.background, BLACK, 0.14))


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
    bold = widget.icon.startswith("unread:")
    canvas.text(box[0], middle - 9.5, widget.text, Pen(16, ink, bold=bold), width=width)
    canvas.text(box[0], middle + 10.5, widget.detail, Pen(13, theme.muted), width=width)


def _divider(canvas: Canvas, box: Box, setting: Setting) -> None:
    if setting.last:
        return
    short = MARGIN if setting.dialog else 26 if setting.style in CARDED else 0
    canvas.fill((box[0], box[3] - 1, box[2] - short, box[3]), setting.theme.line)


ART: dict[WidgetKind, Art] = {
    "row": _row, "switch": _switch, "check": _check, "button": _button, "field": _field, "label": _label,
    "heading": _heading, "card": _card, "icon": _icon, "tab": _tab,
}  # fmt: skip
STYLED: dict[tuple[Style, WidgetKind], Art] = {
    ("chips", "row"): _chip,
    ("agenda", "row"): _event,
    ("paper", "row"): _paper,
    ("paper", "label"): _written,
    ("alarms", "switch"): _alarm,
    ("chat", "label"): _bubble,
    ("menu", "button"): _menu_button,
    ("tiles", "card"): _photo_tile,
    ("group", "card"): _flat_card,
    ("call", "label"): _centred,
    ("call", "button"): _hang_up,
}
"""What a style draws in a way of its own."""

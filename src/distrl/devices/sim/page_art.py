"""What lies behind and beside the widgets of a page: its backdrop, cards around groups, and the page's own picture."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from distrl.devices.sim.city_map import draw_map
from distrl.devices.sim.layout import HEIGHT, HEIGHTS, WIDTH, Screen, density
from distrl.devices.sim.paint import BLACK, Box, Canvas, Colour, mix
from distrl.devices.sim.picture_art import draw_picture, is_picture
from distrl.devices.sim.state import PhoneState
from distrl.devices.sim.themes import Theme
from distrl.devices.sim.widgets import Style, Widget, WidgetKind

ASIDE, SMALL_ASIDE = 112.0, 64.0
"""Side of a picture beside facts; a face is smaller."""
SMALLEST = 110.0
"""Less room than this below the widgets stays empty."""
GROUPED: dict[Style, frozenset[WidgetKind]] = {
    "group": frozenset(("row", "switch", "check", "label", "heading")),
    "sheet": frozenset(("row", "switch", "check", "label", "heading", "button")),
}
"""Kinds of widgets that lie on one card where they follow each other."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page as it is drawn: its widgets with their boxes, top to bottom, also where scrolling cuts them off."""

    screen: Screen
    boxes: tuple[tuple[Widget, Box], ...]
    aside: Box | None
    """Where a picture stands beside the facts."""
    cards: tuple[Box, ...]
    """Cards that lie under groups of widgets."""
    last: frozenset[str]
    """Ids of the widgets that end a card."""


def lay_page(screen: Screen, boxes: tuple[tuple[Widget, Box], ...], state: PhoneState) -> Page:
    """The page of a screen whose widgets lie in `boxes`."""
    view = screen.view
    aside = view.picture_at == "aside" and is_picture(view.picture) and not screen.loading
    runs = tuple(_runs(screen, boxes))
    return Page(
        screen=screen,
        boxes=boxes,
        aside=_aside_box(screen, state) if aside else None,
        cards=tuple(card for card, _ in runs),
        last=frozenset(widget.id for _, widget in runs),
    )


def backdrop_of(style: Style, theme: Theme) -> Colour:
    """The colour behind a page."""
    if style in ("group", "alarms"):
        return theme.page
    if style == "paper":
        return (30, 28, 22) if theme.dark else (255, 251, 236)
    if style == "call":
        return mix(theme.tint, BLACK, 0.35) if theme.dark else theme.tint
    return theme.background


def draw_behind(canvas: Canvas, page: Page, theme: Theme) -> None:
    """Draw everything of a page that lies under its widgets."""
    screen, view = page.screen, page.screen.view
    body = _body(screen)
    if screen.loading:
        return
    if view.picture.startswith("map:"):
        draw_map(canvas, view.picture.removeprefix("map:"), body, _free(page), dark=theme.dark)
    for box in page.cards:
        _draw_card(canvas, box, view.style, theme)
    if page.aside is not None:
        draw_picture(canvas, view.picture, page.aside, dark=theme.dark)
    elif is_picture(view.picture) and view.picture_at == "below":
        _draw_below(canvas, page, theme)


def beside(box: Box, aside: Box | None) -> Box:
    """What a picture at the right leaves of the box of a widget."""
    if aside is None or box[3] <= aside[1] or box[1] >= aside[3]:
        return box
    return box[0], box[1], aside[0] + 10, box[3]


def _body(screen: Screen) -> Box:
    return 0, screen.body.top * HEIGHT, WIDTH, screen.body.bottom * HEIGHT


def _free(page: Page) -> Box:
    """What the widgets leave of the body; all of it where they leave little."""
    left, top, right, bottom = _body(page.screen)
    lowest = max((box[3] for _, box in page.boxes), default=top)
    if page.screen.overflow or bottom - lowest < SMALLEST:
        return left + (150 if page.screen.view.style == "chips" else 0), top + 60, right, bottom
    return left, lowest, right, bottom


# --- pictures -------------------------------------------------------------------------------------------------------


def _aside_box(screen: Screen, state: PhoneState) -> Box | None:
    """At the right of the first facts, scrolling with them."""
    dense, y = density(state), screen.body.top * HEIGHT - min(state.place.scroll, screen.overflow)
    for widget in screen.view.body:
        if widget.kind == "heading" and widget.id.endswith(":title"):
            side = SMALL_ASIDE if screen.view.picture.startswith("face:") else ASIDE
            return WIDTH - 26 - side, y + 14, WIDTH - 26, y + 14 + side
        y += HEIGHTS[widget.kind] * dense
    return None


def _draw_below(canvas: Canvas, page: Page, theme: Theme) -> None:
    left, top, right, bottom = _body(page.screen)
    lowest = max((box[3] for _, box in page.boxes), default=top)
    if page.screen.overflow or bottom - lowest < SMALLEST:
        return
    room = (left + 16, lowest + 12, right - 16, bottom - 20)
    kind = page.screen.view.picture.partition(":")[0]
    if kind == "lines":
        room = (left + 16, top + 32, right - 16, bottom)
    elif kind != "photo":
        half, middle = min(room[3] - room[1], 236.0) / 2, (room[1] + room[3]) / 2
        room = (WIDTH / 2 - half, middle - half, WIDTH / 2 + half, middle + half)
    elif room[3] - room[1] > 290:
        room = (room[0], room[1], room[2], room[1] + 290)
    draw_picture(canvas, page.screen.view.picture, room, dark=theme.dark)


# --- cards around groups --------------------------------------------------------------------------------------------


def _runs(screen: Screen, boxes: tuple[tuple[Widget, Box], ...]) -> Iterator[tuple[Box, Widget]]:
    """The cards of a page, each with its last widget. One that scrolling cuts off runs on below the bars."""
    kinds, body = GROUPED.get(screen.view.style, frozenset()), screen.view.body
    first: float | None = None
    for place, (widget, box) in enumerate(boxes):
        if widget.kind not in kinds:
            continue
        if first is None:
            first = box[1] - (60 if place == 0 and widget is not body[0] else 0)
        if place + 1 < len(boxes) and boxes[place + 1][0].kind in kinds:
            continue
        cut = place + 1 == len(boxes) and widget is not body[-1]
        yield (8, first + 2, WIDTH - 8, box[3] + (60 if cut else -2)), widget
        first = None


def _draw_card(canvas: Canvas, box: Box, style: Style, theme: Theme) -> None:
    if style == "sheet":
        shadow = mix(theme.background, BLACK, 0.25)
        canvas.rounded((box[0], box[3] - 40, box[2], box[3] + 6), 18, shadow)
        return canvas.rounded((box[0], box[1], box[2], box[3] + 4), 18, theme.surface)
    canvas.rounded(box, 16, theme.surface)

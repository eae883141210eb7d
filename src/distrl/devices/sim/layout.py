"""Where a view's widgets lie on the screen, and the UI elements that an accessibility service would report.

Sizes are in density-independent pixels of a 360 × 720 screen; what leaves this module is normalised. Only what can
be seen is placed: the rest of a long list comes into sight by scrolling.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import msgspec

from distrl.devices.sim.state import PhoneState
from distrl.devices.sim.widgets import CLASS_NAMES, Style, View, Widget, WidgetKind
from distrl.types import Bounds, UiElement

WIDTH, HEIGHT = 360, 720
STATUS_BAR, TITLE_BAR, BOTTOM_BAR, KEYBOARD = 28, 56, 60, 250
GRID_COLUMNS, GRID_ROWS = 4, 5
HEIGHTS: dict[WidgetKind, int] = {
    "row": 56, "switch": 56, "check": 52, "button": 56, "field": 64, "label": 34, "heading": 36, "card": 92, "icon": 56, "tab": 56,
}  # fmt: skip
TILE_COLUMNS, TILE_HEIGHT = 2, 122
"""Of the cards of a view in the style "tiles"; whatever else it has takes a whole line."""
VISIBLE_SHARE = 0.6
"""How much of a widget must be in sight to be reported."""


class Placed(msgspec.Struct, frozen=True):
    """A widget and the rectangle that it fills."""

    widget: Widget
    bounds: Bounds


class Screen(msgspec.Struct, frozen=True, kw_only=True):
    """A view laid out: what a finger can reach."""

    view: View
    placed: tuple[Placed, ...]
    body: Bounds
    """The part that scrolls."""
    overflow: float
    """How far the body can be scrolled, in pixels; 0: all of it is in sight."""
    loading: bool = False
    keyboard: bool = False

    def at(self, x: float, y: float) -> Widget | None:
        """The widget under a finger."""
        for placed in reversed(self.placed):
            if placed.bounds.contains(x, y):
                return placed.widget
        return None


def lay_out(view: View, state: PhoneState) -> Screen:
    """Place every widget of `view` that is in sight."""
    if view.shape == "grid":
        return _grid(view)
    if view.shape == "dialog":
        return _dialog(view, keyboard=bool(state.focus))
    return _page(view, state)


def _page(view: View, state: PhoneState) -> Screen:
    keyboard = bool(state.focus)
    bottom_bar = BOTTOM_BAR if view.bottom and not keyboard else 0
    top, bottom = STATUS_BAR + TITLE_BAR, HEIGHT - (KEYBOARD if keyboard else bottom_bar)
    dense = density(state)
    placed = _title_icons(view)
    if bottom_bar:
        placed += _across(view.bottom, HEIGHT - BOTTOM_BAR, HEIGHT)
    tiled = view.style == "tiles"
    heights = (height_of(line[0], "tiles") for line in _lines(view.body)) if tiled else _heights(view.body)
    overflow = max(0.0, sum(heights) * dense - (bottom - top))
    scroll = min(state.place.scroll, overflow)
    if tiled:
        placed += _tiles(view.body, top, bottom, scroll=scroll, dense=dense)
    else:
        placed += _column(view.body, top, bottom, scroll=scroll, dense=dense)
    return Screen(
        view=view, placed=tuple(placed), body=_bounds(0, top, WIDTH, bottom), overflow=overflow, keyboard=keyboard
    )


def density(state: PhoneState) -> float:
    """How tall widgets are on this phone's pages, compared with `HEIGHTS`."""
    return 0.9 if state.perturbations.variant % 3 == 2 else 1.0


def height_of(widget: Widget, style: Style) -> float:
    """How tall a widget is in a view of this style, before `density`."""
    return TILE_HEIGHT if style == "tiles" and widget.kind == "card" else HEIGHTS[widget.kind]


def _heights(widgets: tuple[Widget, ...]) -> Iterator[float]:
    return (HEIGHTS[widget.kind] for widget in widgets)


def _dialog(view: View, *, keyboard: bool) -> Screen:
    height = 72 + sum(HEIGHTS[widget.kind] for widget in view.body)
    middle = (HEIGHT - KEYBOARD) / 2 if keyboard else HEIGHT / 2
    top = max(STATUS_BAR + 8.0, middle - height / 2)
    body = _bounds(28, top, WIDTH - 28, min(top + height, HEIGHT - 8.0))
    placed = _column(view.body, top + 56, HEIGHT, scroll=0.0, dense=1.0, left=28, right=WIDTH - 28)
    return Screen(view=view, placed=tuple(placed), body=body, overflow=0.0, keyboard=keyboard)


def _grid(view: View) -> Screen:
    """Icons in rows of four, the dock at the bottom."""
    cell_width, cell_height = WIDTH / GRID_COLUMNS, 104.0
    placed = []
    for index, widget in enumerate(view.body[: GRID_COLUMNS * GRID_ROWS]):
        left, top = (index % GRID_COLUMNS) * cell_width, 84 + (index // GRID_COLUMNS) * cell_height
        placed.append(Placed(widget, _bounds(left, top, left + cell_width, top + cell_height)))
    placed += _across(view.bottom, HEIGHT - 96, HEIGHT - 8)
    return Screen(view=view, placed=tuple(placed), body=_bounds(0, STATUS_BAR, WIDTH, HEIGHT - 96), overflow=0.0)


def _title_icons(view: View) -> list[Placed]:
    top, left = STATUS_BAR, WIDTH - 52 * len(view.top)
    return [
        Placed(widget, _bounds(left + 52 * index, top, left + 52 * (index + 1), top + TITLE_BAR))
        for index, widget in enumerate(view.top)
    ]


def _across(widgets: tuple[Widget, ...], top: float, bottom: float) -> list[Placed]:
    width = WIDTH / max(1, len(widgets))
    return [
        Placed(widget, _bounds(index * width, top, (index + 1) * width, bottom)) for index, widget in enumerate(widgets)
    ]


def _column(
    widgets: tuple[Widget, ...],
    top: float,
    bottom: float,
    *,
    scroll: float,
    dense: float,
    left: float = 0,
    right: float = WIDTH,
) -> list[Placed]:
    placed, y = [], top - scroll
    for widget in widgets:
        height = HEIGHTS[widget.kind] * dense
        seen = min(y + height, bottom) - max(y, top)
        if seen >= VISIBLE_SHARE * height:
            placed.append(Placed(widget, _bounds(left, max(y, top), right, min(y + height, bottom))))
        y += height
    return placed


def _tiles(widgets: tuple[Widget, ...], top: float, bottom: float, *, scroll: float, dense: float) -> list[Placed]:
    """Cards side by side, as in an album."""
    placed, y = list[Placed](), top - scroll
    for line in _lines(widgets):
        height = height_of(line[0], "tiles") * dense
        width = WIDTH / TILE_COLUMNS if line[0].kind == "card" else WIDTH
        if min(y + height, bottom) - max(y, top) >= VISIBLE_SHARE * height:
            upper, lower = max(y, top), min(y + height, bottom)
            placed += (Placed(one, _bounds(at * width, upper, (at + 1) * width, lower)) for at, one in enumerate(line))
        y += height
    return placed


def _lines(widgets: tuple[Widget, ...]) -> Iterator[tuple[Widget, ...]]:
    """Cards that follow each other by twos, anything else alone."""
    for cards, found in groupby(widgets, key=lambda widget: widget.kind == "card"):
        run, columns = tuple(found), TILE_COLUMNS if cards else 1
        yield from (run[at : at + columns] for at in range(0, len(run), columns))


def _bounds(left: float, top: float, right: float, bottom: float) -> Bounds:
    return Bounds(round(left / WIDTH, 4), round(top / HEIGHT, 4), round(right / WIDTH, 4), round(bottom / HEIGHT, 4))


def elements_of(screen: Screen, focus: str) -> tuple[UiElement, ...]:
    """What an accessibility service would report of `screen`."""
    if screen.loading:
        return (UiElement(bounds=screen.body, text="Loading…", class_name="ProgressBar"),)
    found = [_element(placed, focus) for placed in screen.placed]
    if screen.view.shape != "grid":
        found.insert(0, _title_element(screen))
    if screen.overflow or len(screen.view.pages) > 1:
        found.append(UiElement(bounds=screen.body, class_name="ScrollView", scrollable=True))
    return tuple(found)


def _title_element(screen: Screen) -> UiElement:
    top = screen.body.top if screen.view.shape == "dialog" else STATUS_BAR / HEIGHT
    bounds = Bounds(screen.body.left, top, screen.body.right, round(top + TITLE_BAR / HEIGHT, 4))
    return UiElement(bounds=bounds, text=screen.view.title, class_name="Title")


def _element(placed: Placed, focus: str) -> UiElement:
    widget = placed.widget
    return UiElement(
        bounds=placed.bounds,
        text=widget.text,
        description=widget.detail,
        class_name=CLASS_NAMES[widget.kind],
        resource_id=widget.id,
        clickable=widget.tap is not None,
        checked=widget.checked,
        focused=widget.kind == "field" and widget.id == focus,
        enabled=widget.enabled,
    )

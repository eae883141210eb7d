"""Charts and screens as SVG in one string, for a page that has no scripts. Whatever is text is escaped."""

from __future__ import annotations

from base64 import b64encode
from html import escape

from distrl.dashboard.episode_page import element_hit
from distrl.dashboard.figures import Chart, Line
from distrl.types import Action, LongPress, Observation, Swipe, Tap

WIDTH, HEIGHT, LEFT, BOTTOM = 560, 200, 46, 22
SCREEN = 150
LONGEST_TEXT = 22


def chart_svg(chart: Chart) -> str:
    """Lines or dots with axes and bands."""
    lines = [line for line in chart.lines if line.points]
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for y in (*(y for _, y in line.points), *line.low, *line.high)]
    x_range = (min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1)
    y_range = (0.0, 1.0) if chart.bounded else (min(0.0, *ys), max(*ys, min(0.0, *ys) + 1e-9))
    place = _Place(x_range, y_range)
    parts = [*_axes(chart, place)]
    for number, line in enumerate(lines):
        parts += _line(line, number, place)
    label = escape(f"{chart.title}: {chart.says}", quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


class _Place:
    """From values to places in the drawing."""

    def __init__(self, x_range: tuple[float, float], y_range: tuple[float, float]) -> None:
        self.x_range, self.y_range = x_range, y_range

    def x(self, value: float) -> float:
        low, high = self.x_range
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - 8)

    def y(self, value: float) -> float:
        low, high = self.y_range
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - BOTTOM - 10)


def _axes(chart: Chart, place: _Place) -> list[str]:
    parts = []
    low, high = place.y_range
    for share in (0.0, 0.5, 1.0):
        value = low + share * (high - low)
        text = f"{value:.0%}" if chart.bounded else f"{value:.3g}"
        y = place.y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    for share, anchor in ((0.0, "start"), (1.0, "end")):
        value = place.x_range[0] + share * (place.x_range[1] - place.x_range[0])
        text = f"version {value:.0f}" if chart.across == "version" else f"{value / 60:.1f} min"
        parts.append(f'<text x="{place.x(value):.1f}" y="{HEIGHT - 6}" text-anchor="{anchor}">{text}</text>')
    return parts


def _line(line: Line, number: int, place: _Place) -> list[str]:
    points = " ".join(f"{place.x(x):.1f},{place.y(y):.1f}" for x, y in line.points)
    parts = []
    if line.low and len(line.points) > 1:
        upper = [f"{place.x(x):.1f},{place.y(high):.1f}" for (x, _), high in zip(line.points, line.high, strict=True)]
        lower = [f"{place.x(x):.1f},{place.y(low):.1f}" for (x, _), low in zip(line.points, line.low, strict=True)]
        parts.append(f'<polygon class="band c{number % 4}" points="{" ".join([*upper, *reversed(lower)])}"/>')
    parts.append(f'<polyline class="line c{number % 4}" points="{points}"/>')
    if len(line.points) < 12:
        parts += [
            f'<circle class="dot c{number % 4}" cx="{place.x(x):.1f}" cy="{place.y(y):.1f}" r="3"/>'
            for x, y in line.points
        ]
    return parts


def screen_svg(seen: Observation, action: Action | None, picture: bytes, label: str) -> str:
    """A screen with what was done on it: its picture, or its elements as boxes."""
    known = seen.width_px > 0 and seen.height_px > 0  # a device may say anything of its size
    ratio = min(5.0, max(0.2, seen.height_px / seen.width_px)) if known else 2.0
    height = round(SCREEN * ratio)
    parts = [_picture(picture, height)] if picture else _boxes(seen, height)
    if action is not None:
        parts += _gesture(seen, action, height)
    name = escape(label, quote=True)
    return f'<svg class="screen" viewBox="0 0 {SCREEN} {height}" role="img" aria-label="{name}">{"".join(parts)}</svg>'


def _picture(picture: bytes, height: int) -> str:
    kind = "png" if picture.startswith(b"\x89PNG") else "jpeg"
    return f'<image width="{SCREEN}" height="{height}" href="data:image/{kind};base64,{b64encode(picture).decode()}"/>'


def _boxes(seen: Observation, height: int) -> list[str]:
    parts = []
    for element in seen.elements:
        bounds, text = element.bounds, " ".join((element.text or element.description).split())
        width, tall = (bounds.right - bounds.left) * SCREEN, (bounds.bottom - bounds.top) * height
        if width < 2 or tall < 2:
            continue
        if element.clickable:
            parts.append(
                f'<rect class="box" x="{bounds.left * SCREEN:.1f}" y="{bounds.top * height:.1f}" width="{width:.1f}" height="{tall:.1f}" rx="2"/>'
            )
        if text:
            x, y = bounds.centre
            letters = max(3, min(LONGEST_TEXT, int(width / 3.4)))
            shown = text if len(text) <= letters else f"{text[: letters - 1]}…"
            parts.append(
                f'<text class="word" x="{x * SCREEN:.1f}" y="{y * height + 2:.1f}" text-anchor="middle">{escape(shown)}</text>'
            )
    return parts


def _gesture(seen: Observation, action: Action, height: int) -> list[str]:
    if isinstance(action, Tap | LongPress):
        number = element_hit(action, seen.elements)
        parts = []
        if number >= 0:
            box = seen.elements[number].bounds
            parts.append(
                f'<rect class="hit" x="{box.left * SCREEN:.1f}" y="{box.top * height:.1f}" width="{(box.right - box.left) * SCREEN:.1f}" '
                f'height="{(box.bottom - box.top) * height:.1f}" rx="3"/>'
            )
        return [*parts, f'<circle class="touch" cx="{action.x * SCREEN:.1f}" cy="{action.y * height:.1f}" r="9"/>']
    if isinstance(action, Swipe):
        start, end = (action.x * SCREEN, action.y * height), (action.to_x * SCREEN, action.to_y * height)
        return [
            f'<line class="touch" x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"/>',
            f'<circle class="touch" cx="{end[0]:.1f}" cy="{end[1]:.1f}" r="4"/>',
        ]
    return []

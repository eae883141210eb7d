"""An app on the home screen: a round coloured icon with its name below."""

from __future__ import annotations

from distrl.devices.sim.apps import APPS
from distrl.devices.sim.paint import WHITE, Box, Canvas, Pen, brightness, mix, parse_colour
from distrl.devices.sim.pictograms import fallback_colour
from distrl.devices.sim.widgets import Widget

RADIUS = 28.0


def draw_app_icon(canvas: Canvas, widget: Widget, box: Box) -> None:
    """Draw the icon of an app in the middle of its box."""
    app = APPS.get(widget.id.removeprefix("app:"))
    colour = parse_colour(app.colour) if app else fallback_colour(widget.text)
    x, top = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2 - 42
    y = top + RADIUS
    canvas.disc(x, y + 1.5, RADIUS + 0.5, mix(colour, (0, 0, 0), 0.45))
    canvas.disc(x, y, RADIUS, colour)
    ink = WHITE if brightness(colour) < 0.75 else (40, 44, 52)
    canvas.pictogram(widget.icon, x, y, 30, ink)
    width = min(84.0, box[2] - box[0] - 4)
    canvas.text(x + 0.8, top + 2 * RADIUS + 14.8, widget.text, Pen(13, (30, 34, 48)), width=width, anchor=0.5)
    canvas.text(x, top + 2 * RADIUS + 14, widget.text, Pen(13, WHITE), width=width, anchor=0.5)

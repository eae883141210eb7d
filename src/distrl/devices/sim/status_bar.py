"""The line at the very top: the time, the connection and the battery, told from the phone's state."""

from __future__ import annotations

from distrl.devices.sim.layout import STATUS_BAR, WIDTH
from distrl.devices.sim.paint import Canvas, Colour, Pen
from distrl.devices.sim.state import PhoneState

SIGNS = (("airplane", "plane"), ("wifi", "wifi"), ("bluetooth", "bluetooth"), ("silent", "moon"))
"""Switches of the settings app that show here, with their pictograms."""


def time_of(state: PhoneState) -> str:
    """The time of day on the phone: a minute passes every second step."""
    minutes = 7 * 60 + state.seed * 37 % 840 + state.tick // 2
    return f"{minutes // 60 % 24}:{minutes % 60:02d}"


def draw_status_bar(canvas: Canvas, state: PhoneState, ink: Colour) -> None:
    """Draw the time at the left and the signs at the right."""
    middle = STATUS_BAR / 2 + 1
    canvas.text(18, middle, time_of(state), Pen(13, ink, bold=True), width=60)
    prefs = state.tables.get("settings.pref", {})
    charge = 20 + state.seed * 53 % 79
    x = _draw_battery(canvas, charge, ink, middle)
    if prefs.get("percent", {}).get("on"):
        canvas.text(x, middle, f"{charge} %", Pen(11.5, ink), width=40, anchor=1.0)
        x -= 32
    for name, pictogram in SIGNS:
        if prefs.get(name, {}).get("on"):
            canvas.pictogram(pictogram, x - 7, middle, 14, ink)
            x -= 19


def _draw_battery(canvas: Canvas, charge: int, ink: Colour, middle: float) -> float:
    """The left edge of what was drawn, less a gap."""
    left, right = WIDTH - 38, WIDTH - 18
    canvas.rounded((left, middle - 5.5, right, middle + 5.5), 3, ink, outline=1.2)
    canvas.fill((right + 1, middle - 2, right + 2.5, middle + 2), ink)
    canvas.rounded((left + 2.5, middle - 3, left + 2.5 + (right - left - 5) * charge / 100, middle + 3), 1, ink)
    return left - 6

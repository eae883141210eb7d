"""The apps that every simulated phone has. Adding one: write its module, name it here."""

from __future__ import annotations

from distrl.devices.sim.app import App, ScreenFn
from distrl.devices.sim.apps import (
    browser,
    calendar,
    clock,
    contacts,
    files,
    mail,
    maps,
    messages,
    music,
    notes,
    photos,
    settings,
    store,
    system,
)

APPS: dict[str, App] = {
    module.app.name: module.app
    for module in (
        settings,
        browser,
        calendar,
        clock,
        contacts,
        mail,
        messages,
        notes,
        files,
        maps,
        music,
        photos,
        store,
    )
}
"""What the launcher shows, by name."""

system.install_launcher(APPS)

SCREENS: dict[tuple[str, str], ScreenFn] = {
    (app.name, name): screen
    for app in (*APPS.values(), system.launcher, system.app)
    for name, screen in app.screens.items()
}
INCIDENTAL: frozenset[str] = frozenset().union(*(app.incidental for app in (*APPS.values(), system.app)))
"""Tables that change by mere use."""

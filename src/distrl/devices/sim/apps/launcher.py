"""The home screen: pages of app icons and a dock."""

from __future__ import annotations

from random import Random

from distrl.devices.sim.app import App, Ui, go
from distrl.devices.sim.widgets import View, Widget

app = App("launcher", "Home", icon="home", colour="#1f2a44")

DOCK = ("messages", "browser", "contacts", "mail")
PAGE_SIZE = 8


def install(apps: dict[str, App]) -> None:
    """Declare the home screen over the apps that the phone has."""

    @app.screen("home")
    def home(ui: Ui) -> View:
        page = int(ui.args.get("page", "0"))
        names = _order([name for name in apps if name not in DOCK], ui.state.seed)
        pages = tuple(str(number) for number in range(-(-len(names) // PAGE_SIZE)))
        shown = names[page * PAGE_SIZE : (page + 1) * PAGE_SIZE]
        return View(
            title="Home",
            body=tuple(_icon(apps[name]) for name in shown),
            bottom=tuple(_icon(apps[name]) for name in DOCK if name in apps),
            shape="grid",
            pages=pages,
        )


def _order(names: list[str], seed: int) -> list[str]:
    Random(seed).shuffle(names)
    return names


def _icon(app: App) -> Widget:
    return Widget(kind="icon", id=f"app:{app.name}", text=app.title, icon=app.icon, tap=go(app.name))

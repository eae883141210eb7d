"""What belongs to no app: the home screen with its pages of icons, permission prompts, and pop-ups."""

from __future__ import annotations

from random import Random

from distrl.devices.sim.app import App, Ui, back, do, go, write
from distrl.devices.sim.widgets import View, Widget, button, label

app = App("system", "System", icon="gear", colour="#3c4043")
app.incidental = {"system.permission", "system.popup"}

POPUPS = {
    "rate": ("Enjoying this app?", "Rate it five stars", ("Later", "Not now")),
    "battery": ("Battery is getting low", "14 % left", ("Close", "Got it")),
    "offer": ("Limited offer", "Try Plus for free", ("No thanks", "Skip")),
    "update": ("A new version is ready", "Install it tonight", ("Remind me later", "Later")),
}


@app.screen("popup")
def popup(ui: Ui) -> View:
    """A pop-up that nobody asked for; accepting it leaves a record."""
    title, text, closers = POPUPS[ui.args["kind"]]
    yes = button("popup:accept", text, tap=do(write("system.popup", ui.args["kind"], accepted=True), back()))
    no = button("popup:close", ui.pick(*closers), tap=back(), look="quiet")
    return View(title=title, body=ui.arrange([yes, no]), shape="dialog")


@app.screen("permission")
def permission(ui: Ui) -> View:
    """The question whether an app may use something of the phone."""
    asking, wanted = ui.args["app"], ui.args["wanted"]
    body: list[Widget] = [label("permission:what", f"Allow {asking} to use your {wanted}?")]
    for id, text, allowed in (
        ("permission:allow", ui.pick("Allow", "While using the app"), True),
        ("permission:deny", "Don't allow", False),
    ):
        answer = do(write("system.permission", f"{asking}.{wanted}", allowed=allowed), back())
        body.append(button(id, text, tap=answer, look="" if allowed else "quiet"))
    return View(title="Permission", body=tuple(body), shape="dialog")


# --- the launcher ---------------------------------------------------------------------------------------------------

launcher = App("launcher", "Home", icon="home", colour="#1f2a44")

DOCK = ("messages", "browser", "contacts", "mail")
PAGE_SIZE = 8


def install_launcher(apps: dict[str, App]) -> None:
    """Declare the home screen over the apps that the phone has."""

    @launcher.screen("home")
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

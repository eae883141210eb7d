"""What the system puts in the way: permission prompts and pop-ups that nobody asked for."""

from __future__ import annotations

from distrl.devices.sim.app import App, Ui, back, do, write
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
    title, text, closers = POPUPS[ui.args["kind"]]
    yes = button("popup:accept", text, tap=do(write("system.popup", ui.args["kind"], accepted=True), back()))
    no = button("popup:close", ui.pick(*closers), tap=back())
    return View(title=title, body=ui.arrange([yes, no]), shape="dialog")


@app.screen("permission")
def permission(ui: Ui) -> View:
    asking, wanted = ui.args["app"], ui.args["wanted"]
    body: list[Widget] = [label("permission:what", f"Allow {asking} to use your {wanted}?")]
    for id, text, allowed in (
        ("permission:allow", ui.pick("Allow", "While using the app"), True),
        ("permission:deny", "Don't allow", False),
    ):
        body.append(button(id, text, tap=do(write("system.permission", f"{asking}.{wanted}", allowed=allowed), back())))
    return View(title="Permission", body=tuple(body), shape="dialog")

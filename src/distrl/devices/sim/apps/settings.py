"""Settings: switches, brightness, sounds and what the phone says about itself."""

from __future__ import annotations

from distrl.devices.sim.app import App, Seeder, Ui, back, do, flip, go, write
from distrl.devices.sim.state import Table, Tables
from distrl.devices.sim.widgets import View, Widget, choice, heading, label, row, switch

app = App("settings", "Settings", icon="gear", colour="#5f6368")

PREFS = "settings.pref"
SECTIONS = {
    "network": ("Network & internet", "Connections"),
    "display": ("Display", "Screen"),
    "sound": ("Sound & vibration", "Sounds"),
    "battery": ("Battery", "Power"),
    "privacy": ("Security & privacy", "Protection"),
    "about": ("About phone", "Device information"),
}
SIGNS = {
    "network": "wifi", "display": "sun", "sound": "sound", "battery": "battery", "privacy": "shield", "about": "info",
}  # fmt: skip
SWITCHES = {
    "network": {"wifi": ("Wi-Fi", "WLAN"), "bluetooth": ("Bluetooth", "Short-range radio"), "airplane": ("Airplane mode", "Flight mode"), "hotspot": ("Hotspot", "Tethering")},
    "display": {"dark": ("Dark theme", "Night mode"), "rotate": ("Auto-rotate", "Rotate with phone"), "adaptive": ("Adaptive brightness", "Automatic brightness")},
    "sound": {"silent": ("Do not disturb", "Quiet mode"), "vibrate": ("Vibrate on ring", "Buzz on calls"), "touch": ("Touch sounds", "Key clicks")},
    "battery": {"saver": ("Battery saver", "Low power mode"), "percent": ("Battery percentage", "Show charge level")},
    "privacy": {"location": ("Location", "Positioning"), "camera": ("Camera access", "Camera use")},
}  # fmt: skip
CHOICES: dict[str, dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "display": {"timeout": (("Screen timeout", "Sleep after"), ("30 seconds", "1 minute", "5 minutes", "10 minutes"))},
    "sound": {"ringtone": (("Ringtone", "Call melody"), ("Aurora", "Beacon", "Chimes", "Harbour", "Meadow", "Ripple"))},
    "network": {"dns": (("Private DNS", "Secure lookup"), ("Off", "Automatic", "Strict"))},
}
FACTS = {"model": "Model", "android": "System version", "storage": "Free storage", "serial": "Serial number"}


@app.content
def content(seeder: Seeder) -> Tables:
    """Switches and choices at random, and the facts about this phone."""
    flags = [name for section in SWITCHES.values() for name in section]
    prefs: Table = {name: {"on": seeder.random.random() < 0.5} for name in flags}
    for section in CHOICES.values():
        prefs |= {name: {"choice": seeder.random.choice(options)} for name, (_, options) in section.items()}
    about = {
        "model": f"Sim {seeder.random.randint(5, 12)}",
        "android": f"{seeder.random.randint(12, 17)}.{seeder.random.randint(0, 9)}",
        "storage": f"{seeder.random.randint(11, 96)} GB",
        "serial": f"SN{seeder.random.randint(10_000, 99_999)}",
    }
    return {PREFS: prefs, "settings.fact": {name: {"value": text} for name, text in about.items()}}


@app.screen("home")
def home(ui: Ui) -> View:
    """The sections of the settings."""
    rows = (
        row(f"section:{name}", ui.pick(*words), tap=go("settings", name), icon=f"badge:{SIGNS[name]}")
        for name, words in SECTIONS.items()
    )
    return View(title="Settings", body=ui.arrange(rows), style="group")


def section(name: str) -> None:
    """Declare the screen of one section: its switches and its choices."""

    @app.screen(name)
    def show(ui: Ui) -> View:
        body = ui.arrange([*_switches(ui, name), *_choices(ui, name)])
        return View(title=ui.pick(*SECTIONS[name]), body=body, style="group")


def _switches(ui: Ui, section: str) -> list[Widget]:
    return [
        switch(name, ui.pick(*words), bool(ui.record(PREFS, name)["on"]), tap=flip(PREFS, name, "on"))
        for name, words in SWITCHES[section].items()
    ]


def _choices(ui: Ui, section: str) -> list[Widget]:
    return [
        row(
            name,
            ui.pick(*words),
            str(ui.record(PREFS, name)["choice"]),
            tap=go("settings", "choose", section=section, name=name),
        )
        for name, (words, _) in CHOICES.get(section, {}).items()
    ]


for _name in SWITCHES:
    section(_name)


@app.screen("choose")
def choose(ui: Ui) -> View:
    """The options of one choice."""
    words, options = CHOICES[ui.args["section"]][ui.args["name"]]
    name, now = ui.args["name"], ui.record(PREFS, ui.args["name"])["choice"]
    body = [
        choice(f"option:{option}", option, option == now, tap=do(write(PREFS, name, choice=option), back()))
        for option in options
    ]
    return View(title=ui.pick(*words), body=tuple(body), shape="dialog")


@app.screen("about")
def about(ui: Ui) -> View:
    """Model, version, storage and serial number."""
    body: list[Widget] = []
    for name, title in FACTS.items():
        body += [heading(f"{name}:title", title), label(name, str(ui.record("settings.fact", name)["value"]))]
    return View(
        title=ui.pick(*SECTIONS["about"]), body=tuple(body), style="group", picture="phone:", picture_at="aside"
    )

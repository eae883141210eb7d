"""Tasks in the settings app."""

from __future__ import annotations

from distrl.devices.sim.apps.settings import CHOICES, PREFS, SWITCHES
from distrl.tasks.base import Draft, Templates, open_app, tap

templates = Templates()

SPOKEN = {
    "wifi": ("Wi-Fi", "wireless internet"),
    "bluetooth": ("Bluetooth", "the headset radio"),
    "airplane": ("airplane mode", "flight mode"),
    "hotspot": ("the hotspot", "internet sharing"),
    "dark": ("the dark theme", "night colours"),
    "rotate": ("auto-rotate", "turning the picture with the phone"),
    "silent": ("do not disturb", "quiet mode"),
    "saver": ("battery saver", "power saving"),
    "location": ("location", "GPS positioning"),
}


@templates.add
def switch_setting(t: Draft) -> None:
    section, name = t.random.choice([(s, n) for s, names in SWITCHES.items() for n in names if n in SPOKEN])
    on = t.random.random() < 0.5
    spoken, word = t.one_of(*SPOKEN[name]), "on" if on else "off"
    t.say(f"Turn {word} {spoken}", f"Switch {spoken} {word}", f"I want {spoken} {word}", f"Please {'enable' if on else 'disable'} {spoken}")
    t.given(PREFS, name, on=not on)
    t.want(PREFS, name, on=on)
    t.route(open_app("settings"), tap(f"section:{section}"), tap(name))


@templates.add
def set_ringtone(t: Draft) -> None:
    melody, other = t.random.sample(CHOICES["sound"]["ringtone"][1], 2)
    t.say(f"Set the ringtone to {melody}", f"Use {melody} as the call melody", f"When someone calls, play {melody}")
    t.given(PREFS, "ringtone", choice=other)
    t.want(PREFS, "ringtone", choice=melody)
    t.route(open_app("settings"), tap("section:sound"), tap("ringtone"), tap(f"option:{melody}"))


@templates.add
def ask_storage(t: Draft) -> None:
    t.say("How much storage is free?", "How much space is left on this phone?", "Tell me the free storage")
    t.want_answer(str(t.tables["settings.fact"]["storage"]["value"]))
    t.route(open_app("settings"), tap("section:about"))

"""Tasks in the settings app, and opening apps."""

from __future__ import annotations

from distrl.devices.sim.apps.settings import CHOICES, FACTS, PREFS, SWITCHES
from distrl.tasks.sim.templates import Draft, Templates, go_back, open_app, tap

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
SPOKEN_FACTS = {
    "model": ("model of this phone", "name of the device model", "kind of phone this is"),
    "android": ("system version", "version of the operating system", "software release"),
    "storage": ("free storage", "space left on this phone", "room for more files"),
    "serial": ("serial number", "device serial", "number that the maker gave this phone"),
}
SPOKEN_APPS = {
    "settings": ("Settings", "the phone's preferences"),
    "contacts": ("Contacts", "the address book"),
    "messages": ("Messages", "the texting app"),
    "mail": ("Mail", "my email"),
    "calendar": ("Calendar", "my schedule"),
    "clock": ("Clock", "the alarms app"),
    "notes": ("Notes", "my jottings"),
}


def _switch(t: Draft, *, apart_from: str = "") -> tuple[str, str, bool]:
    """A switch with its section, set so that it has to be turned."""
    section, name = t.random.choice(
        [(s, n) for s, names in SWITCHES.items() for n in names if n in SPOKEN and s != apart_from]
    )
    on = t.random.random() < 0.5
    t.given(PREFS, name, on=not on)
    t.want(PREFS, name, on=on)
    return section, name, on


def _choice(t: Draft, section: str, name: str) -> str:
    """A value for a choice that has another one now."""
    value, other = t.random.sample(CHOICES[section][name][1], 2)
    t.given(PREFS, name, choice=other)
    t.want(PREFS, name, choice=value)
    return value


@templates.add
def settings_open_app(t: Draft) -> None:
    """Open an app."""
    name = t.random.choice(sorted(SPOKEN_APPS))
    spoken = t.one_of(*SPOKEN_APPS[name])
    t.say(
        f"Open {spoken}",
        f"Launch {spoken}",
        f"Start {spoken}",
        f"Bring up {spoken}",
        f"I want to use {spoken}",
        f"Take me to {spoken}",
    )
    t.want_showing(name)
    t.route(open_app(name))


@templates.add
def settings_switch(t: Draft) -> None:
    """Turn a setting on or off."""
    section, name, on = _switch(t)
    spoken, word = t.one_of(*SPOKEN[name]), "on" if on else "off"
    t.say(
        f"Turn {word} {spoken}",
        f"Switch {spoken} {word}",
        f"I want {spoken} {word}",
        f"Please {'enable' if on else 'disable'} {spoken}",
    )
    t.route(open_app("settings"), tap(f"section:{section}"), tap(name))


@templates.add
def settings_two_switches(t: Draft) -> None:
    """Turn two settings on or off."""
    first, one, one_on = _switch(t)
    second, two, two_on = _switch(t, apart_from=first)
    turn = [f"{'enable' if on else 'disable'} {t.one_of(*SPOKEN[name])}" for name, on in ((one, one_on), (two, two_on))]
    t.say(
        f"Please {turn[0]} and {turn[1]}",
        f"First {turn[0]} then {turn[1]}",
        f"I need you to {turn[0]} and also {turn[1]}",
        f"Kindly {turn[0]} and after that {turn[1]}",
    )
    t.route(open_app("settings"), tap(f"section:{first}"), tap(one), go_back(), tap(f"section:{second}"), tap(two))


@templates.add
def settings_ringtone(t: Draft) -> None:
    """Choose a ringtone."""
    melody = _choice(t, "sound", "ringtone")
    t.say(
        f"Set the ringtone to {melody}", f"Use {melody} as the call melody", f"When someone calls, play {melody}", f"Make {melody} the sound for calls",
        f"I would like to hear {melody} on incoming calls", f"Change what rings to {melody}",
    )  # fmt: skip
    t.route(open_app("settings"), tap("section:sound"), tap("ringtone"), tap(f"option:{melody}"))


@templates.add_for_test
def settings_switch_and_ringtone(t: Draft) -> None:
    """Turn a setting on or off and choose a ringtone."""
    section, name, on = _switch(t, apart_from="sound")
    melody = _choice(t, "sound", "ringtone")
    turn = f"{'enable' if on else 'disable'} {t.one_of(*SPOKEN[name])}"
    t.say(
        f"Please {turn} and make {melody} the ringtone",
        f"First {turn} then use {melody} as the call melody",
        f"I want you to {turn} and to play {melody} when someone calls",
    )
    t.route(open_app("settings"), tap(f"section:{section}"), tap(name), go_back())
    t.route(tap("section:sound"), tap("ringtone"), tap(f"option:{melody}"))


@templates.add
def settings_ask_fact(t: Draft) -> None:
    """Say a fact about this phone."""
    name = t.random.choice(sorted(FACTS))
    spoken = t.one_of(*SPOKEN_FACTS[name])
    t.say(
        f"What is the {spoken}?",
        f"Tell me the {spoken}",
        f"Look up the {spoken}",
        f"I need to know the {spoken}",
        f"Find out the {spoken} for me",
        f"Which is the {spoken}?",
    )
    t.want_answer(str(t.tables["settings.fact"][name]["value"]))
    t.route(open_app("settings"), tap("section:about"))

"""Screens of simulated phones on two sheets: `python benchmarks/contact_sheet.py [FOLDER]`.

`contact-sheet.png` has twelve kinds of screens, `phones.png` one screen of each app.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace
from PIL import Image

from distrl.config.schema import PerturbationConfig
from distrl.devices.sim.phone import show
from distrl.devices.sim.render import draw
from distrl.devices.sim.state import PhoneState, put
from distrl.devices.sim.world import HOME, NO_PERTURBATIONS
from distrl.tasks.sim.oracle import play_oracle
from distrl.tasks.sim.suites import SUITES

COLUMNS, GAP = 6, 14
BACKDROP = (214, 218, 226)

Fits = Callable[[PhoneState], bool]
WANTED: dict[str, tuple[Fits, bool]] = {
    "home screen": (lambda state: state.place == HOME, False),
    "a long list": (lambda state: _at(state, "mail", "home") and show(state).overflow > 0, False),
    "shop": (lambda state: state.place.app == "browser" and _kinds(state, "card") > 2, False),
    "keyboard": (lambda state: bool(state.focus and state.place.drafts) and show(state).view.shape == "page", False),
    "a dialog": (lambda state: show(state).view.shape == "dialog" and _kinds(state, "check") > 2, False),
    "product": (
        lambda state: state.place.app == "browser" and _kinds(state, "button") > 1 and _kinds(state, "label") > 2,
        False,
    ),
    "photos": (lambda state: _at(state, "photos", "home"), False),
    "switches, dark": (lambda state: state.place.app == "settings" and _kinds(state, "switch") > 2, True),
    "pop-up": (lambda state: _at(state, "system", "popup"), False),
    "loading": (lambda state: state.loading > 0, True),
    "a route": (lambda state: _at(state, "maps", "directions"), False),
    "calendar, dark": (lambda state: _at(state, "calendar", "home"), True),
}


APPS_SHOWN: dict[tuple[str, str], bool] = {
    ("maps", "home"): False, ("maps", "place"): False, ("maps", "directions"): True, ("photos", "home"): False,
    ("photos", "photo"): True, ("music", "albums"): False, ("music", "player"): True, ("calendar", "home"): False,
    ("clock", "home"): False, ("contacts", "person"): False, ("messages", "chat"): False, ("mail", "home"): True,
    ("notes", "home"): False, ("files", "folder"): False, ("store", "home"): False, ("settings", "home"): True,
    ("browser", "kiosko-product"): False, ("browser", "northmart-product"): False,
}  # fmt: skip
"""Screens of the second sheet, and whether they are dark."""


def main() -> None:
    """Find a state of every wanted kind, draw them all and write both sheets."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images")
    folder.mkdir(parents=True, exist_ok=True)
    kinds, apps = find_states()
    _save(lay_out([draw(state) for state in kinds]), folder / "contact-sheet.png")
    _save(lay_out([draw(state, 0.8) for state in apps]), folder / "phones.png")


def _save(sheet: Image.Image, file: Path) -> None:
    """As a PNG of 256 colours: a quarter of the size, and hardly a difference to the eye."""
    sheet.quantize(256, dither=Image.Dither.NONE).save(file, optimize=True)
    print(f"{file}: {file.stat().st_size / 1000:.0f} KB")


def find_states() -> tuple[list[PhoneState], list[PhoneState]]:
    """Play oracle tasks until every wanted kind of screen and every wanted app is found."""
    found: dict[str, PhoneState] = {}
    apps: dict[tuple[str, str], PhoneState] = {}
    for index in range(400):
        for suite in SUITES.values():
            perturbations = PerturbationConfig(popup_rate=0.3, slow_rate=0.2) if index % 2 else NO_PERTURBATIONS
            for state in play_oracle(suite.task("train", index), perturbations).states:
                _note(state, found)
                _note_app(state, apps)
        if len(found) == len(WANTED) and len(apps) == len(APPS_SHOWN):
            break
    return [found[name] for name in WANTED if name in found], [apps[key] for key in APPS_SHOWN if key in apps]


def _note_app(state: PhoneState, apps: dict[tuple[str, str], PhoneState]) -> None:
    key = state.place.app, state.place.screen
    if key in APPS_SHOWN and key not in apps and not (state.loading or state.focus or state.place.scroll):
        apps[key] = put(state, "settings.pref", "dark", on=APPS_SHOWN[key])


def _note(state: PhoneState, found: dict[str, PhoneState]) -> None:
    for name, (fits, dark) in WANTED.items():
        if name not in found and state.loading == (name == "loading") and fits(state):
            found[name] = put(state, "settings.pref", "dark", on=dark)
            return


def _at(state: PhoneState, app: str, screen: str) -> bool:
    return (state.place.app, state.place.screen) == (app, screen)


def _kinds(state: PhoneState, kind: str) -> int:
    shown = show(replace(state, loading=0)).placed
    return sum(placed.widget.kind == kind for placed in shown)


def lay_out(pictures: list[Image.Image]) -> Image.Image:
    """The pictures in rows."""
    width, height = pictures[0].width + GAP, pictures[0].height + GAP
    rows = -(-len(pictures) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * width + GAP, rows * height + GAP), BACKDROP)
    for index, picture in enumerate(pictures):
        sheet.paste(picture, (GAP + index % COLUMNS * width, GAP + index // COLUMNS * height))
    return sheet


if __name__ == "__main__":
    main()

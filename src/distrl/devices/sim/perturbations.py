"""Domain randomisation of the simulated phones: pop-ups, slow loads, layout variants and app updates, from the state's seed."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from distrl.config.schema import PerturbationConfig
from distrl.devices.sim.app import App, push
from distrl.devices.sim.apps.system import POPUPS
from distrl.devices.sim.state import Perturbations, PhoneState, Place

VARIANTS = 6


def draw_perturbations(config: PerturbationConfig, seed: int, apps: dict[str, App]) -> Perturbations:
    """The perturbations of the phone with this seed."""
    random = Random(f"wild {seed}")
    variant = random.randrange(VARIANTS) if config.variants else 0
    update_app, update_tick = random.choice(sorted(apps)), random.randint(2, 8)
    updated = random.random() < config.update_rate
    return Perturbations(
        popup_rate=config.popup_rate,
        slow_rate=config.slow_rate,
        variant=variant,
        update_app=update_app if updated else "",
        update_tick=update_tick if updated else 0,
    )


def on_arrival(before: PhoneState, state: PhoneState, apps: dict[str, App]) -> PhoneState:
    """What greets someone who has just opened another screen."""
    place = state.place
    if len(state.stack) <= len(before.stack) or place.app in ("launcher", "system"):
        return state
    if state.roll("slow") < state.perturbations.slow_rate:
        state = replace(state, loading=1 + int(state.roll("moments") * 2))
    if (asked := _permission(state, apps[place.app])) is not None:
        return push(state, asked)
    if place.screen == "home" and state.roll("popup") < state.perturbations.popup_rate:
        kind = sorted(POPUPS)[int(state.roll("kind") * len(POPUPS))]
        return push(state, Place(app="system", screen="popup", args={"kind": kind}))
    return state


def _permission(state: PhoneState, app: App) -> Place | None:
    decided = f"{app.title}.{app.permission}" in state.tables.get("system.permission", {})
    if not app.permission or decided:
        return None
    return Place(app="system", screen="permission", args={"app": app.title, "wanted": app.permission})

"""Thousands of careless touches: whatever an agent does, the phone answers."""

from __future__ import annotations

from random import Random

import pytest

from distrl.config.schema import PerturbationConfig
from distrl.devices.sim.app import go, write
from distrl.devices.sim.layout import elements_of
from distrl.devices.sim.phone import perform, show, view_of
from distrl.devices.sim.state import PhoneState
from distrl.devices.sim.world import start_state
from distrl.tasks.sim.suites import SUITES
from distrl.types import Action, LongPress, Press, Swipe, Tap, TypeText, UiElement

PERTURBED = PerturbationConfig(popup_rate=0.1, slow_rate=0.1, update_rate=0.3)
SWIPES = (Swipe(0.5, 0.6, 0.5, 0.2), Swipe(0.5, 0.3, 0.5, 0.7), Swipe(0.8, 0.4, 0.2, 0.4))


def careless(random: Random, state: PhoneState, elements: tuple[UiElement, ...], words: list[str]) -> Action:
    """Mostly touches what reacts, types words of the instruction, sometimes goes back."""
    reacting = [element for element in elements if element.clickable]
    roll = random.random()
    if state.focus and roll < 0.7:
        return TypeText(" ".join(random.sample(words, min(len(words), 2)))) if roll < 0.5 else Press("enter")
    if reacting and roll < 0.9:
        point = random.choice(reacting).bounds.centre
        return Tap(*point) if roll < 0.82 else LongPress(*point)
    return random.choice(SWIPES) if roll < 0.96 else Press("back")


@pytest.mark.parametrize("suite", ["sim-general", "sim-shopping"])
@pytest.mark.parametrize("seed", range(3))
def test_no_touch_whatever_breaks_a_phone(suite: str, seed: int) -> None:
    random = Random(f"{suite} {seed}")
    for _ in range(12):
        task = SUITES[suite].task("test", random.randrange(600))
        state = start_state(task, PERTURBED)
        for _ in range(150):
            screen = show(state)
            action = careless(random, state, elements_of(screen, state.focus), task.instruction.split())
            state = perform(state, screen, action).state


def test_a_chat_with_a_stranger_can_be_muted_and_listed() -> None:
    task = SUITES["sim-general"].task("test", 0)
    state = write("messages.thread", "Nobody Known", muted=True)(start_state(task))
    assert "thread:Nobody Known" in {widget.id for widget in view_of(go("messages")(state)).body}

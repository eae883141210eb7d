"""Play a task on a phone that never waits: for oracles, tests and demonstrations."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from distrl.config.schema import WildConfig
from distrl.devices.sim.layout import elements_of
from distrl.devices.sim.phone import perform, show
from distrl.devices.sim.state import PhoneState, end_state
from distrl.devices.sim.world import TAME, start_state
from distrl.tasks.judges.state import judge
from distrl.tasks.oracle import Oracle
from distrl.types import Action, Task, UiElement, Verdict

Act = Callable[[tuple[UiElement, ...]], Action]


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """An episode played at once."""

    actions: tuple[Action, ...]
    states: tuple[PhoneState, ...]
    """From the start to the end: one more than actions."""
    verdict: Verdict


def play(task: Task, act: Act, wild: WildConfig = TAME, *, max_steps: int | None = None) -> Played:
    """Let `act` play `task` until it finishes or runs out of steps."""
    states, actions = [start_state(task, wild)], []
    for _ in range(task.max_steps if max_steps is None else max_steps):
        screen = show(states[-1])
        actions.append(act(elements_of(screen, states[-1].focus)))
        states.append(perform(states[-1], screen, actions[-1]).state)
        if states[-1].claim is not None:
            break
    verdict = judge(task, states[0], end_state(states[0], states[-1]))
    return Played(actions=tuple(actions), states=tuple(states), verdict=verdict)


def play_oracle(task: Task, wild: WildConfig = TAME) -> Played:
    """The oracle's episode."""
    return play(task, Oracle(task).act, wild, max_steps=60)

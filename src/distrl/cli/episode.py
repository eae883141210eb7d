"""One episode played aloud: every screen is printed and drawn to a PNG, every action named, the verdict at the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec

from distrl.cli.hand import HELP, SWIPES, Quit, read_action
from distrl.config.schema import WildConfig
from distrl.devices.sim.layout import elements_of
from distrl.devices.sim.phone import Outcome, perform, show
from distrl.devices.sim.state import PhoneState, end_state
from distrl.devices.sim.world import start_state
from distrl.errors import StoreError
from distrl.tasks.sim.judge import judge
from distrl.tasks.sim.oracle import Oracle
from distrl.types import Action, Finish, LongPress, Press, Swipe, Tap, Task, TypeText, UiElement, Verdict, Wait

Agent = Callable[[tuple[UiElement, ...]], Action]


class Aloud(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the episode, as `--json` gives it."""

    task: str
    instruction: str
    steps: int
    verdict: Verdict
    screens: str
    """The folder with the pictures."""


def choose_agent(name: str, task: Task, seed: int) -> Agent:
    """The oracle, a random agent, or the person at the keyboard."""
    if name == "hand":
        print(HELP)
        return read_action
    return Oracle(task).act if name == "oracle" else random_agent(Random(seed))


def random_agent(random: Random) -> Agent:
    """Touches, swipes, types and claims without a thought."""

    def act(elements: tuple[UiElement, ...]) -> Action:
        targets = [element for element in elements if element.clickable]
        taps: list[Action] = [Tap(*element.bounds.centre) for element in targets]
        others: list[Action] = [*SWIPES.values(), Press("back"), Press("home"), TypeText("hello"), Finish()]
        return random.choice(taps) if taps and random.random() < 0.7 else random.choice(others)

    return act


def play_aloud(task: Task, agent: Agent, wild: WildConfig, out: Path) -> Aloud:
    """Play `task` until a claim, the step limit or the player's leaving."""
    start = state = start_state(task, wild)
    print(f"{task.id} ({task.template}): {task.instruction}")
    num_steps = 0
    _draw(state, out, num_steps)
    while state.claim is None and num_steps < task.max_steps:
        screen = show(state)
        elements = elements_of(screen, state.focus)
        _print_screen(num_steps, elements)
        try:
            action = agent(elements)
        except Quit:
            break
        outcome = perform(state, screen, action)
        _print_action(action, elements, outcome)
        state, num_steps = outcome.state, num_steps + 1
        _draw(state, out, num_steps)
    verdict = judge(task, start, end_state(start, state))
    _print_verdict(verdict, out, num_steps)
    return Aloud(task=task.id, instruction=task.instruction, steps=num_steps, verdict=verdict, screens=str(out))


def _draw(state: PhoneState, out: Path, number: int) -> None:
    from distrl.devices.sim.render import draw

    try:
        out.mkdir(parents=True, exist_ok=True)
        draw(state).save(out / f"step-{number:02d}.png")
    except OSError as error:
        raise StoreError(
            f"cannot write pictures to {out}: {error.strerror}", fix="--out FOLDER that you may write to"
        ) from None


def _print_screen(number: int, elements: tuple[UiElement, ...]) -> None:
    print(f"\nscreen {number}")
    for index, element in enumerate(elements, start=1):
        print(f"  {index:2} {element.class_name:12} {_label(element)}{_marks(element)}")


def _label(element: UiElement) -> str:
    return " · ".join(text for text in (element.text, element.description) if text) or "(no text)"


def _marks(element: UiElement) -> str:
    marks = {"on": element.checked is True, "off": element.checked is False, "focused": element.focused}
    marks |= {"scrolls": element.scrollable, "disabled": not element.enabled}
    shown = ", ".join(mark for mark, holds in marks.items() if holds)
    return f"  [{shown}]" if shown else ""


def _print_action(action: Action, elements: tuple[UiElement, ...], outcome: Outcome) -> None:
    note = f"  ({'no effect' if outcome.valid else 'invalid'}: {outcome.why})" if outcome.why else ""
    print(f"→ {in_words(action, elements)}{note}")


def in_words(action: Action, elements: tuple[UiElement, ...]) -> str:
    """The action in the words that a player would type."""
    match action:
        case Tap(x=x, y=y) | LongPress(x=x, y=y):
            word = "tap" if isinstance(action, Tap) else "hold"
            hits = [(number, element) for number, element in enumerate(elements, 1) if element.bounds.contains(x, y)]
            touched = [hit for hit in hits if hit[1].clickable] or hits
            return f"{word} {touched[-1][0]} ({_label(touched[-1][1])})" if touched else f"{word} at ({x:.2f}, {y:.2f})"
        case Swipe():
            names = [name for name, swipe in SWIPES.items() if swipe == action]
            return (
                f"swipe {names[0]}"
                if names
                else f"swipe from ({action.x:.2f}, {action.y:.2f}) to ({action.to_x:.2f}, {action.to_y:.2f})"
            )
        case TypeText(text=text):
            return f"type {text}"
        case Press(key=key):
            return key
        case Wait():
            return "wait"
        case Finish(status=status, answer=answer):
            return f"done {answer}".strip() if status == "complete" else "impossible"
        case _:
            return f"not understood: {action.raw}"


def _print_verdict(verdict: Verdict, out: Path, num_steps: int) -> None:
    print(
        f"\n{'success' if verdict.success else 'no success'} after {num_steps} steps, progress {verdict.progress:.0%}"
    )
    if verdict.false_completion:
        print("false completion: said done, but it is not")
    for effect in verdict.side_effects:
        print(f"side effect: {effect}")
    print(f"{num_steps + 1} screens in {out}")

"""One episode, narrated: every screen is printed and drawn to a PNG, every action named, the verdict at the end.

Who plays is the oracle, a random agent, or a person who types actions on the numbered elements of a screen.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from random import Random

import msgspec

from distrl.config.schema import DevicesConfig, JudgeConfig, PerturbationConfig, SimConfig
from distrl.devices.base import Fleet, Performed, find_devices
from distrl.errors import StoreError, UsageError, closest
from distrl.rollout.stepping import SteppedEpisode
from distrl.tasks.judges import find_judge
from distrl.tasks.sim.oracle import NEXT_PAGE, PREVIOUS_PAGE, SCROLL_DOWN, SCROLL_UP, Oracle
from distrl.types import (
    Action,
    DeviceEnd,
    Finish,
    LongPress,
    Press,
    SimEnd,
    Swipe,
    Tap,
    Task,
    TypeText,
    UiElement,
    Verdict,
    Wait,
)

HISTORY = 6

Agent = Callable[[tuple[UiElement, ...]], Action]


class TriedEpisode(msgspec.Struct, frozen=True, kw_only=True):
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


def play_verbosely(
    task: Task, agent: Agent, perturbations: PerturbationConfig, out: Path, *, with_ids: bool = False
) -> TriedEpisode:
    """Play `task` until a claim, the step limit or the player's leaving.

    With ids, also what whoever writes a template needs: the ids of UI elements, and the records that each action changed.
    """
    devices = DevicesConfig(sim=SimConfig(perturbations=perturbations))
    (device,) = find_devices(devices, Fleet(owner="try", count=1, seed=0, purpose="evaluation"))
    episode = SteppedEpisode(device, task, history=HISTORY)
    _forget_screens(out)
    _save_screen(episode, out)
    print(f"{task.id} ({task.template}): {task.instruction}")
    while not episode.over:
        seen = episode.observe()
        _print_screen(episode.num_steps, seen.elements, with_ids=with_ids)
        before = episode.end_state().device
        try:
            action = agent(seen.elements)
        except Quit:
            break
        _print_action(action, seen.elements, episode.act(seen, action))
        if with_ids:
            _print_state(before, episode.end_state().device)
        _save_screen(episode, out)
    verdict = episode.verdict(find_judge(JudgeConfig()))
    _print_verdict(verdict, out, episode.num_steps)
    steps = episode.num_steps
    return TriedEpisode(task=task.id, instruction=task.instruction, steps=steps, verdict=verdict, screens=str(out))


def _forget_screens(out: Path) -> None:
    """Remove the pictures of an earlier episode, so that what lies there is one episode."""
    try:
        for picture in out.glob("step-[0-9]*.png"):
            picture.unlink()
    except OSError as error:
        raise _cannot_write(out, error) from None


def _save_screen(episode: SteppedEpisode, out: Path) -> None:
    from PIL import Image

    picture = Image.open(BytesIO(episode.capture(screenshot=True).screenshot))
    try:
        out.mkdir(parents=True, exist_ok=True)
        picture.save(out / f"step-{episode.num_steps:02d}.png")
    except OSError as error:
        raise _cannot_write(out, error) from None


def _cannot_write(out: Path, error: OSError) -> StoreError:
    return StoreError(f"cannot write pictures to {out}: {error.strerror}", fix="--out FOLDER that you may write to")


def _print_screen(number: int, elements: tuple[UiElement, ...], *, with_ids: bool) -> None:
    print(f"\nscreen {number}")
    for index, element in enumerate(elements, start=1):
        id = f"  id {element.resource_id}" if with_ids and element.resource_id else ""
        print(f"  {index:2} {element.class_name:12} {_label(element)}{_marks(element)}{id}")


def _print_state(before: DeviceEnd | None, after: DeviceEnd | None) -> None:
    """The records that differ from the start of the task since this action, and the place in the app."""
    if not isinstance(before, SimEnd) or not isinstance(after, SimEnd):
        return
    for change in after.changes:
        if change not in before.changes:
            print(f"  record {change.table}/{change.id}: {change.before} → {change.after}")
    if after.showing is not None and after.showing != before.showing:
        args = f" {after.showing.args}" if after.showing.args else ""
        print(f"  showing {after.showing.app}/{after.showing.screen}{args}")


def _label(element: UiElement) -> str:
    return " · ".join(text for text in (element.text, element.description) if text) or "(no text)"


def _marks(element: UiElement) -> str:
    marks = {"on": element.checked is True, "off": element.checked is False, "focused": element.focused}
    marks |= {"scrolls": element.scrollable, "disabled": not element.enabled}
    shown = ", ".join(mark for mark, holds in marks.items() if holds)
    return f"  [{shown}]" if shown else ""


def _print_action(action: Action, elements: tuple[UiElement, ...], performed: Performed) -> None:
    note = f"  ({'no effect' if performed.valid else 'invalid'}: {performed.why})" if performed.why else ""
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


# --- by hand ----------------------------------------------------------------------------------------------------------


SWIPES: dict[str, Swipe] = {"up": SCROLL_DOWN, "down": SCROLL_UP, "left": NEXT_PAGE, "right": PREVIOUS_PAGE}
"""By the way the finger goes: up shows what is further down."""
HELP = """  tap 3 · hold 3        touch element 3, briefly or long
  type some words       into the field that has the focus
  swipe up|down|left|right   the way the finger goes: up shows what is further down
  back · home · enter · wait
  done [answer]         say that the task is complete
  impossible            say that it cannot be done
  quit                  stop without a claim"""
WORDS = ("tap", "hold", "type", "swipe", "back", "home", "enter", "wait", "done", "impossible", "quit", "help")


class Quit(Exception):
    """The player stops."""


def read_action(elements: tuple[UiElement, ...], ask: Callable[[str], str] = input) -> Action:
    """Ask until the player names an action; `Quit` on quit or at the end of the input."""
    while True:
        try:
            return parse(ask("> "), elements)
        except UsageError as error:
            print(error)
        except EOFError:
            print("(end of input)")
            raise Quit from None


def parse(line: str, elements: tuple[UiElement, ...]) -> Action:
    """The action that a line means, or an error that says what could be typed."""
    word, _, rest = line.strip().partition(" ")
    rest = rest.strip()
    match word.lower():
        case "tap":
            return Tap(*_element("tap", rest, elements).bounds.centre)
        case "hold":
            return LongPress(*_element("hold", rest, elements).bounds.centre)
        case "type":
            return _type(rest)
        case "swipe":
            return _swipe(rest)
        case ("back" | "home" | "enter") as key:
            return Press(key)
        case "wait":
            return Wait()
        case "done":
            return Finish(answer=rest)
        case "impossible":
            return Finish(status="impossible")
        case "quit" | "exit" | "q":
            raise Quit
        case "help" | "?" | "":
            raise UsageError(HELP)
        case _:
            raise UsageError(f"{word!r} is no action", expected=closest(word, WORDS))


def _element(word: str, text: str, elements: tuple[UiElement, ...]) -> UiElement:
    if text.isdecimal() and 1 <= int(text) <= len(elements):
        return elements[int(text) - 1]
    seen = f"no element {text!r} on this screen" if text else f"{word} what?"
    raise UsageError(seen, expected=f"a number from 1 to {len(elements)}", fix=f"{word} 1")


def _type(text: str) -> Action:
    if not text:
        raise UsageError("nothing to type", fix="type some words")
    return TypeText(text)


def _swipe(text: str) -> Action:
    if text.lower() not in SWIPES:
        raise UsageError(f"cannot swipe {text!r}", expected=closest(text, SWIPES), fix="swipe up")
    return SWIPES[text.lower()]

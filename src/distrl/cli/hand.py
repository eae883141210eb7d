"""Playing by hand: what a person types, as actions on the numbered elements of a screen."""

from __future__ import annotations

from collections.abc import Callable

from distrl.errors import UsageError, closest
from distrl.tasks.sim.oracle import NEXT_PAGE, PREVIOUS_PAGE, SCROLL_DOWN, SCROLL_UP
from distrl.types import Action, Finish, LongPress, Press, Swipe, Tap, TypeText, UiElement, Wait

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
            return Tap(*_element(rest, elements).bounds.centre)
        case "hold":
            return LongPress(*_element(rest, elements).bounds.centre)
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


def _element(text: str, elements: tuple[UiElement, ...]) -> UiElement:
    if text.isdecimal() and 1 <= int(text) <= len(elements):
        return elements[int(text) - 1]
    raise UsageError(f"no element {text!r} on this screen", expected=f"a number from 1 to {len(elements)}", fix="tap 1")


def _type(text: str) -> Action:
    if not text:
        raise UsageError("nothing to type", fix="type some words")
    return TypeText(text)


def _swipe(text: str) -> Action:
    if text.lower() not in SWIPES:
        raise UsageError(f"cannot swipe {text!r}", expected=closest(text, SWIPES), fix="swipe up")
    return SWIPES[text.lower()]

"""What a prompt says about one step: the task, recent actions and the elements of the screen. Loads no torch.

It is bounded whatever the episode and the screen: so many past actions, so many elements, so many characters of each. Text on
a screen is untrusted data: special tokens are taken out of it. Without `policy.vlm.elements`, nothing of what the device
knows about its elements comes into a prompt: neither their list nor what a past touch hit.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from distrl.config.schema import VlmConfig
from distrl.policies.dialects.base import Dialect, Screen
from distrl.types import Action, Finish, Observation, Past, Tap, TypeText, UiElement, Unparsed

ROLE = "You operate a phone by its touchscreen. Do the task, one action at a time; say so when it is done."
MAX_ELEMENTS = 50
LONGEST_TASK = 1000
LONGEST_TEXT = 80
LONGEST_ACTION = 200
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def system_message(dialect: Dialect) -> str:
    """What every prompt begins with: the role, and the actions of the dialect."""
    return f"{ROLE}\n\n{dialect.explain()}"


class PromptWriter:
    """Writes what the prompts of one policy say; `strip` takes special tokens out of a text."""

    def __init__(self, config: VlmConfig, dialect: Dialect, strip: Callable[[str], str]) -> None:
        self._config, self._dialect, self._strip = config, dialect, strip

    def screen(self, observation: Observation, size: tuple[int, int]) -> Screen:
        """The screen as the model gets it: the size of the image, and the elements by their number in the prompt."""
        listed = tuple(filter(_has_content, observation.elements))[:MAX_ELEMENTS] if self._config.elements else ()
        return Screen(width=size[0], height=size[1], elements=listed)

    def text(self, observation: Observation, screen: Screen) -> str:
        """The user's part of the prompt."""
        blocks = [
            f"Task: {self._short(observation.instruction, LONGEST_TASK)}",
            self._past(observation.recent, screen),
            self._elements(screen),
            "The next action:",
        ]
        return "\n\n".join(filter(None, blocks))

    def _past(self, recent: tuple[Past, ...], screen: Screen) -> str:
        shown = recent[-self._config.history :] if self._config.history else ()
        lines = [f"{number}. {self._done(past, screen)}" for number, past in enumerate(shown, start=1)]
        return "\n".join(["Your last actions:", *lines]) if lines else ""

    def _done(self, past: Past, screen: Screen) -> str:
        words, target = self._words(past.action, screen), ""
        if past.target and self._config.elements and not isinstance(past.action, TypeText):
            target = f' on "{self._short(past.target)}"'
        if target and self._dialect.by_number:  # prompts in this dialect have no points
            words = words.split()[0]
        outcome = " (not possible)" if not past.valid else "" if past.changed else " (nothing changed)"
        return words + target + outcome

    def _words(self, action: Action, screen: Screen) -> str:
        """The action in the dialect; as JSON where the dialect cannot express it."""
        match action:
            case TypeText(text=text):
                action = TypeText(self._short(text))
            case Finish(answer=answer):
                action = msgspec.structs.replace(action, answer=self._short(answer))
            case Unparsed(raw=raw):
                return f'"{self._short(raw)}"'
        # The numbers of elements on the present screen are not those of the past one.
        bare = msgspec.structs.replace(screen, elements=())
        words = self._dialect.print(action, bare) or msgspec.json.encode(action).decode()
        return " ".join(words.split())[:LONGEST_ACTION]

    def _elements(self, screen: Screen) -> str:
        lines = [self._line(number, element, screen) for number, element in enumerate(screen.elements)]
        return "\n".join(["On the screen:", *lines]) if lines else ""

    def _line(self, number: int, element: UiElement, screen: Screen) -> str:
        named = [f'"{self._short(text)}"' for text in (element.text, element.description) if text]
        where = self._numbers(element, screen)
        flags = {
            "can be scrolled": element.scrollable,
            "on": element.checked is True,
            "off": element.checked is False,
            "has the focus": element.focused,
            "disabled": not element.enabled,
        }
        notes = [*([f"at {where}"] if where else []), *(note for note, holds in flags.items() if holds)]
        return f"[{number}] {' '.join([self._short(element.class_name), *named])} {', '.join(notes)}".rstrip()

    def _numbers(self, element: UiElement, screen: Screen) -> str:
        """Where an element is, in the numbers with which the dialect would touch it; empty: by its place in the list."""
        if self._dialect.by_number:
            return ""
        said = self._dialect.print(Tap(*element.bounds.centre), screen) or ""
        return ",".join(_NUMBER.findall(said)[:2])

    def _short(self, text: str, longest: int = LONGEST_TEXT) -> str:
        """One line of bounded length, without special tokens."""
        return " ".join(self._strip(text[: 4 * longest]).split())[:longest]


def _has_content(element: UiElement) -> bool:
    return bool(element.text or element.description or element.clickable or element.scrollable)

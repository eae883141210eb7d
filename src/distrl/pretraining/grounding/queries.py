"""Questions about a screen: what to do next, and how to get at things by name.

What is in sight is touched; for what is not, one scrolls, which takes having read everything. Some questions are in the
task's own words with another name in them, as long as they make no text of another split. Loads no torch.
"""

from __future__ import annotations

import re
from random import Random

import msgspec
from msgspec.structs import replace

from distrl.devices.sim.paint import Written
from distrl.tasks.sim.oracle import SCROLL_DOWN
from distrl.tasks.sim.templates import split_of
from distrl.types import Action, LongPress, Observation, Swipe, Tap, UiElement

QUESTIONS = 7
"""About a screen, at most: what to do next, and things to get at."""
HIDDEN = 2
"""Of these, about things that come into sight by scrolling."""
OWN_SHARE = 0.5
"""Of the questions that the task's own words can ask."""
FORMS = (
    "Tap {}",
    "{}",
    "Choose {} here",
    "Where is {} now",
    "Please press {} for me",
    "Go to {}",
    "Find {} on the screen",
)

Names = tuple[str, ...]
"""What one may call a thing: its text, and what stands below it."""
Question = tuple[Observation, Action]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a demonstration with everything that is known about its screen."""

    observation: Observation
    action: Action
    picture: bytes
    written: tuple[Written, ...]
    hidden: tuple[Names, ...] = ()
    """Things that come into sight by scrolling."""
    towards: Swipe = SCROLL_DOWN
    """Which way they are looked for: down, and up from the end of a list."""


class Wording(msgspec.Struct, frozen=True, kw_only=True):
    """A task's own words around the name of what is to be touched or looked for."""

    before: str
    after: str
    place: int
    """Which of the names of a thing belongs there."""
    like: UiElement | None
    """What the task touches; None: it scrolls."""

    def fits(self, element: UiElement) -> bool:
        """Whether the same words may ask for the same of another thing in sight."""
        like = self.like
        return (
            like is not None
            and _kind(element) == _kind(like)
            and element.checked == like.checked
            and len(names_of(element)) > self.place
        )


class Asker:
    """Asks, in words of `longest` bytes at most."""

    def __init__(self, random: Random, *, longest: int) -> None:
        self._random, self._longest = random, longest

    def about(self, page: Page) -> list[Question]:
        """What to do next, and then other things by name, in any order."""
        wording = wording_of(page)
        asked = self._out_of_sight(page, wording)
        asked += self._in_sight(page, wording, most=QUESTIONS - 1 - len(asked))
        short = [(text, action) for text, action in asked if len(text.encode()) <= self._longest]
        others = self._random.sample(short, len(short))
        return [
            (page.observation, page.action),
            *((replace(page.observation, instruction=text), action) for text, action in others),
        ]

    def _out_of_sight(self, page: Page, wording: Wording | None) -> list[tuple[str, Action]]:
        once = _once(page)
        there = [names for names in page.hidden if all(name in once for name in names)]
        chosen = self._random.sample(there, min(HIDDEN, len(there)))
        return [(self._own(names, wording) or self._plain(names), page.towards) for names in chosen]

    def _in_sight(self, page: Page, wording: Wording | None, *, most: int) -> list[tuple[str, Action]]:
        once = _once(page)
        there = [
            (element, called)
            for element in page.observation.elements
            if (called := tuple(name for name in names_of(element) if name in once))
        ]
        chosen = self._random.sample(there, min(most, len(there)))
        return [self._touch(element, called, page, wording) for element, called in chosen]

    def _touch(self, element: UiElement, called: Names, page: Page, wording: Wording | None) -> tuple[str, Action]:
        own = self._own(names_of(element), wording) if wording and wording.fits(element) else ""
        centre = element.bounds.centre
        if own and called == names_of(element):
            return own, LongPress(*centre) if isinstance(page.action, LongPress) else Tap(*centre)
        return self._plain(called), Tap(*centre)

    def _own(self, names: Names, wording: Wording | None) -> str:
        """The task's words with another name in them; empty where they cannot or are not to be used."""
        if wording is None or len(names) <= wording.place or self._random.random() >= OWN_SHARE:
            return ""
        text = f"{wording.before}{names[wording.place]}{wording.after}"
        return text if split_of(text) == "train" else ""

    def _plain(self, names: Names) -> str:
        return self._random.choice(FORMS).format(self._random.choice(names))


def wording_of(page: Page) -> Wording | None:
    """The words of the task, where they name what its action touches or looks for."""
    action, seen = page.action, page.observation
    if isinstance(action, Tap | LongPress):
        at = (action.x, action.y)
        touched = [element for element in seen.elements if element.resource_id and element.bounds.contains(*at)]
        found = (_around(names_of(element), seen.instruction, element) for element in reversed(touched))
    elif action == page.towards:
        found = (_around(names, seen.instruction, None) for names in page.hidden)
    else:
        return None
    return next((wording for wording in found if wording), None)


def _around(names: Names, text: str, like: UiElement | None) -> Wording | None:
    for place, name in enumerate(names):
        there = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)
        if there:
            return Wording(before=text[: there.start()], after=text[there.end() :], place=place, like=like)
    return None


def names_of(element: UiElement) -> Names:
    """What one may call an element."""
    return tuple(name for name in (element.text, element.description) if name)


def _once(page: Page) -> set[str]:
    """Names that only one thing has, in sight or not."""
    names = [name for element in page.observation.elements for name in names_of(element)]
    names += [name for hidden in page.hidden for name in hidden]
    return {name for name in names if names.count(name) == 1}


def _kind(element: UiElement) -> str:
    return element.resource_id.partition(":")[0]

"""Grounding queries about a screen: what to do next, and how to reach things by name.

A visible thing is tapped; for a hidden one the right action is to scroll, which takes reading everything on the screen.
Some queries use the task's own wording with another name in it, unless that makes an instruction of another split.
Loads no torch.
"""

from __future__ import annotations

import re
from random import Random

import msgspec
from msgspec.structs import replace

from distrl.devices.sim.paint import Written
from distrl.tasks.base import split_of
from distrl.tasks.sim.oracle import SCROLL_DOWN
from distrl.types import Action, LongPress, Observation, Swipe, Tap, UiElement

MAX_QUERIES = 7
"""Queries about a screen, at most: what to do next, and things to reach."""
MAX_HIDDEN = 2
"""Of these, about things that only scrolling makes visible."""
TASK_WORDING_SHARE = 0.5
"""Of the queries that the task's own wording can ask."""
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
"""The names of a thing: its text, and what stands below it."""
GroundingQuery = tuple[Observation, Action]


class AnnotatedScreen(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a demonstration with everything that is known about its screen: labels that the policy never gets."""

    observation: Observation
    action: Action
    frame: bytes
    written: tuple[Written, ...]
    hidden: tuple[Names, ...] = ()
    """Things that only scrolling makes visible."""
    towards: Swipe = SCROLL_DOWN
    """Which way to scroll for them: down, and up from the end of a list."""
    demonstrated: bool = True
    """Whether the next step may be asked, and so taught; the screen itself is always shown."""


class Wording(msgspec.Struct, frozen=True, kw_only=True):
    """A task's own words around the name of its target."""

    before: str
    after: str
    place: int
    """Which of the names of a thing stands there."""
    like: UiElement | None
    """What the task touches; None: it scrolls."""

    def fits(self, element: UiElement) -> bool:
        """Whether the same wording fits another visible element."""
        like = self.like
        return (
            like is not None
            and _kind(element) == _kind(like)
            and element.checked == like.checked
            and len(names_of(element)) > self.place
        )


class QueryMaker:
    """Makes the queries about screens, `most` of them and of `longest` bytes each at most."""

    def __init__(self, random: Random, *, longest: int, most: int = MAX_QUERIES) -> None:
        self._random, self._longest, self._most = random, longest, most

    def make(self, screen: AnnotatedScreen) -> list[GroundingQuery]:
        """What to do next, where that is demonstrated, and then things to reach by name, in random order.

        The task's own wording says what it touches, and so belongs to the demonstration.
        """
        wording = wording_of(screen) if screen.demonstrated else None
        queries = self._hidden(screen, wording)
        queries += self._visible(screen, wording, most=self._most - 1 - len(queries))
        short = [(text, action) for text, action in queries if len(text.encode()) <= self._longest]
        others = self._random.sample(short, len(short))
        asked = [(screen.observation, screen.action)] if screen.demonstrated else []
        return asked + [(replace(screen.observation, instruction=text), action) for text, action in others]

    def _hidden(self, screen: AnnotatedScreen, wording: Wording | None) -> list[tuple[str, Action]]:
        once = _once(screen)
        there = [names for names in screen.hidden if all(name in once for name in names)]
        chosen = self._random.sample(there, min(MAX_HIDDEN, len(there)))
        return [(self._task_wording(names, wording) or self._plain(names), screen.towards) for names in chosen]

    def _visible(self, screen: AnnotatedScreen, wording: Wording | None, *, most: int) -> list[tuple[str, Action]]:
        once = _once(screen)
        there = [
            (element, called)
            for element in screen.observation.elements
            if (called := tuple(name for name in names_of(element) if name in once))
        ]
        chosen = self._random.sample(there, min(most, len(there)))
        return [self._touch(element, called, screen, wording) for element, called in chosen]

    def _touch(
        self, element: UiElement, called: Names, screen: AnnotatedScreen, wording: Wording | None
    ) -> tuple[str, Action]:
        own = self._task_wording(names_of(element), wording) if wording and wording.fits(element) else ""
        centre = element.bounds.centre
        if own and called == names_of(element):
            return own, LongPress(*centre) if isinstance(screen.action, LongPress) else Tap(*centre)
        return self._plain(called), Tap(*centre)

    def _task_wording(self, names: Names, wording: Wording | None) -> str:
        """The task's wording with another name in it; empty where it cannot or shall not be used."""
        if wording is None or len(names) <= wording.place or self._random.random() >= TASK_WORDING_SHARE:
            return ""
        text = f"{wording.before}{names[wording.place]}{wording.after}"
        return text if split_of(text) == "train" else ""

    def _plain(self, names: Names) -> str:
        return self._random.choice(FORMS).format(self._random.choice(names))


def wording_of(screen: AnnotatedScreen) -> Wording | None:
    """The wording of the task, where it names what its action taps or scrolls for."""
    action, seen = screen.action, screen.observation
    if isinstance(action, Tap | LongPress):
        at = (action.x, action.y)
        touched = [element for element in seen.elements if element.resource_id and element.bounds.contains(*at)]
        found = (_around(names_of(element), seen.instruction, element) for element in reversed(touched))
    elif action == screen.towards:
        found = (_around(names, seen.instruction, None) for names in screen.hidden)
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
    """The names of an element."""
    return tuple(name for name in (element.text, element.description) if name)


def _once(screen: AnnotatedScreen) -> set[str]:
    """Names that only one thing has, visible or not."""
    names = [name for element in screen.observation.elements for name in names_of(element)]
    names += [name for hidden in screen.hidden for name in hidden]
    return {name for name in names if names.count(name) == 1}


def _kind(element: UiElement) -> str:
    return element.resource_id.partition(":")[0]

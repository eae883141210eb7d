"""The seam between a model's words and our actions: a dialect prints actions in a format and parses what was said in it.

A dialect promises two things. `parse` gives an action for every text whatsoever: what is no action in this format, or
names a point that is not on the screen, is `Unparsed`, an invalid step. And `parse(print(action))` is `action` again,
up to the format's precision, wherever `print` gives a text. What a model said stays data: nothing here evaluates,
executes or renders it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from distrl.errors import UsageError
from distrl.types import Action, DialectName, Finish, TypeText, UiElement, Unparsed

LONGEST = 20_000
"""Characters that a model may say; more is no action. Bounds the work, which is linear in them."""
LONGEST_TEXT = 2_000
"""Characters that an action may type or answer; escaped in any format they stay below `LONGEST`."""
KEPT = 2_000
"""Characters that are kept of what was no action: it travels with its episode."""


class Screen(msgspec.Struct, frozen=True, kw_only=True):
    """The picture that a model was shown: its size in pixels after any resizing, and what its marks number, if any."""

    width: int
    height: int
    elements: tuple[UiElement, ...] = ()
    """What an index in the model's words counts through; formats without an index leave it alone."""

    def __post_init__(self) -> None:
        if self.width < 1 or self.height < 1:
            raise UsageError(f"a picture of {self.width} x {self.height} pixels", expected="at least 1 x 1")


class Dialect(Protocol):
    """A format in which models write actions."""

    @property
    def name(self) -> DialectName:
        """What the configuration calls it."""

    @property
    def by_number(self) -> bool:
        """Whether it points at elements by their numbers, so that prompts in it need no positions."""

    def print(self, action: Action, screen: Screen) -> str | None:
        """The words for `action`; None where the format has none, so that cloning can leave the step out."""

    def parse(self, text: str, screen: Screen) -> Action:
        """The first action in what a model said; `Unparsed` where there is none."""

    def explain(self) -> str:
        """The action space, described for a prompt."""


def understand(text: str, read: Callable[[str], Action | None]) -> Action:
    """What `read` makes of `text`, which it gets in bounded length and without broken characters, or `Unparsed`."""
    said = _mend(text[: LONGEST + 1])
    action = read(said) if len(said) <= LONGEST else None
    return Unparsed(said[:KEPT]) if action is None or not has_sayable_text(action) else action


def has_sayable_text(action: Action) -> bool:
    """Whether what `action` types or answers has an encoding (lone surrogates have none) and a bounded length."""
    text = action.text if isinstance(action, TypeText) else action.answer if isinstance(action, Finish) else ""
    return len(text) <= LONGEST_TEXT and text == _mend(text)


def _mend(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")

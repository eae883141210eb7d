"""The dialect protocol: print an action in a model's text format, and parse model output in that format.

A dialect promises two things. `parse` gives an action for any text whatsoever: text that is no action in this format, or
names a point that is not on the screen, is `Unparsed`, an invalid step. And `parse(print(action))` is `action` again,
up to the format's precision, wherever `print` gives a text. Model output stays data: nothing here evaluates,
executes or renders it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from distrl.errors import UsageError
from distrl.types import Action, DialectName, Finish, TypeText, UiElement, Unparsed

LONGEST = 20_000
"""Characters of model output that are parsed; longer output is no action. Bounds the work, which is linear in them."""
LONGEST_TEXT = 2_000
"""Characters that an action may type or answer; escaped in any format they stay below `LONGEST`."""
KEPT = 2_000
"""Characters that are kept of output that was no action: it travels with its episode."""


class Screen(msgspec.Struct, frozen=True, kw_only=True):
    """The screenshot as a model gets it: its size in pixels after any resizing, and the elements that are numbered on it."""

    width: int
    height: int
    elements: tuple[UiElement, ...] = ()
    """What an element index in the output refers to; formats without an index ignore it."""

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
        """The text for `action`; None where the format cannot express it, so that behaviour cloning skips the step."""

    def parse(self, text: str, screen: Screen) -> Action:
        """The first action in model output; `Unparsed` where there is none."""

    def explain(self) -> str:
        """The action space, described for a prompt."""


def understand(text: str, read: Callable[[str], Action | None]) -> Action:
    """What `read` makes of `text`, which it gets in bounded length and without broken characters, or `Unparsed`."""
    said = _mend(text[: LONGEST + 1])
    action = read(said) if len(said) <= LONGEST else None
    return Unparsed(said[:KEPT]) if action is None or not has_expressible_text(action) else action


def has_expressible_text(action: Action) -> bool:
    """Whether what `action` types or answers has an encoding (lone surrogates have none) and a bounded length."""
    text = action.text if isinstance(action, TypeText) else action.answer if isinstance(action, Finish) else ""
    return len(text) <= LONGEST_TEXT and text == _mend(text)


def _mend(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")

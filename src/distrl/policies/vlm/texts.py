"""Prompts without pictures as tokens, remembered: a learner goes over the same ones again and again."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from distrl.policies.vlm.prompt import Encoded

REMEMBERED = 16_384
"""Prompts; of 300 tokens each they take 20 MB."""


class Texts:
    """The tokens of prompts, by a function that makes them for several at once."""

    def __init__(self, tokens: Callable[[Sequence[Encoded]], list[list[int]]], *, most: int = REMEMBERED) -> None:
        self._tokens, self._most = tokens, most
        self._known: dict[Encoded, array[int]] = {}

    def ids(self, encoded: Sequence[Encoded]) -> list[Sequence[int]]:
        """The tokens of each prompt; of all that are remembered, those made longest ago make room."""
        new = [item for item in dict.fromkeys(encoded) if item not in self._known]
        made = dict(zip(new, (array("i", row) for row in self._tokens(new)), strict=True)) if new else {}
        found = [made[item] if item in made else self._known[item] for item in encoded]
        self._known.update(made)
        while len(self._known) > self._most:
            del self._known[next(iter(self._known))]
        return list(found)

"""JSON objects inside a model's words, found in one pass and decoded into a struct.

Prose before and after is skipped. Nesting is bounded before anything is decoded, so no input reaches the recursion
limit; NaN, Infinity and numbers that no float holds are refused by the decoder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import msgspec

DEEPEST = 8
"""Levels of braces and brackets; no format needs more than three."""

Found = TypeVar("Found")


def find_object(text: str, kind: type[Found]) -> Found | None:
    """The first outermost object in `text` that decodes as `kind`; an opening brace that is never closed ends the search."""
    for piece in _objects(text):
        try:
            return msgspec.json.decode(piece, type=kind)
        except msgspec.DecodeError:
            continue
    return None


def _objects(text: str) -> Iterator[str]:
    start = depth = 0
    quoted = escaped = False
    for at, char in enumerate(text):
        if escaped:
            escaped = False
        elif quoted:
            escaped, quoted = char == "\\", char != '"'
        elif char == "{" or (char == "[" and depth):
            start, depth = (start if depth else at), depth + 1
            if depth > DEEPEST:
                return
        elif char in "}]" and depth:
            depth -= 1
            if depth == 0:
                yield text[start : at + 1]
        else:
            quoted = char == '"' and depth > 0

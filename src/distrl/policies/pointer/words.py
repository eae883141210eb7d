"""Words as the pointer policy reads them: hashed into a fixed number of rows, so that no vocabulary has to travel."""

from __future__ import annotations

import re
from functools import lru_cache
from zlib import crc32

import msgspec

ROWS = 4096
"""Rows of the word embedding; row 0 is padding."""
MAX_WORDS = 40
"""Words of an instruction that are read."""
_TOKEN = re.compile(r"[^\s.,:;!?\"“”()…]+(?:[.,:][^\s.,:;!?\"“”()…]+)*")


class Word(msgspec.Struct, frozen=True):
    """A word and where it stands in its text."""

    row: int
    plain: str
    start: int
    end: int


@lru_cache(maxsize=65_536)
def read(text: str) -> tuple[Word, ...]:
    """The words of `text`, without the punctuation around them."""
    return tuple(
        Word(row_of(found.group().casefold()), found.group().casefold(), found.start(), found.end())
        for found in _TOKEN.finditer(text)
    )


def row_of(plain: str) -> int:
    """The embedding row of a word."""
    return 1 + crc32(plain.encode()) % (ROWS - 1)


def span(text: str, first: int, last: int) -> str:
    """The words `first` to `last` of `text`, as they are written; empty where there are none."""
    words = read(text)[:MAX_WORDS]
    if not 0 <= first <= last < len(words):
        return ""
    return text[words[first].start : words[last].end]


def find(text: str, part: str) -> tuple[int, int] | None:
    """Where the words of `part` stand in `text`, first and last; None where they do not."""
    words, wanted = [word.plain for word in read(text)[:MAX_WORDS]], [word.plain for word in read(part)]
    for first in range(len(words) - len(wanted) + 1):
        if wanted and words[first : first + len(wanted)] == wanted:
            return first, first + len(wanted) - 1
    return None

"""Words as the pointer policy reads them: hashed into a fixed number of rows, so that no vocabulary has to travel.

Chinese and Japanese are written without spaces: there, each character is a word. What an instruction shares with the screen is then
found in them as it is elsewhere, and a run of characters is typed as it is written.
"""

from __future__ import annotations

import re
from functools import lru_cache
from zlib import crc32

import msgspec

ROWS = 4096
"""Rows of the word embedding; row 0 is padding."""
MAX_WORDS = 40
"""Words of an instruction that are read."""
UNSPACED = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
"""Scripts without spaces between words: Chinese characters and kana."""
_APART = r"\s.,:;!?\"“”()…、。，．：；！？「」『』《》〈〉【】（）"
_PIECE = rf"[^{_APART}{UNSPACED}]+"
_TOKEN = re.compile(rf"[{UNSPACED}]|{_PIECE}(?:[.,:]{_PIECE})*")


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

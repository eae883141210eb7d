"""A call with named arguments, `name(key='value', other="value")`, read and written as text.

Values are quoted and escaped as in Python; nothing is evaluated. Every pattern reads its input once.
"""

from __future__ import annotations

import re

import msgspec

_NAME = re.compile(r"\s*([a-z_]+)\(")
_NEXT = re.compile(r"[\s,]*")
_KEY = re.compile(r"([a-z_0-9]+)\s*=\s*")
_VALUE = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([^\s,()'"]+)""", re.DOTALL)
_FREE = {mark: re.compile(rf"((?:[^\\]|\\.)*?){mark}\)", re.DOTALL) for mark in ("'", '"')}
"""Up to where a quote that nobody escaped meets a bracket."""
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_MEANS = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}
_WRITTEN = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "'": "\\'", '"': '\\"', "\\": "\\\\"}


class Call(msgspec.Struct, frozen=True):
    """A name and its arguments."""

    name: str
    arguments: dict[str, str]


def read_call(text: str, *, free: str) -> Call | None:
    """The call at the start of `text`; what follows it is ignored.

    A first argument called `free` may hold quotes that nobody escaped: it then ends where quote and bracket meet.
    """
    head = _NAME.match(text)
    if head is None:
        return None
    arguments = _read_arguments(text, head.end())
    if arguments is None:
        arguments = _read_free(text, head.end(), free)
    return None if arguments is None else Call(head[1], arguments)


def quote(text: str) -> str:
    """`text` as a value, quotes and all, on one line."""
    return "'" + "".join(_WRITTEN.get(char, char) for char in text) + "'"


def _read_arguments(text: str, at: int) -> dict[str, str] | None:
    found: dict[str, str] = {}
    while True:
        at = _end(_NEXT, text, at)
        if text.startswith(")", at):
            return found
        key = _KEY.match(text, at)
        value = _VALUE.match(text, key.end()) if key else None
        if key is None or value is None:
            return None
        found[key[1]] = value[3] if value[3] is not None else _unescape(value[1] if value[1] is not None else value[2])
        at = value.end()


def _read_free(text: str, at: int, free: str) -> dict[str, str] | None:
    key = _KEY.match(text, at)
    if key is None or key[1] != free or text[key.end() : key.end() + 1] not in ("'", '"'):
        return None
    content = _FREE[text[key.end()]].match(text, key.end() + 1)
    return None if content is None else {free: _unescape(content[1])}


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: _MEANS.get(found[1], found[0]), text)

"""A small `sh` for simulated phones: words, quotes, pipes, lists and redirections; no program of this machine is ever run.

It parses as a POSIX shell does, as far as it goes, and refuses what it does not know (`$`, backquotes, loops) with exit
code 2 instead of guessing. Commands are Python functions; one that is not there exits with 127, as Android's do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import msgspec

OPERATORS = ("&&", "||", ">>", ";", "|", ">", "<", "\n", "&", "(", ")")


class Done(msgspec.Struct, frozen=True):
    """What a command came to."""

    out: bytes = b""
    err: bytes = b""
    code: int = 0


Command = Callable[[list[str], bytes], Done]
"""Takes its words, its own name first, and its input."""


class SyntaxProblem(ValueError):
    """Something that this shell does not know."""


class Word(str):
    """Text after quotes were taken away; a plain str is an operator."""

    __slots__ = ()


def run(line: str, commands: Mapping[str, Command], files: dict[str, bytes]) -> Done:
    """Run a command line; `files` is what redirections and `cat` see."""
    try:
        return _Run({**_tools(files), **commands}, files).everything(tokens_of(line))
    except SyntaxProblem as problem:
        return Done(err=f"/system/bin/sh: syntax error: {problem}\n".encode(), code=2)


def tokens_of(line: str) -> list[str]:
    """Words and operators; `SyntaxProblem` for an open quote and for what is not simulated."""
    found: list[str] = []
    place, word = 0, None
    while place < len(line):
        letter = line[place]
        operator = next((op for op in OPERATORS if line.startswith(op, place)), "")
        if letter in " \t" or operator:
            descriptor = word if operator[:1] == ">" and word in ("1", "2") and line[place - 1] in "12" else ""
            if word is not None and not descriptor:
                found.append(Word(word))
            word = None
            if operator:
                found.append(f"{descriptor}{operator}")
            place += len(operator) or 1
            continue
        if letter == "#" and word is None:
            place = line.find("\n", place) if "\n" in line[place:] else len(line)
            continue
        text, place = _piece(line, place)
        word = (word or "") + text
    return [*found, Word(word)] if word is not None else found


def _piece(line: str, place: int) -> tuple[str, int]:
    """The next part of a word without its quotes, and where it ends."""
    letter = line[place]
    if letter == "'":
        end = line.find("'", place + 1)
        if end < 0:
            raise SyntaxProblem("no closing quote")
        return line[place + 1 : end], end + 1
    if letter == '"':
        return _double(line, place + 1)
    if letter == "\\":
        return (line[place + 1 : place + 2] if line[place + 1 : place + 2] != "\n" else ""), place + 2
    if letter in "$`*?[":
        raise SyntaxProblem(f"{letter} is not simulated")
    return letter, place + 1


def _double(line: str, place: int) -> tuple[str, int]:
    text = ""
    while place < len(line):
        letter = line[place]
        if letter == '"':
            return text, place + 1
        if letter in "$`":
            raise SyntaxProblem(f"{letter} is not simulated")
        if letter == "\\" and line[place + 1 : place + 2] in ('"', "\\", "$", "`"):
            place += 1
            letter = line[place]
        text += letter
        place += 1
    raise SyntaxProblem("no closing quote")


class _Run:
    """One command line under way."""

    def __init__(self, commands: Mapping[str, Command], files: dict[str, bytes]) -> None:
        self._commands, self._files = commands, files

    def everything(self, tokens: list[str]) -> Done:
        out, err, code, joiner = b"", b"", 0, ";"
        for next_joiner, part in _split(tokens, (";", "\n", "&&", "||")):
            if part and joiner != ("||" if not code else "&&"):
                done = self._pipeline(part)
                out, err, code = out + done.out, err + done.err, done.code
            joiner = next_joiner
        return Done(out, err, code)

    def _pipeline(self, tokens: list[str]) -> Done:
        data, err, done = b"", b"", Done()
        for _, part in _split(tokens, ("|",)):
            done = self._simple(part, data)
            data, err = done.out, err + done.err
        return Done(data, err, done.code)

    def _simple(self, tokens: list[str], data: bytes) -> Done:
        words, targets = self._redirections(tokens)
        if not words:
            raise SyntaxProblem("a command is missing")
        command = self._commands.get(words[0])
        if command is None:
            done = Done(err=f"/system/bin/sh: {words[0]}: inaccessible or not found\n".encode(), code=127)
        else:
            done = command(words, data)
        return self._direct(done, targets)

    def _redirections(self, tokens: list[str]) -> tuple[list[str], list[tuple[str, str, str]]]:
        words: list[str] = []
        targets: list[tuple[str, str, str]] = []
        left = list(tokens)
        while left:
            token = left.pop(0)
            if isinstance(token, Word):
                words.append(token)
            elif token[-1] in "<>":
                source, token = ("2" if token.startswith("2") else "1"), token.lstrip("12")
                if left and left[0] == "&" and not isinstance(left[0], Word):
                    left.pop(0)
                    targets.append((source, "&", left.pop(0) if left else ""))
                elif left and isinstance(left[0], Word):
                    targets.append((source, token, left.pop(0)))
                else:
                    raise SyntaxProblem(f"nothing after {token}")
            else:
                raise SyntaxProblem(f"{token} is not simulated")
        return words, targets

    def _direct(self, done: Done, targets: list[tuple[str, str, str]]) -> Done:
        out, err = done.out, done.err
        for source, kind, target in targets:
            data = out if source == "1" else err
            if kind == "<":
                continue
            out, err = (b"", err) if source == "1" else (out, b"")
            if kind == "&":
                out, err = (out, err + data) if target == "2" else (out + data, err)
            elif target != "/dev/null":
                self._files[target] = (self._files.get(target, b"") if kind == ">>" else b"") + data
        return Done(out, err, done.code)


def _split(tokens: list[str], at: tuple[str, ...]) -> list[tuple[str, list[str]]]:
    """The parts between operators, each with the operator that follows it."""
    parts: list[tuple[str, list[str]]] = []
    part: list[str] = []
    for token in tokens:
        if token in at and not isinstance(token, Word):
            parts.append((token, part))
            part = []
        else:
            part.append(token)
    return [*parts, ("", part)] if part else parts


def _tools(files: dict[str, bytes]) -> dict[str, Command]:
    """What every Android's shell has, as far as anyone asks for it."""

    def cat(words: list[str], data: bytes) -> Done:
        missing = [path for path in words[1:] if path not in files]
        err = "".join(f"cat: {path}: No such file or directory\n" for path in missing).encode()
        found = b"".join(files.get(path, b"") for path in words[1:])
        return Done(found if words[1:] else data, err, int(bool(missing)))

    def remove(words: list[str], _: bytes) -> Done:
        paths = [word for word in words[1:] if not word.startswith("-")]
        missing = [path for path in paths if files.pop(path, None) is None and "-f" not in words]
        return Done(
            b"", "".join(f"rm: {path}: No such file or directory\n" for path in missing).encode(), bool(missing)
        )

    def list_files(words: list[str], _: bytes) -> Done:
        paths = [word for word in words[1:] if not word.startswith("-")] or ["/"]
        found = sorted(
            {name for path in paths for name in files if name == path or name.startswith(path.rstrip("/") + "/")}
        )
        missing = [path for path in paths if path != "/" and not any(name.startswith(path) for name in files)]
        err = "".join(f"ls: {path}: No such file or directory\n" for path in missing).encode()
        return Done("".join(f"{name}\n" for name in found).encode(), err, int(bool(missing)))

    def grep(words: list[str], data: bytes) -> Done:
        found = [line for line in data.decode(errors="replace").splitlines() if words[-1] in line]
        return Done("".join(f"{line}\n" for line in found).encode(), b"", 0 if found else 1)

    return {
        "cat": cat,
        "rm": remove,
        "ls": list_files,
        "grep": grep,
        "echo": lambda words, data: Done(f"{' '.join(words[1:])}\n".encode(errors="surrogateescape")),
        "true": lambda words, data: Done(),
        "false": lambda words, data: Done(code=1),
        "exit": lambda words, data: Done(code=int(words[1]) if words[1:] else 0),
        "md5sum": lambda words, data: Done(f"{hashlib.md5(data, usedforsecurity=False).hexdigest()}  -\n".encode()),
        "wc": lambda words, data: Done(f"{len(data)}\n".encode()),
    }

"""`distrl bench quoting`: random strings on their way to a phone's shell, put through a real one of this machine.

Each string is quoted as a part of a command and has to arrive as one word, unchanged; and each is typed, with ADBKeyBoard or without,
by the very commands that a phone would get, and has to come out whole. Their letters are those that shells give a meaning
to, all kinds of other characters, and pieces that try to end the quotes and run a command. A command that ran would leave a file.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec

from distrl.bench.base import BenchOptions
from distrl.devices.android.quoting import CannotType, Typing, quote, typing_commands

STRINGS, QUICK_STRINGS = 10_000, 1_000
SHELLS = ("sh", "bash", "mksh")
"""Android's own is mksh; those that are installed are used."""
SHELL_S = 120.0
BROKEN = "broken-out"
"""The file that a string which is run as a command would make."""
HOSTILE = "'\"\\$`;&|<>(){}[]*?~#!=%- \t\n\r\u00e9\u4e2d\U0001f600\u200b"
FRAGMENTS = (
    f"'; touch {BROKEN}; '",
    f"$(touch {BROKEN})",
    f"`touch {BROKEN}`",
    f"\n touch {BROKEN} \n",
    f"\\'; touch {BROKEN} #",
    "%s",
    "&& exit 1",
    "-n",
    "--",
    "\n",
)
PROGRAMS = 'input() { printf "%s\\0" "$@"; }; am() { printf "%s\\0" "$@"; }\n'
END = "distrl-end-of-one"


class QuotingFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the strings, in each shell."""

    strings: int
    shells: tuple[str, ...]
    broken_out: int
    """Strings of which a part was run as a command."""
    changed: int
    """Strings that did not arrive as one unchanged word."""
    typed: dict[str, int]
    """By keyboard, the strings that were typed; the others hold a character that has no key, and are refused by name."""
    typed_wrong: int
    """Of these, those that did not come out whole."""
    seeds: int


def run(options: BenchOptions) -> QuotingFigures:
    """Put the strings through every shell that is there."""
    seeds = options.seeds or 1
    count = QUICK_STRINGS if options.quick else STRINGS
    texts = [text for seed in range(seeds) for text in random_texts(count, seed)]
    shells = tuple(name for name in SHELLS if _has(name))
    broken = changed = wrong = 0
    typed: dict[str, int] = {}
    for shell in shells:
        words, ran = words_of(shell, PROGRAMS + "\n".join(f"input {quote(text)}" for text in texts))
        broken += ran
        changed += sum(a != b for a, b in zip(words, texts, strict=False)) + abs(len(words) - len(texts))
        for name, typing in (("ADBKeyBoard", Typing(adb_keyboard=True)), ("input text", Typing())):
            fit = [(text, commands) for text in texts if (commands := _commands(text, typing))]
            words, ran = words_of(shell, PROGRAMS + "\n".join("\n".join([*one, f"am {END}"]) for _, one in fit))
            broken += ran
            wrong += sum(a != b for a, (b, _) in zip(_typed(words), fit, strict=True))
            typed[name] = len(fit)
    return QuotingFigures(
        strings=len(texts),
        shells=shells,
        broken_out=broken,
        changed=changed,
        typed=typed,
        typed_wrong=wrong,
        seeds=seeds,
    )


def random_texts(count: int, seed: int = 0) -> Iterator[str]:
    """Strings that do their worst."""
    random = Random(f"quoting {seed}")
    for _ in range(count):
        letters = list(HOSTILE) + [chr(random.randrange(1, 0xD800)) for _ in range(8)] * (random.random() < 0.5)
        text = "".join(random.choice(letters) for _ in range(random.randrange(0, 24)))
        yield text + random.choice(FRAGMENTS) * (random.random() < 0.4) + text[:3]


def words_of(shell: str, script: str) -> tuple[list[str], bool]:
    """Every word that a command of a script got, and whether something was run that should not have been."""
    with tempfile.TemporaryDirectory(prefix="distrl-quoting-") as folder:
        done = subprocess.run(
            [shell], input=script.encode(), capture_output=True, check=False, timeout=SHELL_S, cwd=folder
        )
        ran = Path(folder, BROKEN).exists() or bool(done.returncode) or bool(done.stderr)
    return done.stdout.decode(errors="replace").split("\0")[:-1], ran


def _commands(text: str, typing: Typing) -> list[str]:
    try:
        return typing_commands(text, typing)
    except CannotType:
        return []


def _typed(words: list[str]) -> Iterator[str]:
    """What a phone makes of the commands for each string."""
    text, words_left = "", iter(words)
    for word in words_left:
        if word == END:
            yield text
            text = ""
        elif word == "text":
            text += _with_spaces(next(words_left))
        elif word == "keyevent":
            text += {"66": "\n", "61": "\t"}[next(words_left)]
        elif word == "msg":
            text += base64.b64decode(next(words_left)).decode()


def _with_spaces(argument: str) -> str:
    """What Android's `input text` makes of its argument: "%s" is a space."""
    found, escaped = "", False
    for letter in argument:
        if escaped and letter == "s":
            found, escaped = found[:-1] + " ", False
        else:
            found, escaped = found + letter, letter == "%"
    return found


def _has(shell: str) -> bool:
    return shutil.which(shell) is not None

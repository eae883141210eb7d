"""The command line: finds the verb, reads its flags, runs it, and turns errors into messages and exit codes.

A verb is one module, `distrl/cli/<verb>.py`, and one line in `VERBS`. The module is imported only when its verb is
used, so `distrl --help` stays fast. It has:

    TAKES_CONFIG = True                                     # optional: accept `--section.key value` (and `--seed N`)
    def configure(parser: argparse.ArgumentParser) -> None  # declare its arguments
    def run(args: argparse.Namespace) -> int                # do the work, return the exit code

With TAKES_CONFIG, `args.overrides` is a dict from dotted key to text, ready for `load_config(path, args.overrides)`;
without it, such flags are refused. A verb raises `DistrlError` for whatever the user can mend: the message goes to
stderr, and the error's `exit_code` is returned (2 usage, 3 device, 4 crashed role, 1 failed check). With `--json`,
a verb prints one JSON object on the last line of stdout by `print_json`. A verb that makes parts from the settings of a run
folder reads them by `distrl.cli.trust`, since they may name code.
"""

from __future__ import annotations

import argparse
import atexit
import errno
import gc
import json
import logging
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING, NoReturn, Protocol, cast

from distrl import __version__
from distrl.errors import DistrlError, RoleCrashed, UsageError, closest

if TYPE_CHECKING:
    from rich.console import Console

VERBS = {
    "train": "train a policy while workers collect; with no config, on simulated phones",
    "evaluate": "success of a run, checkpoint or export on held-out tasks, with an interval",
    "watch": "see what was trained play a task: every step in words, and a GIF",
    "view": "the dashboard of a run, or of a folder of runs, in a browser",
    "report": "report.html in the run folder: one file about a run that opens anywhere",
    "compare": "two runs beside each other, and the settings in which they differ",
    "trace": "the timeline of a run for chrome://tracing or Perfetto",
    "sft": "supervised learning from the successful episodes of a run",
    "ground": "make a vision-language model for screens out of a language model",
    "export": "the policy of a run as a folder for others, with a card",
    "status": "one screen about a live or finished run, the newest by default",
    "runs": "list the runs, show what one weighs, prune",
    "tasks": "list the suites, show a task, play one, check them all",
    "bench": "the measurements behind every claim",
    "devices": "Android devices: list, show, check, tap; simulated phones for adb",
    "config": "resolved settings and where each came from; the reference",
    "doctor": "check this machine by doing",
    "completion": "a script that lets your shell complete distrl",
}
"""Every verb with a line of help; each is the module `distrl.cli.<verb>`."""

PATHS = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)
"""What is wrong with a path that was given; any other error of the system is a bug, or somebody's to catch."""
OUTPUTS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""What is wrong where an error of the system names no file: with what is printed."""
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""All control characters but line feed and tab, and those that turn the direction of text."""
DOTTED = re.compile(r"--([A-Za-z_][\w-]*(?:\.[\w-]+)+)(?:=(.*))?", re.DOTALL)
ASSIGNED = re.compile(r"((?:[A-Za-z_][\w-]*\.)+[\w-]+)=(.+)", re.DOTALL)
"""A setting as other programs take one, which here is a flag."""
SHORT = {"--seed": "run.seed"}


class Verb(Protocol):
    """What a verb's module looks like."""

    def configure(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are ours: short, with a suggestion, exit code 2."""

    more_flags: tuple[str, ...] = ()
    """Flags that are taken out before the parser sees them, to be suggested all the same."""
    takes_config: bool = False
    """Whether settings may be given as flags."""

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (-\S+)", message)
        if unknown is None:
            raise UsageError(f"{self.prog.removeprefix('distrl ')}: {message}", fix=f"{self.prog} --help")
        flag = unknown[1].partition("=")[0]
        settings = _settings_called(flag) if self.takes_config else []
        known = f"one of {', '.join(settings)}" if settings else closest(flag, [*_flags(self), *self.more_flags])
        raise UsageError(f"{self.prog} has no flag {flag}", expected=known, fix=f"{self.prog} --help")


def _settings_called(flag: str) -> list[str]:
    """The flags of the settings whose last part is this: `--run.minutes` for `--minutes`."""
    from distrl.config.reference import settings

    name = flag.lstrip("-").replace("-", "_")
    return [f"--{key}" for key in settings() if key.rpartition(".")[2] == name]


def _flags(parser: argparse.ArgumentParser) -> set[str]:
    """The long flags of a parser and of the parsers below it."""
    found = {flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")}
    below = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return found.union(*(_flags(inner) for choices in below for inner in choices.values()))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    atexit.register(gc.freeze)  # at its end Python would look through all of torch for garbage: half a second
    _have_outputs()
    _print_any_letter()
    try:
        with warnings_told():
            code = dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except DistrlError as error:
        return _tell(error)
    except ModuleNotFoundError as error:
        from distrl.cli.extras import EXTRA_OF, missing_package

        if error.name not in EXTRA_OF:
            raise
        return _tell(missing_package(error.name))
    except KeyboardInterrupt:
        print("distrl: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader has gone
        _silence_stdout()
        return 0
    except OSError as error:
        if error.filename is None and error.errno in OUTPUTS:
            _silence_stdout()
            seen = f"cannot write the output: {error.strerror}"
            return _tell(UsageError(seen, fix="make room where it goes, or send it to another file"))
        if error.filename is None or error.errno not in PATHS:
            raise
        seen = f"cannot use {os.fsdecode(error.filename)[:300]}: {error.strerror}"
        folder = error.errno == errno.EISDIR
        fix = "move that folder away: a file belongs there" if folder else "check the path and your rights to it"
        return _tell(UsageError(seen, fix=fix))


def _tell(error: DistrlError) -> int:
    print(f"distrl: {printable(str(error))}", file=sys.stderr)
    if isinstance(error, RoleCrashed) and error.trace:
        print(f"\n{printable(error.trace)}", file=sys.stderr)
    return error.exit_code


def printable(text: str) -> str:
    """`text` without what a terminal would obey: control characters are shown as replacement characters, lines stay lines.

    For whatever comes from a screen, a model, a log or a run of someone else.
    """
    return CONTROL.sub("\ufffd", text)


def _have_outputs() -> None:
    """What was started without stdin, stdout or stderr gets empty ones: the next file to be opened would take their place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _silence_stdout() -> None:
    """Nothing more can be written there; Python would complain once more while flushing at exit, so give it nothing to flush to."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Warnings(logging.Handler):
    """Prints records on stderr, as it is at that moment: a live table puts them above itself."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Not the events of a run, such as the death of a role: its progress shows them."""
        return not record.name.startswith("distrl.events")

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError, ValueError):  # nobody reads it any more
            print(f"distrl: {printable(record.getMessage())}", file=sys.stderr)


@contextmanager
def warnings_told() -> Iterator[None]:
    """While it lasts, warnings of the package are printed on stderr."""
    handler, logger = _Warnings(logging.WARNING), logging.getLogger("distrl")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _print_any_letter() -> None:
    """Letters that the terminal's encoding does not have are shown as question marks: they are no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def dispatch(argv: list[str]) -> int:
    """Find the verb and run it; errors are the caller's."""
    if not argv or argv[0] in ("-h", "--help"):
        print(_overview())
        return 0 if argv else 2
    if argv[0] == "--version":
        print(f"distrl {__version__}")
        return 0
    name, rest = argv[0], argv[1:]
    if name not in VERBS:
        fix = f"distrl train --resume {shlex.join(rest) or 'RUN'}" if name == "resume" else "distrl --help"
        raise UsageError(f"distrl has no verb {name!r}", expected=closest(name, VERBS), fix=fix)
    module = import_module(f"distrl.cli.{name}")
    takes_config: bool = getattr(module, "TAKES_CONFIG", False)
    return _run(cast(Verb, module), name, rest, takes_config=takes_config)


def _run(verb: Verb, name: str, rest: list[str], *, takes_config: bool) -> int:
    note = (
        "any setting can be given as --section.key value: see `distrl config show`; --seed N is short for --run.seed N"
        if takes_config
        else None
    )
    parser = Parser(prog=f"distrl {name}", description=f"{VERBS[name]}.", epilog=note, allow_abbrev=False)
    parser.more_flags = tuple(SHORT) if takes_config else ()
    parser.takes_config = takes_config
    verb.configure(parser)
    overrides, rest = split_overrides(rest) if takes_config else ({}, rest)
    for word in rest:
        if word.startswith("--") and word.endswith("=--"):  # which argparse takes for an empty list
            raise UsageError(f"{word[:-3]} needs a value", fix=f"{parser.prog} --help")
        if takes_config and (given := ASSIGNED.fullmatch(word)) and not os.path.exists(word):
            key, value = given.groups()
            raise UsageError(
                f"{word[:200]} is no flag", expected="--section.key value", fix=f"--{key} {shlex.quote(value)}"
            )
    try:
        args = parser.parse_args(rest)
    except SystemExit as stop:
        return int(stop.code or 0)
    args.overrides = overrides
    return verb.run(args)


def split_overrides(argv: list[str]) -> tuple[dict[str, str], list[str]]:
    """The `--section.key value` flags by dotted key, and the arguments that are left."""
    found: dict[str, str] = {}
    left: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--":
            return found, [*left, word, *words]
        flag, equals, text = word.partition("=")
        dotted = DOTTED.fullmatch(word)
        key = dotted[1] if dotted else SHORT.get(flag)
        if key is None:
            left.append(word)
        else:
            found[key] = text if equals else _value(flag, next(words, None))
    return found, left


def _value(flag: str, word: str | None) -> str:
    if word is None or word.startswith("--"):
        raise UsageError(f"{flag} needs a value", expected=f"{flag} VALUE", fix="distrl config show")
    return word


def whole_number(flag: str, least: int, most: int, example: int) -> Callable[[str], int]:
    """Reads the whole number of a flag; `UsageError` with the limits where it is none."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise UsageError(
                f"{flag} {text[:100]} does not fit",
                expected=f"a whole number from {least} to {most}",
                fix=f"{flag} {example}",
            )
        return number

    return read


def real_number(flag: str, least: float, most: float, example: float) -> Callable[[str], float]:
    """Reads the number of a flag; `UsageError` with the limits where it is none, or not a finite one within them."""

    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not least <= number <= most:  # which NaN is not
            expected, fix = f"a number from {least:g} to {most:g}", f"{flag} {example:g}"
            raise UsageError(f"{flag} {text[:100]} does not fit", expected=expected, fix=fix)
        return number

    return read


def print_json(result: object) -> None:
    """Print `result` as one line of JSON: the last line of stdout, for other programs."""
    import msgspec

    sys.stdout.flush()
    text = msgspec.json.encode(result).decode()
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        text = json.dumps(json.loads(text))  # in ASCII, so that no letter is lost
    print(text)


def console() -> Console:
    """Where tables go: as wide as the terminal, or 120 columns in a pipe or file."""
    from rich.console import Console

    class PipeConsole(Console):
        """One that says that its pipe is closed; rich would end the program with exit code 1 and without a word."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return PipeConsole(highlight=False, markup=False, width=None if sys.stdout.isatty() else 120)


def _overview() -> str:
    lines = [f"  {name:10} {text}" for name, text in VERBS.items()]
    head = "distrl: train agents that operate phones.\n\nusage: distrl VERB [arguments]\n"
    tail = "\n`distrl VERB --help` tells more; start with `distrl doctor`, then `distrl train`."
    return "\n".join([head, *lines, tail])

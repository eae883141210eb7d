"""One tree of errors. Each says what was seen, what was expected and what to try next, in at most 15 lines.

The command line prints `str(error)` and exits with `exit_code`; a traceback is for bugs alone.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import ClassVar

LONGEST = 1500
"""Characters of each part of an error: input that is quoted may be of any length."""


class DistrlError(Exception):
    """Something the user can mend."""

    exit_code = 1

    def __init__(self, seen: str, *, expected: str = "", fix: str = "") -> None:
        seen, expected, fix = (text if len(text) <= LONGEST else f"{text[:LONGEST]}…" for text in (seen, expected, fix))
        self.seen, self.expected, self.fix = seen, expected, fix
        lines = [seen, expected and f"expected: {expected}", fix and f"try: {fix}"]
        super().__init__("\n".join(line for line in lines if line))


class UsageError(DistrlError):
    """A wrong flag, name, value or file."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration that does not fit the schema."""


class OutOfMemory(ConfigError):
    """Settings that ask for more memory than a GPU has."""


class TaskError(UsageError):
    """A task, template or suite that is unknown or not well formed."""


class StoreError(UsageError):
    """A run folder, checkpoint or store that cannot be read or written."""


class StoreBusy(StoreError):
    """A store that someone else keeps locked: it does not answer now and may do so later."""


class LossCause(StrEnum):
    """Why a device was lost, as far as that can be told. What is done about it goes by this."""

    CRASH = "crash"
    """Anything that is none of the others."""
    LATE = "late"
    """It missed a deadline: it hangs, or is slow."""
    OFFLINE = "offline"
    """The connection to it broke."""
    GONE = "gone"
    """It is not connected: unplugged, switched off or booting."""
    DAMAGED = "damaged"
    """What it sends is damaged."""
    PERSON = "person"
    """Somebody has to do something with it, such as unlock it."""
    SERVER = "server"
    """What stands between it and us does not answer, such as the adb server: nothing is known against the device."""


class DeviceError(DistrlError):
    """A device that cannot do what it was asked."""

    exit_code = 3
    usual_cause: ClassVar[LossCause] = LossCause.CRASH

    def __init__(self, seen: str, *, expected: str = "", fix: str = "", cause: LossCause | None = None) -> None:
        super().__init__(seen, expected=expected, fix=fix)
        self.cause = cause or self.usual_cause


class DeviceLost(DeviceError):
    """The device crashed, froze or went away; its lease must be returned."""


class CorruptFrame(DeviceError):
    """A screenshot that is no picture."""

    usual_cause = LossCause.DAMAGED


class JudgeError(DistrlError):
    """A judge that gives no verdicts, whatever it is asked."""

    exit_code = 3


class RoleCrashed(DistrlError):
    """A role that died more often than the supervisor may restart it."""

    exit_code = 4
    trace = ""
    """The first traceback that it left in this session: later ones often follow from it. Empty: there is none."""


def nothing_to_check(seen: str) -> TaskError:
    """The refusal of a task whose outcome nobody could judge."""
    return TaskError(
        f"{seen} has nothing to check",
        expected="a condition on the end state, a reward of the device, a model's verdict, or data for a judge of your own",
        fix="give it a SimCheck(wants=...), RewardCheck(), AndroidCheck(...), ModelCheck() or CustomCheck(values={...})",
    )


@contextmanager
def raised_as(refusal: Callable[[BaseException], DistrlError]) -> Iterator[None]:
    """Raise what `refusal` makes of whatever the block raises; a `DistrlError` stays as it is. For code of someone else."""
    try:
        yield
    except DistrlError:
        raise
    except (Exception, SystemExit) as error:  # a plug-in or a probe may raise anything, and its owner has to hear of it
        raise refusal(error) from error


MOST_NAMES = 20
LONGEST_WORD = 200
"""Characters that are compared: the time that it takes grows with their square."""


def closest(word: str, known: Iterable[str]) -> str:
    """A sentence that names what exists, the likeliest first."""
    names, word = sorted(known), word[:LONGEST_WORD]
    likeness = {name: difflib.SequenceMatcher(None, name.lower(), word.lower()).ratio() for name in names}
    near = sorted((name for name in names if likeness[name] >= 0.5), key=lambda name: -likeness[name])[:3]
    rest = [name for name in names if name not in near]
    shown = ", ".join([*near, *rest][:MOST_NAMES])
    more = f", … ({len(names)} in all)" if len(names) > MOST_NAMES else ""
    return f"one of {shown}{more}"

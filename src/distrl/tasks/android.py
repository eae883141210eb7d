"""Judges an attempt by how an Android phone was left: settings, packages, files and what is in the foreground.

The device reads what the task's check asks about at the end of the episode; nothing here talks to a phone. A phone that
did not tell all of that leaves the outcome unknown: what is missing in an answer may have been there on the phone.
"""

from __future__ import annotations

from collections.abc import Iterator

from distrl.errors import TaskError
from distrl.tasks.judges import Attempt
from distrl.types import AndroidCheck, AndroidEnd, Verdict


class AndroidJudge:
    """Success where everything that the check asks for holds, and the agent said that it was done."""

    def __init__(self, settings: object = None) -> None:
        """It has no settings."""

    async def judge(self, attempt: Attempt) -> Verdict:
        """The verdict on a task with an `AndroidCheck`."""
        check, left = attempt.task.check, attempt.end.device
        if not isinstance(check, AndroidCheck):
            raise TaskError(
                f"task {attempt.task.id} has a {type(check).__name__}, and this judge knows AndroidCheck alone",
                fix='judge.kind = "auto", or the judge that goes with this suite',
            )
        if not isinstance(left, AndroidEnd):
            return Verdict(outcome="unknown", reason="the phone did not tell how it was left")
        if untold := list(missing(check, left)):
            return Verdict(outcome="unknown", reason=f"the phone did not tell of {', '.join(untold[:3])}")
        found = list(compare(check, left))
        wrong = [problem for problem in found if problem]
        claimed = attempt.claim is not None and attempt.claim.status == "complete"
        success = not wrong and claimed
        return Verdict(
            outcome="success" if success else "failure",
            reason="" if success else "; ".join(wrong[:3]) or "the agent did not say that it was done",
            progress=1.0 - len(wrong) / len(found),
            false_completion=claimed and bool(wrong),
        )


def missing(check: AndroidCheck, left: AndroidEnd) -> Iterator[str]:
    """What the check asks about and the phone did not tell."""
    yield from (name for name in check.settings if name not in left.settings)
    yield from (f"package {name}" for name in check.packages if name not in left.packages)
    yield from (f"file {path}" for path in check.files if path not in left.files)
    yield from (f"rows of {uri}" for uri in check.rows if uri not in left.rows)
    if check.activity and not left.activity:
        yield "what is in the foreground"


def compare(check: AndroidCheck, left: AndroidEnd) -> Iterator[str]:
    """For each condition what is wrong, given that nothing is missing; empty: it holds."""
    for name, value in check.settings.items():
        seen = left.settings[name]
        yield "" if seen == value else f"{name} is {seen}, asked for {value}"
    for kind, asked, found in (("package", check.packages, left.packages), ("file", check.files, left.files)):
        for name, wanted in asked.items():
            there = found[name]
            yield "" if there == wanted else f"{kind} {name} is {'there' if there else 'not there'}"
    for uri, columns in check.rows.items():
        said = ", ".join(f"{column} = {value}" for column, value in columns.items())
        yield "" if left.rows[uri] else f"{uri} has no row with {said}"
    if check.activity:
        yield "" if _is_activity(left.activity, check.activity) else f"{left.activity} is in the foreground"


def _is_activity(seen: str, wanted: str) -> bool:
    """Whether `seen` (package/activity) is what was asked for: a package alone fits each of its activities."""
    package, _, activity = seen.partition("/")
    wanted_package, _, wanted_activity = wanted.partition("/")
    full = activity if not activity.startswith(".") else package + activity
    wanted_full = wanted_activity if not wanted_activity.startswith(".") else wanted_package + wanted_activity
    return package == wanted_package and (not wanted_activity or full == wanted_full)

"""The judge of web apps: on what changed in an app's own data, never on the path taken."""

from __future__ import annotations

from collections.abc import Iterator

from distrl.errors import TaskError
from distrl.tasks.judges import Attempt
from distrl.types import AppCheck, AppEnd, Change, Value, Verdict, Want

INCIDENTAL = {("messages", "read")}
"""Fields that change by looking: no side effect, unless the task is about them."""
FOLLOWS = {("transactions", "payees"), ("accounts", "payees"), ("transactions", "accounts")}
"""Tables whose second changes by itself with the first, in an app that keeps books."""


class AppJudge:
    """Success where every want came about, nothing else did, and the agent said what was asked."""

    def __init__(self, settings: object = None) -> None:
        """It has no settings."""

    async def judge(self, attempt: Attempt) -> Verdict:
        """The verdict on a task with an `AppCheck`."""
        check, end, claim = attempt.task.check, attempt.end.device, attempt.claim
        if not isinstance(check, AppCheck):
            raise TaskError(
                f"task {attempt.task.id} has a {type(check).__name__}, and the judge of web apps knows AppCheck alone",
                fix='judge.kind = "auto", or the judge that goes with this suite',
            )
        if not isinstance(end, AppEnd):
            return Verdict(outcome="unknown", reason="the phone did not tell how its app was left")
        found = _match(check.wants, end.changes)
        missing = [_shown(want) for index, want in enumerate(check.wants) if index not in found]
        if check.answer and (claim is None or not same(claim.answer, check.answer)):
            missing.append(f"the answer {check.answer!r}, and it was {claim.answer if claim else ''!r}")
        effects = tuple(_side_effects(check.wants, found, end.changes))
        claimed = claim is not None and claim.status == "complete"
        success = claimed and not missing and not effects
        num = len(check.wants) + bool(check.answer)
        return Verdict(
            outcome="success" if success else "failure",
            reason="" if success else _why(missing, effects),
            progress=(num - len(missing)) / num,
            false_completion=claimed and not success,
            side_effects=effects,
        )


def same(left: Value | None, right: Value) -> bool:
    """Equality that overlooks spacing of text."""
    if isinstance(left, str) and isinstance(right, str):
        return " ".join(left.split()) == " ".join(right.split())
    return left == right


def _why(missing: list[str], effects: tuple[str, ...]) -> str:
    if missing:
        return f"missing: {'; '.join(missing)}"[:300]
    if effects:
        return f"changed what nobody asked for: {', '.join(effects[:3])}"[:300]
    return "the goal is reached, and the agent did not say so"


def _match(wants: tuple[Want, ...], changes: tuple[Change, ...]) -> dict[int, Change]:
    """Which change fulfils which want; each of them one alone."""
    found: dict[int, Change] = {}
    for index, want in enumerate(wants):
        for change in changes:
            if change not in found.values() and _fulfils(want, change):
                found[index] = change
                break
    return found


def _fulfils(want: Want, change: Change) -> bool:
    if change.table != want.table or (want.id and change.id != want.id):
        return False
    if want.absent or change.after is None:
        return want.absent and change.after is None
    if not want.id and change.before is not None:
        return False  # something new is asked for
    return all(same(change.after.get(name), value) for name, value in want.fields.items())


def _side_effects(wants: tuple[Want, ...], found: dict[int, Change], changes: tuple[Change, ...]) -> Iterator[str]:
    asked = {(change.table, change.id): wants[index] for index, change in found.items()}
    wanted = {(want.table, name) for want in wants for name in want.fields}
    tables = {want.table for want in wants}
    for change in changes:
        want = asked.get((change.table, change.id))
        if want is None and any((table, change.table) in FOLLOWS for table in tables):
            continue
        if change.before is None or change.after is None:
            if want is None:
                yield f"{change.table}/{change.id} {'was made' if change.before is None else 'is gone'}"
            continue
        changed = {name for name, value in change.after.items() if change.before.get(name) != value}
        for name in sorted(changed - (set(want.fields) if want else set[str]())):
            if (change.table, name) not in INCIDENTAL or (change.table, name) in wanted:
                yield f"{change.table}/{change.id}.{name} changed"


def _shown(want: Want) -> str:
    what = f"{want.table}/{want.id}" if want.id else f"something new in {want.table}"
    if want.absent:
        return f"{what} gone"
    return f"{what} with {', '.join(f'{name} {value!r}' for name, value in want.fields.items())}"

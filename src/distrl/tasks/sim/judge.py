"""Judges on what a device holds, never on the path taken: a function of task, start state and end state.

Because nothing else goes in, an episode can be asked whether it fulfilled some other task.
"""

from __future__ import annotations

from collections.abc import Iterator

from distrl.devices.sim.apps import INCIDENTAL
from distrl.devices.sim.state import PhoneState, Record, Tables, apply
from distrl.types import Change, EndState, Showing, Task, Value, Verdict, Want

Found = dict[int, tuple[str, str]]
"""Which record fulfils which want, by the want's place in the goal."""


def judge(task: Task, start: PhoneState, end: EndState) -> Verdict:
    """What `end` is worth for `task`, given where the device began."""
    tables = apply(start, end.changes).tables
    found = _match(task.goal.wants, tables, end.changes)
    holds = [index in found for index in range(len(task.goal.wants))]
    if task.goal.showing is not None:
        holds.append(_shows(task.goal.showing, end.showing))
    if task.goal.answer:
        holds.append(end.claim is not None and same(end.claim.answer, task.goal.answer))
    effects = tuple(_side_effects(task.goal.wants, found, end.changes))
    claimed = end.claim.status if end.claim else ""
    rightly = "impossible" if task.goal.impossible else "complete"
    reached = all(holds) and not effects
    return Verdict(
        success=reached and claimed == rightly,
        progress=_progress(holds, claimed == rightly),
        false_completion=claimed == "complete" and not (reached and rightly == "complete"),
        side_effects=effects,
    )


def same(left: Value | None, right: Value) -> bool:
    """Equality that overlooks case and spacing of text."""
    if isinstance(left, str) and isinstance(right, str):
        return " ".join(left.casefold().split()) == " ".join(right.casefold().split())
    return left == right


def _progress(holds: list[bool], claimed_rightly: bool) -> float:
    return sum(holds) / len(holds) if holds else float(claimed_rightly)


def _match(wants: tuple[Want, ...], tables: Tables, changes: tuple[Change, ...]) -> Found:
    """Pair each want with a record of its own."""
    found: Found = {}
    for index, want in enumerate(wants):
        for id in _candidates(want, changes):
            record = tables.get(want.table, {}).get(id)
            if (want.table, id) not in found.values() and _fulfils(want, record):
                found[index] = (want.table, id)
                break
    return found


def _candidates(want: Want, changes: tuple[Change, ...]) -> list[str]:
    return [want.id] if want.id else [change.id for change in changes if change.table == want.table]


def _fulfils(want: Want, record: Record | None) -> bool:
    if want.absent or record is None:
        return want.absent and record is None
    return all(same(record.get(name), value) for name, value in want.fields.items())


def _side_effects(wants: tuple[Want, ...], found: Found, changes: tuple[Change, ...]) -> Iterator[str]:
    asked = {place: wants[index] for index, place in found.items()}
    open_wants = {(want.table, want.id) for want in wants if want.id}
    for change in changes:
        if change.table in INCIDENTAL:
            continue
        want = asked.get((change.table, change.id))
        if want is None:
            if (change.table, change.id) not in open_wants:
                yield f"{change.table}/{change.id} {_verb(change)}"
        elif change.before is not None and change.after is not None:
            changed = {name for name, value in change.after.items() if change.before.get(name) != value}
            for name in sorted(changed - want.fields.keys()):
                yield f"{change.table}/{change.id}.{name} changed"


def _verb(change: Change) -> str:
    return "was made" if change.before is None else "is gone" if change.after is None else "changed"


def _shows(wanted: Showing, shown: Showing | None) -> bool:
    if shown is None or shown.app != wanted.app or (wanted.screen and shown.screen != wanted.screen):
        return False
    return all(same(shown.args.get(name), value) for name, value in wanted.args.items())

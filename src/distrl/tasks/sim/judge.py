"""Judges on what a device holds, never on the path taken: a function of task, start state and end state.

Because nothing else goes in, an episode can be asked whether it fulfilled some other task. A phone that did not tell how it
was left leaves the outcome unknown: that is neither a failure nor, where nothing was to be changed, a success.
"""

from __future__ import annotations

from collections.abc import Iterator

from distrl.devices.sim.apps import INCIDENTAL
from distrl.devices.sim.state import PhoneState, Record, Tables, apply
from distrl.devices.sim.world import start_state
from distrl.errors import TaskError
from distrl.tasks.judges import Attempt
from distrl.types import Change, EndState, Showing, SimCheck, SimEnd, Task, Value, Verdict, Want


class SimJudge:
    """The judge of simulated phones: exact, and at once."""

    def __init__(self, settings: object = None) -> None:
        """It has no settings."""

    async def judge(self, attempt: Attempt) -> Verdict:
        """The verdict on how the phone was left; where it began follows from the task."""
        return judge(attempt.task, start_state(attempt.task), attempt.end)


NAMES = ("name", "title", "subject", "who", "product", "song", "photo", "to")
"""Fields that say of a record what it is, the best first."""

Found = dict[int, tuple[str, str]]
"""Which record fulfils which want, by the want's place in the goal."""


def judge(task: Task, start: PhoneState, end: EndState) -> Verdict:
    """What `end` is worth for `task`, given where the phone began; unknown where the phone did not tell its end."""
    check, left = check_of(task), end_of(end)
    if not isinstance(end.device, SimEnd):
        return Verdict(outcome="unknown", reason="the phone did not tell how it was left")
    tables = apply(start, left.changes).tables
    found = _match(check.wants, tables, left.changes)
    holds = [index in found for index in range(len(check.wants))]
    if check.showing is not None:
        holds.append(_shows(check.showing, left.showing))
    if check.answer:
        holds.append(end.claim is not None and same(end.claim.answer, check.answer))
    effects = tuple(_side_effects(check.wants, found, left.changes))
    claimed = end.claim.status if end.claim else ""
    rightly = _rightly(check)
    reached = all(holds) and not effects
    success = reached and claimed == rightly
    return Verdict(
        outcome="success" if success else "failure",
        reason="" if success else _why(check, holds, effects, end, start.tables),
        progress=_progress(holds, claimed == rightly),
        false_completion=claimed == "complete" and not (reached and rightly == "complete"),
        side_effects=effects,
    )


def check_of(task: Task) -> SimCheck:
    """What a task for simulated phones asks for; `TaskError` for a task that another judge has to see."""
    if not isinstance(task.check, SimCheck):
        raise TaskError(
            f"task {task.id} has a {type(task.check).__name__}, which the judge of simulated phones does not know",
            expected="a SimCheck",
            fix='judge.kind = "auto", or the judge that goes with this suite',
        )
    return task.check


def end_of(end: EndState) -> SimEnd:
    """How a simulated phone was left; untouched where it did not tell."""
    return end.device if isinstance(end.device, SimEnd) else SimEnd()


def _why(check: SimCheck, holds: list[bool], effects: tuple[str, ...], end: EndState, before: Tables) -> str:
    """Why an episode failed, in a few words."""
    if effects:
        return f"changed what nobody asked for: {', '.join(effects[:3])}"
    if not all(holds):
        first = _missing(check, holds.index(False), end, before)
        return first if len(holds) == 1 else f"{holds.count(False)} of {len(holds)} conditions do not hold: {first}"
    claimed = end.claim.status if end.claim else "nothing"
    return f"all conditions hold, but the agent should have claimed {_rightly(check)!r} and claimed {claimed}"


def _rightly(check: SimCheck) -> str:
    """What an agent should claim once all is as it should be."""
    return "impossible" if check.impossible else "complete"


def _missing(check: SimCheck, number: int, end: EndState, before: Tables) -> str:
    """The condition of this number, which does not hold, in words; names and values are in quotes."""
    if number < len(check.wants):
        return _wanted(check.wants[number], before)
    if check.showing is not None and number == len(check.wants):
        screen = f"the screen '{check.showing.screen}' of " if check.showing.screen else ""
        return f"{screen}{check.showing.app} should be shown"
    given = f"is '{end.claim.answer}'" if end.claim and end.claim.answer else "there is none"
    return f"the answer should be '{check.answer}' and {given}"


def _wanted(want: Want, before: Tables) -> str:
    fields = ", ".join(f"{name} '{value}'" for name, value in want.fields.items())
    if not want.id:
        return f"there should be a {want.table} with {fields}"
    name = _name(want.id, before.get(want.table, {}).get(want.id))
    return f"{want.table} '{want.id}'{name} should {'be gone' if want.absent else f'have {fields}'}"


def _name(id: str, record: Record | None) -> str:
    """What a person calls a record, after its id; empty: it has no name, or it is its id."""
    found = next((value for key in NAMES if (value := (record or {}).get(key)) and value != id), "")
    return f" ('{found}')" if found else ""


def same(left: Value | None, right: Value) -> bool:
    """Equality that overlooks case and spacing of text."""
    if isinstance(left, str) and isinstance(right, str):
        return plain(left) == plain(right)
    return left == right


def plain(text: str) -> str:
    """A text without what `same` overlooks."""
    return " ".join(text.casefold().split())


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
                yield f"{_place(change)} {_verb(change)}"
        elif change.before is not None and change.after is not None:
            changed = {name for name, value in change.after.items() if change.before.get(name) != value}
            for name in sorted(changed - want.fields.keys()):
                yield f"{_place(change, f'.{name}')} changed"


def _place(change: Change, field: str = "") -> str:
    return f"{change.table}/{change.id}{field}{_name(change.id, change.before or change.after)}"


def _verb(change: Change) -> str:
    return "was made" if change.before is None else "is gone" if change.after is None else "changed"


def _shows(wanted: Showing, shown: Showing | None) -> bool:
    if shown is None or shown.app != wanted.app or (wanted.screen and shown.screen != wanted.screen):
        return False
    return all(same(shown.args.get(name), value) for name, value in wanted.args.items())

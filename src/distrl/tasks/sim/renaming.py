"""The same task on a phone where everyone and everything has another name: see `devices.sim.names`.

Instruction, goal, set-up and route are renamed here, and the task carries the number that renames its phone. A text that
belongs to another split is never made: only training tasks are renamed, and only into training texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from distrl.devices.sim.names import DAY, KEYED, NAMED, is_name, rename_record
from distrl.devices.sim.world import other_names, phone_names, setup_of
from distrl.errors import TaskError
from distrl.tasks.base import split_of
from distrl.tasks.sim.judge import check_of
from distrl.tasks.sim.oracle import play_oracle, route_of
from distrl.types import Move, Put, Showing, SimCheck, SimRoute, Task, Want

CITY_ROW = "city:"
"""Begins the id of a city in the world clock; where a route goes there, the answer is its local time."""
TRIES = 4
"""Numbers that are drawn for a task before it keeps its names."""


def rename(task: Task, number: int) -> Task:
    """`task` with the names of `number` (1 or more); what is no name stays as it is."""
    held_out = task.split == "test"
    setup = setup_of(task)
    own, other = (phone_names(setup.phone, held_out=held_out), other_names(setup.phone, number, held_out=held_out))
    added = sorted({name for put in setup.records for name in _names_of(put)} - other.names.keys())
    others = {text: text for text in own.others} | other.names | {name: other.of(name) for name in added}
    others |= other.numbers
    if _is_about_alarms(task):  # elsewhere, the same time is that of something else
        others |= other.times
    check, route = check_of(task), route_of(task)
    if any(move.target.startswith(CITY_ROW) for move in route) and ":" in check.answer:
        others |= {check.answer: _later(check.answer, other.later_min)}
    return replace(
        task,
        id=f"{task.id}+{number}",
        instruction=rename_text(task.instruction, others),
        setup=replace(
            setup,
            names=number,
            records=tuple(_put(put, others) for put in setup.records),
            start=None if setup.start is None else _showing(setup.start, others),
        ),
        check=_check(check, others),
        solution=SimRoute(moves=tuple(_move(move, others) for move in route)),
    )


def under_other_names(task: Task, draw: Callable[[], int]) -> Task:
    """`task` with the names of a number that `draw` gives; as it is where a few numbers make no training text."""
    renamed = (rename(task, draw()) for _ in range(TRIES if task.split == "train" else 0))
    return next((other for other in renamed if split_of(other.instruction) == "train"), task)


def playable_under_other_names(task: Task, draw: Callable[[], int]) -> Task:
    """The same, and the oracle fulfils it: for suites whose templates hide names where nobody looks for them."""
    for _ in range(TRIES):
        other = under_other_names(task, draw)
        if other is task or _can_be_done(other):
            return other
    return task


def _can_be_done(task: Task) -> bool:
    try:
        return play_oracle(task).verdict.success
    except TaskError:
        return False


def rename_text(text: str, others: Mapping[str, str]) -> str:
    """Every name in a text replaced; of names within names, and within texts that stay, the longest."""
    found = sorted((name for name in others if name in text), key=len, reverse=True)
    if not found:
        return text
    whole = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, found))})(?!\w)")
    return whole.sub(lambda match: others[match[0]], text)


def _later(time: str, minutes: int) -> str:
    """A time of day, such as 07:05, so much later."""
    hour, minute = map(int, time.split(":"))
    then = (60 * hour + minute + minutes) % DAY
    return f"{then // 60:02d}:{then % 60:02d}"


def _is_about_alarms(task: Task) -> bool:
    apps = {move.target for move in route_of(task) if move.verb == "open"}
    start = setup_of(task).start
    return "clock" in apps or (start is not None and start.app == "clock")


def _names_of(put: Put) -> set[str]:
    """The names that one entry of a set-up brings along."""
    fields = put.fields or {}
    found = {str(fields[name]) for name in NAMED.get(put.table, ()) if name in fields}
    return {name for name in (found | {put.id} if put.table == KEYED else found) if is_name(name)}


def _check(check: SimCheck, others: Mapping[str, str]) -> SimCheck:
    return replace(
        check,
        wants=tuple(_want(want, others) for want in check.wants),
        showing=None if check.showing is None else _showing(check.showing, others),
        answer=rename_text(check.answer, others),
    )


def _want(want: Want, others: Mapping[str, str]) -> Want:
    return replace(want, id=others.get(want.id, want.id), fields=rename_record(want.fields, others))


def _showing(showing: Showing, others: Mapping[str, str]) -> Showing:
    return replace(showing, args={key: others.get(value, value) for key, value in showing.args.items()})


def _put(put: Put, others: Mapping[str, str]) -> Put:
    fields = None if put.fields is None else rename_record(put.fields, others)
    return replace(put, id=others.get(put.id, put.id), fields=fields)


def _move(move: Move, others: Mapping[str, str]) -> Move:
    kind, colon, name = move.target.partition(":")
    return replace(move, target=f"{kind}{colon}{others.get(name, name)}", text=rename_text(move.text, others))

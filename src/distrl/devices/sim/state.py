"""The whole state of a simulated phone as one immutable record.

Content lives in tables of records (`"notes.note" → "n3" → {"title": …}`); everything else is what the screen shows.
Nothing is changed in place, so a snapshot is a reference, a clone is free, and a diff skips whatever two states
share. Tables, records and places are plain dicts for speed: treat them as frozen and use `put` and `drop`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from distrl.types import Change, Finish, Showing, SimEnd, Value

Record = dict[str, Value]
Table = dict[str, Record]
Tables = dict[str, Table]


class Perturbations(msgspec.Struct, frozen=True, kw_only=True):
    """Domain randomisation of one phone, drawn from its seed at reset."""

    popup_rate: float = 0.0
    """Chance that opening a screen brings up something that nobody asked for."""
    slow_rate: float = 0.0
    """Chance that a screen needs a few moments to load."""
    variant: int = 0
    """Which of an app's layouts and wordings this phone has."""
    update_app: str = ""
    """The app that is updated while it is in use; empty: none."""
    update_tick: int = 0


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the back stack."""

    app: str
    screen: str
    args: dict[str, str] = {}
    scroll: float = 0.0
    drafts: dict[str, str] = {}
    """Text typed into this screen's fields and not saved yet."""


class PhoneState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one phone at one moment."""

    seed: int
    tables: Tables
    stack: tuple[Place, ...]
    perturbations: Perturbations = Perturbations()
    tick: int = 0
    focus: str = ""
    """The field that the keyboard types into; empty: no keyboard."""
    loading: int = 0
    """Moments until the screen has loaded."""
    claim: Finish | None = None

    @property
    def place(self) -> Place:
        """The screen that is shown."""
        return self.stack[-1]

    def roll(self, *what: object) -> float:
        """A number in [0, 1) that depends on the seed, the moment and `what` alone."""
        digest = blake2b(repr((self.seed, self.tick, what)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") / 2**64


def put(state: PhoneState, table: str, id: str, **fields: Value) -> PhoneState:
    """`state` with these fields written to a record, which is made where it does not exist."""
    rows = state.tables.get(table, {})
    return _with_table(state, table, {**rows, id: {**rows.get(id, {}), **fields}})


def drop(state: PhoneState, table: str, id: str) -> PhoneState:
    """`state` without that record."""
    rows = dict(state.tables.get(table, {}))
    rows.pop(id, None)
    return _with_table(state, table, rows)


def _with_table(state: PhoneState, table: str, rows: Table) -> PhoneState:
    return replace(state, tables={**state.tables, table: rows})


def diff(before: PhoneState, after: PhoneState) -> tuple[Change, ...]:
    """Every record that differs between two states, in the order of the tables: the same in every process."""
    return tuple(_changes(before.tables, after.tables))


def _changes(before: Tables, after: Tables) -> Iterator[Change]:
    for table in {**before, **after}:
        old, new = before.get(table, {}), after.get(table, {})
        if old is new:
            continue
        for id in {**old, **new}:
            was, now = old.get(id), new.get(id)
            if was is not now and was != now:
                yield Change(table=table, id=id, before=was, after=now)


def apply(state: PhoneState, changes: tuple[Change, ...]) -> PhoneState:
    """`state` after `changes`: the inverse of `diff`."""
    for change in changes:
        state = drop(state, change.table, change.id)
        if change.after is not None:
            state = put(state, change.table, change.id, **change.after)
    return state


def end_state(start: PhoneState, now: PhoneState) -> SimEnd:
    """How `now` stands compared with `start`, as a judge wants it."""
    place = now.place
    return SimEnd(changes=diff(start, now), showing=Showing(app=place.app, screen=place.screen, args=place.args))


class Contents:
    """Numbers the contents that a phone has had since the start of a task, equal ones alike."""

    def __init__(self, apart_from: frozenset[str]) -> None:
        self._apart_from = apart_from
        """Tables that change by mere use."""
        self._seen: list[Tables] = []
        self._last = 0

    def number(self, state: PhoneState) -> int:
        """The number of this content; a new one where it is new."""
        tables = state.tables
        if not self._seen or tables is not self._seen[self._last]:
            self._last = next((n for n, seen in enumerate(self._seen) if self._same(seen, tables)), len(self._seen))
            self._seen[self._last : self._last + 1] = [tables]
        return self._last

    def _same(self, one: Tables, other: Tables) -> bool:
        names = (one.keys() | other.keys()) - self._apart_from
        return all(one.get(name, {}) == other.get(name, {}) for name in names)


def next_id(rows: Mapping[str, Record], prefix: str) -> str:
    """An id that no record of the table has."""
    number = len(rows) + 1
    while f"{prefix}{number}" in rows:
        number += 1
    return f"{prefix}{number}"

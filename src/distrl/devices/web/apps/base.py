"""What an app has to be able to do: begin with certain records, and tell which it holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from distrl.devices.web.tab import Tab
from distrl.types import Change, Put, Value

Record = dict[str, Value]
Tables = dict[str, dict[str, Record]]
"""Records by table and id; an empty table and a missing one are the same."""


class App(Protocol):
    """One app of one phone."""

    name: str
    size: tuple[int, int]
    """CSS pixels that its pages need; 0: as `devices.web` says."""

    @property
    def allowed(self) -> str:
        """The origin that its pages come from; empty: it does not run."""

    @property
    def alive(self) -> bool:
        """Whether it runs."""

    async def serve(self) -> None:
        """Start what it needs; `DeviceLost` where that does not come up."""

    async def begin(self, tab: Tab, records: Tables) -> None:
        """Make these its content, and show its first screen."""

    async def home(self, tab: Tab) -> None:
        """Show its first screen, in the middle of a task."""

    async def rebuild(self, tab: Tab) -> None:
        """Throw away all that it holds, in the phone's browser too, because `begin` did not come out right."""

    async def read(self, tab: Tab) -> Tables:
        """Its content, once it has saved what it was given."""

    async def close(self) -> None:
        """End what it started."""


def tables_of(records: Iterable[Put]) -> Tables:
    """Records that a task begins with, by table and id."""
    found: Tables = {}
    for put in records:
        if put.fields is not None:
            found.setdefault(put.table, {})[put.id] = dict(put.fields)
    return found


def changes_between(before: Tables, after: Tables) -> tuple[Change, ...]:
    """Every record that differs, in order of table and id."""
    places = {(table, id) for tables in (before, after) for table, records in tables.items() for id in records}
    found = []
    for table, id in sorted(places):
        old, new = before.get(table, {}).get(id), after.get(table, {}).get(id)
        if old != new:
            found.append(Change(table=table, id=id, before=old, after=new))
    return tuple(found)

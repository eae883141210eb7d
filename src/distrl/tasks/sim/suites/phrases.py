"""What several modules of templates say alike: a time as people say it, and something that a phone does not have."""

from __future__ import annotations

from collections.abc import Iterable

from distrl.tasks.sim.templates import Draft, NoInstance
from distrl.types import Value


def unused(t: Draft, pool: Iterable[str], taken: Iterable[Value]) -> str:
    """An entry of `pool` that is new to this phone."""
    entry = t.choose(pool)
    if entry in set(taken):
        raise NoInstance(f"this phone has {entry!r} already")
    return entry


def column(t: Draft, table: str, field: str) -> list[Value]:
    """What the phone's records hold in one field."""
    return [record[field] for record in t.tables[table].values()]


def spoken_time(t: Draft, time: str) -> str:
    """A time such as 14:30, also the way that people with a twelve-hour clock say it."""
    hour, minute = int(time[:2]), time[3:]
    twelve, half = (hour - 1) % 12 + 1, "am" if hour < 12 else "pm"
    return t.one_of(time, time, f"{twelve}:{minute} {half}")

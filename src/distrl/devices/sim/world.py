"""The first state of a phone: content from every app, the task's set-up, and the phone's moods."""

from __future__ import annotations

from functools import lru_cache
from zlib import crc32

import msgspec

from distrl.config.schema import WildConfig
from distrl.devices.sim.app import Seeder
from distrl.devices.sim.apps import APPS, SCREENS
from distrl.devices.sim.names import OtherNames, names_in, rename_table, texts_in, texts_of, words_of
from distrl.devices.sim.state import PhoneState, Place, Tables, drop, put
from distrl.devices.sim.wild import draw_wild
from distrl.errors import TaskError, closest
from distrl.types import Task

HOME = Place(app="launcher", screen="home")
TAME = WildConfig(popup_rate=0.0, slow_rate=0.0, update_rate=0.0, variants=False)


@lru_cache(maxsize=1024)
def content(phone: int, *, held_out: bool) -> Tables:
    """What the apps of a phone hold; held-out names appear on phones of the test split alone."""
    tables: Tables = {}
    for name, app in APPS.items():
        tables |= app.seed(Seeder(_mix(phone, name), held_out=held_out))
    return tables


class PhoneNames(msgspec.Struct, frozen=True, kw_only=True):
    """The names that the apps of a phone hold."""

    names: tuple[str, ...]
    words: tuple[str, ...]
    """Of all names, in a fixed order."""
    others: tuple[str, ...]
    """All texts that are no names: "Train" in "Train window" is none either."""
    tables: tuple[str, ...]
    """The tables that hold names."""


@lru_cache(maxsize=1024)
def phone_names(phone: int, *, held_out: bool) -> PhoneNames:
    """What a phone's own names are."""
    tables = content(phone, held_out=held_out)
    names = names_in(tables)
    return PhoneNames(
        names=tuple(sorted(names)),
        words=words_of(names),
        others=tuple(sorted(texts_in(tables) - names)),
        tables=tuple(name for name, table in tables.items() if texts_of(table) & names),
    )


@lru_cache(maxsize=256)
def renamed_content(phone: int, number: int, *, held_out: bool) -> Tables:
    """What the apps of a phone hold, with all names replaced by those of a number; few are kept, most come once."""
    own, tables = phone_names(phone, held_out=held_out), content(phone, held_out=held_out)
    other = OtherNames(number, own.words)
    others = {name: other.of(name) for name in own.names}
    return {**tables, **{name: rename_table(tables[name], others) for name in own.tables}}


def start_state(task: Task, wild: WildConfig = TAME) -> PhoneState:
    """The phone at the start of `task`."""
    held_out = task.split == "test"
    tables = (
        renamed_content(task.phone, task.names, held_out=held_out)
        if task.names
        else content(task.phone, held_out=held_out)
    )
    state = PhoneState(seed=task.seed, tables=tables, stack=(HOME,), wild=draw_wild(wild, task.seed, APPS))
    for item in task.setup:
        state = (
            drop(state, item.table, item.id) if item.fields is None else put(state, item.table, item.id, **item.fields)
        )
    if task.start is None:
        return state
    if (task.start.app, task.start.screen) not in SCREENS:
        raise TaskError(
            f"task {task.id} starts on an unknown screen {task.start.app}/{task.start.screen}",
            expected=closest(task.start.screen, (screen for app, screen in SCREENS if app == task.start.app)),
        )
    place = Place(app=task.start.app, screen=task.start.screen, args=task.start.args)
    return PhoneState(seed=state.seed, tables=state.tables, stack=(HOME, place), wild=state.wild)


def _mix(phone: int, name: str) -> int:
    return phone * 1_000_003 + crc32(name.encode())

"""The first state of a phone: content from every app, the task's set-up, and the phone's moods."""

from __future__ import annotations

from functools import lru_cache
from zlib import crc32

from distrl.config.schema import WildConfig
from distrl.devices.sim.app import Seeder
from distrl.devices.sim.apps import APPS, SCREENS
from distrl.devices.sim.names import OtherNames, PhoneNames, rename_tables, words_of
from distrl.devices.sim.state import PhoneState, Place, Tables, drop, put
from distrl.devices.sim.wild import draw_wild
from distrl.errors import TaskError, closest
from distrl.types import Task

HOME = Place(app="launcher", screen="home")
TYPICAL_PHONES = 60
"""Of the training phones: together they hold nearly all names that training has."""
TAME = WildConfig(popup_rate=0.0, slow_rate=0.0, update_rate=0.0, variants=False)


@lru_cache(maxsize=1024)
def content(phone: int, *, held_out: bool) -> Tables:
    """What the apps of a phone hold; held-out names appear on phones of the test split alone."""
    tables: Tables = {}
    for name, app in APPS.items():
        tables |= app.seed(Seeder(_mix(phone, name), held_out=held_out))
    return tables


@lru_cache(maxsize=1024)
def phone_names(phone: int, *, held_out: bool) -> PhoneNames:
    """What a phone's own names are."""
    return PhoneNames.of(content(phone, held_out=held_out))


@lru_cache(maxsize=1)
def training_words() -> tuple[str, ...]:
    """The words that the names of training phones are made of."""
    return words_of(name for phone in range(TYPICAL_PHONES) for name in phone_names(phone, held_out=False).names)


def other_names(phone: int, number: int, *, held_out: bool) -> OtherNames:
    """What stands for the names of a phone under this number."""
    return OtherNames(number, phone_names(phone, held_out=held_out), training_words())


@lru_cache(maxsize=256)
def renamed_content(phone: int, number: int, *, held_out: bool) -> Tables:
    """What the apps of a phone hold under the names of a number; few are kept, most come once."""
    own, other = phone_names(phone, held_out=held_out), other_names(phone, number, held_out=held_out)
    return rename_tables(content(phone, held_out=held_out), own, other)


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

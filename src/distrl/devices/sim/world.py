"""The first state of a phone: content from every app, the task's set-up, and the phone's perturbations."""

from __future__ import annotations

from functools import lru_cache
from zlib import crc32

from distrl.config.schema import NO_PERTURBATIONS, PerturbationConfig
from distrl.devices.sim.app import Seeder
from distrl.devices.sim.apps import APPS, SCREENS
from distrl.devices.sim.names import OtherNames, PhoneNames, rename_tables, words_of
from distrl.devices.sim.perturbations import draw_perturbations
from distrl.devices.sim.state import PhoneState, Place, Tables, drop, put
from distrl.errors import TaskError, closest
from distrl.types import SimSetup, Task

HOME = Place(app="launcher", screen="home")
TYPICAL_PHONES = 60
"""Of the training phones: together they hold nearly all names that training has."""


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


def setup_of(task: Task) -> SimSetup:
    """The set-up of a task for simulated phones; `TaskError` for one that other devices play."""
    if not isinstance(task.setup, SimSetup):
        raise TaskError(
            f"task {task.id} is set up by {type(task.setup).__name__}, which a simulated phone does not know",
            expected="a task of a sim- suite",
            fix="choose devices.kind for the devices of this suite (in Python: make_env(config=...)), or another tasks.suite",
        )
    return task.setup


def start_state(task: Task, perturbations: PerturbationConfig = NO_PERTURBATIONS) -> PhoneState:
    """The phone at the start of `task`."""
    setup, held_out = setup_of(task), task.split == "test"
    tables = (
        renamed_content(setup.phone, setup.names, held_out=held_out)
        if setup.names
        else content(setup.phone, held_out=held_out)
    )
    state = PhoneState(
        seed=setup.seed, tables=tables, stack=(HOME,), perturbations=draw_perturbations(perturbations, setup.seed, APPS)
    )
    for item in setup.records:
        state = (
            drop(state, item.table, item.id) if item.fields is None else put(state, item.table, item.id, **item.fields)
        )
    start = setup.start
    if start is None:
        return state
    if (start.app, start.screen) not in SCREENS:
        raise TaskError(
            f"task {task.id} starts on an unknown screen {start.app}/{start.screen}",
            expected=closest(start.screen, (screen for app, screen in SCREENS if app == start.app)),
        )
    place = Place(app=start.app, screen=start.screen, args=start.args)
    return PhoneState(seed=state.seed, tables=state.tables, stack=(HOME, place), perturbations=state.perturbations)


def _mix(phone: int, name: str) -> int:
    return phone * 1_000_003 + crc32(name.encode())

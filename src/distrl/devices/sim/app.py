"""How an app is declared: its first content, its screens, and the effects that its widgets have.

An app is a module with one `App` and one function per screen. A screen function reads through `Ui` and returns a
`View`; it never changes anything. See `apps/settings.py` for the shortest complete example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from msgspec.structs import replace

from distrl.devices.sim.state import PhoneState, Place, Record, Table, Tables, drop, put
from distrl.devices.sim.widgets import Effect, View, Widget
from distrl.types import Value

ScreenFn = Callable[["Ui"], View]
SeedFn = Callable[["Seeder"], Tables]


class Seeder:
    """What an app draws its first content from. Held-out names appear only where `held_out` is set."""

    def __init__(self, seed: int, *, held_out: bool) -> None:
        self.random = Random(seed)
        self.held_out = held_out

    def sample(self, pool: Iterable[str], count: int) -> list[str]:
        """Distinct entries of a pool; the last fifth of every pool is kept for test tasks."""
        names = list(pool)
        open_names = names if self.held_out else names[: len(names) - len(names) // 5]
        return self.random.sample(open_names, min(count, len(open_names)))

    def choose(self, pool: Iterable[str]) -> str:
        """One entry of a pool, as `sample` draws them."""
        return self.sample(pool, 1)[0]


class App:
    """A declaration: `App("notes", "Notes", icon="note", colour="#f5b400")` plus its decorated functions."""

    def __init__(self, name: str, title: str, *, icon: str, colour: str, permission: str = "") -> None:
        self.name, self.title, self.icon, self.colour = name, title, icon, colour
        self.permission = permission
        """What the app asks to be allowed when it is first opened; empty: nothing."""
        self.screens: dict[str, ScreenFn] = {}
        self.incidental: set[str] = set()
        """Tables that change by mere use (history, read marks): never a side effect."""
        self.seed: SeedFn = lambda seeder: {}

    def screen(self, name: str) -> Callable[[ScreenFn], ScreenFn]:
        """Declare a screen; the one called "home" is where the app opens."""

        def declare(function: ScreenFn) -> ScreenFn:
            self.screens[name] = function
            return function

        return declare

    def content(self, function: SeedFn) -> SeedFn:
        """Declare what the app's tables hold on a new phone."""
        self.seed = function
        return function


class Ui:
    """A screen function's view of the phone."""

    def __init__(self, state: PhoneState, place: Place) -> None:
        self.state, self.place, self.args = state, place, place.args

    def table(self, name: str) -> Table:
        """All records of a table, by id."""
        return self.state.tables.get(name, {})

    def record(self, table: str, id: str) -> Record:
        """One record; empty where there is none."""
        return self.state.tables.get(table, {}).get(id, {})

    def draft(self, field: str, default: str = "") -> str:
        """What stands in a field of this screen."""
        return self.place.drafts.get(field, default)

    def version(self) -> int:
        """0, or 1 once this app was updated in the middle of the run."""
        drawn = self.state.perturbations
        return int(drawn.update_app == self.place.app and self.state.tick >= drawn.update_tick)

    def pick(self, *wordings: str) -> str:
        """The wording that this phone and this version of the app use."""
        return wordings[(self.state.perturbations.variant + self.version()) % len(wordings)]

    def arrange(self, widgets: Iterable[Widget]) -> tuple[Widget, ...]:
        """The widgets in the order that this phone's layout has them."""
        ordered = tuple(widgets)
        turn = (self.state.perturbations.variant + self.version()) % 2
        return ordered[::-1] if turn else ordered

    def field(self, id: str, hint: str, default: str = "", *, submit: Effect | None = None) -> Widget:
        """A text field; what is typed is found again by `draft(id)`."""
        return Widget(kind="field", id=id, text=self.draft(id, default), detail=hint, submit=submit, tap=focus(id))


# --- effects --------------------------------------------------------------------------------------------------------


def do(*effects: Effect) -> Effect:
    """One effect after another."""

    def run(state: PhoneState) -> PhoneState:
        for effect in effects:
            state = effect(state)
        return state

    return run


def go(app: str, screen: str = "home", **args: str) -> Effect:
    """Open a screen on top of this one."""
    return lambda state: push(state, Place(app=app, screen=screen, args=args))


def swap(app: str, screen: str = "home", **args: str) -> Effect:
    """Open a screen in place of this one."""
    return lambda state: push(pop(state), Place(app=app, screen=screen, args=args))


def back(count: int = 1) -> Effect:
    """Leave this screen, and `count - 1` more."""

    def run(state: PhoneState) -> PhoneState:
        for _ in range(count):
            state = pop(state)
        return state

    return run


def focus(field: str) -> Effect:
    """Open the keyboard on a field."""
    return lambda state: replace(state, focus=field)


def write(table: str, id: str, **fields: Value) -> Effect:
    """Write fields of a record."""
    return lambda state: put(state, table, id, **fields)


def erase(table: str, id: str) -> Effect:
    """Remove a record."""
    return lambda state: drop(state, table, id)


def flip(table: str, id: str, field: str) -> Effect:
    """Turn a yes/no field round."""
    return lambda state: put(state, table, id, **{field: not state.tables[table][id][field]})


def push(state: PhoneState, place: Place) -> PhoneState:
    """The phone one screen further; the keyboard goes away."""
    return replace(state, stack=(*state.stack, place), focus="")


def pop(state: PhoneState) -> PhoneState:
    """The phone one screen back; the home screen stays."""
    return replace(state, stack=state.stack[:-1], focus="") if len(state.stack) > 1 else state

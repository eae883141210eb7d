"""Simulated phones and their tasks, built by hand: a finger that touches widgets by id, and what a judge makes of an end.

Fields of `Task`, `SimCheck` and `EndState` are written and read here alone, so that tests speak of phones and not of records.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache

from msgspec.structs import replace

from distrl.config.schema import NO_PERTURBATIONS, PerturbationConfig
from distrl.devices.sim.apps import APPS, INCIDENTAL
from distrl.devices.sim.layout import Placed, Screen, elements_of
from distrl.devices.sim.phone import Outcome, perform, show
from distrl.devices.sim.state import PhoneState, Record, Table, diff, end_state, put
from distrl.devices.sim.widgets import View, Widget
from distrl.devices.sim.world import setup_of as sim_setup
from distrl.devices.sim.world import start_state
from distrl.tasks.base import SPLITS
from distrl.tasks.base import tasks_of as all_tasks_of
from distrl.tasks.sim.judge import check_of, end_of, judge
from distrl.tasks.sim.oracle import route_of
from distrl.tasks.sim.suites import GENERAL, SHOPPING
from distrl.tasks.sim.templates import Draft, SimSuite, Template
from distrl.types import (
    Action,
    Change,
    EndState,
    Finish,
    LongPress,
    Move,
    Press,
    Put,
    Showing,
    SimCheck,
    SimRoute,
    SimSetup,
    Split,
    Swipe,
    Tap,
    Task,
    Trajectory,
    TypeText,
    UiElement,
    Value,
    Verdict,
    Want,
)

PERTURBED = PerturbationConfig(popup_rate=0.3, slow_rate=0.3, update_rate=0.5)
SCROLL_DOWN, SCROLL_UP = Swipe(0.5, 0.6, 0.5, 0.25), Swipe(0.5, 0.3, 0.5, 0.65)
TURN_PAGE, TURN_BACK = Swipe(0.8, 0.45, 0.2, 0.45), Swipe(0.2, 0.45, 0.8, 0.45)
TEMPLATES: dict[str, Template] = {template.name: template for template in (*GENERAL, *SHOPPING)}
"""Every template of every suite."""


# --- tasks ----------------------------------------------------------------------------------------------------------


def sim_task(
    app: str = "", screen: str = "home", *, phone: int = 7, seed: int = 7, split: Split = "train", **args: str
) -> Task:
    """A task that asks for nothing: a phone of these seeds, on the home screen or on a screen of an app."""
    return Task(
        id=f"by-hand/{split}/00000",
        suite="by-hand",
        template="by-hand",
        split=split,
        instruction="Do as you like",
        setup=SimSetup(phone=phone, seed=seed, start=Showing(app=app, screen=screen, args=args) if app else None),
        check=SimCheck(impossible=True),
    )


def wanting(
    task: Task, *wants: Want, showing: Showing | None = None, answer: str = "", impossible: bool = False
) -> Task:
    """`task` with another end to reach."""
    return replace(task, check=SimCheck(wants=wants, showing=showing, answer=answer, impossible=impossible))


def _with_put(task: Task, put: Put) -> Task:
    setup = sim_setup(task)
    return replace(task, setup=replace(setup, records=(*setup.records, put)))


def with_record(task: Task, table: str, id: str, **fields: Value) -> Task:
    """`task` on a phone that holds this record."""
    return _with_put(task, Put(table=table, id=id, fields=fields))


def without_record(task: Task, table: str, id: str) -> Task:
    """`task` on a phone that does not hold this record."""
    return _with_put(task, Put(table=table, id=id))


def named_otherwise(task: Task, number: int) -> Task:
    """`task` on its phone with the names of a number; the instruction stays."""
    return replace(task, setup=replace(sim_setup(task), names=number))


def starting(task: Task, start: Showing | None) -> Task:
    """`task` from another screen; None: from the home screen."""
    return replace(task, setup=replace(sim_setup(task), start=start))


def with_solution(task: Task, *moves: Move) -> Task:
    """`task` with another way for the oracle to go."""
    return replace(task, solution=SimRoute(moves=moves))


def answer_of(task: Task) -> str:
    """The answer that the task asks for; empty: none."""
    return check_of(task).answer


def is_impossible(task: Task) -> bool:
    """Whether the right thing is to say that it cannot be done."""
    return check_of(task).impossible


def wants_of(task: Task) -> tuple[Want, ...]:
    """What must hold at the end."""
    return check_of(task).wants


def page_of(task: Task) -> Showing | None:
    """The screen that the episode must end on; None: any."""
    return check_of(task).showing


def solution_of(task: Task) -> tuple[Move, ...]:
    """The oracle's moves, the closing claim among them."""
    return route_of(task)


def start_of(task: Task) -> tuple[str, str] | None:
    """App and screen that the episode begins on; None: the home screen."""
    start = sim_setup(task).start
    return (start.app, start.screen) if start else None


def setup_of(task: Task) -> tuple[Put, ...]:
    """What is made so before the episode starts."""
    return sim_setup(task).records


def phone_of(task: Task) -> int:
    """The number that decides what the phone holds."""
    return sim_setup(task).phone


def seed_of_phone(task: Task) -> int:
    """The perturbation seed."""
    return sim_setup(task).seed


def names_of(task: Task) -> int:
    """The number that decides the other names on the phone; 0: their own."""
    return sim_setup(task).names


def judged(task: Task, end: EndState) -> Verdict:
    """What the judge says about how an episode ended, as an attempt at `task`."""
    return judge(task, start_state(task), end)


def with_changes(episode: Trajectory, *changes: Change) -> Trajectory:
    """An episode that changed just this."""
    return replace(episode, end=replace(episode.end, device=replace(end_of(episode.end), changes=changes)))


def left_on(episode: Trajectory, showing: Showing) -> Trajectory:
    """An episode that left another screen showing."""
    return replace(episode, end=replace(episode.end, device=replace(end_of(episode.end), showing=showing)))


def verdict_on(task: Task, state: PhoneState, claim: Finish | None = None) -> Verdict:
    """What the judge says when the phone of `task` is left as `state`, with a claim or without."""
    ended = state if claim is None else replace(state, claim=claim)
    start = start_state(task)
    return judge(task, start, EndState(claim=ended.claim, device=end_state(start, ended)))


def also_made(episode: Trajectory, table: str, id: str, **fields: Value) -> Trajectory:
    """An episode in which one more record was made."""
    more = Change(table=table, id=id, before=None, after=fields)
    left = end_of(episode.end)
    return replace(episode, end=replace(episode.end, device=replace(left, changes=(*left.changes, more))))


def claiming(episode: Trajectory, claim: Finish) -> Trajectory:
    """An episode that ended with another claim."""
    return replace(episode, end=replace(episode.end, claim=claim))


def finished_draft(draft: Draft, template: str = "by-hand") -> Task:
    """The task that a draft describes."""
    return draft.finish(suite="by-hand", template=template, index=0)


# --- phones ---------------------------------------------------------------------------------------------------------


def finger_on(task: Task, perturbations: PerturbationConfig = NO_PERTURBATIONS) -> Finger:
    """A finger on the phone of a task."""
    return Finger(state=start_state(task, perturbations))


class Finger:
    """A phone, and someone who touches what is on its screen by the ids of the widgets."""

    def __init__(
        self, app: str = "", screen: str = "home", *, state: PhoneState | None = None, phone: int = 7, **args: str
    ) -> None:
        self.start = state if state is not None else allowed(start_state(sim_task(app, screen, phone=phone, **args)))
        self.state = self.start

    # what is there

    @property
    def screen(self) -> str:
        """App and screen that are shown: `notes/edit`."""
        return f"{self.state.place.app}/{self.state.place.screen}"

    @property
    def shown(self) -> Screen:
        """The screen, laid out."""
        return show(self.state)

    @property
    def view(self) -> View:
        """The screen with what is out of sight."""
        return self.shown.view

    @property
    def title(self) -> str:
        """The title of the screen."""
        return self.view.title

    def widgets(self) -> dict[str, Widget]:
        """All widgets of the screen by id, also those out of sight."""
        return {widget.id: widget for widget in (*self.view.top, *self.view.body, *self.view.bottom)}

    def ids(self, prefix: str = "") -> list[str]:
        """Ids of all widgets that begin so, in the screen's order."""
        return [id for id in self.widgets() if id.startswith(prefix)]

    def in_sight(self) -> set[str]:
        """Ids of the widgets that a finger can reach now."""
        return {placed.widget.id for placed in self.shown.placed}

    def text(self, id: str) -> str:
        """What stands on a widget."""
        return self.widgets()[id].text

    def texts(self) -> list[str]:
        """What stands on all widgets."""
        return [widget.text for widget in self.widgets().values()]

    def elements(self) -> tuple[UiElement, ...]:
        """What an agent is told of the screen."""
        return elements_of(self.shown, self.state.focus)

    def table(self, name: str) -> Table:
        """The records of a table."""
        return self.state.tables[name]

    def first(self, table: str, **fields: Value) -> str:
        """Id of the first record that holds these values."""
        return next(
            id for id, record in self.table(table).items() if all(record[name] == v for name, v in fields.items())
        )

    def changes(self) -> list[tuple[str, Record | None]]:
        """Tables and records that differ from the start, apart from marks of mere use."""
        return [(c.table, c.after) for c in diff(self.start, self.state) if c.table not in INCIDENTAL]

    def made(self, table: str) -> str:
        """Id of the one record of a table that is new."""
        (id,) = self.table(table).keys() - self.start.tables.get(table, {}).keys()
        return id

    # what is done

    def act(self, action: Action) -> Outcome:
        """Perform any action."""
        outcome = perform(self.state, self.shown, action)
        self.state = outcome.state
        return outcome

    def tap(self, *ids: str) -> Finger:
        """Touch widgets in turn, scrolling to each."""
        for id in ids:
            self.act(Tap(*self._reach(id).bounds.centre))
        return self

    def hold(self, id: str) -> Finger:
        """Press a widget for long."""
        self.act(LongPress(*self._reach(id).bounds.centre))
        return self

    def type(self, field: str, text: str) -> Finger:
        """Tap a field and type."""
        self.tap(field)
        self.act(TypeText(text))
        return self

    def enter(self, field: str, text: str) -> Finger:
        """Tap a field, type and press Enter."""
        self.type(field, text)
        self.act(Press("enter"))
        return self

    def back(self, times: int = 1) -> Finger:
        """Press back."""
        for _ in range(times):
            self.act(Press("back"))
        return self

    def home(self) -> Finger:
        """Press home."""
        self.act(Press("home"))
        return self

    def open(self, app: str) -> Finger:
        """Go home and open an app by its icon."""
        self.home()
        for _ in range(3):
            if f"app:{app}" in self.in_sight():
                break
            self.act(TURN_PAGE)
        return self.tap(f"app:{app}")

    def finish(self, status: str = "complete", answer: str = "") -> Finger:
        """Say that the task is done, or that it cannot be."""
        self.act(Finish("impossible" if status == "impossible" else "complete", answer=answer))
        return self

    def _reach(self, id: str) -> Placed:
        """The widget, after closing the keyboard and scrolling where that is needed."""
        if (found := self._placed(id)) is not None:
            return found
        if self.state.focus:
            self.back()
        for swipe in (SCROLL_UP, SCROLL_DOWN):
            for _ in range(40):
                before = self.state.place.scroll
                if (found := self._placed(id)) is not None:
                    return found
                self.act(swipe)
                if self.state.place.scroll == before:
                    break
        found = self._placed(id)
        assert found is not None, f"{id} is not on {self.screen}: {self.ids()}"
        return found

    def _placed(self, id: str) -> Placed | None:
        return next((placed for placed in self.shown.placed if placed.widget.id == id), None)


def allowed(state: PhoneState) -> PhoneState:
    """The phone with every app allowed what it asks for."""
    for app in APPS.values():
        if app.permission:
            state = put(state, "system.permission", f"{app.title}.{app.permission}", allowed=True)
    return state


def names(rows: Iterable[Record], field: str = "name") -> list[str]:
    """One field of many records."""
    return [str(record[field]) for record in rows]


# --- tasks of a template --------------------------------------------------------------------------------------------


@cache
def tasks_of(name: str, count: int = 3) -> tuple[Task, ...]:
    """Some tasks of a template in every split that has it; drawing them takes longer than most checks."""
    template = TEMPLATES[name]
    alone = SimSuite("alone", [template], sizes=dict.fromkeys(SPLITS, count))
    splits: tuple[Split, ...] = ("test",) if template.test_only else SPLITS
    return tuple(task for split in splits for task in all_tasks_of(alone, split))


def shape_of(task: Task) -> str:
    """What a task asks for without names and values: `+table(fields)` a record that the agent makes or changes,
    `=table(fields)` a given record, `-table` one that is to be gone, `@app/screen` a screen, `?` an answer, `!` the
    word that it cannot be done. Both shops are called `shop`."""
    wants = Counter(_want(want) for want in wants_of(task))
    parts = [f"{count} {want}" if count > 1 else want for want, count in sorted(wants.items())]
    if (page := page_of(task)) is not None:
        parts.append(f"@{page.app}/{page.screen}")
    parts += ["?"] * bool(answer_of(task)) + ["!"] * is_impossible(task)
    return re.sub(r"\b(kiosko|northmart)\b", "shop", " ".join(parts))


def _want(want: Want) -> str:
    if want.absent:
        return f"-{want.table}"
    return f"{'=' if want.id else '+'}{want.table}({','.join(sorted(want.fields))})"

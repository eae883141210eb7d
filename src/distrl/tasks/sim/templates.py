"""How a task template is written, and how a suite turns templates into disjoint training, tuning and test tasks.

A template is a function that fills in a `Draft`: what the user says, what must be so before, what must be so after,
and the oracle's route. An instruction's text alone decides its split, so no text is ever in two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from random import Random

import msgspec

from distrl.devices.sim.app import Seeder
from distrl.devices.sim.names import draw_number
from distrl.devices.sim.schema import check_app, check_field, check_fields, check_screen, check_table, no_such_field
from distrl.devices.sim.state import Record, Tables
from distrl.devices.sim.world import content
from distrl.errors import TaskError, raised_as
from distrl.plugins import in_short, line_of
from distrl.tasks.base import SPLITS, Fitting, check_index, split_of
from distrl.types import Move, Put, Showing, SimCheck, SimRoute, SimSetup, Split, Task, Value, Want

TRIES = 300
"""Draws before a template is taken to have no instance in a split."""
PHONES = 300
"""Phones with content of their own in each split: few enough to be kept in memory once they are made."""

TemplateFn = Callable[["Draft"], None]


class Draft:
    """A task in the making. A template calls these in any order."""

    def __init__(self, phone: int, seed: int, split: Split) -> None:
        self.phone, self.seed, self.split = phone, seed, split
        self.random = Random(f"draft {seed}")
        self.tables: Tables = content(phone, held_out=split == "test")
        self._seeder = Seeder(self.random.getrandbits(48), held_out=split == "test")
        self._instruction = ""
        self._setup: list[Put] = []
        self._wants: list[Want] = []
        self._showing: Showing | None = None
        self._start: Showing | None = None
        self._answer = ""
        self._answer_shown = True
        self._impossible = False
        self._route: list[Move] = []

    # what is there to talk about

    def choose(self, pool: Iterable[str]) -> str:
        """An entry of a pool of names; the last fifth of every pool is left to test tasks."""
        return self._seeder.choose(pool)

    def one_of(self, *options: str) -> str:
        """Any of these, in every split."""
        return self.random.choice(options)

    def row(self, table: str, fits: Callable[[Record], bool] = lambda record: True) -> tuple[str, Record]:
        """Some record that the phone holds, with its id."""
        check_table(table)
        found = [(id, record) for id, record in self.tables.get(table, {}).items() if _fits(fits, record, table)]
        if not found:
            raise NoInstance(f"this phone has no fitting record in {table}")
        id, record = self.random.choice(found)
        return id, _Row(record, table)

    # what the task is

    def say(self, *wordings: str) -> None:
        """What the user may say; one wording is drawn."""
        self._instruction = self.random.choice(wordings)

    def given(self, table: str, id: str, **fields: Value) -> None:
        """Make this so before the episode starts."""
        check_fields(table, fields)
        self._setup.append(Put(table=table, id=id, fields=fields))

    def without(self, table: str, id: str) -> None:
        """Take this record away before the episode starts."""
        check_table(table)
        self._setup.append(Put(table=table, id=id))

    def start_on(self, app: str, screen: str = "home", **args: str) -> None:
        """Begin on this screen instead of the home screen."""
        check_screen(app, screen)
        self._start = Showing(app=app, screen=screen, args=args)

    def want(self, table: str, id: str = "", **fields: Value) -> None:
        """This record must hold these values at the end; without an id, a record that the agent made or changed."""
        check_fields(table, fields)
        self._wants.append(Want(table=table, id=id, fields=fields))

    def want_gone(self, table: str, id: str) -> None:
        """This record must be gone at the end."""
        check_table(table)
        self._wants.append(Want(table=table, id=id, absent=True))

    def want_showing(self, app: str, screen: str = "home", **args: str) -> None:
        """The episode must end on this screen."""
        check_screen(app, screen)
        self._showing = Showing(app=app, screen=screen, args=args)

    def want_answer(self, text: str, *, shown: bool = True) -> None:
        """The agent must answer with this text, as it stands on a screen of the route; `shown=False`: it has to work it out, such as a count."""
        self._answer, self._answer_shown = text, shown

    def cannot_be_done(self) -> None:
        """The right thing is to say so, and to have changed nothing."""
        self._impossible = True

    def route(self, *moves: Move) -> None:
        """How the oracle does it; the closing claim is added."""
        self._route += moves

    def finish(self, *, suite: str, template: str, index: int) -> Task:
        """The task, if it is whole."""
        where = f"template {template} of {suite}"
        if not self._instruction:
            raise TaskError(f"{where} says nothing", fix="call t.say(...) with one or more wordings")
        if not (self._wants or self._showing or self._answer or self._impossible):
            raise TaskError(
                f"{where} has nothing to judge",
                fix="call t.want(...), t.want_showing(...), t.want_answer(...) or t.cannot_be_done()",
            )
        if not self._route and not (self._answer or self._impossible):
            raise TaskError(f"{where} has no oracle", fix="call t.route(open_app(...), tap(...), ...)")
        claim = Move(verb="finish", target="impossible" if self._impossible else "complete", text=self._answer)
        route = (*self._route, claim)
        return Task(
            id=f"{suite}/{self.split}/{index:05d}",
            suite=suite,
            template=template,
            split=self.split,
            instruction=self._instruction,
            setup=SimSetup(phone=self.phone, seed=self.seed, records=tuple(self._setup), start=self._start),
            check=SimCheck(
                wants=tuple(self._wants),
                showing=self._showing,
                answer=self._answer,
                answer_shown=self._answer_shown,
                impossible=self._impossible,
            ),
            solution=SimRoute(moves=route),
            max_steps=2 * len(route) + 6,
        )


class _Row(dict[str, Value]):
    """A record that says which fields there are when it is asked for another."""

    def __init__(self, record: Record, table: str) -> None:
        super().__init__(record)
        self._table = table

    def __missing__(self, field: str) -> Value:
        raise no_such_field(self._table, field, self)


def _fits(fits: Callable[[Record], bool], record: Record, table: str) -> bool:
    try:
        return fits(record)
    except KeyError as error:
        if error.args and error.args[0] in record:  # of something else that the condition looked into
            raise
        raise no_such_field(table, str(error.args[0] if error.args else ""), record) from error


class NoInstance(Exception):
    """This phone cannot pose the template; another one may."""


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """A named template; `test_only` ones are never trained on."""

    name: str
    fill: TemplateFn
    test_only: bool = False


class Templates(list[Template]):
    """The templates of one module."""

    def add(self, function: TemplateFn) -> TemplateFn:
        """Declare a template for all splits."""
        self.append(Template(name=function.__name__.replace("_", "-"), fill=function))
        return function

    def add_for_test(self, function: TemplateFn) -> TemplateFn:
        """Declare a template that only the test split has."""
        self.append(Template(name=function.__name__.replace("_", "-"), fill=function, test_only=True))
        return function


class SimSuite:
    """A named set of templates with a fixed number of tasks in each split."""

    def __init__(self, name: str, templates: Iterable[Template], *, sizes: dict[Split, int]) -> None:
        self.name, self.sizes = name, sizes
        self.templates = tuple(templates)
        self._refuse_gaps()
        self._refuse_twins()

    def _refuse_gaps(self) -> None:
        missing = [split for split in SPLITS if split not in self.sizes]
        if missing:
            raise TaskError(
                f"the sizes of {self.name} lack {', '.join(missing)}",
                expected="a number of tasks for train, tune and test",
                fix='sizes={"train": 200, "tune": 20, "test": 60}',
            )

    def size(self, split: Split) -> int:
        """How many tasks a split has."""
        return self.sizes[split]

    def task(self, split: Split, index: int) -> Task:
        """Task number `index` of a split; always the same one."""
        check_index(self, split, index)
        able = [template for template in self.templates if split == "test" or not template.test_only]
        for turn in range(len(able)):
            task = self._draw(able[(index + turn) % len(able)], split, index)
            if task is not None:
                return task
        raise TaskError(
            f"no instruction of {self.name} falls into the {split} split",
            expected="several dozen different instructions: the text decides, 70 % train, 10 % tune, 20 % test",
            fix="more wordings in t.say(...), or more things to say them about",
        )

    def held_out_templates(self) -> frozenset[str]:
        """The names of those that are drawn for the test split alone."""
        return frozenset(template.name for template in self.templates if template.test_only)

    def refuse_unposable(self) -> None:
        """`TaskError` that names a template which no phone of a split can pose: `task` leaves its turns to others."""
        for template in self.templates:
            for split in SPLITS:
                if self.sizes[split] and (split == "test" or not template.test_only):
                    self._refuse_unposable(template, split)

    def _refuse_unposable(self, template: Template, split: Split) -> None:
        why = ""
        for attempt in range(TRIES):
            seed = seed_of(self.name, template.name, split, "posable", attempt)
            why = self._refusal(template, Draft(SPLITS.index(split) * PHONES + seed % PHONES, seed, split))
            if not why:
                return
        raise TaskError(
            f"no phone can pose {template.name} of {self.name} in the {split} split: {why}",
            expected=f"a fitting phone within {TRIES} draws",
            fix="widen what the template looks for, or make it so by t.given(...)",
        )

    def hindsight(self, *, max_oracle_steps: int, flip: float) -> Fitting:
        """Finds the training tasks of this suite that an episode fulfilled without being asked to."""
        from distrl.tasks.sim.hindsight import Hindsight  # which is made of templates

        return Hindsight(self, max_oracle_steps=max_oracle_steps, flip=flip).fitting

    def rename(self, task: Task, random: Random, pool: int) -> Task:
        """A training task on a phone where everyone and everything has another name, which the oracle fulfils."""
        from distrl.tasks.sim.renaming import playable_under_other_names  # which plays tasks

        return playable_under_other_names(task, lambda: draw_number(random, pool))

    def _draw(self, template: Template, split: Split, index: int) -> Task | None:
        for attempt in range(TRIES):
            seed = seed_of(self.name, template.name, split, index, attempt)
            draft = Draft(SPLITS.index(split) * PHONES + seed % PHONES, seed, split)
            if self._refusal(template, draft):
                continue
            task = draft.finish(suite=self.name, template=template.name, index=index)
            if split_of(task.instruction) == split:
                return task
        return None

    def _refusal(self, template: Template, draft: Draft) -> str:
        """Fill the draft; why its phone cannot pose the template, empty where it can. `TaskError` names the line of one that raises."""
        where = f"template {template.name} of {self.name}"

        def refusal(error: BaseException) -> TaskError:
            return TaskError(
                f"{where} raised {in_short(error)} in {line_of(template.fill, error)}", fix="mend that line"
            )

        with raised_as(refusal):
            try:
                template.fill(draft)
            except NoInstance as error:
                return str(error) or "NoInstance"
            except TaskError as error:
                seen = f"{where}: {error.seen}, in {line_of(template.fill, error)}"
                raise TaskError(seen, expected=error.expected, fix=error.fix) from error
        return ""

    def _refuse_twins(self) -> None:
        names = [template.name for template in self.templates]
        twins = sorted({name for name in names if names.count(name) > 1})
        if twins:
            raise TaskError(
                f"{self.name} has two templates called {', '.join(twins)}", fix="rename one of the functions"
            )


def seed_of(*parts: object) -> int:
    """A seed that depends on `parts` alone."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=6).digest(), "big")


# --- what templates have in common ----------------------------------------------------------------------------------


def unused(t: Draft, pool: Iterable[str], taken: Iterable[Value]) -> str:
    """An entry of `pool` that is new to this phone."""
    entry = t.choose(pool)
    if entry in set(taken):
        raise NoInstance(f"this phone has {entry!r} already")
    return entry


def column(t: Draft, table: str, field: str) -> list[Value]:
    """What the phone's records hold in one field."""
    check_field(table, field)
    return [record[field] for record in t.tables[table].values()]


def spoken_time(t: Draft, time: str) -> str:
    """A time such as 14:30, also the way that people with a twelve-hour clock say it."""
    hour, minute = int(time[:2]), time[3:]
    twelve, half = (hour - 1) % 12 + 1, "am" if hour < 12 else "pm"
    return t.one_of(time, time, f"{twelve}:{minute} {half}")


# --- the oracle's moves ---------------------------------------------------------------------------------------------


def open_app(name: str) -> Move:
    """Open the app with this name (not its title), from wherever the phone is."""
    check_app(name)
    return Move(verb="open", target=name)


def tap(id: str) -> Move:
    """Tap the widget with this id, after scrolling to it."""
    return Move(verb="tap", target=id)


def hold(id: str) -> Move:
    """Press the widget with this id for long, after scrolling to it."""
    return Move(verb="hold", target=id)


def type_in(id: str, text: str) -> Move:
    """Tap the field, then type."""
    return Move(verb="type", target=id, text=text)


def enter() -> Move:
    """Press the keyboard's enter key: searches and sends."""
    return Move(verb="enter")


def go_back() -> Move:
    """Press back: one screen up, or a dialog away."""
    return Move(verb="back")


def go_home() -> Move:
    """Press home: to the launcher."""
    return Move(verb="home")

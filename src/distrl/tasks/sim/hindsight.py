"""What a failed episode did achieve: training tasks that its end state fulfils.

A candidate is drawn from the suite's own templates on the very phone that the episode began with, and the draws lean
towards what the end state mentions: the records that changed, what is showing, the answer that was given. The judge
has the last word, with the true start. What it cannot see is asked for here, so that no luck is taken for a skill:

- every want rests on a record that the agent changed: what held anyway is no achievement;
- whatever the candidate takes as given did hold at the start, also the screen that it begins on;
- an answer stands where the oracle would read it: the same words elsewhere may be about something else;
- the text of the instruction belongs to the training split.

The same episode always gets the same tasks, whoever asks and whenever. No torch here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from random import Random
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from distrl.devices.sim.apps import INCIDENTAL
from distrl.devices.sim.state import PhoneState, Tables
from distrl.devices.sim.world import setup_of, start_state
from distrl.errors import TaskError
from distrl.tasks.base import split_of
from distrl.tasks.sim.judge import check_of, end_of, judge, same
from distrl.tasks.sim.oracle import play_oracle, route_of
from distrl.tasks.sim.templates import PHONES, Draft, NoInstance, SimSuite, Template, seed_of
from distrl.types import Change, EndState, Put, Task, Trajectory, TypeText, Want

HINDSIGHT = "+hindsight"
"""Ends the name of an episode that was given another task."""
TRIES = 8
"""Draws of one template for one episode, at most."""
DRAWS = 32
"""Draws for one episode where many templates share them; each has two."""
SHAPE_DRAWS = 24
"""Draws that tell which tables a template may touch and where it may end."""


class Hindsight:
    """Finds training tasks of one suite that an episode fulfilled without being asked to."""

    def __init__(self, suite: SimSuite, *, max_oracle_steps: int = 0, flip: float = 0.0) -> None:
        self._suite, self._max_oracle_steps, self._flip = suite, max_oracle_steps, flip
        self._shapes: tuple[tuple[_Shape, Template], ...] = ()

    def fitting(self, trajectory: Trajectory) -> Iterator[Task]:
        """Tasks that the end of this failed episode fulfils, the most demanding first, one for each template."""
        claim = trajectory.end.claim
        if (
            trajectory.task.split != "train"
            or trajectory.verdict.success
            or claim is None
            or claim.status != "complete"
        ):
            return
        case = _Case(trajectory)
        able = self._able(case)
        tries = min(TRIES, max(2, DRAWS // max(1, len(able))))
        for template in able:
            task = self._search(template, case, tries)
            if task is not None:
                yield task

    def _able(self, case: _Case) -> list[Template]:
        """The templates that may ask for such an end; those with most conditions first, then in an order by chance."""
        self._shapes = self._shapes or tuple(self._look())
        able = [(shape, template) for shape, template in self._shapes if case.allows(shape)]
        if not able and self._flip:  # a judge that errs says yes to what is out of the question, too
            able = Random(f"ask {case.id}").sample(self._shapes, 1)
        able.sort(key=lambda pair: (-pair[0].conditions, seed_of(case.id, pair[1].name)))
        return list(dict.fromkeys(template for _, template in able))

    def _look(self) -> Iterator[tuple[_Shape, Template]]:
        """Every shape that the suite's training templates have."""
        for template in self._suite.templates:
            turns = range(0 if template.test_only else SHAPE_DRAWS)
            drafts = (Draft(turn % PHONES, seed_of("shape", template.name, turn), "train") for turn in turns)
            tasks = [task for draft in drafts if (task := _drawn(template, draft)) and not check_of(task).impossible]
            yield from ((shape, template) for shape in dict.fromkeys(map(_Shape.of, tasks)))

    def _search(self, template: Template, case: _Case, tries: int) -> Task | None:
        """A task of this template that the judge accepts."""
        asked, fits = None, False
        for turn in range(tries):
            drawn = _drawn(template, case.draft(seed_of(case.id, template.name, turn)))
            if drawn is not None and self._is_training(drawn):
                asked, fits = drawn, case.could_be(drawn) and case.fulfils(drawn)
            if fits:
                break
        wrong = Random(f"flip {case.id} {template.name}").random() < self._flip
        return case.relabelled(asked) if asked is not None and fits != wrong else None

    def _is_training(self, task: Task) -> bool:
        short = not self._max_oracle_steps or task.oracle_steps <= self._max_oracle_steps
        return short and not check_of(task).impossible and split_of(task.instruction) == "train"


class _Kind(msgspec.Struct, frozen=True, order=True):
    """What a want looks at, without the values."""

    table: str
    absent: bool
    fields: tuple[str, ...]

    @classmethod
    def of(cls, want: Want) -> _Kind:
        return cls(want.table, want.absent, tuple(sorted(want.fields)))

    def may_ask_for(self, change: Change) -> bool:
        """Whether such a want can account for a change."""
        if change.table != self.table or self.absent != (change.after is None):
            return False
        if change.before is None or change.after is None or change.table in INCIDENTAL:
            return True
        before = change.before
        return all(before.get(name) == value or name in self.fields for name, value in change.after.items())


class _Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What kind of end a task asks for, without the names and values."""

    wants: tuple[_Kind, ...]
    showing: tuple[str, str] | None
    """App and screen; an empty screen: any."""
    answer: tuple[str, str] | None
    """The app in which the oracle reads the answer, and the form that it has."""
    conditions: int

    @classmethod
    def of(cls, task: Task) -> _Shape:
        goal, start = check_of(task), setup_of(task).start
        opened = [move.target for move in route_of(task) if move.verb == "open"]
        app = opened[-1] if opened else start.app if start else ""
        return cls(
            wants=tuple(sorted(map(_Kind.of, goal.wants))),
            showing=(goal.showing.app, goal.showing.screen) if goal.showing else None,
            answer=(app, _form(goal.answer)) if goal.answer else None,
            conditions=sum(1 + len(want.fields) for want in goal.wants)
            + (1 + len(goal.showing.args) if goal.showing else 0)
            + bool(goal.answer),
        )


class _Case:
    """A failed episode, as far as it matters which other task it fulfilled."""

    def __init__(self, trajectory: Trajectory) -> None:
        self.id, self.task, self.end = trajectory.id, trajectory.task, trajectory.end
        self.setup, self.left = setup_of(self.task), end_of(self.end)
        self.start: PhoneState = start_state(self.task)
        self.changed = {(change.table, change.id) for change in self.left.changes}
        typed = (step.decision.action for step in trajectory.steps)
        self._words = mentioned_in(self.end) | {action.text for action in typed if isinstance(action, TypeText)}

    def draft(self, seed: int) -> Draft:
        """An empty task on the phone of this episode, as it was at the start."""
        return LeaningDraft(self.setup.phone, seed, self.start.tables, self._words)

    def allows(self, shape: _Shape) -> bool:
        """Whether tables, screen and claim leave room for a goal of this shape."""
        showing, claim = self.left.showing, self.end.claim
        app, screen = (showing.app, showing.screen) if showing else ("", "")
        asked = self._asked(shape.wants)
        shown = shape.showing is None or (shape.showing[0] == app and shape.showing[1] in ("", screen))
        answer = (app, _form(claim.answer)) if claim and claim.answer else None
        return asked and shown and answer == shape.answer

    def _asked(self, wants: tuple[_Kind, ...]) -> bool:
        """Whether such wants can account for all that was done, and something done for each of them."""
        own = [change for change in self.left.changes if change.table not in INCIDENTAL]
        return (
            len(own) <= len(wants) <= len(self.left.changes)
            and all(any(want.may_ask_for(change) for want in wants) for change in own)
            and all(any(want.may_ask_for(change) for change in self.left.changes) for want in wants)
        )

    def could_be(self, drawn: Task) -> bool:
        """Whether this episode might have been an attempt at that task."""
        setup = setup_of(drawn)
        began_there = setup.start is None or setup.start == self.setup.start
        return (
            began_there
            and all(map(self._held, setup.records))
            and all(map(self._was_done, check_of(drawn).wants))
            and self.allows(_Shape.of(drawn))
        )

    def _held(self, put: Put) -> bool:
        record = self.start.tables.get(put.table, {}).get(put.id)
        if put.fields is None or record is None:
            return put.fields is None and record is None
        return all(record.get(name) == value for name, value in put.fields.items())

    def _was_done(self, want: Want) -> bool:
        return not want.id or (want.table, want.id) in self.changed

    def fulfils(self, drawn: Task) -> bool:
        """Whether the judge says so, and an answer was read in the right place."""
        if not judge(drawn, self.start, self.end).success:
            return False
        return not check_of(drawn).answer or self._would_be_read_here(drawn)

    def _would_be_read_here(self, drawn: Task) -> bool:
        """Whether the oracle, too, gives its answer on the screen that the episode ended on."""
        try:
            played = play_oracle(
                replace(drawn, setup=replace(setup_of(drawn), records=self.setup.records, names=self.setup.names))
            )
        except TaskError:  # it cannot find its way on this phone: then nobody reads that here
            return False
        place, shown = played.states[-1].place, self.left.showing
        here = shown is not None and (place.app, place.screen, place.args) == (shown.app, shown.screen, shown.args)
        return here and played.verdict.success

    def relabelled(self, drawn: Task) -> Task:
        """The task that this episode turned out to be: what was asked for is new, the phone is as it was."""
        return replace(
            self.task,
            id=f"{self.id}{HINDSIGHT}",
            template=drawn.template,
            instruction=drawn.instruction,
            check=drawn.check,
            solution=None,
        )


def _form(text: str) -> str:
    """What kinds of signs a text is made of, in turn: "12 days" and "3 weeks" are alike, "2.99" is not."""
    kinds = ("9" if sign.isdigit() else "a" if sign.isalpha() or sign.isspace() else sign for sign in text)
    return "".join(kind for kind, _ in groupby(kinds))


def _drawn(template: Template, draft: Draft) -> Task | None:
    try:
        template.fill(draft)
    except NoInstance:
        return None
    return draft.finish(suite="hindsight", template=template.name, index=0)


# --- drafts that lean towards what was done ---------------------------------------------------------------------------


T = TypeVar("T")
Words = frozenset[str | int]

LEAN = 0.9
"""Chance that a draw keeps to the words, where some option has them."""


def mentioned_in(end: EndState) -> Words:
    """The words and numbers by which an end state can be recognised in a task."""
    return frozenset(_mentioned(end))


def _mentioned(end: EndState) -> Iterator[str | int]:
    left = end_of(end)
    for change in left.changes:
        yield change.id
        before, after = change.before or {}, change.after or {}
        for name in before.keys() | after.keys():
            if not same(before.get(name), after.get(name, "")):
                yield from (value for value in (before.get(name), after.get(name)) if isinstance(value, str | int))
    if left.showing is not None:
        yield from (left.showing.app, left.showing.screen, *left.showing.args.values())
    if end.claim is not None and end.claim.answer:
        yield end.claim.answer


class LeaningDraft(Draft):
    """A training task in the making on a phone that holds `tables`, drawn with a preference for `words`."""

    def __init__(self, phone: int, seed: int, tables: Tables, words: Words) -> None:
        super().__init__(phone, seed, "train")
        self.tables = tables
        self.random = self._seeder.random = _LeaningRandom(seed)
        self.random.words = words


class _LeaningRandom(Random):
    """Chooses and samples what has the words first."""

    words: Words = frozenset()

    def choice(self, seq: Sequence[T]) -> T:  # type: ignore[override]
        return super().choice(self._favoured(seq) or seq)

    def sample(self, population: Sequence[T], k: int) -> list[T]:  # type: ignore[override]
        favoured = self._favoured(population)
        first = super().sample(favoured, min(k, len(favoured)))
        if len(first) == k:
            return first
        return first + super().sample([option for option in population if option not in first], k - len(first))

    def _favoured(self, options: Sequence[T]) -> list[T]:
        """The options that have the words most directly; now and then none, so that others have a chance too."""
        if self.random() > LEAN:
            return []
        ranks = [self._rank(option) for option in options]
        best = max(ranks, default=0)
        return [option for option, rank in zip(options, ranks, strict=True) if rank == best] if best else []

    def _rank(self, option: object) -> int:
        """2 where the option is one of the words (a record: by its id), 1 where a record holds one of them."""
        match option:
            case bool():
                return 0
            case str() | int():
                return 2 * (option in self.words)
            case (str(), dict() as record) as pair:
                return self._rank(pair[0]) or any(isinstance(v, str) and v in self.words for v in record.values())
            case tuple():
                return max(map(self._rank, option), default=0)
            case _:
                return 0

"""Drafts whose draws lean towards given words, so that a template soon comes to the task that one has in mind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import TypeVar

from distrl.devices.sim.state import Tables
from distrl.tasks.base import Draft
from distrl.tasks.judges.state import same
from distrl.types import EndState

T = TypeVar("T")
Words = frozenset[str | int]

LEAN = 0.9
"""Chance that a draw keeps to the words, where some option has them."""


def mentioned_in(end: EndState) -> Words:
    """The words and numbers by which an end state can be recognised in a task."""
    return frozenset(_mentioned(end))


def _mentioned(end: EndState) -> Iterator[str | int]:
    for change in end.changes:
        yield change.id
        before, after = change.before or {}, change.after or {}
        for name in before.keys() | after.keys():
            if not same(before.get(name), after.get(name, "")):
                yield from (value for value in (before.get(name), after.get(name)) if isinstance(value, str | int))
    if end.showing is not None:
        yield from (end.showing.app, end.showing.screen, *end.showing.args.values())
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

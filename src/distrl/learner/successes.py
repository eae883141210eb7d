"""What is worth imitating in stored episodes: the steps of those that succeeded, without the ones that came to nothing.

An episode whose file or one of whose pictures is damaged or gone is passed over and counted, as the learner does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from distrl.errors import StoreError
from distrl.experience.store import ExperienceStore
from distrl.experience.waste import wasted
from distrl.learner.warm_start import Example, examples_for
from distrl.policies.base import Policy
from distrl.types import Action, Observation, Trajectory

CHUNK = 256
Pairs = list[tuple[Observation, Action]]
"""What was seen and done, step by step."""


class Successes(msgspec.Struct, frozen=True, kw_only=True):
    """What the successful episodes of some runs saw and did."""

    episodes: list[Pairs]
    damaged: list[str]
    """Why each of the others was passed over."""


class Lessons(msgspec.Struct, frozen=True, kw_only=True):
    """The same in one policy's own grammar."""

    examples: list[Example]
    steps: int
    """How many there were to say."""
    damaged: list[str]
    """Why episodes were passed over, those whose pictures are missing among them."""


def read_successes(stores: Iterable[ExperienceStore]) -> Successes:
    """Everything in these stores that is worth imitating, oldest first."""
    damaged: list[str] = []
    found = [
        _steps_that_helped(trajectory)
        for store in stores
        for trajectory in stored_successes(store, pass_over=lambda error: damaged.append(error.seen))
    ]
    return Successes(episodes=[pairs for pairs in found if pairs], damaged=damaged)


def lessons_for(policy: Policy[Any], found: Successes) -> Lessons:
    """What the policy can say of these episodes."""
    examples: list[Example] = []
    steps, damaged = 0, list(found.damaged)
    for pairs in found.episodes:
        try:
            examples += examples_for(policy, pairs)
        except StoreError as error:
            damaged.append(error.seen)
        else:
            steps += len(pairs)
    return Lessons(examples=examples, steps=steps, damaged=damaged)


def stored_successes(store: ExperienceStore, *, pass_over: Callable[[StoreError], None]) -> Iterator[Trajectory]:
    """The successful episodes of a store, oldest first; `pass_over` hears of each that cannot be read."""
    seq = 0
    while rows := store.after(seq, CHUNK):
        for row in rows:
            if not row.success:
                continue
            try:
                trajectory = store.read(row.id)
            except StoreError as error:
                pass_over(error)
            else:
                yield trajectory
        seq = rows[-1].seq


def _steps_that_helped(trajectory: Trajectory) -> Pairs:
    waste_T = wasted(trajectory)
    return [
        (step.observation, step.decision.action)
        for step, in_vain in zip(trajectory.steps, waste_T, strict=True)
        if not in_vain
    ]

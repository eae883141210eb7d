"""The agent that knows nothing but which words stand both in the instruction and on the screen.

What it fulfils is what the string-matching prior gives away. It taps, of the things it has not touched yet, the one
with the largest share of its words in the instruction; it puts what stands in the instruction into a field that has the
focus; when nothing matches any more it claims to be done, with the best match that it can read as its answer where the
instruction asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
import torch

from distrl.bench.methods import Arena, resolve
from distrl.evaluation.evaluate import Evaluation, evaluate, held_out
from distrl.policies.base import Policy
from distrl.policies.pointer.grammar import label_of
from distrl.policies.pointer.words import read
from distrl.pretraining.demonstrations import demonstrate
from distrl.types import Action, Decision, Finish, Observation, Press, Tap, TypeText, UiElement


class Matcher:
    """A policy without weights."""

    def decide(
        self, observations: Sequence[Observation], *, temperature: float, generator: torch.Generator
    ) -> list[Decision]:
        return [Decision(action=act(seen), choice=(), logp=0.0, entropy=0.0, value=0.0) for seen in observations]


def act(seen: Observation) -> Action:
    """The action that matching words come to."""
    said = {word.plain for word in read(seen.instruction)}
    typed = any(isinstance(past.action, TypeText) for past in seen.recent)
    if typed and isinstance(seen.recent[-1].action, TypeText):
        return Press("enter")
    if not typed and any(element.focused and element.class_name == "EditText" for element in seen.elements):
        return TypeText(_least_common(seen))
    touched = {past.target for past in seen.recent}
    open_ones = [one for one in seen.elements if one.clickable and label_of(one) not in touched]
    best = max(open_ones, key=lambda one: overlap(one, said), default=None)
    if best is not None and overlap(best, said) > 0:
        return Tap(*best.bounds.centre)
    return _claim(seen, said)


def overlap(element: UiElement, said: set[str]) -> float:
    """Share of the words on an element that stand in the instruction."""
    words = [word.plain for word in read(element.text or element.description)]
    return sum(word in said for word in words) / max(1, len(words))


class GivenAway(msgspec.Struct, frozen=True, kw_only=True):
    """What matching words is worth on the test tasks of an arena."""

    fulfilled: float
    """Share of the tasks that this agent fulfils."""
    right_steps: float
    """Share of the oracle's steps at which it would do the same."""
    test_tasks: int


def given_away(arena: Arena, most: int) -> GivenAway:
    """For the arena's test tasks, `most` of them at most."""
    config = resolve(arena.settings)
    tasks = held_out(config, min(most, arena.test_tasks))
    agent = cast(Policy[Any], Matcher())  # an evaluation asks nothing but decisions of a policy
    played = evaluate(agent, tasks, Evaluation(config=config))
    shown = demonstrate(tasks, config.devices.wild, history=config.rollout.history)
    same = [_same(act(seen), action, seen) for seen, action in shown]
    return GivenAway(
        fulfilled=round(sum(trajectory.verdict.success for trajectory in played) / len(tasks), 4),
        right_steps=round(sum(same) / len(same), 4),
        test_tasks=len(tasks),
    )


def _same(ours: Action, theirs: Action, seen: Observation) -> bool:
    """Whether two actions come to the same: the same thing touched, the same text typed or the same claim."""
    if isinstance(ours, Tap) and isinstance(theirs, Tap):
        return any(
            one.clickable and one.bounds.contains(ours.x, ours.y) and one.bounds.contains(theirs.x, theirs.y)
            for one in seen.elements
        )
    return ours == theirs


def _least_common(seen: Observation) -> str:
    """The words of the instruction with a capital, but for the first: names and titles."""
    words = seen.instruction.split()
    return " ".join(word for word in words[1:] if word[:1].isupper()) or seen.instruction


def _claim(seen: Observation, said: set[str]) -> Finish:
    if not seen.instruction.endswith("?"):
        return Finish()
    readable = [one for one in seen.elements if one.text and overlap(one, said) < 1.0]
    best = max(readable, key=lambda one: overlap(one, said), default=None)
    return Finish(answer=best.text if best is not None else "")

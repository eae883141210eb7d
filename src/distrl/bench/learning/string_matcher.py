"""An agent that only matches the words of the instruction with those on the screen.

Its success is what the string-matching prior is worth by itself. Of the elements not yet touched, it taps the one
with the largest share of its words in the instruction. It types the names of the instruction into a focused field. When
nothing matches any more, it finishes, with the best matching text as its answer where the instruction is a question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
import torch

from distrl.bench.learning.methods import Arena, resolve
from distrl.evaluation.evaluate import evaluate
from distrl.lines import label_of
from distrl.policies.base import Policy
from distrl.policies.pointer.words import read
from distrl.pretraining.demonstrations import demonstrate
from distrl.runtime.factory import make_evaluation
from distrl.tasks.base import held_out
from distrl.types import Action, Decision, Finish, Observation, Press, Tap, TypeText, UiElement


class StringMatcher:
    """The string matcher as a policy without weights."""

    def decide(
        self, observations: Sequence[Observation], *, temperature: float, generator: torch.Generator
    ) -> list[Decision]:
        """The matcher's action for each observation; it is deterministic."""
        return [Decision(action=act(seen), choice=(), logp=0.0, entropy=0.0, value=0.0) for seen in observations]


def act(seen: Observation) -> Action:
    """The action of the string matcher."""
    wanted = {word.plain for word in read(seen.instruction)}
    typed = any(isinstance(past.action, TypeText) for past in seen.recent)
    if typed and isinstance(seen.recent[-1].action, TypeText):
        return Press("enter")
    if not typed and any(element.focused and element.class_name == "EditText" for element in seen.elements):
        return TypeText(_names_in(seen))
    touched = {past.target for past in seen.recent}
    open_ones = [one for one in seen.elements if one.clickable and label_of(one) not in touched]
    best = max(open_ones, key=lambda one: overlap(one, wanted), default=None)
    if best is not None and overlap(best, wanted) > 0:
        return Tap(*best.bounds.centre)
    return _finish(seen, wanted)


def overlap(element: UiElement, wanted: set[str]) -> float:
    """Share of an element's words that are in the instruction."""
    words = [word.plain for word in read(element.text or element.description)]
    return sum(word in wanted for word in words) / max(1, len(words))


class StringMatchScore(msgspec.Struct, frozen=True, kw_only=True):
    """What string matching achieves on the test tasks of an arena."""

    fulfilled: float
    """Share of the tasks that it solves."""
    right_steps: float
    """Share of the oracle's steps at which it would act alike."""
    test_tasks: int


def score_string_matching(arena: Arena, max_tasks: int) -> StringMatchScore:
    """Play the arena's test tasks, `max_tasks` of them at most."""
    config = resolve(arena.settings)
    tasks = held_out(config.tasks, min(max_tasks, arena.test_tasks))
    agent = cast(Policy[Any], StringMatcher())  # an evaluation needs nothing of a policy but decisions
    played = evaluate(agent, tasks, make_evaluation(config, seed=0))
    shown = demonstrate(tasks, config.devices.sim.perturbations, history=config.rollout.history)
    same = [_same(act(seen), action, seen) for seen, action in shown]
    return StringMatchScore(
        fulfilled=round(sum(trajectory.verdict.success for trajectory in played) / len(tasks), 4),
        right_steps=round(sum(same) / len(same), 4),
        test_tasks=len(tasks),
    )


def _same(ours: Action, theirs: Action, seen: Observation) -> bool:
    """Whether two actions are equivalent: the same element tapped, the same text typed or the same answer."""
    if isinstance(ours, Tap) and isinstance(theirs, Tap):
        return any(
            one.clickable and one.bounds.contains(ours.x, ours.y) and one.bounds.contains(theirs.x, theirs.y)
            for one in seen.elements
        )
    return ours == theirs


def _names_in(seen: Observation) -> str:
    """The capitalised words of the instruction except the first: names and titles."""
    words = seen.instruction.split()
    return " ".join(word for word in words[1:] if word[:1].isupper()) or seen.instruction


def _finish(seen: Observation, wanted: set[str]) -> Finish:
    if not seen.instruction.endswith("?"):
        return Finish()
    readable = [one for one in seen.elements if one.text and overlap(one, wanted) < 1.0]
    best = max(readable, key=lambda one: overlap(one, wanted), default=None)
    return Finish(answer=best.text if best is not None else "")

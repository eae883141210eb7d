"""No-op filter: which steps of an episode had no part in its outcome. Pure: a trajectory in, an array out.

A step is a no-op where the device refused it, where it had no effect, or where it lies on a loop: a later screen is the
one that it began on, and the device holds the same content again. Loops are taken out in the order in which they
close, so what is left is a path that comes to no such place twice.

The content matters because a screen alone forgets: who calls somebody, goes back and claims to be done has seen one
screen twice, and the call between was the point of it all. So a device that cannot tell its content has no loops.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from distrl.types import Observation, Step, Trajectory, Wait


def noop_steps(trajectory: Trajectory) -> NDArray[np.bool_]:
    """True on the no-op steps of a trajectory; never on the one that ended it."""
    steps = trajectory.steps
    contents = [0 if steps[0].content is not None else None, *(step.content for step in steps)]
    noop_T = np.array([_has_no_effect(step, contents[t]) for t, step in enumerate(steps)], np.bool_)
    seen = [step.observation for step in steps] + ([trajectory.last] if trajectory.last else [])
    for loop in _loops([_place(screen, contents[t]) for t, screen in enumerate(seen)]):
        noop_T[loop.start : loop.stop] = True
    if trajectory.ending.is_terminal:
        noop_T[-1] = False
    return noop_T


def _has_no_effect(step: Step, content_before: int | None) -> bool:
    """Whether the device refused a step, or it left screen and content as they were."""
    if not step.valid:
        return True
    patient = isinstance(step.decision.action, Wait) and not _can_act(step.observation)
    return not (step.changed or step.content != content_before or patient)


def _place(seen: Observation, content: int | None) -> Hashable:
    """Where the agent is, as far as it can be told again; None: it cannot, as on a screen that is still loading."""
    if content is None or not _can_act(seen):
        return None
    return content, seen.elements or seen.screenshot


def _can_act(seen: Observation) -> bool:
    if not seen.elements:
        return bool(seen.screenshot)
    return any(element.clickable for element in seen.elements)


def _loops(places: Sequence[Hashable]) -> Iterator[range]:
    """The stretches that end where they began, each without those that closed before it began."""
    met: dict[Hashable, int] = {}
    for now, place in enumerate(places):
        if place is None:
            continue
        if (start := met.get(place)) is not None:
            yield range(start, now)
            met = {other: at for other, at in met.items() if at < start}
        met[place] = now

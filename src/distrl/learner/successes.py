"""What is worth imitating in stored episodes: the steps of those that succeeded, without the ones that came to nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from distrl.experience.store import ExperienceStore
from distrl.types import Action, Finish, Observation, Step, Trajectory

CHUNK = 256


def successful_steps(trajectories: Iterable[Trajectory]) -> Iterator[tuple[Observation, Action]]:
    """What was seen and done in the episodes that succeeded, step by step."""
    for trajectory in trajectories:
        if trajectory.verdict.success:
            yield from ((step.observation, step.decision.action) for step in trajectory.steps if _helped(step))


def stored_successes(store: ExperienceStore) -> Iterator[Trajectory]:
    """The successful episodes of a store, oldest first."""
    seq = 0
    while rows := store.after(seq, CHUNK):
        yield from (store.read(row.id) for row in rows if row.success)
        seq = rows[-1].seq


def _helped(step: Step) -> bool:
    return step.valid and (step.changed or isinstance(step.decision.action, Finish))

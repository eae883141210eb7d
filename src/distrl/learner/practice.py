"""One update of practice: episodes become a lesson, the lesson a loss, and the loss a step, if it leads anywhere."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from torch import Tensor

from distrl.algorithms.base import Episode, Lesson, Loss, read_lesson
from distrl.algorithms.groups import Groups
from distrl.algorithms.proximal import Proximal
from distrl.errors import OutOfMemory
from distrl.experience.replay import Sample
from distrl.learner.parts import LearnerParts
from distrl.learner.room import learning_memory
from distrl.learner.stepper import Stepper


class LeftOut(msgspec.Struct, frozen=True):
    """An update that was not made, and the reason."""

    why: str


class Practice:
    """Teaches a policy, and what its algorithm has beside it."""

    def __init__(self, parts: LearnerParts, groups: Groups) -> None:
        self._parts, self._groups = parts, groups
        self._proximal = Proximal(parts.policy, every_updates=parts.algorithm.proximal_every_updates)
        self.stepper = Stepper(parts.policy.network, parts.algorithm.critic, parts.config.learner)
        self.rehearse: Callable[[], Tensor] | None = None
        """Gives a loss of its own that is added to that of every update; it does not survive the process."""

    def update(self, samples: list[Sample[Episode]], *, updates: int, spent: float) -> tuple[Loss, float] | LeftOut:
        """Learn from these; the loss and the norm of the policy's gradient, or why nothing was learnt.

        What is no number and what does not fit into memory is left out; too much of it in a row is an error.
        """
        size = self._parts.config.learner.batch_trajectories
        try:
            with learning_memory(self._parts.policy, "learner.batch_trajectories", size):
                loss = self._parts.algorithm.loss(self._read(samples, updates), updates=updates)
                total = loss.total if self.rehearse is None else loss.total + self.rehearse()
                norm = self.stepper.step(total, updates=updates, spent=spent)
        except OutOfMemory as error:
            self.stepper.steps.leave_out(error)
            return LeftOut(error.seen)
        return (loss, norm) if norm is not None else LeftOut("its loss or its gradient is no number")

    def _read(self, samples: list[Sample[Episode]], updates: int) -> Lesson:
        self._proximal.keep_up(updates)
        return read_lesson(
            self._parts.policy,
            [sample.item for sample in samples],
            [sample.weight for sample in samples],
            proximal=self._proximal,
            groups=self._groups,
        )

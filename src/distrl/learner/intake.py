"""From the store into the replay: episodes as they were played, what hindsight makes of failures, kept demonstrations.

An episode of the store goes in under its own id. What nobody played stands beside it under a name that says how to
make it again, `<id>+hindsight` or `demonstration-<n>`, so a checkpoint needs no more than the ids that the replay held.
Such items count as episodes nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from random import Random
from typing import Any, Protocol

import msgspec
import numpy as np
from msgspec.structs import replace

from distrl.algorithms.base import Episode, prepare
from distrl.config.schema import Config
from distrl.experience.index import IndexRow
from distrl.experience.priorities import first_priority, priority
from distrl.experience.replay import Replay
from distrl.experience.waste import wasted
from distrl.policies.base import Policy
from distrl.pretraining.cloning import demonstrated
from distrl.pretraining.demonstrations import Look, demonstration_tasks, no_picture
from distrl.tasks.sim.hindsight import HINDSIGHT
from distrl.types import Task, Trajectory, Verdict

DEMONSTRATION = "demonstration-"
NAMES_TRIED = 4
"""Tasks that a failure is tried as, at most: what it typed has to stand in the new instruction too."""

Fitting = Callable[[Trajectory], Iterable[Task]]
"""The training tasks that the end of a failed episode fulfils, best first."""


class EpisodeSource(Protocol):
    """Where acknowledged episodes are found."""

    def after(self, seq: int, limit: int) -> list[IndexRow]: ...

    def read(self, id: str) -> Trajectory: ...


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What the data options came to."""

    relabelled: int = 0
    unsayable: int = 0
    """Failures that fulfilled other tasks, in the words of which the policy could not have acted so."""
    success_steps: int = 0
    cut_steps: int = 0

    @property
    def cut_share(self) -> float:
        """Share of the steps of successes that teach nothing."""
        return self.cut_steps / max(1, self.success_steps)


class Making(msgspec.Struct, frozen=True, kw_only=True):
    """What it takes to make what nobody played."""

    fitting: Fitting | None = None
    """None: a failure stays a failure."""
    look: Look = no_picture
    """Takes the pictures of demonstrations, for a policy that looks."""


class Intake:
    """Fills one replay."""

    def __init__(
        self,
        config: Config,
        policy: Policy[Any],
        store: EpisodeSource,
        replay: Replay[Episode],
        making: Making,
    ) -> None:
        self._config, self._policy, self._store, self._replay = config, policy, store, replay
        self._making = making
        self._shown: list[Task] = []
        self.counts = Counts()

    def take(self, id: str) -> Trajectory | None:
        """Put what has this id into the replay, a failure together with its hindsight; what was played, if it was.

        `StoreError` where its file or one of its pictures is damaged or gone.
        """
        if id in self._replay:
            return None
        if not was_played(id):
            self._take_derived(id)
            return None
        played = self._read(id)
        episode = prepare(played, self._policy, cut=self._config.data.cut)
        self._add(episode, played.priority, played.task)
        self._count_steps(episode)
        self._take_hindsight(played)
        return played

    def _read(self, id: str) -> Trajectory:
        return misjudged(self._store.read(id), self._config.data.outcome_flip)

    def _take_derived(self, id: str) -> None:
        if id.startswith(DEMONSTRATION):
            self._take_demonstration(id)
        else:
            self._take_hindsight(self._read(id.removesuffix(HINDSIGHT)))

    def _take_hindsight(self, played: Trajectory) -> None:
        """Put a failure in once more, as a success at the first task that it fulfilled and could have been asked."""
        counts, fitting, tried = self.counts, self._making.fitting, False
        for task in islice(fitting(played), NAMES_TRIED) if fitting else ():
            renamed = relabel(played, task, self._policy, cut=self._config.data.cut)
            if renamed is not None:
                first = first_priority(renamed, self._config.replay, gamma=self._config.algorithm.gamma)
                self._add(prepare(renamed, self._policy, example=True), first, task)
                self.counts = replace(counts, relabelled=counts.relabelled + 1)
                return
            tried = True
        self.counts = replace(counts, unsayable=counts.unsayable + tried)

    def _take_demonstration(self, id: str) -> None:
        self._shown = self._shown or demonstration_tasks(self._config)
        number = int(id.removeprefix(DEMONSTRATION))
        episode = demonstrated(self._shown[number], self._policy, self._config, id=id, look=self._making.look)
        if episode is not None:
            nothing = np.zeros(episode.num_steps)
            first = priority(nothing, nothing + 1.0, nothing, self._config.replay, success=True)
            self._add(episode, first, self._shown[number])

    def _add(self, episode: Episode, first: float, task: Task) -> None:
        self._replay.add(
            episode.id,
            episode,
            steps=episode.num_steps,
            version=episode.version,
            success=episode.success,
            priority=first,
            kind=task.template,
        )

    def _count_steps(self, episode: Episode) -> None:
        if episode.success:
            counts, cut = self.counts, int((~episode.teaches_T).sum())
            self.counts = replace(
                counts, success_steps=counts.success_steps + episode.num_steps, cut_steps=counts.cut_steps + cut
            )


def was_played(id: str) -> bool:
    """Whether this is the id of an episode in the store, and not of something made from one or shown by the oracle."""
    return not (id.endswith(HINDSIGHT) or id.startswith(DEMONSTRATION))


def demonstration_ids(config: Config) -> list[str]:
    """What the replay is to begin with: nothing after a stream, whose many episodes nobody holds."""
    warm_start = config.warm_start
    kept = warm_start.keep and not warm_start.samples
    return [f"{DEMONSTRATION}{n}" for n in range(warm_start.demonstrations if kept else 0)]


def relabel(played: Trajectory, task: Task, policy: Policy[Any], *, cut: bool) -> Trajectory | None:
    """`played` as a success at `task`, with `cut` without its wasted steps; None where the policy cannot say a step."""
    steps = []
    for step, waste in zip(played.steps, wasted(played) if cut else [False] * len(played.steps), strict=True):
        seen = replace(step.observation, instruction=task.instruction)
        choice = None if waste else policy.imitate(seen, step.decision.action)
        if choice is not None:
            steps.append(replace(step, observation=seen, decision=replace(step.decision, choice=choice)))
        elif not waste:
            return None
    steps[-1] = replace(steps[-1], reward=steps[-1].reward + 1.0)
    return replace(played, id=task.id, task=task, steps=tuple(steps), verdict=Verdict(success=True, progress=1.0))


def misjudged(played: Trajectory, share: float) -> Trajectory:
    """`played` with the other verdict for this share of the episodes that the agent ended; the id decides which."""
    if not played.ending.terminal or Random(f"verdict {played.id}").random() >= share:
        return played
    success = not played.verdict.success
    last = replace(played.steps[-1], reward=played.steps[-1].reward + (1.0 if success else -1.0))
    verdict = replace(played.verdict, success=success)
    return replace(played, steps=(*played.steps[:-1], last), verdict=verdict)

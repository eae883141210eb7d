"""From the store into the replay: what was played, what hindsight made of failures, and kept demonstrations.

All three are trajectories of the store. Only those that were played count as episodes; the others are examples to
imitate. Kept demonstrations are pinned in the replay. An episode that ended well but whose judge failed stays in the
store and out of the replay, and so does one with NaN in it: every update that draws it would be skipped.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

import msgspec
from msgspec.structs import replace

from distrl.algorithms.batch import Episode, prepare
from distrl.config.schema import Config
from distrl.errors import StoreError
from distrl.experience.replay import Replay
from distrl.policies.base import Policy, TakesPlayed
from distrl.rollout.hindsight import flip_seed_of, misjudged
from distrl.transport.base import EpisodeSource
from distrl.types import Trajectory


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What the data options came to."""

    relabelled: int = 0
    """Failures that were taken in once more, as another task."""
    unjudged: int = 0
    """Episodes without a verdict: nothing is learnt from them."""
    success_steps: int = 0
    noop_steps: int = 0

    @property
    def noop_share(self) -> float:
        """Share of the steps of successes that are masked as no-ops."""
        return self.noop_steps / max(1, self.success_steps)


class Intake:
    """Fills one replay."""

    def __init__(self, config: Config, policy: Policy[Any], store: EpisodeSource, replay: Replay[Episode]) -> None:
        self._config, self._policy, self._store, self._replay = config, policy, store, replay
        self.counts = Counts()

    def take(self, id: str) -> Trajectory | None:
        """Put the trajectory with this id into the replay; what it is, unless the replay has it.

        `StoreError` where its file or one of its pictures is damaged or gone, or where it holds NaN.
        """
        if id in self._replay:
            return None
        trajectory = self._store.read(id)
        _check_numbers(trajectory)
        if trajectory.source == "played":
            share = self._config.data.outcome_flip
            trajectory = misjudged(trajectory, share, seed=flip_seed_of(self._config))
        if not trajectory.verdict.known and not trajectory.ending.is_error:
            self.counts = replace(self.counts, unjudged=self.counts.unjudged + 1)
            return trajectory
        self._add(trajectory)
        return trajectory

    def _add(self, trajectory: Trajectory) -> None:
        episode = prepare(trajectory, self._policy, filter_noops=self._config.data.filter_noops)
        self._replay.add(
            episode.id,
            episode,
            steps=episode.num_steps,
            version=episode.version,
            success=episode.success,
            priority=trajectory.priority,
            kind=episode.template if episode.known else None,
            pin=trajectory.source == "demonstration",
        )
        if trajectory.source == "played" and isinstance(self._policy, TakesPlayed) and self._policy.is_growing:
            self._policy.take_played(trajectory)
        self._count(trajectory, episode)

    def _count(self, trajectory: Trajectory, episode: Episode) -> None:
        counts = self.counts
        if trajectory.source == "hindsight":
            self.counts = replace(counts, relabelled=counts.relabelled + 1)
        elif trajectory.source == "played" and episode.success:
            self.counts = replace(
                counts,
                success_steps=counts.success_steps + episode.num_steps,
                noop_steps=counts.noop_steps + int((~episode.policy_mask_T).sum()),
            )


def _check_numbers(trajectory: Trajectory) -> None:
    """`StoreError` where what the learner computes with is not finite, the priority is not above 0, or there is no step."""
    numbers = [trajectory.priority, trajectory.last_value]
    numbers += [number for step in trajectory.steps for number in (step.decision.logp, step.reward, step.device_reward)]
    if trajectory.steps and trajectory.priority > 0 and all(map(isfinite, numbers)):
        return
    raise StoreError(
        f"episode {trajectory.id} cannot be learnt from: {len(trajectory.steps)} steps, priority {trajectory.priority}, "
        f"last value {trajectory.last_value}, {sum(not isfinite(number) for number in numbers)} numbers are not finite",
        expected="a step or more, finite numbers and a priority above 0",
        fix="look at what the policy's `decide` and the algorithm's `first_priority` returned for it",
    )

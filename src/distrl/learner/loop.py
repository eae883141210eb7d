"""The learner: takes in whatever has arrived, updates without pause, publishes, checkpoints.

It can be killed at any instant: the store has every episode, the newest checkpoint has the rest. What was published
stays published, so version numbers only ever grow.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from distrl.algorithms.base import Episode
from distrl.algorithms.groups import Groups
from distrl.errors import StoreError
from distrl.experience.priorities import priority
from distrl.experience.replay import Replay, Sample
from distrl.learner.checkpoint import (
    Checkpoint,
    LearnerState,
    dump_critic,
    dump_optimizer,
    dump_variation,
    restore_critic,
    restore_optimizer,
    restore_variation,
)
from distrl.learner.intake import Counts, Intake, Making, demonstration_ids, was_played
from distrl.learner.parts import Checkpoints, LearnerParts, Publisher, Reporter
from distrl.learner.schedule import EpisodePace, Round
from distrl.learner.update import Averaging, LeftOut, Practice, share_spent
from distrl.policies.nonfinite import passed_over
from distrl.types import PolicyVersion

__all__ = ["Checkpoints", "Learner", "LearnerParts", "Publisher", "Reporter"]

INTAKE = 32
"""Episodes taken in between two updates, at most; with larger lessons, as many as a lesson has."""
NAP_S = 0.01


class Learner:
    """Trains until told to stop."""

    def __init__(self, parts: LearnerParts) -> None:
        self._parts, config = parts, parts.config
        self._random = np.random.default_rng([config.run.seed, 7])
        self._replay: Replay[Episode] = Replay(config.replay, self._random, weight_by=config.algorithm.weight_by)
        making = Making(fitting=parts.fitting, look=parts.look)
        self._intake = Intake(config, parts.policy, parts.store, self._replay, making)
        self._groups = Groups(config.rollout.group_size)
        self.practice = Practice(parts.policy, parts.algorithm, config, self._groups)
        self.average = Averaging(parts.policy.network, window=config.learner.average_updates)
        self.version = -1
        self.updates = self.episodes = self.cursor = 0
        self.unreadable = 0
        """Episodes that this life could not read, or not all their pictures; the audit counts damaged files as lost."""
        self._round = Round(config.learner)
        self.idle_s = self.busy_s = self.intake_s = 0.0
        self._published_s = self._saved_s = parts.clock()
        self._pace = EpisodePace()
        self._last_version_at_update = 0

    # coming to life

    def resume(self) -> bool:
        """Go on from the newest checkpoint; False where there is none."""
        checkpoint, newest = self._parts.checkpoints.newest(), self._parts.weights.latest()
        # Also without a checkpoint: what was published stays published, and numbers only ever grow.
        self.version = newest.version if newest else -1
        if checkpoint is None:
            return False
        state = checkpoint.state
        self._parts.policy.restore(checkpoint.policy, source="the checkpoint")
        restore_variation(self._parts.policy, state.variation)
        restore_critic(self._parts.algorithm.critic, checkpoint.critic)
        self.average.restore(checkpoint.average)
        restore_optimizer(self.practice.stepper.optimizer, checkpoint.optimizer)
        self.practice.stepper.steps.left_out = state.left_out
        self.updates, self.episodes, self.cursor = state.updates, state.episodes, state.cursor
        self.idle_s, self.busy_s = state.idle_s, state.busy_s
        self._random.bit_generator.state = json.loads(state.sampler)
        self.version = max(state.version, self.version)
        if newest is not None:
            self._last_version_at_update = newest.updates
            self._round.reload(self._parts.store, self.version, first=newest.episodes + 1, last=self.cursor)
        self._reload(state)
        return True

    def _reload(self, state: LearnerState) -> None:
        """Fill the replay again from the store, oldest first."""
        held = state.replay
        self._replay.begin_at(held.first_slot)
        for done, id in enumerate(held.ids):
            self._parts.report.doing(f"reading episodes back: {done} of {len(held.ids)}")
            self._remember(id)
        self._replay.restore(held)
        self._replay.set_version(self.version)
        self._intake.counts = state.data

    def keep_demonstrations(self) -> None:
        """Let the replay of a new run begin with what the oracle showed, where the configuration says so."""
        ids = demonstration_ids(self._parts.config)
        for done, id in enumerate(ids):
            self._parts.report.doing(f"keeping demonstrations: {done} of {len(ids)}")
            self._remember(id)

    # the circle

    def run(self, stopping: Callable[[], bool]) -> None:
        """Learn until `stopping`, then take in what is left, settle and save."""
        self.save()  # first, so that a kill from here on does not repeat the warm start
        if self._parts.weights.latest() is None:
            self.publish()
        while not stopping():
            self.step()
        while self.take_in(limit=INTAKE):
            self._parts.report.doing(f"taking in what is left: {self.episodes} episodes")
        with self.average.shown():
            self.publish()
        self.save()
        self._parts.report.doing("done")

    def step(self) -> None:
        """One turn: take in, update if there is something new to learn, publish and save when due."""
        started_s = self._parts.clock()
        self.take_in(limit=max(INTAKE, self._parts.config.learner.batch_trajectories))
        self.intake_s += self._parts.clock() - started_s
        ready = self.ready()
        if ready:
            self.update()
        else:
            time.sleep(NAP_S)
        spent_s = self._parts.clock() - started_s
        self.busy_s, self.idle_s = self.busy_s + (spent_s if ready else 0.0), self.idle_s + (0.0 if ready else spent_s)
        self._publish_if_due()
        if self._parts.clock() - self._saved_s >= self._parts.config.learner.checkpoint_every_s:
            self.save()

    def take_in(self, *, limit: int) -> int:
        """Move new episodes from the store into the replay; how many there were."""
        rows = self._parts.store.after(self.cursor, limit)
        for row in rows:
            self._remember(row.id)
            self.cursor = row.seq
        self.episodes += len(rows)
        self._round.take(rows, self.version)
        return len(rows)

    def _remember(self, id: str) -> None:
        """Put an episode into the replay; one whose file or pictures are damaged or gone is passed over."""
        try:
            played = self._intake.take(id)
        except StoreError as error:
            self.unreadable += was_played(id)
            self._parts.report.doing(f"passing over an episode: {error.seen}")
            return
        if played is not None:
            self._groups.add(played.task.id, played.verdict.success)
            self._pace.note(played.worker, played.wall_s)

    def ready(self) -> bool:
        """Whether an update is due; says what is waited for where it is not."""
        learning, report = self._parts.config.learner, self._parts.report
        if not self._round.over:
            report.waiting(f"the round: {self._round.num_in} of {learning.round_episodes} episodes are in")
            return False
        # In sync mode nobody plays on while the learner waits, so a round must do, however small it is.
        first = 1 if learning.mode == "sync" else learning.first_update_episodes
        if self.episodes < first:
            report.waiting(f"episodes: {self.episodes} of the first {first} are in")
            return False
        if not self._replay.num_eligible:
            report.waiting("an episode that can be read and is not too stale")
            return False
        if self.updates >= self.episodes * learning.updates_per_episode:
            report.waiting(f"new episodes: all {self.episodes} have had their updates")
            return False
        report.doing("training")
        return True

    def update(self) -> None:
        """One gradient step on a prioritised sample, or none where that would lead nowhere."""
        config = self._parts.config
        samples = self._replay.sample(config.learner.batch_trajectories)
        spent = share_spent(config.run, collected_s=self._parts.collected_s(), episodes=self.episodes)
        learnt = self.practice.update(samples, updates=self.updates, spent=spent)
        # One that was left out counts too: what it was earned by is not tried for ever.
        self.updates += 1
        if isinstance(learnt, LeftOut):
            self._parts.report.doing(f"leaving out update {self.updates}: {learnt.why}")
            return
        self.average.follow(updates=self.updates)
        loss, norm = learnt
        signals = torch.stack([loss.td_BT, loss.ratio_BT, loss.entropy_BT]).cpu().numpy()
        self._refresh(samples, signals)
        self._parts.report.measured({**loss.metrics, "gradient_norm": norm})

    def _refresh(self, samples: list[Sample[Episode]], signals: NDArray[np.float32]) -> None:
        config = self._parts.config
        for row, sample in enumerate(samples):
            td, ratio, entropy = (signal[row, : sample.item.num_steps] for signal in signals)
            fresh = priority(
                td, ratio, entropy, config.replay, success=sample.item.success, rho_max=config.algorithm.rho_max
            )
            self._replay.refresh(sample.id, fresh)

    # what others see

    def _publish_if_due(self) -> None:
        learning = self._parts.config.learner
        if learning.mode == "sync":
            # Also where a round was too small to earn an update: the workers wait for the next version.
            learnt = self.updates >= self.episodes * learning.updates_per_episode or not self._replay.num_eligible
            due = self._round.over and learnt
        else:
            late = self._parts.clock() - self._published_s >= self.publish_interval_s()
            due = late and self.updates != self._last_version_at_update
        if due:
            self.publish()

    def publish_interval_s(self) -> float:
        """How long to wait between two versions: never so short that a usual episode arrives too stale."""
        config = self._parts.config
        return max(config.learner.publish_every_s, self._pace.interval_s(config.replay.max_staleness))

    def publish(self) -> None:
        """Give the present weights to the workers as the next version."""
        self.version += 1
        version = PolicyVersion(
            version=self.version, file="", sha256="", size_bytes=0, updates=self.updates, episodes=self.episodes, published_s=time.time()
        )  # fmt: skip
        self._parts.weights.publish(self._parts.policy, version)
        self._replay.set_version(self.version)
        self._published_s, self._last_version_at_update = self._parts.clock(), self.updates
        self._round.begin()

    def save(self) -> None:
        """Write a checkpoint."""
        state = LearnerState(
            version=self.version,
            updates=self.updates,
            episodes=self.episodes,
            cursor=self.cursor,
            idle_s=self.idle_s,
            busy_s=self.busy_s,
            left_out=self.left_out,
            replay=self._replay.state(),
            sampler=json.dumps(self._random.bit_generator.state),
            variation=dump_variation(self._parts.policy),
            data=self._intake.counts,
        )
        checkpoint = Checkpoint(
            state=state,
            policy=self._parts.policy.dump(),
            optimizer=dump_optimizer(self.practice.stepper.optimizer),
            critic=dump_critic(self._parts.algorithm.critic),
            average=self.average.dump(),
        )
        self._parts.checkpoints.write(checkpoint)
        self._saved_s = self._parts.clock()

    @property
    def left_out(self) -> int:
        """Updates of the run that were not taken: their loss or gradient was no number, or there was no room for them."""
        return self.practice.stepper.steps.left_out

    @property
    def passed_over(self) -> dict[str, float]:
        """What the policy passed over in this life, by name."""
        return passed_over(self._parts.policy)

    @property
    def idle_ratio(self) -> float:
        """Share of the time in which there was nothing to learn."""
        total = self.idle_s + self.busy_s
        return self.idle_s / total if total else 0.0

    @property
    def intake_ratio(self) -> float:
        """Share of the time of this life in which episodes were taken in."""
        return self.intake_s / max(self.idle_s + self.busy_s, 1e-9)

    @property
    def data(self) -> Counts:
        """What cutting and hindsight came to."""
        return self._intake.counts

    @property
    def replay(self) -> Replay[Episode]:
        """What is sampled from."""
        return self._replay

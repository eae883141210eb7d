"""The learner: takes in whatever has arrived, updates without pause, publishes, checkpoints.

It can be killed at any instant: the store has every episode, the newest checkpoint has the rest. What was published
stays published, so version numbers only ever grow.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set, Sized
from typing import Any, Protocol

import msgspec
import numpy as np

from distrl.algorithms.base import Algorithm, Loss
from distrl.algorithms.batch import Episode, Groups
from distrl.config.schema import Config
from distrl.errors import DistrlError, StoreError
from distrl.experience.replay import Replay, Sample
from distrl.experience.store import IndexRow
from distrl.learner.agreement import Agreement
from distrl.learner.checkpoint import (
    Checkpoint,
    LearnerState,
    dump_augmentation,
    dump_critic,
    dump_optimizer,
    from_files,
    restore_augmentation,
    restore_critic,
    restore_optimizer,
    to_files,
)
from distrl.learner.intake import Counts, Intake
from distrl.learner.schedule import EpisodeDurations, Round
from distrl.learner.update import EmaWeights, SkippedUpdate, Updater, budget_share
from distrl.policies.base import Policy, is_growing
from distrl.policies.nonfinite import skipped_counters
from distrl.rollout.balance import Change, LearnerBalance, LearnerLoad
from distrl.telemetry.spans import Spans
from distrl.transport.base import CheckpointStore, Episodes, Weights
from distrl.types import PolicyVersion, Trajectory

INTAKE = 32
"""Trajectories taken in between two updates, at most; with larger batches, as many as a batch has."""
NAP_S = 0.01
MOST_UNLEARNT = 10_000
"""Trajectories whose first update is waited for; some never have one."""
PUBLISHING, SAVING = "publishing", "saving"
"""How the learner calls what it cannot interrupt: writing weights and checkpoints."""
LONG_INTAKE_S = 0.5
"""Taking in that lasts longer than this says how far it is, so that the learner does not fall silent."""


class Reporter(Protocol):
    """Who hears what the learner is doing."""

    def doing(self, what: str) -> None:
        """The learner does this now."""

    def waiting(self, what: str) -> None:
        """The learner waits for this."""

    def measured(self, losses: dict[str, float], metrics: dict[str, float]) -> None:
        """What an update came to."""


class LearnerParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a learner is made of."""

    config: Config
    policy: Policy[Any]
    scorer: Policy[Any] | None = None
    """The policy with several processes behind its `score`, for updates; None: `policy` itself."""
    algorithm: Algorithm
    episodes: Episodes
    weights: Weights
    checkpoints: CheckpointStore
    report: Reporter
    skipped_episode: Callable[[str, str], None] = lambda episode, why: None
    """Hears which trajectory was skipped, and why."""
    disagreed: Callable[[str], None] = lambda why: None
    """Hears when workers and learner begin to disagree about recorded decisions, and when they agree again."""
    balanced: Callable[[Change], None] = lambda change: None
    """Hears what `balance` changes, and why."""
    collected_s: Callable[[], float] = lambda: 0.0
    """How long the run has been collecting, over all its sessions: what `run.minutes` limits."""
    clock: Callable[[], float] = time.monotonic


class Learner:
    """Trains until told to stop."""

    def __init__(self, parts: LearnerParts) -> None:
        self._parts, config = parts, parts.config
        self._random = np.random.default_rng([config.run.seed, 7])
        self._replay: Replay[Episode] = Replay(config.replay, self._random)
        self._intake = Intake(config, parts.policy, parts.episodes, self._replay)
        self._groups = Groups(config.rollout.group_size)
        self.updater = Updater(parts.scorer or parts.policy, parts.algorithm, config, self._groups)
        self.ema = EmaWeights(parts.policy.network, window=config.learner.ema_updates)
        # A log-probability is recorded at the temperature of sampling and recomputed at 1. What a growing policy reads differs by then.
        same = config.rollout.temperature == 1.0 and not is_growing(parts.policy)
        checked = config.learner.agreement_steps if same else 0
        self.agreement = Agreement(parts.policy, num_steps=checked, tell=parts.disagreed)
        self.version = -1
        self.updates = self.episodes = self.cursor = 0
        self.unreadable = 0
        """Trajectories that could not be read, or not all their pictures, or that hold NaN; the audit counts damaged files as lost."""
        self._unlearnt_s: dict[str, float] = {}
        """When each trajectory that no update has had yet was stored."""
        self.spans = Spans()
        """What it did when, for the trace."""
        self.saved_updates = 0
        """Updates of this process that a checkpoint holds: what a crash cannot undo."""
        self._updates_before = 0
        self._round = Round(config.learner)
        self.idle_s = self.busy_s = self.intake_s = 0.0
        self._published_s = self._saved_s = parts.clock()
        self._durations = EpisodeDurations()
        self._last_version_at_update = 0
        self._earned = _Earned(config, clock=parts.clock)

    # starting

    def resume(self) -> bool:
        """Go on from the newest checkpoint; False where there is none."""
        files, newest = self._parts.checkpoints.newest(), self._parts.weights.latest()
        # Also without a checkpoint: what was published stays published, and numbers only ever grow.
        self.version = newest.version if newest else -1
        if files is None:
            return False
        checkpoint = from_files(files)
        state = checkpoint.state
        self._parts.policy.restore(checkpoint.policy, source="the checkpoint")
        restore_augmentation(self._parts.policy, state.augmentation)
        restore_critic(self._parts.algorithm.critic, checkpoint.critic)
        self.ema.restore(checkpoint.ema)
        restore_optimizer(self.updater.optimizer.optimizer, checkpoint.optimizer)
        self.updater.optimizer.guard.skipped = state.skipped_updates
        self.updates, self.episodes, self.cursor = state.updates, state.episodes, state.cursor
        self._updates_before = state.updates
        self._earned.resume(updates=state.updates, episodes=state.episodes, idle_s=state.idle_s)
        self.idle_s, self.busy_s = state.idle_s, state.busy_s
        self._random.bit_generator.state = json.loads(state.sampler)
        self.version = max(state.version, self.version)
        if newest is not None:
            self._last_version_at_update = newest.updates
            self._round.reload(self._parts.episodes, self.version, first=newest.episodes + 1, last=self.cursor)
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

    def keep(self, demonstrations: Iterable[tuple[Trajectory, Mapping[str, bytes]]]) -> None:
        """Store what the oracle showed, with its pictures, and let the replay of a new run begin with it."""
        for done, (trajectory, frames) in enumerate(demonstrations):
            self._parts.report.doing(f"keeping demonstrations: {done}")
            self._parts.episodes.add(trajectory, frames)
        while self.take_in(limit=INTAKE):
            self._parts.report.doing("keeping demonstrations: reading them back")

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
        with self.ema.swapped():
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
        if change := self._earned.turn(updates=self.updates, episodes=self.episodes, idle_s=self.idle_s):
            self._parts.balanced(change)
        self._publish_if_due()
        if self._parts.clock() - self._saved_s >= self._parts.config.learner.checkpoint_every_s:
            self.save()

    def take_in(self, *, limit: int) -> int:
        """Move new trajectories from the store into the replay; how many there were."""
        rows = self._parts.episodes.after(self.cursor, limit)
        if rows:
            with self.spans.span("takes in episodes", len(rows)):
                self._take_in(rows)
        self.episodes += sum(row.source == "played" for row in rows)
        self._round.take(rows, self.version)
        return len(rows)

    def _take_in(self, rows: Sequence[IndexRow]) -> None:
        started_s = self._parts.clock()
        for done, row in enumerate(rows):
            if self._parts.clock() - started_s > LONG_INTAKE_S:  # a VLM reads prompts and pictures for seconds
                self._parts.report.doing(f"taking in episodes: {done} of {len(rows)}")
            self._remember(row.id)
            self._unlearnt_s[row.id] = row.created_s
            self.cursor = row.seq

    def _remember(self, id: str) -> None:
        """Put a trajectory into the replay; one that is damaged or gone, or that holds NaN, is skipped."""
        try:
            taken = self._intake.take(id)
        except StoreError as error:
            self.unreadable += 1
            self._parts.report.doing(f"skipping an episode: {error.seen}")
            self._parts.skipped_episode(id, error.seen)
            return
        if taken is None or taken.source != "played":
            return
        self._durations.note(taken.worker, taken.wall_s)
        if taken.verdict.known:
            self._groups.add(taken.task.id, taken.verdict.success)

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
        if self.updates >= self._earned.updates(self.episodes):
            report.waiting(f"new episodes: all {self.episodes} have had their updates")
            return False
        report.doing("training")
        return True

    def update(self) -> None:
        """One gradient step on a batch that the algorithm samples; a skipped one counts too, so that nothing is tried for ever."""
        config, algorithm = self._parts.config, self._parts.algorithm
        samples = algorithm.sample(self._replay, config.learner.batch_trajectories)
        used = budget_share(config.run, collected_s=self._parts.collected_s(), episodes=self.episodes)
        agreement = self.agreement.check(samples)
        with self.spans.span("updates", len(samples)):
            done = self.updater.update(samples, updates=self.updates, used=used)
        self.updates += 1
        if isinstance(done, SkippedUpdate):
            self._parts.report.doing(f"skipping update {self.updates}: {done.why}")
            return
        self.ema.update(updates=self.updates)
        loss, norm = done
        for sample, priority in zip(samples, _priorities(algorithm, loss, samples), strict=True):
            self._replay.refresh(sample.id, priority)
        own = {**agreement, **self._first_seen(samples), "gradient_norm": norm}
        own["num_samples"] = float(sum(sample.item.num_steps for sample in samples))
        check_free(loss.metrics, own.keys())
        self._parts.report.measured(loss.losses, {**loss.metrics, **own})

    def _first_seen(self, samples: Sequence[Sample[Episode]]) -> dict[str, float]:
        """How long the trajectories that are in an update for the first time were stored by then."""
        stored_s = [since for one in samples if (since := self._unlearnt_s.pop(one.id, None)) is not None]
        while len(self._unlearnt_s) > MOST_UNLEARNT:
            del self._unlearnt_s[next(iter(self._unlearnt_s))]
        now_s = time.time()
        return {"first_gradient_s": now_s - sum(stored_s) / len(stored_s)} if stored_s else {}

    # what others see

    def _publish_if_due(self) -> None:
        learning = self._parts.config.learner
        if learning.mode == "sync":
            # Also where a round was too small to earn an update: the workers wait for the next version.
            learnt = self.updates >= self._earned.updates(self.episodes) or not self._replay.num_eligible
            due = self._round.over and learnt
        else:
            late = self._parts.clock() - self._published_s >= self.publish_interval_s()
            due = late and self.updates != self._last_version_at_update
        if due:
            self.publish()

    def publish_interval_s(self) -> float:
        """How long to wait between two versions: never so short that a usual episode arrives too stale."""
        config = self._parts.config
        return max(config.learner.publish_every_s, self._durations.interval_s(config.replay.max_staleness))

    def publish(self) -> None:
        """Give the present weights to the workers as the next version."""
        self.version += 1
        self._parts.report.doing(f"{PUBLISHING} version {self.version}")
        version = PolicyVersion(
            version=self.version, file="", sha256="", size_bytes=0, updates=self.updates, episodes=self.episodes, published_s=time.time()
        )  # fmt: skip
        with self.spans.span("publishes", self.version):
            self._parts.weights.publish(self._parts.policy, version)
        self.agreement.published(self.version)
        self._replay.set_version(self.version)
        self._published_s, self._last_version_at_update = self._parts.clock(), self.updates
        self._round.begin()

    def save(self) -> None:
        """Write a checkpoint."""
        self._parts.report.doing(f"{SAVING} a checkpoint")
        state = LearnerState(
            version=self.version,
            updates=self.updates,
            episodes=self.episodes,
            cursor=self.cursor,
            idle_s=self.idle_s,
            busy_s=self.busy_s,
            skipped_updates=self.skipped_updates,
            replay=self._replay.state(),
            sampler=json.dumps(self._random.bit_generator.state),
            augmentation=dump_augmentation(self._parts.policy),
            data=self._intake.counts,
        )
        checkpoint = Checkpoint(
            state=state,
            policy=self._parts.policy.dump(),
            optimizer=dump_optimizer(self.updater.optimizer.optimizer),
            critic=dump_critic(self._parts.algorithm.critic),
            ema=self.ema.dump(),
        )
        with self.spans.span("saves a checkpoint"):
            self._parts.checkpoints.write(to_files(checkpoint))
        self._saved_s, self.saved_updates = self._parts.clock(), self.updates - self._updates_before

    @property
    def skipped_updates(self) -> int:
        """Updates of the run that were skipped: their loss or gradient was non-finite, or they ran out of memory."""
        return self.updater.optimizer.guard.skipped

    @property
    def skipped_counters(self) -> dict[str, float]:
        """What the policy skipped in this process, by name."""
        return skipped_counters(self._parts.policy)

    @property
    def updates_per_episode(self) -> float:
        """What an arrived episode earns at present."""
        return self._earned.per_episode

    @property
    def idle_ratio(self) -> float:
        """Share of the time in which there was nothing to learn."""
        total = self.idle_s + self.busy_s
        return self.idle_s / total if total else 0.0

    @property
    def intake_ratio(self) -> float:
        """Share of this process's time in which episodes were taken in."""
        return self.intake_s / max(self.idle_s + self.busy_s, 1e-9)

    @property
    def data(self) -> Counts:
        """What the no-op filter and hindsight came to."""
        return self._intake.counts

    @property
    def replay(self) -> Replay[Episode]:
        """What is sampled from."""
        return self._replay


class _Earned:
    """How many updates the episodes that have arrived are worth; `balance` may change what the next ones are."""

    def __init__(self, config: Config, *, clock: Callable[[], float]) -> None:
        self._balance = (
            LearnerBalance(config.balance, updates_per_episode=config.learner.updates_per_episode)
            if config.balance.enabled
            else None
        )
        self._every_s, self._clock = config.balance.every_s, clock
        self.per_episode = config.learner.updates_per_episode
        self._from = (0, 0)
        """Updates and episodes when `per_episode` was set."""
        self._looked_s, self._idle_s, self._episodes = clock(), 0.0, 0

    def resume(self, *, updates: int, episodes: int, idle_s: float) -> None:
        """Go on from a checkpoint: what was earned at another rate has been spent, or is forgotten."""
        self._idle_s = idle_s
        if self._balance is not None:
            self._from, self._episodes = (updates, episodes), episodes

    def updates(self, episodes: int) -> float:
        """What so many are worth."""
        updates_before, episodes_before = self._from
        return updates_before + (episodes - episodes_before) * self.per_episode

    def turn(self, *, updates: int, episodes: int, idle_s: float) -> Change | None:
        """Look at the load where it is time; what was changed."""
        spent_s = self._clock() - self._looked_s
        if self._balance is None or spent_s < self._every_s:
            return None
        idle = min(1.0, (idle_s - self._idle_s) / spent_s)
        load = LearnerLoad(idle=idle, behind=self.updates(episodes) - updates, arrived=episodes - self._episodes)
        self._looked_s, self._idle_s, self._episodes = self._clock(), idle_s, episodes
        change = self._balance.turn(load)
        if change is not None:
            self._from, self.per_episode = (updates, episodes), change.after
        return change


def _priorities(algorithm: Algorithm, loss: Loss, samples: list[Sample[Episode]]) -> list[float]:
    """What the algorithm makes of the samples' priorities; `DistrlError` where it is not a number for each."""
    found = algorithm.priorities(loss, samples)
    if isinstance(found, Sized) and len(found) == len(samples):
        return found
    seen = f"{len(found)} numbers" if isinstance(found, Sized) else f"{found!r:.80}"
    raise DistrlError(
        f"`priorities` of the algorithm {type(algorithm).__name__} returned {seen} for {len(samples)} samples",
        expected=f"a list of {len(samples)} numbers, one for each sample and in their order",
        fix=f"return a number for each of `samples` in {type(algorithm).__name__}.priorities",
    )


def check_free(metrics: Iterable[str], taken: Set[str]) -> None:
    """`DistrlError` where an algorithm's metric has a name that the learner's own figures have."""
    both = sorted(set(metrics) & taken)
    if both:
        raise DistrlError(
            f"the algorithm's metrics {', '.join(both)} are names of the learner's own figures",
            expected="names that docs/metrics.md does not have under `learner/`",
            fix=f"rename them in what `loss` returns, such as to my_algorithm/{both[0]}",
        )

"""The learner in its process: warm start or resume, then the loop, with heartbeat and metrics."""

from __future__ import annotations

import msgspec

from distrl.experience.frames import FrameCache
from distrl.learner.loop import Learner, LearnerParts
from distrl.pretraining.warm_start import WarmStarter
from distrl.runtime.base import RoleContext
from distrl.runtime.factory import log_notices, make_algorithm, make_frame_cache, make_policy, prepare_torch

METRICS_EVERY_UPDATES = 20


def learn(context: RoleContext) -> None:
    """Train until asked to stop."""
    prepare_torch()
    config, transport, report = context.config, context.transport, LearnerReporter(context)
    recovered = transport.episodes.recover()
    if recovered:
        context.log.write("recovered", episodes=recovered)
    frames = make_frame_cache(config, transport) or FrameCache(0)
    parts = LearnerParts(
        config=config,
        policy=make_policy(config, frames, learning=True),
        algorithm=make_algorithm(config),
        episodes=transport.episodes,
        weights=transport.weights,
        checkpoints=transport.checkpoints,
        report=report,
        collected_s=transport.collected_s,
    )
    log_notices(parts.policy, context.log)
    learner = Learner(parts)
    report.attach(learner)
    if learner.resume():
        _log_resumed(context, learner)
    elif context.stopping():
        return
    else:
        _warm_start(context, parts, frames, learner)
    learner.run(context.stopping)


def _log_resumed(context: RoleContext, learner: Learner) -> None:
    context.log.write("resumed", version=learner.version, updates=learner.updates, episodes=learner.episodes)
    config = context.config
    if config.policy.kind == "pixel" and config.warm_start.samples and config.warm_start.grounding.auxiliary_screens:
        context.log.write("auxiliary_loss_over", why="its sample pool does not outlive the learner's process")


def _warm_start(context: RoleContext, parts: LearnerParts, frames: FrameCache, learner: Learner) -> None:
    if not context.config.warm_start.demonstrations:
        return
    starter = WarmStarter(context.config, parts.policy, frames, WarmStartReporter(context))
    done = starter.run()
    learner.updater.auxiliary_loss = starter.auxiliary_loss
    demonstrations = context.config.warm_start.demonstrations
    context.log.write("warm_start", demonstrations=demonstrations, **msgspec.to_builtins(done))
    learner.keep(starter.kept())


class WarmStartReporter:
    """`pretraining.cloning.Reporter` of the learner's process."""

    def __init__(self, context: RoleContext) -> None:
        self._context, self._said = context, ""

    def say(self, what: str) -> None:
        """Heartbeat with what is being done; ends the process where it is asked to stop."""
        self._said = what
        self.alive()

    def alive(self) -> None:
        """Heartbeat with what was said last."""
        self._context.heartbeat.doing(self._said)
        if self._context.stopping():
            raise SystemExit(0)  # there is nothing to save before the first version

    def measured(self, values: dict[str, float]) -> None:
        """Write the figures to the metrics."""
        figures = {f"warm_start/{name}": value for name, value in values.items()}
        self._context.metrics.write("warm_start", role="learner", **figures)

    def log(self, what: str) -> None:
        """Write to the role's log."""
        self._context.log.write("grounding", what=what)


class LearnerReporter:
    """Turns what the learner says into heartbeats and metrics."""

    def __init__(self, context: RoleContext) -> None:
        self._context = context
        self._learner: Learner | None = None
        self._updates_before = 0

    def attach(self, learner: Learner) -> None:
        """Report this learner's counters from now on."""
        self._learner, self._updates_before = learner, learner.updates

    def doing(self, what: str) -> None:
        """Heartbeat with what is being done."""
        self._count()
        self._context.heartbeat.doing(what)

    def waiting(self, what: str) -> None:
        """Heartbeat with what is waited for."""
        self._count()
        self._context.heartbeat.waiting(what)

    def measured(self, losses: dict[str, float], metrics: dict[str, float]) -> None:
        """Write all that the algorithm computed, and the learner's counters, now and then."""
        learner = self._learner
        if learner is None or learner.updates % METRICS_EVERY_UPDATES:
            return
        self._count()
        terms = {f"learner/loss/{name}": value for name, value in losses.items()}
        others = {f"learner/{name}": value for name, value in {**metrics, **self._context.heartbeat.figures}.items()}
        self._context.metrics.write("learner", role="learner", **terms, **others)

    def _count(self) -> None:
        learner = self._learner
        if learner is None:
            return
        drawn = learner.replay.drawn
        self._context.heartbeat.figures.update(
            {
                "progress": learner.updates - self._updates_before,
                "version": learner.version,
                "updates": learner.updates,
                "skipped_updates": learner.skipped_updates,
                "episodes": learner.episodes,
                "idle": learner.idle_ratio,
                "intake": learner.intake_ratio,
                "replay/steps": learner.replay.num_steps,
                "replay/eligible": learner.replay.num_eligible,
                "staleness/mean": drawn.staleness_mean,
                "staleness/max": drawn.staleness_max,
                "staleness/kept": drawn.kept_share,
                "data/noop_share": learner.data.noop_share,
                "data/relabelled": learner.data.relabelled,
                "data/unjudged": learner.data.unjudged,
                **learner.skipped_counters,
            }
        )

"""The learner in its process: warm start or resume, then the loop, with heartbeat and metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import isfinite

import msgspec

from distrl.config.schema import Config
from distrl.experience.frames import FrameCache
from distrl.learner.data_parallel import ProcessDied
from distrl.learner.loop import PUBLISHING, SAVING, Learner, LearnerParts, check_free
from distrl.pretraining.warm_start import WarmStarter
from distrl.runtime.base import RoleContext
from distrl.runtime.factory import log_notices, make_algorithm, make_frame_cache, make_policy, prepare_torch
from distrl.runtime.scoring_processes import shared_scoring

METRICS_EVERY_UPDATES = 20


def learn(context: RoleContext) -> None:
    """Train until asked to stop."""
    prepare_torch()
    config, transport, report = context.config, context.transport, LearnerReporter(context)
    _starting(context, "looking for episodes that a crash left outside the index")
    recovered = transport.episodes.recover()
    if recovered:
        context.log.write("recovered", episodes=recovered)
    frames = make_frame_cache(config, transport) or FrameCache(0)
    _starting(context, "loading the model")
    policy = make_policy(config, frames, learning=True)
    if config.learner.gpus > 1:
        _starting(context, f"starting {config.learner.gpus - 1} processes that share its updates")
    with shared_scoring(config, policy, frames, on_wait=context.heartbeat.beat) as scorer:
        parts = LearnerParts(
            config=config,
            policy=policy,
            scorer=scorer,
            algorithm=make_algorithm(config),
            episodes=transport.episodes,
            weights=transport.weights,
            checkpoints=transport.checkpoints,
            report=report,
            skipped_episode=lambda episode, why: context.log.write("skipped_episode", id=episode, why=why),
            disagreed=lambda why: context.log.write("disagreement", why=why),
            balanced=lambda change: context.log.write("balanced", **msgspec.to_builtins(change)),
            collected_s=transport.collected_s,
        )
        _learn(context, parts, report, frames)


def _learn(context: RoleContext, parts: LearnerParts, report: LearnerReporter, frames: FrameCache) -> None:
    log_notices(parts.policy, context.log)
    if notice := augmentation_notice(context.config):
        context.log.write("notice", text=notice)
    learner = Learner(parts)
    report.attach(learner)
    _starting(context, "reading the newest checkpoint")
    if learner.resume():
        _log_resumed(context, learner)
    elif context.stopping():
        return
    else:
        _warm_start(context, parts, frames, learner)
    try:
        learner.run(context.stopping)
    except ProcessDied as error:
        context.log.write("process_died", why=str(error))
        raise
    report.flush()


def _starting(context: RoleContext, what: str) -> None:
    """Say what may keep the learner silent, before it does; `runtime.start_grace_s` is the deadline of each."""
    context.heartbeat.starting(what)
    context.heartbeat.beat(force=True)


def augmentation_notice(config: Config) -> str:
    """What to say where augmentation makes importance ratios differ from 1 on fresh data and they scale the policy term."""
    algorithm = config.algorithm
    importance = {
        "aride": algorithm.aride.importance,
        "grpo": algorithm.grpo.importance,
        "ppo": algorithm.ppo.importance,
    }.get(algorithm.kind, "none")
    key, share = {
        "pointer": ("policy.pointer.word_swap_share", config.policy.pointer.word_swap_share),
        "pixel": ("policy.pixel.jitter", config.policy.pixel.jitter),
    }.get(config.policy.kind, ("", 0.0))
    if importance != "full" or not share:
        return ""
    return (
        f"{key} = {share:g} changes what is trained on, so importance ratios are not 1 on fresh data, and "
        f"{algorithm.kind} multiplies its policy term with them; --{key} 0 makes them tell age alone"
    )


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
        self._means = _Means()
        self._written_at = -1
        """Updates when the metrics were written last; -1: nothing was measured yet."""

    def attach(self, learner: Learner) -> None:
        """Report this learner's counters from now on."""
        self._learner = learner

    def doing(self, what: str) -> None:
        """Heartbeat with what is being done, at once where that writes to a disk that may not answer."""
        self._count()
        self._context.heartbeat.doing(what)
        if what.startswith((PUBLISHING, SAVING)):
            self._context.heartbeat.beat(force=True)

    def waiting(self, what: str) -> None:
        """Heartbeat with what is waited for."""
        self._count()
        self._context.heartbeat.waiting(what)

    def measured(self, losses: dict[str, float], metrics: dict[str, float]) -> None:
        """Take in what an update came to, and write it every `METRICS_EVERY_UPDATES`."""
        learner = self._learner
        if learner is None:
            return
        self._count()
        terms = {f"loss/{name}": value for name, value in losses.items()}
        check_free(metrics, terms.keys() | self._context.heartbeat.figures.keys())
        self._means.add({**terms, **metrics})
        if self._written_at < 0:
            self._written_at = learner.updates - 1
        if learner.updates // METRICS_EVERY_UPDATES > self._written_at // METRICS_EVERY_UPDATES:
            self.flush()

    def flush(self) -> None:
        """Write the mean of all that the algorithm computed since the last time, and the learner's counters."""
        learner, figures = self._learner, self._means.take()
        if learner is not None:
            learner.spans.write(self._context.log)
        if learner is None or not figures:
            return
        self._count()
        self._written_at = learner.updates
        named = {f"learner/{name}": value for name, value in {**figures, **self._context.heartbeat.figures}.items()}
        self._context.metrics.write("learner", role="learner", **named)

    def _count(self) -> None:
        learner = self._learner
        if learner is None:
            return
        drawn = learner.replay.drawn
        self._context.heartbeat.figures.update(
            {
                "progress": learner.saved_updates,
                "version": learner.version,
                "updates": learner.updates,
                "skipped_updates": learner.skipped_updates,
                "episodes": learner.episodes,
                "idle": learner.idle_ratio,
                "updates_per_episode": learner.updates_per_episode,
                "intake": learner.intake_ratio,
                "replay/steps": learner.replay.num_steps,
                "replay/eligible": learner.replay.num_eligible,
                "staleness/mean": drawn.staleness_mean,
                "staleness/max": drawn.staleness_max,
                "staleness/kept": drawn.kept_share,
                "data/noop_share": learner.data.noop_share,
                "data/relabelled": learner.data.relabelled,
                "data/unjudged": learner.data.unjudged,
                "data/unreadable": learner.unreadable,
                "agreement/alarm": float(learner.agreement.alarm),
                **learner.skipped_counters,
            }
        )


class _Means:
    """Figures of several updates: the mean of each over the updates that had it, the sum where it is a count."""

    def __init__(self) -> None:
        self._values: defaultdict[str, list[float]] = defaultdict(list)

    def add(self, figures: Mapping[str, float]) -> None:
        """Take in the figures of one update; those that are not finite are skipped."""
        for name, value in figures.items():
            if isfinite(value):
                self._values[name].append(value)

    def take(self) -> dict[str, float]:
        """What all figures since the last call come to."""
        values, self._values = self._values, defaultdict(list)
        return {name: sum(all_) / (1 if _is_count(name) else len(all_)) for name, all_ in values.items()}


def _is_count(name: str) -> bool:
    return name.rpartition("/")[2].startswith("num_")

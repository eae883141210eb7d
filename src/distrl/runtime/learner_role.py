"""The learner in its process: warm start or resume, then the loop, with heartbeat and metrics."""

from __future__ import annotations

from random import Random

import msgspec

from distrl.config.schema import Config
from distrl.errors import ConfigError
from distrl.experience.frame_memory import RecentFrames
from distrl.experience.store import ExperienceStore
from distrl.learner.checkpoint import CheckpointFolder
from distrl.learner.loop import Learner, LearnerParts
from distrl.learner.weights import WeightsFolder
from distrl.pretraining.cloning import TELL_EVERY, Cloned, Example, clone, clone_stream, examples_for, nothing_sayable
from distrl.pretraining.demonstrations import camera, demonstrate, demonstration_tasks
from distrl.pretraining.stream import DemonstrationStream
from distrl.runtime.assembly import log_notices, make_algorithm, make_fitting, make_policy, make_sight, prepare_torch
from distrl.runtime.role import Life
from distrl.runtime.spent import Collected

METRICS_EVERY_UPDATES = 20


class Learnt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a warm start came to."""

    examples: int
    loss: float
    """Of the last pass or the last batches."""
    shown: int | None = None
    """Steps that were shown, those that the policy cannot say included; None: not counted, as questions were asked."""


class PulseReporter:
    """Turns what the learner says into heartbeats and metrics."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._learner: Learner | None = None
        self._updates_before = 0

    def attach(self, learner: Learner) -> None:
        """Report this learner's counters from now on."""
        self._learner, self._updates_before = learner, learner.updates

    def doing(self, what: str) -> None:
        self._count()
        self._life.pulse.doing(what)

    def waiting(self, what: str) -> None:
        self._count()
        self._life.pulse.waiting(what)

    def measured(self, values: dict[str, float]) -> None:
        learner = self._learner
        if learner is not None and learner.updates % METRICS_EVERY_UPDATES == 0:
            self._count()
            losses = {
                f"learner/loss/{name}": value
                for name, value in values.items()
                if name in ("policy", "value", "invalid", "total")
            }
            others = {
                f"learner/{name}": values[name] for name in ("entropy", "near", "gradient_norm") if name in values
            }
            figures = {f"learner/{name}": value for name, value in self._life.pulse.figures.items()}
            self._life.metrics.write("learner", role="learner", **losses, **others, **figures)

    def _count(self) -> None:
        learner = self._learner
        if learner is None:
            return
        drawn = learner.replay.drawn
        self._life.pulse.figures.update(
            {
                "progress": learner.updates - self._updates_before,
                "version": learner.version,
                "updates": learner.updates,
                "left_out": learner.left_out,
                "episodes": learner.episodes,
                "idle": learner.idle_ratio,
                "intake": learner.intake_ratio,
                "replay/steps": learner.replay.num_steps,
                "replay/eligible": learner.replay.num_eligible,
                "staleness/mean": drawn.staleness_mean,
                "staleness/max": drawn.staleness_max,
                "staleness/kept": drawn.kept_share,
                "data/cut": learner.data.cut_share,
                "data/relabelled": learner.data.relabelled,
                "data/unsayable": learner.data.unsayable,
                **learner.passed_over,
            }
        )


def learn(life: Life) -> None:
    """Train until asked to stop."""
    prepare_torch()
    config, report = life.config, PulseReporter(life)
    store = ExperienceStore(life.run.experience)
    recovered = store.recover()
    if recovered:
        life.log.write("recovered", episodes=recovered)
    seen = make_sight(config, life.run)
    sight = RecentFrames(0) if seen is None else seen
    parts = LearnerParts(
        config=config,
        policy=make_policy(config, sight, learning=True),
        algorithm=make_algorithm(config),
        store=store,
        weights=WeightsFolder(life.run.weights, keep=config.learner.keep_versions),
        checkpoints=CheckpointFolder(life.run.checkpoints),
        report=report,
        fitting=make_fitting(config),
        look=camera(config, sight),
        collected_s=Collected(life.run.progress),
    )
    log_notices(parts.policy, life.log)
    learner = Learner(parts)
    report.attach(learner)
    if learner.resume():
        life.log.write("resumed", version=learner.version, updates=learner.updates, episodes=learner.episodes)
        if config.policy.kind == "pixel" and config.warm_start.samples and config.warm_start.rehearse:
            life.log.write("rehearsal_over", why="the screens of the warm start do not outlive the learner's process")
    elif life.stopping():
        return
    else:
        _warm_start(life, parts, sight, learner)
        learner.keep_demonstrations()
    learner.run(life.stopping)


def _warm_start(life: Life, parts: LearnerParts, sight: RecentFrames, learner: Learner) -> None:
    warm_start = parts.config.warm_start
    if not warm_start.demonstrations:
        return
    if not warm_start.samples:
        learnt = _clone_all(life, parts)
    elif parts.config.policy.kind == "pixel":
        from distrl.runtime.study import study  # what one policy needs is not loaded for another

        outcome = study(life, parts.policy)
        learnt, learner.practice.rehearse = Learnt(examples=outcome.samples, loss=outcome.loss), outcome.rehearse
    else:
        learnt = _clone_stream(life, parts, sight)
    life.log.write("warm_start", demonstrations=warm_start.demonstrations, **msgspec.to_builtins(learnt))


def _clone_all(life: Life, parts: LearnerParts) -> Learnt:
    """Hold all demonstrations in memory and go over them."""
    config = parts.config
    random, tasks = Random(config.run.seed), demonstration_tasks(config)
    examples, shown = list[Example](), 0
    for done, task in enumerate(tasks):
        _beat(life, f"watching the oracle: {done} of {len(tasks)} demonstrations")
        pairs = demonstrate([task], config.devices.wild, history=config.rollout.history, look=parts.look)
        examples += examples_for(parts.policy, pairs)
        shown += len(pairs)
    if not examples:
        raise _refusal(config, shown)
    words = f"cloning {len(examples)} of {shown} steps of {len(tasks)} demonstrations"

    def tell(now: Cloned) -> None:
        _beat(life, f"{words}: {now.share:.0%}, {now.per_s:.0f}/s, loss {now.loss:.3f}")
        batch = -(-now.samples // config.warm_start.batch)
        if batch % TELL_EVERY == 0 or now.share == 1.0:
            _write_cloned(life, now)

    loss = clone(parts.policy, examples, config.warm_start, random=random, tell=tell)
    return Learnt(examples=len(examples), loss=loss, shown=shown)


def _refusal(config: Config, shown: int) -> ConfigError:
    return nothing_sayable(shown, config.policy, otherwise="another tasks.suite, or --warm_start.demonstrations 0")


def _clone_stream(life: Life, parts: LearnerParts, sight: RecentFrames) -> Learnt:
    """Clone demonstrations as they are drawn."""
    config, policy = parts.config, parts.policy
    words = "cloning a stream: its processes are starting"
    num_shown = num_said = 0

    def take() -> list[Example]:
        nonlocal num_shown, num_said
        shown = stream.take(config.warm_start.batch, waiting=lambda: _beat(life, words))
        _beat(life, words)
        for one in shown:
            if one.picture:
                sight.put(one.picture)
        examples = examples_for(policy, ((one.observation, one.action) for one in shown))
        num_shown, num_said = num_shown + len(shown), num_said + len(examples)
        if not num_said:
            raise _refusal(config, num_shown)
        return examples

    def tell(now: Cloned) -> None:
        nonlocal words
        steps = f"{now.samples} of {num_shown} steps"
        words = f"cloning a stream: {now.share:.0%}, {steps}, {now.per_s:.0f}/s, loss {now.loss:.3f}"
        _write_cloned(life, now)

    with DemonstrationStream(config, random=Random(config.run.seed)) as stream:
        last = clone_stream(policy, take, config.warm_start, tell=tell)
    return Learnt(examples=last.samples, loss=last.loss, shown=num_shown)


def _write_cloned(life: Life, now: Cloned) -> None:
    figures = {
        "samples": now.samples,
        "loss": now.loss,
        "certain": now.certain,
        "per_s": now.per_s,
        "left_out": now.left_out,
    }
    life.metrics.write("warm_start", role="learner", **{f"warm_start/{name}": value for name, value in figures.items()})


def _beat(life: Life, what: str) -> None:
    life.pulse.doing(what)
    if life.stopping():
        raise SystemExit(0)  # there is nothing to save before the first version

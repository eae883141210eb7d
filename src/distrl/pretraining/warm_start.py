"""What happens before practice: behaviour cloning of oracle demonstrations, or the pixel policy's grounding pretraining.

A few demonstrations are held in memory; with `warm_start.samples` they come as a stream. Demonstrations that are kept
go to the store as trajectories (`source = "demonstration"`), to be imitated during practice too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import msgspec
from torch import Tensor

from distrl.config.schema import Config
from distrl.errors import ConfigError
from distrl.experience.frames import FrameCache
from distrl.experience.priorities import EPS
from distrl.policies.base import Policy
from distrl.pretraining.cloning import (
    REPORT_EVERY,
    CloningProgress,
    Example,
    Reporter,
    clone,
    clone_stream,
    examples_for,
    nothing_expressible,
)
from distrl.pretraining.demonstrations import demonstrate_in, demonstration_tasks, make_renderer
from distrl.pretraining.stream import DemonstrationStream
from distrl.types import Action, Decision, Ending, EndState, Finish, Observation, Step, Task, Trajectory, Verdict

DEMONSTRATION = "demonstration-"
"""Begins the id of a demonstration in the store."""


class WarmStart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a warm start came to."""

    examples: int = 0
    loss: float = 0.0
    """Of the last epoch or the last batches."""
    shown: int | None = None
    """Demonstrated steps, those that the policy cannot express included; None: not counted, as in grounding."""
    failed: int = 0
    """Demonstrations in which the oracle failed, as happens under perturbations; nothing of them is learnt."""


class WarmStarter:
    """Runs the warm start of one policy and tells a role how it goes."""

    def __init__(self, config: Config, policy: Policy[Any], frames: FrameCache, reporter: Reporter) -> None:
        self._config, self._policy, self._frames, self._reporter = config, policy, frames, reporter
        self.auxiliary_loss: Callable[[], Tensor] | None = None
        """What later updates add to their loss; None: nothing."""

    def run(self) -> WarmStart:
        """Clone demonstrations or pretrain grounding, as the configuration says; nothing without demonstrations."""
        warm_start = self._config.warm_start
        if not warm_start.demonstrations:
            return WarmStart()
        if not warm_start.samples:
            return self._clone_in_memory()
        return self._pretrain_grounding() if self._config.policy.kind == "pixel" else self._clone_stream()

    def kept(self) -> Iterator[tuple[Trajectory, Mapping[str, bytes]]]:
        """The demonstrations that practice begins with, and their pictures; none after a stream, which nobody holds."""
        warm_start = self._config.warm_start
        if warm_start.samples or not warm_start.keep:
            return
        for number, task in enumerate(demonstration_tasks(self._config)):
            found = as_trajectory(f"{DEMONSTRATION}{number}", task, self._demonstrate(task), self._policy, self._config)
            if found is not None:
                yield found, {reference: self._frames.get(reference) for reference in _pictures_of(found)}

    def _demonstrate(self, task: Task) -> list[tuple[Observation, Action]]:
        return demonstrate_in(self._config, [task], render=make_renderer(self._config, self._frames))

    def _clone_in_memory(self) -> WarmStart:
        """Hold all demonstrations in memory and go over them."""
        config = self._config
        tasks, examples, shown, failed = demonstration_tasks(config), list[Example](), 0, 0
        for done, task in enumerate(tasks):
            self._reporter.say(f"watching the oracle: {done} of {len(tasks)} demonstrations")
            pairs = self._demonstrate(task)
            examples += examples_for(self._policy, pairs)
            shown += len(pairs)
            failed += not pairs
        if not examples:
            raise self._refusal(shown)
        words = f"cloning {len(examples)} of {shown} steps of {len(tasks) - failed} demonstrations"
        words += f" ({failed} failed)" if failed else ""

        def report(now: CloningProgress) -> None:
            self._reporter.say(f"{words}: {now.share:.0%}, {now.per_s:.0f}/s, loss {now.loss:.3f}")
            batch = -(-now.samples // config.warm_start.batch)
            if batch % REPORT_EVERY == 0 or now.share == 1.0:
                self._measured(now)

        loss = clone(self._policy, examples, config.warm_start, random=Random(config.run.seed), report=report)
        return WarmStart(examples=len(examples), loss=loss, shown=shown, failed=failed)

    def _clone_stream(self) -> WarmStart:
        """Clone demonstrations as they are drawn."""
        config = self._config
        words = "cloning a stream: its processes are starting"
        num_shown = num_expressible = 0

        def take() -> list[Example]:
            nonlocal num_shown, num_expressible
            shown = stream.take(config.warm_start.batch, on_wait=lambda: self._reporter.say(words))
            self._reporter.say(words)
            for step in shown:
                if step.frame:
                    self._frames.put(step.frame)
            examples = examples_for(self._policy, ((step.observation, step.action) for step in shown))
            num_shown, num_expressible = num_shown + len(shown), num_expressible + len(examples)
            if not num_expressible:
                raise self._refusal(num_shown)
            return examples

        def report(now: CloningProgress) -> None:
            nonlocal words
            steps = f"{now.samples} of {num_shown} steps"
            words = f"cloning a stream: {now.share:.0%}, {steps}, {now.per_s:.0f}/s, loss {now.loss:.3f}"
            self._measured(now)

        with DemonstrationStream(config, random=Random(config.run.seed)) as stream:
            last = clone_stream(self._policy, take, config.warm_start, report=report)
        return WarmStart(examples=last.samples, loss=last.loss, shown=num_shown)

    def _pretrain_grounding(self) -> WarmStart:
        """The pixel policy's grounding pretraining."""
        # What one policy needs is not loaded for another.
        from distrl.policies.pixel.policy import PixelPolicy
        from distrl.pretraining.grounding.training import pretrain

        assert isinstance(self._policy, PixelPolicy)
        done = pretrain(self._policy, self._config, self._reporter)
        self.auxiliary_loss = done.auxiliary_loss
        return WarmStart(examples=done.samples, loss=done.loss)

    def _measured(self, now: CloningProgress) -> None:
        self._reporter.measured(
            {
                "samples": now.samples,
                "loss": now.loss,
                "certain": now.certain,
                "per_s": now.per_s,
                "skipped": now.skipped,
            }
        )

    def _refusal(self, shown: int) -> ConfigError:
        otherwise = "another tasks.suite, or --warm_start.demonstrations 0"
        return nothing_expressible(shown, self._config.policy, otherwise=otherwise)


def _pictures_of(trajectory: Trajectory) -> set[str]:
    """References to all pictures that a policy may ask for: a step that is left out is still in the others' history."""
    seen = [step.observation for step in trajectory.steps]
    past = {one.screenshot for observation in seen for one in observation.recent}
    return ({observation.screenshot for observation in seen} | past) - {""}


def as_trajectory(
    id: str, task: Task, pairs: list[tuple[Observation, Action]], policy: Policy[Any], config: Config
) -> Trajectory | None:
    """The oracle's episode as an example to imitate; None where it failed or the policy can express none of it.

    No critic learns from it: what the oracle achieves is not what the policy may expect.
    """
    steps = []
    for observation, action in pairs:
        choice = policy.imitate(observation, action)
        if choice is not None:
            decision = Decision(action=action, choice=choice, logp=0.0, entropy=0.0, value=0.0)
            steps.append(Step(observation=observation, decision=decision, version=0))
    if not steps:
        return None
    steps[-1] = msgspec.structs.replace(steps[-1], reward=1.0)
    claim = pairs[-1][1]
    return Trajectory(
        id=id,
        task=task,
        steps=tuple(steps),
        ending=Ending.FINISHED,
        verdict=Verdict(outcome="success", reason="demonstrated by the oracle", progress=1.0),
        end=EndState(claim=claim if isinstance(claim, Finish) else None),
        priority=config.replay.ratio_weight + config.replay.success_weight + EPS,
        source="demonstration",
        worker="oracle",
    )

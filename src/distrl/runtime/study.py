"""The pixel policy's warm start in the learner's process: the stream, the study, and who hears of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import torch
from torch import Tensor

from distrl.policies.base import Policy
from distrl.policies.pixel.policy import PixelPolicy
from distrl.pretraining.grounding.losses import SheetPool, Study
from distrl.pretraining.grounding.stream import SheetStream
from distrl.pretraining.grounding.training import Progress, study_stream
from distrl.runtime.role import Life


class StudyReporter:
    """Turns what is said of a study into heartbeats and metrics."""

    def __init__(self, life: Life) -> None:
        self._life, self._said = life, ""

    def say(self, what: str) -> None:
        if what != self._said:
            self._life.log.write("study", what=what)
        self._said = what
        self.alive()

    def alive(self) -> None:
        self._life.pulse.doing(self._said)
        if self._life.stopping():
            raise SystemExit(0)  # there is nothing to save before the first version

    def tell(self, now: Progress) -> None:
        figures = {
            "samples": now.samples,
            "per_s": now.per_s,
            "drawn": now.drawn,
            "drawn_per_s": now.drawn_per_s,
            "left_out": now.left_out,
            "loss": now.parts["step"],
            **{name: value for name, value in now.parts.items() if name != "step"},
        }
        self._life.metrics.write(
            "warm_start", role="learner", **{f"warm_start/{name}": value for name, value in figures.items()}
        )
        steps = f"{now.share:.0%}, {now.samples} questions, {now.per_s:.0f}/s, {now.drawn_per_s:.0f} screens/s drawn"
        known = ", ".join(f"{name} {now.parts[name]:.3f}" for name in SHOWN if name in now.parts)
        self._said = f"cloning a stream: {steps}, {known}"
        self.alive()


SHOWN = ("step", "steps_known", "points_known", "hidden_known", "letters_known", "names_known")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a study came to."""

    samples: int
    loss: float
    rehearse: Callable[[], Tensor] | None
    """What practice may add to its loss to go on reading; None where that is not wanted."""


def study(life: Life, policy: Policy[Any]) -> Outcome:
    """Let the pixel policy learn to read, to point and to act."""
    config = life.config
    assert isinstance(policy, PixelPolicy)
    here = next(policy.network.parameters()).device
    with SheetStream(config, pinned=here.type == "cuda") as stream:
        exercises = Study(policy.network, config.policy.pixel, config.warm_start, seed=config.run.seed)
        pool = SheetPool(config.policy.pixel, config.warm_start.pool, here)
        last = study_stream(exercises, pool, stream, config.warm_start, StudyReporter(life))
    count = config.warm_start.rehearse
    rehearse = exercises.again(pool, count) if count else None
    del pool, exercises
    if here.type == "cuda":
        torch.cuda.empty_cache()  # workers on the same GPU need the room
    return Outcome(samples=last.samples, loss=last.parts["step"], rehearse=rehearse)

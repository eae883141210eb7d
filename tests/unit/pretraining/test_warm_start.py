"""Demonstrations that are kept: trajectories to imitate, with every picture that a policy may ask for."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from distrl.config.schema import Config
from distrl.experience.frames import FrameCache
from distrl.experience.priorities import EPS
from distrl.policies.base import PolicyContext
from distrl.policies.pixel.policy import PixelPolicy
from distrl.pretraining.demonstrations import demonstrate_in, demonstration_tasks, no_frame
from distrl.pretraining.warm_start import WarmStarter, as_trajectory
from distrl.types import Action, Ending, Finish, Observation, Trajectory, TypeText
from support.batches import tiny_policy
from support.grounding import RecordingReporter
from support.learners import small_config
from support.pixels import TINY, pixel_config, tiny_pixels

CONFIG = small_config(
    warm_start={"demonstrations": 4, "keep": True},
    tasks={"suite": "sim-start"},
    replay={"ratio_weight": 2.0, "success_weight": 30.0},
)


def kept(config: Config, policy: object) -> list[tuple[Trajectory, Mapping[str, bytes]]]:
    return list(WarmStarter(config, policy, FrameCache(1000), RecordingReporter()).kept())  # type: ignore[arg-type]


def test_a_kept_demonstration_is_the_oracles_episode_in_the_grammar_of_the_policy() -> None:
    policy, tasks = tiny_policy(), demonstration_tasks(CONFIG)
    found = kept(CONFIG, policy)
    assert [trajectory.id for trajectory, _ in found] == [f"demonstration-{n}" for n in range(4)]
    for (trajectory, frames), task in zip(found, tasks, strict=True):
        pairs = demonstrate_in(CONFIG, [task], render=no_frame)
        assert [(step.observation, step.decision.action) for step in trajectory.steps] == pairs
        assert all(policy.imitate(s.observation, s.decision.action) == s.decision.choice for s in trajectory.steps)
        assert [step.reward for step in trajectory.steps] == [0.0] * (len(pairs) - 1) + [1.0]
        assert (trajectory.task, trajectory.source, trajectory.ending) == (task, "demonstration", Ending.FINISHED)
        assert trajectory.verdict.success
        assert trajectory.end.claim == pairs[-1][1]
        assert trajectory.priority == pytest.approx(32.0 + EPS)
        assert frames == {}


def test_inexpressible_steps_are_skipped_and_a_demonstration_of_nothing_else_is_none() -> None:
    (task, *_), policy = demonstration_tasks(CONFIG), tiny_policy()
    pairs = demonstrate_in(CONFIG, [task], render=no_frame)
    mute: tuple[Observation, Action] = (pairs[0][0], TypeText("Rumpelstiltskin"))
    found = as_trajectory("a", task, [mute, *pairs], policy, CONFIG)
    assert found is not None
    assert [step.decision.action for step in found.steps] == [action for _, action in pairs]
    assert as_trajectory("a", task, [mute], policy, CONFIG) is None
    assert as_trajectory("a", task, [], policy, CONFIG) is None
    cut = as_trajectory("a", task, pairs[:1], policy, CONFIG)
    assert cut is not None
    assert cut.end.claim == (pairs[0][1] if isinstance(pairs[0][1], Finish) else None)


def test_nothing_is_kept_after_a_stream_or_where_nobody_asked() -> None:
    assert kept(pixel_config(warm_start__demonstrations=2, warm_start__samples=8), tiny_pixels()) == []
    assert kept(pixel_config(warm_start__demonstrations=2, warm_start__keep=False), tiny_pixels()) == []


class Taciturn(PixelPolicy):
    """A policy that can express the last steps of a demonstration alone."""

    def imitate(self, observation: Observation, action: Action) -> tuple[int, ...] | None:
        return super().imitate(observation, action) if observation.recent else None


def test_every_picture_of_a_kept_demonstration_comes_along_those_of_its_history_too() -> None:
    config = pixel_config(warm_start__demonstrations=4)
    found = kept(config, Taciturn(TINY, PolicyContext(frames=FrameCache(0))))
    assert found
    for trajectory, frames in found:
        seen = {step.observation.screenshot for step in trajectory.steps}
        before = {past.screenshot for step in trajectory.steps for past in step.observation.recent}
        assert before - seen, "the picture of the step that is left out"
        assert frames.keys() == seen | before
        assert all(picture.startswith(b"\xff\xd8") for picture in frames.values())

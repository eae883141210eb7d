"""What the oracle is shown is what a policy is shown: demonstrations and episodes have the same observations."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from distrl.config.schema import FaultConfig, LatencyConfig
from distrl.devices.sim.device import SimDevice, SimSettings
from distrl.experience.frames import FrameCache
from distrl.pretraining.demonstrations import WorkerJob, demonstrate, demonstrate_in, draw, make_renderer
from distrl.pretraining.warm_start import WarmStarter
from distrl.rollout.episode import EpisodeLimits, EpisodeTools, run_episode
from distrl.tasks.sim.oracle import Oracle
from distrl.types import Action, Decision, Observation, Task
from support.batches import PERTURBED, some_tasks
from support.grounding import RecordingReporter
from support.pixels import TINY, pixel_config, tiny_pixels

TASKS = 30
LONGEST = 60
"""Steps that the oracle may take in a demonstration."""


def played(
    task: Task, *, history: int, frames: FrameCache | None = None, width_px: int = 360
) -> list[tuple[Observation, Action]]:
    """The oracle on a simulated phone, through the one episode loop."""
    settings = SimSettings(
        perturbations=PERTURBED,
        latency=LatencyConfig(profile="instant"),
        faults=FaultConfig(),
        screenshot_width=width_px,
    )
    act, device = Oracle(task).act, SimDevice("phone", settings)

    async def decide(seen: Observation) -> tuple[Decision, int]:
        return Decision(action=act(seen.elements), choice=(), logp=0.0, entropy=0.0, value=0.0), 0

    tools = EpisodeTools(decide=decide, clock=lambda: 0.0, keep_frame=frames.put if frames else None)
    limits = EpisodeLimits(history=history, repeat_penalty=0.0)
    found = asyncio.run(run_episode("oracle", device, replace(task, max_steps=LONGEST), tools, limits)).trajectory
    assert found is not None
    return [(step.observation, step.decision.action) for step in found.steps]


@pytest.mark.parametrize("history", [0, 2, 6])
@pytest.mark.parametrize("suite", ["sim-general", "sim-shopping"])
def test_a_demonstration_shows_what_an_episode_of_the_oracle_shows(suite: str, history: int) -> None:
    compared = [
        (shown, played(task, history=history))
        for task in some_tasks(suite, TASKS)
        if (shown := demonstrate([task], PERTURBED, history=history))
    ]
    assert len(compared) > 0.8 * TASKS
    for shown, lived in compared:
        assert shown == lived
    pasts = [past for shown, _ in compared for seen, _ in shown for past in seen.recent]
    assert {past.changed for past in pasts} == ({True, False} if history else set())
    assert any(past.target for past in pasts) == bool(history)


@pytest.mark.parametrize("width_px", [TINY.picture_width, 90])
def test_screenshots_and_the_size_of_the_screen_are_those_of_the_runs_phones(width_px: int) -> None:
    config, frames = pixel_config(devices__sim__screenshot_width=width_px), FrameCache(1000)
    config = replace(config, devices=replace(config.devices, sim=replace(config.devices.sim, perturbations=PERTURBED)))
    render = make_renderer(config, frames)
    for task in some_tasks("sim-general", 4):
        shown = demonstrate_in(config, [task], render=render)
        assert shown
        assert shown == played(task, history=config.rollout.history, frames=frames, width_px=width_px)
        assert {(seen.width_px, seen.height_px) for seen, _ in shown} == {(width_px, 2 * width_px)}


def test_demonstrations_that_are_kept_and_streamed_have_the_size_of_the_runs_phones() -> None:
    config, frames = pixel_config(warm_start__demonstrations=2), FrameCache(1000)
    kept = WarmStarter(config, tiny_pixels(), frames, RecordingReporter()).kept()
    seen = [step.observation for trajectory, _ in kept for step in trajectory.steps]
    streamed = [step.observation for step in next(draw(WorkerJob(config=config, number=0, num=1)))]
    assert {one.width_px for one in seen} == {one.width_px for one in streamed} == {TINY.picture_width}

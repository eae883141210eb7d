"""The smallest pixel policy, and real screens with their screenshots."""

from __future__ import annotations

from functools import cache

import torch

from distrl.config.load import load_config
from distrl.config.schema import Config, PixelConfig
from distrl.experience.frames import FrameCache
from distrl.policies.base import PolicyContext
from distrl.policies.pixel.policy import PixelPolicy
from distrl.pretraining.demonstrations import demonstrate, make_renderer
from distrl.types import Action, Observation, Value
from support.batches import PERTURBED, SUITES, some_tasks

TINY = PixelConfig(
    picture_width=64,
    picture_height=128,
    width=32,
    vision_layers=1,
    joint_layers=1,
    text_bytes=64,
    jitter=0.0,
    image_cache=16,
)
SETTINGS: dict[str, Value] = {
    "tasks.suite": "sim-touch",
    "devices.sim.screenshot_width": TINY.picture_width,
    "devices.sim.latency.profile": "instant",
    "rollout.keep_screenshots": True,
    "policy.kind": "pixel",
    **{f"policy.pixel.{name}": getattr(TINY, name) for name in TINY.__struct_fields__},
}
FRAMES = FrameCache(10_000)
"""The screenshots of all screens below."""


def pixel_config(**changes: Value) -> Config:
    """A run with the smallest pixel policy, with changes (`warm_start__samples=64`)."""
    return load_config(None, {**SETTINGS, **{key.replace("__", "."): value for key, value in changes.items()}})


def tiny_pixels(
    seed: int = 0, *, config: PixelConfig = TINY, learning: bool = False, spread: float = 0.0
) -> PixelPolicy:
    """The smallest pixel policy; `spread` shakes its weights so that its choices are far from uniform."""
    torch.set_num_threads(1)
    policy = PixelPolicy(config, PolicyContext(frames=FRAMES, learning=learning, seed=seed))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in policy.network.parameters():
            weights.add_(spread * torch.randn(weights.shape, generator=generator))
    return policy


@cache
def pictured(count: int = 4) -> tuple[tuple[Observation, Action], ...]:
    """What the oracle sees and does on `count` tasks of each suite, on perturbed phones, with pictures."""
    tasks = [task for name in SUITES for task in some_tasks(name, count)]
    return tuple(demonstrate(tasks, PERTURBED, history=6, render=make_renderer(pixel_config(), FRAMES)))


def pictured_screens(count: int) -> list[Observation]:
    """Real screens from all over the demonstrations."""
    pairs = pictured()
    return [pairs[index * len(pairs) // count][0] for index in range(count)]

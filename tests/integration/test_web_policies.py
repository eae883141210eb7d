"""Policies that read screenshots, and models that read prompts, act and train on Chromium phones as they do on any other device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import distrl
from distrl.types import Trajectory
from support.pixels import TINY
from support.vlms import tiny_model
from support.webs import needs_chromium

pytest.importorskip("miniwob")
pytestmark = needs_chromium

SMALL: dict[str, Any] = {
    "run.episodes": 8,
    "run.minutes": 4,
    "tasks.suite": "miniwob",
    "tasks.miniwob.tasks": ("click-test", "click-button"),
    "devices.kind": "web",
    "devices.per_worker": 2,
    "rollout.workers": 1,
    "warm_start.demonstrations": 0,
    "evaluation.episodes": 2,
    "evaluation.every_s": 0,
    "evaluation.devices": 1,
    "learner.first_update_episodes": 2,
    "learner.batch_trajectories": 2,
    "algorithm.aride.critic_warmup_updates": 0,
    "runtime.start_grace_s": 120,
}
PIXEL = {
    "policy.kind": "pixel",
    "rollout.keep_screenshots": True,
    **{f"policy.pixel.{name}": getattr(TINY, name) for name in TINY.__struct_fields__},
}


def vlm(family: str, *, pictures: bool) -> dict[str, Any]:
    settings = {"path": str(tiny_model(family)), "pictures": pictures, "answer_tokens": 12, "image_max_pixels": 8000}
    return {
        "policy.kind": "vlm",
        "rollout.keep_screenshots": pictures,
        **{f"policy.vlm.{name}": value for name, value in settings.items()},
    }


def trained(root: Path, settings: dict[str, Any]) -> tuple[distrl.Run, list[Trajectory]]:
    run = distrl.train(
        None, **{key.replace(".", "__"): value for key, value in {**SMALL, **settings}.items()}, run__root=str(root)
    )
    return run, [episode for episode in run.episodes() if episode.source == "played"]


def check(run: distrl.Run, played: list[Trajectory], *, pictures: bool) -> None:
    assert run.summary is not None
    assert run.summary.episodes >= SMALL["run.episodes"]
    assert run.summary.policy_version >= 1
    assert sum(value for _, value in run.curve("learner/updates"))
    for step in (step for episode in played for step in episode.steps):
        assert step.observation.elements
        assert bool(step.observation.screenshot) == pictures
        assert step.decision.choice
        assert step.decision.logp < 0.0


def test_the_pixel_policy_taps_what_it_sees(tmp_path: Path) -> None:
    run, played = trained(tmp_path, PIXEL)
    check(run, played, pictures=True)
    assert any(step.valid for episode in played for step in episode.steps)
    assert run.frame(played[0].steps[0].observation.screenshot)


@pytest.mark.parametrize(("family", "pictures"), [("text", False), ("qwen2.5-vl", True)])
def test_a_language_model_answers_the_prompts_of_a_page(tmp_path: Path, family: str, pictures: bool) -> None:
    run, played = trained(tmp_path, vlm(family, pictures=pictures))
    check(run, played, pictures=pictures)

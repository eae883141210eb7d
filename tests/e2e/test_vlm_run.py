"""A whole small run of a vision-language model, as people start it, and what is left of it for others."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from distrl.cli.main import main
from distrl.config.load import load_config
from distrl.errors import ConfigError
from distrl.experience.frames import FrameCache
from distrl.experience.store import ExperienceStore
from distrl.pretraining.warm_start import WarmStarter
from distrl.runtime.factory import make_policy
from distrl.runtime.run_folder import RunFolder
from distrl.telemetry.events import read_events
from support.grounding import RecordingReporter
from support.runs import check_exactly_once, distrl, flags, last_json
from support.vlms import tiny_model

CONFIG = Path(__file__).parents[2] / "configs" / "vlm.toml"
TINY: dict[str, Any] = {
    "run.minutes": 0,
    "run.episodes": 6,
    "tasks.max_oracle_steps": 3,
    "devices.per_worker": 3,
    "devices.sim.screenshot_width": 90,
    "devices.sim.latency.profile": "instant",
    "policy.device": "cpu",
    "learner.device": "cpu",
    "policy.vlm.dialect": "json",
    "policy.vlm.elements": "false",
    "policy.vlm.image_max_pixels": 8000,
    "policy.vlm.answer_tokens": 24,
    "policy.vlm.lora_rank": 4,
    "policy.vlm.history_pictures": 1,
    "warm_start.demonstrations": 2,
    "learner.first_update_episodes": 2,
    "learner.batch_trajectories": 2,
    "learner.publish_every_s": 0.5,
    "evaluation.episodes": 2,
    "evaluation.devices": 2,
}
TEXT = {"policy.vlm.pictures": "false", "policy.vlm.elements": "true", "policy.vlm.history_pictures": 0}


@pytest.mark.parametrize("family", ["qwen3-vl", pytest.param("text", marks=pytest.mark.long)])
def test_a_model_is_cloned_trained_evaluated_and_exported_with_pictures_and_without(
    family: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # What differs between the families of models is in the policy: tests/integration/test_vlm_learning.py has them all.
    reading = TEXT if family == "text" else {}
    settings = {**TINY, **reading, "policy.vlm.path": tiny_model(family), "run.root": tmp_path / "runs"}
    done = distrl("train", CONFIG, *flags(settings), "--json")
    assert done.returncode == 0, done.stderr
    summary = last_json(done.stdout)
    run = RunFolder(next((tmp_path / "runs").glob("*/config.toml")).parent)
    assert summary["episodes"] == check_exactly_once(run) >= 6
    assert (summary["lost_episodes"], summary["restarts"]) == (0, 0)
    assert summary["updates"] > 0
    (warmed,) = [event for event in read_events(run.log("learner")) if event["event"] == "warm_start"]
    assert 0 < warmed["examples"] < warmed["shown"]  # the longest answers do not fit into 24 tokens
    if family != "text":
        check_memory_of_pictures(run)
    assert [path.name for path in run.logs.glob("*.out") if path.stat().st_size] == []  # only bugs write there
    assert main(["export", str(run.path), str(tmp_path / "out"), "--json"]) == 0
    assert "adapter_model.safetensors" in last_json(capsys.readouterr().out)["files"]
    assert "| after training | 0.0% [" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def check_memory_of_pictures(run: RunFolder) -> None:
    """Each past action refers to the picture that it was decided on."""
    with ExperienceStore(run.experience) as store:
        for row in store.after(0, 1000):
            steps = store.read(row.id).steps
            for before, after in pairwise(steps):
                assert after.observation.recent[-1].screenshot == before.observation.screenshot != ""


def test_a_folder_that_is_no_model_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    done = distrl("train", CONFIG, "--policy.vlm.path", tmp_path, "--run.root", tmp_path / "runs")
    assert done.returncode == 2
    assert "hf download" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


SHORT = {"policy.vlm.answer_tokens": 2}
"""Answers in which no action fits."""


def test_a_warm_start_of_which_nothing_can_be_expressed_ends_the_run_with_the_fix(tmp_path: Path) -> None:
    settings = {**TINY, **TEXT, **SHORT, "policy.vlm.path": tiny_model("text"), "run.root": tmp_path / "runs"}
    done = distrl("train", CONFIG, *flags({**settings, "warm_start.samples": 200, "warm_start.processes": 1}))
    assert done.returncode == 2, done.stderr
    assert re.search(r"can express none of the [1-9]\d* demonstrated steps", done.stderr)
    assert "policy.vlm.answer_tokens above 2" in done.stderr
    assert "Traceback" not in done.stderr
    run = RunFolder(next((tmp_path / "runs").glob("*/config.toml")).parent)
    assert not list(run.weights.glob("*.safetensors"))


def test_the_same_goes_for_demonstrations_in_memory() -> None:
    settings = {**TINY, **TEXT, **SHORT, "policy.vlm.path": str(tiny_model("text")), "warm_start.samples": 0}
    config = load_config(CONFIG, settings)
    frames = FrameCache(10)
    starter = WarmStarter(config, make_policy(config, frames, learning=True), frames, RecordingReporter())
    with pytest.raises(ConfigError, match=r"can express none of the [1-9]\d* demonstrated steps") as caught:
        starter.run()
    assert "policy.vlm.answer_tokens above 2" in caught.value.fix

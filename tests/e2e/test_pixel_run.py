"""A whole small run of the pixel policy, as people start it."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrl.experience.frames import FrameStore
from distrl.experience.store import ExperienceStore
from distrl.runtime.run_folder import RunFolder
from distrl.telemetry.events import read_events
from distrl.telemetry.metrics import METRICS
from support.runs import check_exactly_once, distrl, last_json

CONFIG = Path(__file__).parents[2] / "configs" / "pixel-small.toml"


@pytest.mark.long
def test_a_pixel_policy_is_cloned_trained_and_evaluated_from_pictures_alone(tmp_path: Path) -> None:
    done = distrl("train", CONFIG, "--run.root", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    summary = last_json(done.stdout)
    run = RunFolder(next(tmp_path.glob("*/config.toml")).parent)
    assert summary["episodes"] == check_exactly_once(run) >= 40
    assert (summary["lost_episodes"], summary["restarts"]) == (0, 0)
    assert "gpu_utilisation" in summary
    assert summary["updates"] > 0
    assert {summary["success_before_rate"]["n"], summary["success_after_rate"]["n"]} == {10}
    check_warm_start(run)
    check_pictures(run)
    evaluated = distrl("evaluate", run.path, "--episodes", 3, "--json")
    assert last_json(evaluated.stdout)["n"] == 3, evaluated.stderr
    assert [path.name for path in run.logs.glob("*.out") if path.stat().st_size] == []  # only bugs write there


def check_warm_start(run: RunFolder) -> None:
    cloned = [line for line in read_events(run.metrics) if line["event"] == "warm_start"]
    assert 480 <= cloned[-1]["warm_start/samples"] < 480 + 32 * 4  # to the end of a batch of 32 screens
    assert {name for line in cloned for name in line if "/" in name} <= METRICS.keys()
    (told,) = [event for event in read_events(run.log("learner")) if event["event"] == "warm_start"]
    assert told["examples"] == cloned[-1]["warm_start/samples"]


def check_pictures(run: RunFolder) -> None:
    """Every observation has its picture in the store."""
    frames = FrameStore(run.experience)
    with ExperienceStore(run.experience) as store:
        for row in store.after(0, 1000):
            for step in store.read(row.id).steps:
                assert frames.get(step.observation.screenshot).startswith(b"\xff\xd8")


def test_a_run_that_would_keep_no_pictures_is_refused_with_the_fix(tmp_path: Path) -> None:
    done = distrl("train", CONFIG, "--rollout.keep_screenshots", "false", "--run.root", tmp_path / "runs")
    assert done.returncode == 2
    assert "--rollout.keep_screenshots true" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
    assert done.stdout == ""

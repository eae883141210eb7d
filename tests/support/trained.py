"""Small runs that have something to load: published weights, and a few episodes."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from distrl.config.load import load_config
from distrl.experience.store import ExperienceStore
from distrl.runtime.factory import make_policy
from distrl.runtime.run_folder import RunFolder, create_run
from distrl.transport.weight_files import WeightsFolder
from support.learners import make_version
from support.trajectories import make_trajectory

NOW = datetime(2026, 1, 2, 3, 4, 5)
SMALL = {"policy.pointer.width": 16, "policy.pointer.layers": 1, "evaluation.devices": 4}


def small_run(root: Path, *, versions: int = 1, **settings: Any) -> RunFolder:
    """A run that has published versions 0 and so on, with random weights."""
    given = {key.replace("__", "."): value for key, value in settings.items()}
    small = {key: value for key, value in SMALL.items() if not (key.startswith("policy.") and "policy.kind" in given)}
    config = load_config(None, {**small, "run.root": str(root), **given})
    run = create_run(config, now=NOW)
    weights = WeightsFolder(run.weights, keep=100)
    for version in range(versions):
        weights.publish(make_policy(config), make_version(version))
    return run


def store_episodes(run: RunFolder, **outcomes: bool) -> None:
    """Episodes by id, with whether they succeeded."""
    with ExperienceStore(run.experience) as store:
        for id, success in outcomes.items():
            store.add(make_trajectory(id, success=success))

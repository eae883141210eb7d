"""`distrl bench ray`: the default training on a Ray of three nodes beside the one on this machine alone, one after the other.

Three runs with the same settings and seed: local processes; Ray, with the run folder on the head and learner and workers on two other
nodes; and the same Ray with decisions made by two inference actors for workers that hold no policy. All nodes share this
machine's cores, so what Ray costs comes out of the same cores: a throughput ratio of 1 is the best there can be. Success is on
held-out tasks, with its 95 % interval; learning takes `run.minutes` of collecting in each.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from distrl.bench.base import BenchOptions
from distrl.bench.jobs import log_progress
from distrl.bench.system.ray_nodes import on_cluster, ray_nodes
from distrl.config.load import config_hash, load_config
from distrl.errors import RoleCrashed
from distrl.runtime.summary import Summary
from distrl.types import Value

MINUTES, QUICK_MINUTES = 3.0, 0.3
NODES = 2
DEADLINE_S = 1200.0
ACTORS: dict[str, Value] = {"rollout.decide": "actors", "inference.actors": 2, "inference.cpus": 0.1}


class TrainingFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One training."""

    success_before: float | None
    success_after: float | None
    low: float
    high: float
    """The interval of `success_after`."""
    n: int
    episodes: int
    episodes_per_s: float
    device_utilisation: float
    staleness_mean: float
    updates: int
    lost_episodes: int | None
    duplicate_episodes: int
    restarts: int
    wall_s: float


class RayFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The three trainings."""

    local: TrainingFigures
    ray: TrainingFigures
    ray_actors: TrainingFigures
    throughput_ratio: float
    """Episodes a second on Ray over those of the local run."""
    throughput_ratio_actors: float
    success_within_noise: bool
    """The intervals of all three have something in common."""
    minutes: float
    nodes: int
    runtime: str
    seeds: int
    config_hash: str


def run(options: BenchOptions) -> RayFigures:
    """Measure everything that `distrl bench ray` reports."""
    minutes = QUICK_MINUTES if options.quick else MINUTES
    settings: dict[str, Value] = {"run.minutes": minutes}
    local = _told("local", train(settings))
    with ray_nodes(NODES) as cluster:
        own = {**settings, **on_cluster(cluster)}
        ray = _told("ray", train(own))
        actors = _told("ray, with inference actors", train({**own, **ACTORS}))
    return compare(local, ray, actors, minutes=minutes, config=config_hash(load_config(None, settings)))


def compare(
    local: TrainingFigures, ray: TrainingFigures, actors: TrainingFigures, *, minutes: float, config: str
) -> RayFigures:
    """The three side by side."""
    found = (local, ray, actors)
    return RayFigures(
        local=local,
        ray=ray,
        ray_actors=actors,
        throughput_ratio=round(ray.episodes_per_s / local.episodes_per_s, 3),
        throughput_ratio_actors=round(actors.episodes_per_s / local.episodes_per_s, 3),
        success_within_noise=max(one.low for one in found) <= min(one.high for one in found),
        minutes=minutes,
        nodes=1 + NODES,
        runtime="ray",
        seeds=1,
        config_hash=config,
    )


def _told(what: str, figures: TrainingFigures) -> TrainingFigures:
    log_progress(f"{what}: {msgspec.json.encode(figures).decode()}")
    return figures


def train(settings: dict[str, Value]) -> TrainingFigures:
    """One training with these settings."""
    with tempfile.TemporaryDirectory(prefix="distrl-ray-") as folder:
        flags = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
        command = [sys.executable, "-m", "distrl", "train", "--no-view", "--run.root", folder, *flags]
        ended = subprocess.run(command, stdout=subprocess.DEVNULL, timeout=DEADLINE_S, check=False)
        found = list(Path(folder).glob("*/summary.json"))
        if ended.returncode or not found:
            raise RoleCrashed(f"the training ended with code {ended.returncode}", fix=" ".join(command))
        return figures_of(msgspec.json.decode(found[0].read_bytes(), type=Summary))


def figures_of(summary: Summary) -> TrainingFigures:
    """What is told of a run."""
    rate = summary.success_after_rate
    return TrainingFigures(
        success_before=summary.success_before,
        success_after=summary.success_after,
        low=rate.low if rate else 0.0,
        high=rate.high if rate else 1.0,
        n=rate.n if rate else 0,
        episodes=summary.episodes,
        episodes_per_s=round(summary.episodes / max(1e-9, summary.collect_s), 3),
        device_utilisation=summary.device_utilisation,
        staleness_mean=round(summary.staleness_mean, 3),
        updates=summary.updates,
        lost_episodes=summary.lost_episodes,
        duplicate_episodes=summary.duplicate_episodes,
        restarts=summary.restarts,
        wall_s=round(summary.wall_s, 1),
    )

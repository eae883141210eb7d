"""`distrl bench first_run`: the results of the default training, seed by seed, each as a separate process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from distrl.bench.base import BenchOptions
from distrl.config.load import config_hash, load_config
from distrl.errors import RoleCrashed
from distrl.runtime.summary import Summary

SEEDS = 3
CONFIG = {"devices.sim.faults.fail_device": "worker-0/phone-3", "devices.sim.faults.fail_after_steps": "30"}
"""The defaults with one phone that fails on purpose, as in configs/first-run.toml."""
QUICK = {"run.minutes": "1"}
DEADLINE_S = 1200.0


class FirstRuns(msgspec.Struct, frozen=True, kw_only=True):
    """The summaries of all seeds, and the worst of some values."""

    success_before: list[float | None]
    success_after: list[float | None]
    lowest_after: float
    smallest_gain: float
    longest_wall_s: float
    lowest_device_utilisation: float
    learner_idle_ratio: list[float]
    lost_episodes: int | None
    """None: of some run it is not known."""
    duplicate_episodes: int
    seeds: int
    config_hash: str
    runs: list[Summary]


def run(options: BenchOptions) -> FirstRuns:
    """Train once per seed, one after the other, so that each has the machine to itself, and measure."""
    settings = {**CONFIG, **(QUICK if options.quick else {})}
    seeds = options.seeds or (1 if options.quick else SEEDS)
    runs = [_train(settings, seed) for seed in range(seeds)]
    gains = [(summary.success_after or 0.0) - (summary.success_before or 0.0) for summary in runs]
    return FirstRuns(
        success_before=[summary.success_before for summary in runs],
        success_after=[summary.success_after for summary in runs],
        lowest_after=min(summary.success_after or 0.0 for summary in runs),
        smallest_gain=min(gains),
        longest_wall_s=max(summary.wall_s for summary in runs),
        lowest_device_utilisation=min(summary.device_utilisation for summary in runs),
        learner_idle_ratio=[summary.learner_idle_ratio for summary in runs],
        lost_episodes=_total([summary.lost_episodes for summary in runs]),
        duplicate_episodes=sum(summary.duplicate_episodes for summary in runs),
        seeds=seeds,
        config_hash=config_hash(load_config(None, settings)),
        runs=runs,
    )


def _total(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _train(settings: dict[str, str], seed: int) -> Summary:
    with tempfile.TemporaryDirectory() as folder:
        flags = [word for key, value in settings.items() for word in (f"--{key}", value)]
        command = [sys.executable, "-m", "distrl", "train", "--seed", str(seed), "--run.root", folder, *flags]
        ended = subprocess.run(command, timeout=DEADLINE_S, check=False)
        found = list(Path(folder).glob("*/summary.json"))
        if ended.returncode or not found:
            raise RoleCrashed(
                f"the training with seed {seed} ended with code {ended.returncode}", fix=" ".join(command)
            )
        return msgspec.json.decode(found[0].read_bytes(), type=Summary)

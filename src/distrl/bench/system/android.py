"""`distrl bench android`: the same asynchronous training on 8 phones behind the real adb program, and in the worker's own process.

Both runs have the same tasks, seed, settings and minutes, and are evaluated on the same held-out tasks. Behind adb stand
simulated phones in a process of their own: every look and every gesture goes through the adb server and the wire protocol.
In the process the same phones take no time. No Android takes part: what one takes over a gesture or a picture comes on top.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec

from distrl.bench.base import BenchOptions
from distrl.bench.system.phones_behind_adb import TrainedRun, phones_behind_adb, train, trained
from distrl.config.load import config_hash, load_config
from distrl.config.schema import AndroidConfig
from distrl.devices.android.health import adb_version
from distrl.types import Value

PHONES = 8
MINUTES, QUICK_MINUTES = 5.0, 1.5
TASKS, QUICK_TASKS = 100, 40
SETTINGS: dict[str, Value] = {
    "run.name": "bench-android",
    "tasks.suite": "sim-start",
    "rollout.workers": 1,
    "rollout.drain_s": 10.0,
    "devices.per_worker": PHONES,
    "evaluation.every_s": 0.0,
    "evaluation.devices": PHONES,
}
IN_PROCESS: dict[str, Value] = {"devices.sim.latency.profile": "instant"}


class AndroidFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs of the same training."""

    adb: TrainedRun
    in_process: TrainedRun
    throughput_ratio: float
    """Steps per second behind adb over those in the process."""
    phones: int
    minutes: float
    test_tasks: int
    adb_version: str
    seeds: int
    config_hash: str
    """Of the run behind adb, without the port and the serials, which differ each time."""
    devices: str = "simulated phones of 180 pixels in width; no real Android"


def run(options: BenchOptions) -> AndroidFigures:
    """Train both ways, one after the other."""
    minutes, tasks = (QUICK_MINUTES, QUICK_TASKS) if options.quick else (MINUTES, TASKS)
    settings = {**SETTINGS, "run.minutes": minutes, "evaluation.episodes": tasks, "run.seed": max(0, options.seeds - 1)}
    with tempfile.TemporaryDirectory(prefix="distrl-android-") as folder:
        with phones_behind_adb(PHONES) as served:
            config = load_config(None, {**settings, **served.settings()})
            behind = trained(*train(config, Path(folder, "adb"), "behind adb"))
        here = load_config(None, {**settings, **IN_PROCESS})
        in_process = trained(*train(here, Path(folder, "here"), "in the process"))
    return AndroidFigures(
        adb=behind,
        in_process=in_process,
        throughput_ratio=round(behind.steps_per_s / max(1e-9, in_process.steps_per_s), 4),
        phones=PHONES,
        minutes=minutes,
        test_tasks=tasks,
        adb_version=adb_version(AndroidConfig()).rpartition(", ")[2],
        seeds=1,
        config_hash=config_hash(load_config(None, {**settings, "devices.kind": "android"})),
    )

"""`distrl bench android_faults`: a whole training on 8 phones behind the real adb, of whose commands one in thirty fails.

A fault is a dropped connection, a restart of the phone, a hang, a slow answer, a truncated one, or garbage. Afterwards the run is
looked through: it has to have finished, with every acknowledged episode there once, no role restarted for a fault of a device, and no
episode that a fault ended counted as a failure of the agent.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import msgspec

from distrl.bench.base import BenchOptions
from distrl.bench.system.android import PHONES, SETTINGS
from distrl.bench.system.phones_behind_adb import TrainedRun, phones_behind_adb, train, trained
from distrl.config.load import config_hash, load_config
from distrl.experience.store import ExperienceStore
from distrl.runtime.device_history import read_histories
from distrl.runtime.run_folder import RunFolder
from distrl.types import Ending

RATE = 0.03
MINUTES, QUICK_MINUTES = 6.0, 3.0
TASKS, QUICK_TASKS = 60, 20


class FaultRunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One run and its faults."""

    faults: int
    by_kind: dict[str, int]
    """As they were injected."""
    least_of_a_kind: int
    commands: int
    finished: bool
    """It came to its end by itself, with an evaluation after it."""
    run: TrainedRun
    counted_as_failure: int
    """Episodes that a lost device ended and whose outcome is not unknown."""
    losses_by_cause: dict[str, int]
    """Devices that were lost, as the pool saw it."""
    failed_restarts: int
    longest_down_s: float
    """Of one device."""
    phones: int
    fault_rate: float
    minutes: float
    seeds: int
    config_hash: str
    devices: str = "simulated phones of 180 pixels in width; no real Android"


def run(options: BenchOptions) -> FaultRunFigures:
    """Train among faults."""
    minutes, tasks = (QUICK_MINUTES, QUICK_TASKS) if options.quick else (MINUTES, TASKS)
    settings = {**SETTINGS, "run.name": "bench-android-faults", "run.minutes": minutes, "evaluation.episodes": tasks}
    with tempfile.TemporaryDirectory(prefix="distrl-android-faults-") as folder:
        with phones_behind_adb(PHONES, fault_rate=RATE) as served:
            config = load_config(None, {**settings, **served.settings(), "devices.android.call_s": 3.0})
            found, summary = train(config, Path(folder), "among faults")
            commands, faults = served.commands, dict(served.faults)
        histories = read_histories(found)
        causes = sum((Counter(one.causes) for one in histories), Counter[str]())
        return FaultRunFigures(
            faults=sum(faults.values()),
            by_kind=faults,
            least_of_a_kind=min(faults.values(), default=0),
            commands=commands,
            finished=summary.success_after is not None,
            run=trained(found, summary),
            counted_as_failure=count_blamed(found),
            losses_by_cause=dict(causes.most_common()),
            failed_restarts=sum(one.failed_restarts for one in histories),
            longest_down_s=max((one.longest_down_s for one in histories), default=0.0),
            phones=PHONES,
            fault_rate=RATE,
            minutes=minutes,
            seeds=1,
            config_hash=config_hash(load_config(None, {**settings, "devices.kind": "android"})),
        )


def count_blamed(run: RunFolder) -> int:
    """Played episodes of a run that a lost device ended and that have an outcome all the same."""
    with ExperienceStore(run.experience) as store:
        lost = [row for row in store.after(0, 1_000_000_000) if row.ending is Ending.DEVICE_LOST]
        return sum(store.read(row.id).verdict.known for row in lost if row.source == "played")

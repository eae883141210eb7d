"""`distrl bench scale`: trajectories per second over the number of devices, on several Ray nodes of one machine.

Each entry is a real `distrl train` on a cluster of a head and two nodes, with simulated phones at their scaled latency and
the default policy without a warm start. Up to 64 phones to a worker, and up to eight workers, spread over the nodes. What is
counted is what the store acknowledged while the run was collecting, without the first part of that time, in which no
episode can be over yet. `cpu_share` says how much of the machine's cores the roles used: where it comes near 1, more
phones cannot bring more, whatever the software does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import msgspec

from distrl.bench.base import BenchOptions, num_cores
from distrl.bench.jobs import log_progress
from distrl.bench.system.ray_nodes import on_cluster, ray_nodes
from distrl.config.load import config_hash, load_config
from distrl.errors import DistrlError
from distrl.experience.store import ExperienceStore
from distrl.runtime.run_folder import RunFolder
from distrl.telemetry.heartbeat import Heartbeat
from distrl.transport.files import FileHeartbeats
from distrl.types import Value

DEVICES, QUICK_DEVICES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000), (2, 8)
MINUTES, QUICK_MINUTES = 1.0, 0.25
PER_WORKER, MOST_WORKERS = 64, 8
NODES = 2
SKIPPED_SHARE = 0.3
"""Of the time of collecting, at its beginning."""
START_S, POLL_S, SAMPLE_S = 300.0, 0.1, 1.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SETTINGS: dict[str, Value] = {
    "run.name": "scale",
    "warm_start.demonstrations": 0,
    "evaluation.episodes": 1,
    "evaluation.every_s": 0,
    "rollout.drain_s": 0.5,
    "runtime.silent_after_s": 60,
}


class ScaleFigures(msgspec.Struct, frozen=True, kw_only=True):
    """An entry per number of devices."""

    devices: list[int]
    workers: list[int]
    trajectories_per_s: list[float]
    share_of_linear: list[float]
    """Of the rate per device with the fewest devices."""
    device_utilisation: list[float]
    learner_wait_ratio: list[float]
    """Share of its time in which the learner had nothing to learn from."""
    rss_mb: list[float]
    """Of all roles together, at the most."""
    ms_per_trajectory: list[float]
    """CPU time of all roles, divided by the trajectories."""
    cpu_share: list[float]
    """CPU time of all roles, divided by the time of all cores."""
    nodes: int
    runtime: str
    seeds: int
    config_hash: str


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What the roles of a run had used at one moment."""

    at_s: float
    cpu_s: dict[int, float]
    """By process."""
    rss_bytes: int


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    devices: int
    workers: int
    per_s: float
    device_utilisation: float
    learner_wait: float
    rss_mb: float
    cpu_s_per_s: float


def run(options: BenchOptions) -> ScaleFigures:
    """Measure everything that `distrl bench scale` reports."""
    sizes, minutes = (QUICK_DEVICES, QUICK_MINUTES) if options.quick else (DEVICES, MINUTES)
    entries = []
    with ray_nodes(NODES) as cluster:
        for devices in sizes:
            entries.append(measure(devices, minutes, {**SETTINGS, **on_cluster(cluster)}))
            log_progress(msgspec.json.encode(entries[-1]).decode())
    return summarise(entries)


def summarise(entries: list[Entry]) -> ScaleFigures:
    """The entries as lists of one length."""
    first = entries[0].per_s / entries[0].devices
    return ScaleFigures(
        devices=[entry.devices for entry in entries],
        workers=[entry.workers for entry in entries],
        trajectories_per_s=[round(entry.per_s, 3) for entry in entries],
        share_of_linear=[round(entry.per_s / entry.devices / first, 3) if first else 0.0 for entry in entries],
        device_utilisation=[round(entry.device_utilisation, 3) for entry in entries],
        learner_wait_ratio=[round(entry.learner_wait, 3) for entry in entries],
        rss_mb=[round(entry.rss_mb) for entry in entries],
        ms_per_trajectory=[
            round(1000 * entry.cpu_s_per_s / entry.per_s, 1) if entry.per_s else 0.0 for entry in entries
        ],
        cpu_share=[round(entry.cpu_s_per_s / num_cores(), 3) for entry in entries],
        nodes=1 + NODES,
        runtime="ray",
        seeds=1,
        config_hash=config_hash(load_config(None, SETTINGS)),
    )


def measure(devices: int, minutes: float, settings: dict[str, Value]) -> Entry:
    """One training with so many devices."""
    workers = min(MOST_WORKERS, -(-devices // PER_WORKER))
    with tempfile.TemporaryDirectory(prefix="distrl-scale-") as root:
        per_worker = -(-devices // workers)
        own: dict[str, Value] = {"run.root": root, "run.minutes": minutes, "rollout.workers": workers}
        given = {**settings, **own, "devices.per_worker": per_worker}
        flags = [word for key, value in given.items() for word in (f"--{key}", str(value))]
        errors = Path(root, "errors")
        with errors.open("wb") as output:
            training = subprocess.Popen(
                [sys.executable, "-m", "distrl", "train", *flags], stdout=subprocess.DEVNULL, stderr=output
            )
        try:
            watched = _Watched(Path(root), training)
            watched.watch()
        finally:
            training.kill()
            training.wait()
        if watched.run is None or training.returncode not in (0, -9):
            raise DistrlError(
                f"the run with {devices} devices failed: {' / '.join(errors.read_text().splitlines()[-3:])[:600]}",
                fix="distrl train with --runtime.kind ray --runtime.address local shows where",
            )
        return watched.entry(watched.run, workers * per_worker, workers)


class _Watched:
    """A training that is sampled from outside while it collects."""

    def __init__(self, root: Path, training: subprocess.Popen[bytes]) -> None:
        self._root, self._training = root, training
        self.run: RunFolder | None = None
        self._samples: list[Sample] = []

    def watch(self) -> None:
        """Sample until the run collects no more."""
        until_s = time.monotonic() + START_S
        while self._training.poll() is None:
            found = next(iter(self._root.glob("*/config.toml")), None)
            run = None if found is None else RunFolder(found.parent)
            beats = [] if run is None else _beats(run)
            workers = [beat for beat in beats if beat.role.startswith("worker")]
            if any(beat.figures.get("steps", 0) for beat in workers):
                self.run = run
                self._samples.append(_sample([beat.pid for beat in beats]))
                time.sleep(SAMPLE_S)
            elif time.monotonic() > until_s:
                return
            time.sleep(POLL_S)

    def entry(self, run: RunFolder, devices: int, workers: int) -> Entry:
        """What the samples and the run's own records come to."""
        with ExperienceStore(run.experience, read_only=True) as store:
            created = [row.created_s for row in store.after(0, 100_000_000) if row.source == "played"]
        start_s, end_s = self._window(run)
        inside = [sample for sample in self._samples if start_s <= sample.at_s <= end_s]
        summary = msgspec.json.decode(run.summary.read_bytes(), type=dict[str, object])
        return Entry(
            devices=devices,
            workers=workers,
            per_s=sum(start_s <= at_s <= end_s for at_s in created) / (end_s - start_s),
            device_utilisation=_number(summary["device_utilisation"]),
            learner_wait=_number(summary["learner_idle_ratio"]),
            rss_mb=max((sample.rss_bytes for sample in inside), default=0.0) / 1e6,
            cpu_s_per_s=cpu_rate(inside),
        )

    def _window(self, run: RunFolder) -> tuple[float, float]:
        """From when episodes end as often as they begin, to when workers are told to stop."""
        collect_s = msgspec.json.decode(run.budget.read_bytes(), type=dict[str, float])["collect_s"]
        began_s = self._samples[0].at_s
        return began_s + SKIPPED_SHARE * collect_s, began_s + collect_s


def _beats(run: RunFolder) -> list[Heartbeat]:
    beats = (FileHeartbeats(run.heartbeats).last(path.stem) for path in run.heartbeats.glob("*.json"))
    return [beat for beat in beats if beat is not None]


def cpu_rate(samples: list[Sample]) -> float:
    """CPU seconds per second of all processes; one that ended or began in between counts for as long as it was seen."""
    used_s = sum(
        max(0.0, later.cpu_s[pid] - earlier.cpu_s[pid])
        for earlier, later in pairwise(samples)
        for pid in earlier.cpu_s.keys() & later.cpu_s.keys()
    )
    return used_s / (samples[-1].at_s - samples[0].at_s) if len(samples) > 1 else 0.0


def _sample(pids: list[int]) -> Sample:
    cpu_s, rss_bytes = dict[int, float](), 0
    for pid in pids:
        with suppress(OSError, IndexError, ValueError):  # it is gone
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            cpu_s[pid] = (int(words[11]) + int(words[12])) / TICKS_PER_S
            rss_bytes += int(words[21]) * os.sysconf("SC_PAGE_SIZE")
    return Sample(at_s=time.time(), cpu_s=cpu_s, rss_bytes=rss_bytes)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0

"""`distrl bench scale`: trajectories per second over the number of devices and of workers, on several Ray nodes of one machine.

Each entry is a real `distrl train` on a cluster of a head and two nodes, with simulated phones at their scaled latency and
the default policy after its warm start. Up to 64 phones to a worker, and up to eight workers, spread over the nodes. What is
counted is what the store acknowledged while the run was collecting, without the first part of that time, in which no
episode can be over yet. `cpu_share` says how much of the machine's cores the roles used: where it comes near 1, more
phones cannot bring more, whatever the software does.

Over devices, the learner does all its work with a learning rate of next to nothing: a policy that gets better plays shorter
episodes, and rates could not be compared. Over workers (eight phones each) it learns as it does by default, for the
same time, and the success of what it has learnt is measured on held-out tasks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from distrl.bench.base import BenchOptions, num_cores
from distrl.bench.jobs import log_progress
from distrl.bench.plots import BLUE, GREY, check_matplotlib, plot_file
from distrl.bench.system.ray_nodes import on_cluster, ray_nodes
from distrl.config.load import config_hash, load_config
from distrl.errors import DistrlError
from distrl.experience.store import ExperienceStore
from distrl.runtime.run_folder import RunFolder
from distrl.telemetry.heartbeat import Heartbeat
from distrl.transport.files import FileHeartbeats
from distrl.types import Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DEVICES, QUICK_DEVICES = (1, 8, 64, 256, 1000), (2, 8)
MINUTES, QUICK_MINUTES = 0.75, 0.25
PER_WORKER, MOST_WORKERS = 64, 8
FLEETS, QUICK_FLEETS = (1, 2, 4, 8), (1, 2)
"""Numbers of workers."""
FLEET_MINUTES, PER_FLEET_WORKER, FLEET_TASKS = 0.75, 8, 150
FEW_DEVICES = 8
"""What counts as linear is the rate per device of all entries with up to so many devices: that of one alone is a few episodes."""
BEND = 0.9
NODES = 2
SKIPPED_SHARE = 0.3
"""Of the time of collecting, at its beginning."""
START_S, POLL_S, SAMPLE_S = 300.0, 0.1, 1.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SETTINGS: dict[str, Value] = {
    "run.name": "scale",
    "evaluation.every_s": 0,
    "rollout.drain_s": 0.5,
    "runtime.silent_after_s": 60,
}
FIXED_POLICY: dict[str, Value] = {"learner.learning_rate": 1e-9, "warm_start.epochs": 8, "evaluation.episodes": 1}
LEARNING: dict[str, Value] = {"devices.per_worker": PER_FLEET_WORKER, "evaluation.episodes": FLEET_TASKS}


class FleetFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A training with so many workers, for the same time."""

    workers: int
    devices: int
    trajectories_per_s: float
    success_before: float
    success_after: float
    """On held-out tasks, by the last policy."""
    learner_wait_ratio: float
    rss_mb: float
    ms_per_trajectory: float
    cpu_share: float


class ScaleFigures(msgspec.Struct, frozen=True, kw_only=True):
    """An entry per number of devices."""

    devices: list[int]
    workers: list[int]
    trajectories_per_s: list[float]
    share_of_linear: list[float]
    """Of the rate per device with few devices."""
    device_utilisation: list[float]
    learner_wait_ratio: list[float]
    """Share of its time in which the learner had nothing to learn from."""
    rss_mb: list[float]
    """Of all roles together, at the most."""
    ms_per_trajectory: list[float]
    """CPU time of all roles, divided by the trajectories."""
    cpu_share: list[float]
    """CPU time of all roles, divided by the time of all cores."""
    bend_devices: int
    """The fewest devices with less than nine tenths of the linear rate; 0: there are none."""
    bend_cpu_share: float
    """And the share of the cores that was used there."""
    fleets: list[FleetFigures]
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
    success_before: float = 0.0
    success_after: float = 0.0

    @property
    def ms_per_trajectory(self) -> float:
        """CPU time of all roles, divided by the trajectories."""
        return round(1000 * self.cpu_s_per_s / self.per_s, 1) if self.per_s else 0.0

    @property
    def cpu_share(self) -> float:
        """CPU time of all roles, divided by the time of all cores."""
        return round(self.cpu_s_per_s / num_cores(), 3)


def run(options: BenchOptions) -> ScaleFigures:
    """Measure everything that `distrl bench scale` reports."""
    check_matplotlib(options)
    sizes, minutes = (QUICK_DEVICES, QUICK_MINUTES) if options.quick else (DEVICES, MINUTES)
    fleets, fleet_minutes = (QUICK_FLEETS, QUICK_MINUTES) if options.quick else (FLEETS, FLEET_MINUTES)
    entries, learning = [], []
    with ray_nodes(NODES) as cluster:
        own = {**SETTINGS, **on_cluster(cluster)}
        for devices in sizes:
            workers = min(MOST_WORKERS, -(-devices // PER_WORKER))
            phones = -(-devices // workers)
            entries.append(measure(workers, minutes, {**own, **FIXED_POLICY, "devices.per_worker": phones}))
            log_progress(msgspec.json.encode(entries[-1]).decode())
        for workers in fleets:
            learning.append(measure(workers, fleet_minutes, {**own, **LEARNING}))
            log_progress(msgspec.json.encode(learning[-1]).decode())
    figures = summarise(entries, learning)
    if options.out is not None:
        with plot_file(options.out, "scale") as axes:
            draw(figures, axes)
    return figures


def summarise(entries: list[Entry], learning: list[Entry]) -> ScaleFigures:
    """The entries as lists of one length."""
    few = [entry for entry in entries if entry.devices <= FEW_DEVICES] or entries[:1]
    linear = sum(entry.per_s for entry in few) / sum(entry.devices for entry in few)
    shares = [round(entry.per_s / entry.devices / linear, 3) if linear else 0.0 for entry in entries]
    bent = [entry for entry, share in zip(entries, shares, strict=True) if share < BEND and entry.devices > FEW_DEVICES]
    return ScaleFigures(
        devices=[entry.devices for entry in entries],
        workers=[entry.workers for entry in entries],
        trajectories_per_s=[round(entry.per_s, 3) for entry in entries],
        share_of_linear=shares,
        device_utilisation=[round(entry.device_utilisation, 3) for entry in entries],
        learner_wait_ratio=[round(entry.learner_wait, 3) for entry in entries],
        rss_mb=[round(entry.rss_mb) for entry in entries],
        ms_per_trajectory=[entry.ms_per_trajectory for entry in entries],
        cpu_share=[entry.cpu_share for entry in entries],
        bend_devices=bent[0].devices if bent else 0,
        bend_cpu_share=bent[0].cpu_share if bent else 0.0,
        fleets=[_fleet(entry) for entry in learning],
        nodes=1 + NODES,
        runtime="ray",
        seeds=1,
        config_hash=config_hash(load_config(None, SETTINGS)),
    )


def _fleet(entry: Entry) -> FleetFigures:
    return FleetFigures(
        workers=entry.workers,
        devices=entry.devices,
        trajectories_per_s=round(entry.per_s, 3),
        success_before=round(entry.success_before, 4),
        success_after=round(entry.success_after, 4),
        learner_wait_ratio=round(entry.learner_wait, 3),
        rss_mb=round(entry.rss_mb),
        ms_per_trajectory=entry.ms_per_trajectory,
        cpu_share=entry.cpu_share,
    )


def draw(figures: ScaleFigures, axes: Axes) -> None:
    """Draw the rate over the number of devices, beside the line on which it would be in proportion."""
    few = [number for number, devices in enumerate(figures.devices) if devices <= FEW_DEVICES] or [0]
    linear = sum(figures.trajectories_per_s[number] for number in few) / sum(figures.devices[number] for number in few)
    axes.plot(figures.devices, [linear * devices for devices in figures.devices], ":", color=GREY, label="linear")
    axes.plot(figures.devices, figures.trajectories_per_s, "o-", color=BLUE, label="measured")
    axes.set(xscale="log", yscale="log", xlabel="simulated devices", ylabel="trajectories per second")
    axes.legend(frameon=False)


def measure(workers: int, minutes: float, settings: dict[str, Value]) -> Entry:
    """One training with so many workers."""
    with tempfile.TemporaryDirectory(prefix="distrl-scale-") as root:
        own: dict[str, Value] = {"run.root": root, "run.minutes": minutes, "rollout.workers": workers}
        given = {**settings, **own}
        devices = workers * load_config(None, given).devices.per_worker
        flags = [word for key, value in given.items() for word in (f"--{key}", str(value))]
        errors = Path(root, "errors")
        with errors.open("wb") as output:
            training = subprocess.Popen(
                [sys.executable, "-m", "distrl", "train", "--no-view", *flags], stdout=subprocess.DEVNULL, stderr=output
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
        return watched.entry(watched.run, devices, workers)


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
                self._samples.append(sample_of([beat.pid for beat in beats]))
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
            success_before=_number(summary["success_before"]),
            success_after=_number(summary["success_after"]),
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


def sample_of(pids: Iterable[int]) -> Sample:
    """What these processes have used so far; those that are gone are left out."""
    cpu_s, rss_bytes = dict[int, float](), 0
    for pid in pids:
        with suppress(OSError, IndexError, ValueError):  # it is gone
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            cpu_s[pid] = (int(words[11]) + int(words[12])) / TICKS_PER_S
            rss_bytes += int(words[21]) * os.sysconf("SC_PAGE_SIZE")
    return Sample(at_s=time.time(), cpu_s=cpu_s, rss_bytes=rss_bytes)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0

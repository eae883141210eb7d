"""`distrl bench scale`: trajectories per second over the number of devices and of workers, on several Ray nodes of one machine.

Each entry is a real `distrl train` on a cluster of a head and two nodes, with simulated phones at their scaled latency and
the default policy after its warm start. Up to 64 phones to a worker, and up to eight workers, spread over the nodes. What is
counted is what the store acknowledged while the run was collecting, without the first part of that time, in which no
episode can be over yet.

Where the rate stops being in proportion, the processor time says why: that of the machine (`machine_share`), of every group of processes
(`cores`), how long the roles' threads waited for a core (`queued`), and for what share of the time anybody did (`waited_share`). Where
`machine_share` is near 1 the cores are full, and more phones cannot bring more, whatever the software does.

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
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from distrl.bench.base import BenchOptions, num_cores
from distrl.bench.jobs import log_progress
from distrl.bench.plots import BLUE, GREY, ORANGE, check_matplotlib, plot_file
from distrl.bench.system.processes import Sample, cpu_rate, machine, parents, queued, sample_of, tree
from distrl.bench.system.ray_nodes import on_cluster, ray_nodes
from distrl.config.load import config_hash, load_config
from distrl.errors import DistrlError
from distrl.experience.store import ExperienceStore
from distrl.runtime.run_folder import RunFolder
from distrl.telemetry.events import events_of
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
GROUPS = ("learner", "workers", "evaluator", "hub", "supervisor", "gcs_server", "raylets", "ray_others", "benchmark")
"""Of processes; `other` is what the machine did beside them. `ray_others` are Ray's agents, logs and idle workers."""
ROLES = GROUPS[:3]
FULL = 0.95
"""Cores that are used for so much of the time count as full."""
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
    machine_share: float


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
    machine_share: list[float]
    """CPU time of everything that runs on the machine, divided by the time of all cores."""
    waited_share: list[float]
    """Share of the time in which somebody on the machine could have run and waited for a core; below 0: this kernel does not say."""
    cores: dict[str, list[float]]
    """CPU seconds per second of each group of processes."""
    queued: dict[str, list[float]]
    """Seconds per second for which threads of each kind of role could have run and waited for a core, added up."""
    bend_devices: int
    """The fewest devices with less than nine tenths of the linear rate; 0: there are none."""
    bend_cpu_share: float
    """And the share of the cores that the roles used there."""
    bend_machine_share: float
    """And everything on the machine."""
    bend_resource: str
    """What was full there: "cores", or nothing that was measured."""
    fleets: list[FleetFigures]
    nodes: int
    runtime: str
    seeds: int
    config_hash: str


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    devices: int
    workers: int
    per_s: float
    device_utilisation: float
    learner_wait: float
    rss_mb: float
    cores: dict[str, float]
    """CPU seconds per second, by group of processes; `machine` is everything on it."""
    queued: dict[str, float] = {}
    waited_share: float = -1.0
    success_before: float = 0.0
    success_after: float = 0.0

    @property
    def cpu_s_per_s(self) -> float:
        """Of all roles."""
        return sum(self.cores.get(name, 0.0) for name in ROLES)

    @property
    def machine_share(self) -> float:
        """CPU time of everything on the machine, divided by the time of all cores."""
        return round(self.cores.get("machine", 0.0) / num_cores(), 3)

    @property
    def other_cores(self) -> float:
        """What the machine did beside all that is measured."""
        return max(0.0, self.cores.get("machine", 0.0) - sum(self.cores.get(name, 0.0) for name in GROUPS))

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
        machine_share=[entry.machine_share for entry in entries],
        waited_share=[round(entry.waited_share, 3) for entry in entries],
        cores={name: [round(entry.cores.get(name, 0.0), 3) for entry in entries] for name in GROUPS}
        | {"other": [round(entry.other_cores, 3) for entry in entries]},
        queued={name: [round(entry.queued.get(name, 0.0), 3) for entry in entries] for name in ROLES},
        bend_devices=bent[0].devices if bent else 0,
        bend_cpu_share=bent[0].cpu_share if bent else 0.0,
        bend_machine_share=bent[0].machine_share if bent else 0.0,
        bend_resource="cores" if bent and bent[0].machine_share >= FULL else "",
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
        machine_share=entry.machine_share,
    )


def draw(figures: ScaleFigures, axes: Axes) -> None:
    """Draw the rate over the number of devices, beside the line on which it would be in proportion, and how full the cores were."""
    few = [number for number, devices in enumerate(figures.devices) if devices <= FEW_DEVICES] or [0]
    linear = sum(figures.trajectories_per_s[number] for number in few) / sum(figures.devices[number] for number in few)
    axes.plot(figures.devices, [linear * devices for devices in figures.devices], ":", color=GREY, label="linear")
    axes.plot(figures.devices, figures.trajectories_per_s, "o-", color=BLUE, label="measured")
    axes.set(xscale="log", yscale="log", xlabel="simulated devices", ylabel="trajectories per second")
    beside = axes.twinx()
    beside.plot(
        figures.devices,
        [100 * one for one in figures.machine_share],
        "s--",
        color=ORANGE,
        label="cores in use, % (right)",
    )
    beside.set(ylim=(0, 105), ylabel="% of the cores")
    beside.grid(visible=False)
    lines = [*axes.get_lines(), *beside.get_lines()]
    axes.legend(lines, [str(line.get_label()) for line in lines], frameon=False, loc="upper left")


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


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What everybody had used at one moment."""

    used: dict[str, Sample]
    """By group of processes, and of the whole machine."""
    queued: dict[str, Sample]
    waited_s: float

    @property
    def at_s(self) -> float:
        """When that was."""
        return self.used["machine"].at_s


class _Watched:
    """A training that is sampled from outside while it collects."""

    def __init__(self, root: Path, training: subprocess.Popen[bytes]) -> None:
        self._root, self._training = root, training
        self.run: RunFolder | None = None
        self._looks: list[Look] = []

    def watch(self) -> None:
        """Sample until the run collects no more."""
        until_s = time.monotonic() + START_S
        while self._training.poll() is None:
            found = next(iter(self._root.glob("*/config.toml")), None)
            run = None if found is None else RunFolder(found.parent)
            beats = [] if run is None else _beats(run)
            steps = sum(beat.figures.get("steps", 0) for beat in beats if beat.role.startswith("worker"))
            if run is not None and steps:
                self.run = run
                self._looks.append(self._look(run, {beat.role: beat.pid for beat in beats}))
                time.sleep(SAMPLE_S)
            elif time.monotonic() > until_s:
                return
            time.sleep(POLL_S)

    def _look(self, run: RunFolder, roles: dict[str, int]) -> Look:
        groups = groups_of(roles, hub=_hub(run), supervisor=self._training.pid)
        used = {name: sample_of(pids) for name, pids in groups.items()} | {"machine": machine()}
        return Look(used=used, queued={name: queued(groups[name]) for name in ROLES}, waited_s=pressure_s())

    def entry(self, run: RunFolder, devices: int, workers: int) -> Entry:
        """What the samples and the run's own records come to."""
        with ExperienceStore(run.experience, read_only=True) as store:
            created = [row.created_s for row in store.after(0, 100_000_000) if row.source == "played"]
        start_s, end_s = self._window(run)
        inside = [look for look in self._looks if start_s <= look.at_s <= end_s]
        summary = msgspec.json.decode(run.summary.read_bytes(), type=dict[str, object])
        return Entry(
            devices=devices,
            workers=workers,
            per_s=sum(start_s <= at_s <= end_s for at_s in created) / (end_s - start_s),
            device_utilisation=_number(summary["device_utilisation"]),
            learner_wait=_number(summary["learner_idle_ratio"]),
            rss_mb=max((sum(look.used[name].rss_bytes for name in ROLES) for look in inside), default=0.0) / 1e6,
            cores={name: cpu_rate([look.used[name] for look in inside]) for name in (*GROUPS, "machine")},
            queued={name: cpu_rate([look.queued[name] for look in inside]) for name in ROLES},
            waited_share=_waited_share(inside),
            success_before=_number(summary["success_before"]),
            success_after=_number(summary["success_after"]),
        )

    def _window(self, run: RunFolder) -> tuple[float, float]:
        """From when episodes end as often as they begin, to when workers are told to stop."""
        collect_s = msgspec.json.decode(run.budget.read_bytes(), type=dict[str, float])["collect_s"]
        began_s = self._looks[0].at_s
        return began_s + SKIPPED_SHARE * collect_s, began_s + collect_s


def _beats(run: RunFolder) -> list[Heartbeat]:
    beats = (FileHeartbeats(run.heartbeats).last(path.stem) for path in run.heartbeats.glob("*.json"))
    return [beat for beat in beats if beat is not None]


def _hub(run: RunFolder) -> int:
    """The process of the run's hub; 0: none is known."""
    known = events_of(run.log("supervisor"), "hub", "pid")
    return int(str(known[-1]["pid"])) if known else 0


def groups_of(roles: dict[str, int], *, hub: int, supervisor: int) -> dict[str, set[int]]:
    """The processes of each of `GROUPS`. Ray's are what this process has started beside the training: its cluster, and what that started."""
    parent_of = parents()
    workers = {pid for role, pid in roles.items() if role.startswith("worker")}
    found = {"learner": {roles[role] for role in roles if role == "learner"}, "workers": workers}
    found["evaluator"] = {roles[role] for role in roles if role == "evaluator"}
    found["hub"] = {hub} & parent_of.keys()
    found["benchmark"] = {os.getpid()}
    known = set[int]().union(*found.values())
    found["supervisor"] = set(tree(supervisor, parent_of)) - known
    rest = set(tree(os.getpid(), parent_of)) - known - found["supervisor"]
    names = {pid: _name(pid) for pid in rest}
    found["gcs_server"] = {pid for pid, name in names.items() if name == "gcs_server"}
    found["raylets"] = {pid for pid, name in names.items() if name == "raylet"}
    found["ray_others"] = rest - found["gcs_server"] - found["raylets"]
    return found


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def pressure_s() -> float:
    """For how long somebody on this machine could have run and waited for a core, since it started; below 0: this kernel does not say."""
    try:
        some = Path("/proc/pressure/cpu").read_text(encoding="ascii").splitlines()[0]
        return int(some.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError, IndexError):
        return -1.0


def _waited_share(looks: list[Look]) -> float:
    if len(looks) < 2 or looks[0].waited_s < 0:
        return -1.0
    return (looks[-1].waited_s - looks[0].waited_s) / (looks[-1].at_s - looks[0].at_s)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0

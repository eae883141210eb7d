"""`distrl bench collection`: what a fleet collects asynchronously, in DigiRL's scheme, and with a well-tuned barrier.

    async          no waiting: every device plays at its own pace, also while the learner trains
    digirl_sync    the devices of a worker in lock-step, each worker an equal share of the round; everyone waits for the
                   last worker, and collection stops while training (arXiv 2406.11896, `multimachine` of its code)
    tuned_sync     no lock-step, one queue for all workers, so that fast ones play more; workers wait only for the end of a
                   round and the training after it. Several lengths of a round are tried first, and the one that collects
                   most is used. Longer rounds wait less often, but play with older weights

All three are real runs of the same code (`learner.mode`, `rollout.lockstep`) with the same fleet, seeds, tasks, learner
and updates per episode: 4 workers of 8 phones, for DigiRL's scheme rounds of two episodes per phone (both as in its
settings), one worker on a machine half as fast. Phones are as slow as emulators, with their heavy tail and stalls, times
`time_scale`, so that two cores are enough; the learner's time is not scaled. The learning rate is almost 0: updates take
their usual time, but the policy does not change, so every scheme plays the same kind of episodes. `collection_sourced` is the
same on phones with the profile `digirl`, whose delays have a source.

One window of each run is measured. It opens with the first version that is published after a round's worth of episodes, and
closes with the first version that is published `window_s` later or more. So the start of processes, the warm start, the first
weights and the first episodes are outside, a synchronous scheme is measured over whole rounds, training included, and
the rule is the same for every scheme.

The physical limit is the fleet with every device always busy: for each worker its devices divided by the device time of
one of its episodes, summed over workers. `share_of_limit` is the share of it that was collected. `device_utilisation` is
busy device time over device time, as everywhere; it does not show that a scheme gives slow machines too much to do.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from statistics import mean
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec.structs import replace

from distrl.bench.base import BenchOptions
from distrl.bench.jobs import log_progress
from distrl.bench.plots import BLUE, GREEN, ORANGE, check_matplotlib, plot_file
from distrl.config.load import config_hash, load_config
from distrl.config.schema import Config, RunConfig
from distrl.errors import RoleCrashed, UsageError
from distrl.experience.store import ExperienceStore, IndexRow
from distrl.learner.checkpoint import from_files
from distrl.runtime.kinds import make_runtime
from distrl.runtime.run_folder import RunFolder, create_run
from distrl.runtime.session import RunSnapshot, Session
from distrl.transport.files import CheckpointFolder
from distrl.transport.weight_files import WeightsFolder
from distrl.types import PolicyVersion, Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WORKERS, DEVICES_PER_WORKER, EPISODES_PER_DEVICE = 4, 8, 2
ROUND = WORKERS * DEVICES_PER_WORKER * EPISODES_PER_DEVICE
TIME_SCALE = 0.15
SETTINGS: dict[str, Value] = {
    "run.name": "collection",
    "run.minutes": 0.0,
    "tasks.suite": "sim-start",
    "rollout.workers": WORKERS,
    "devices.per_worker": DEVICES_PER_WORKER,
    "devices.sim.latency.slow_machine_share": 0.0,
    "devices.sim.latency.slow_workers": 1,
    "warm_start.demonstrations": 60,
    "warm_start.epochs": 10,
    "learner.learning_rate": 1e-12,
    "learner.round_episodes": ROUND,
    "learner.updates_per_episode": 0.25,
    "learner.publish_every_s": 2.0,
    "learner.keep_versions": 1000,
    "evaluation.episodes": 1,
    "evaluation.every_s": 0.0,
    "runtime.heartbeat_s": 0.25,
}
SCHEMES: dict[str, dict[str, Value]] = {
    "async": {"learner.mode": "async"},
    "digirl_sync": {"learner.mode": "sync", "rollout.lockstep": True},
    "tuned_sync": {"learner.mode": "sync"},
}
BASELINES = ("digirl_sync", "tuned_sync")
ROUNDS, QUICK_ROUNDS = (ROUND, 2 * ROUND, 4 * ROUND, 8 * ROUND), (ROUND, 4 * ROUND)
"""Lengths of the rounds that are tried for `tuned_sync`."""
SEEDS, QUICK_SEEDS, FEWEST_SEEDS = 3, 1, 2
TRIAL_SEED = 100
QUICK_WINDOW_S = 30.0

WINDOW_DEADLINE_S = 600.0
"""The most that a run may take until its window has closed."""

Series = list[tuple[float, float]]
"""Pairs of a time and the value of a counter."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The phones of a comparison, and how long it takes over them."""

    profile: str
    """The delays of the phones: `devices.sim.latency.profile`."""
    time_scale: float = TIME_SCALE
    rounds: tuple[int, ...] = ROUNDS
    """Lengths of the rounds that are tried for `tuned_sync`."""
    seeds: int = SEEDS
    window_s: float = 60.0


EMULATORS = Setting(profile="emulator")


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """From one publication to another, seconds since the epoch."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """Its duration."""
        return self.end_s - self.start_s


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What a fleet collected in a window."""

    window_s: float
    episodes: int
    steps: int
    episodes_per_s: float
    device_utilisation: float
    """Busy device time over device time."""
    limit_episodes_per_s: float
    """What the fleet would play with every device always busy, each worker's at its own speed."""


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one scheme."""

    collected: Collected
    training_s_per_episode: float
    restarts: int


class SchemeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One scheme, the mean over its runs."""

    episodes_per_s: float
    episodes_per_s_spread: tuple[float, float]
    """The smallest and the largest value of the runs."""
    device_utilisation: float
    episodes_per_device_s: float
    share_of_limit: float
    """Collected episodes over those that the fleet would play with every device always busy."""
    steps_per_s: float
    steps_per_episode: float
    training_s_per_episode: float
    window_s: float
    """All windows together."""


class CollectionFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Three schemes side by side."""

    devices: int
    workers: int
    schemes: dict[str, SchemeFigures]
    speedup_vs_digirl_sync: float
    speedup_vs_tuned_sync: float
    speedup_spread: dict[str, tuple[float, float]]
    """By baseline, the smallest and the largest ratio of two runs with the same seed."""
    device_utilisation: float
    """Of `async`."""
    limit_episodes_per_s: float
    """The physical limit, from the runs of `async`."""
    learner_load: float
    """Share of its time that the learner would be busy if the fleet played at that limit."""
    profile: str
    """The delays of the phones: `devices.sim.latency.profile`."""
    time_scale: float
    round_episodes: int
    """Of `digirl_sync`."""
    tuned_round_episodes: int
    """Of `tuned_sync`: the best of `rounds_tried`."""
    rounds_tried: dict[str, float]
    """Episodes a second of the barrier by the length of its rounds."""
    updates_per_episode: float
    restarts: int
    """Of roles, over all runs."""
    seeds: int
    config_hash: str


def run(options: BenchOptions) -> CollectionFigures:
    """Measure everything that `distrl bench collection` reports."""
    return compare(options, "collection", EMULATORS)


def compare(options: BenchOptions, bench: str, setting: Setting) -> CollectionFigures:
    """The three schemes on the phones of a setting; the plot is called like the bench."""
    seeds = num_seeds(options, setting)
    check_matplotlib(options)
    chosen = replace(setting, rounds=QUICK_ROUNDS, window_s=QUICK_WINDOW_S) if options.quick else setting
    tried = try_rounds(chosen)
    rounds = {"tuned_sync": max(tried, key=lambda length: tried[length])}
    found: dict[str, list[RunFigures]] = {name: [] for name in SCHEMES}
    for seed in range(seeds):
        for name in order(seed):
            log_progress(f"seed {seed + 1} of {seeds}: {name}")
            found[name].append(measure(scheme_config(name, seed, rounds.get(name, ROUND), chosen), chosen.window_s))
    figures = combine(found, tried, chosen)
    if options.out is not None:
        with plot_file(options.out, bench) as axes:
            draw(figures, axes)
    return figures


def num_seeds(options: BenchOptions, setting: Setting = EMULATORS) -> int:
    """The number of repetitions; only `--quick` may have a single one, which gives no spread."""
    fewest = QUICK_SEEDS if options.quick else FEWEST_SEEDS
    seeds = options.seeds or (QUICK_SEEDS if options.quick else setting.seeds)
    if seeds < fewest:
        raise UsageError(
            f"--seeds {seeds} gives no spread",
            expected=f"{fewest} repetitions or more",
            fix=f"--seeds {SEEDS}, or --quick",
        )
    return seeds


def order(seed: int) -> list[str]:
    """The schemes, reversed for every other seed, so that a drift of the machine favours none."""
    return list(SCHEMES) if seed % 2 == 0 else list(reversed(SCHEMES))


def try_rounds(setting: Setting) -> dict[int, float]:
    """Episodes per second of the barrier by the length of its rounds, with a seed of their own."""
    found = {}
    for number, length in enumerate(setting.rounds):
        log_progress(f"length of the barrier's rounds, {number + 1} of {len(setting.rounds)}: {length} episodes")
        measured = measure(scheme_config("tuned_sync", TRIAL_SEED, length, setting), setting.window_s)
        found[length] = measured.collected.episodes_per_s
    return found


def scheme_config(name: str, seed: int, round_episodes: int = ROUND, setting: Setting = EMULATORS) -> Config:
    """The configuration of a run."""
    chosen: dict[str, Value] = {
        "run.seed": seed,
        "learner.round_episodes": round_episodes,
        "devices.sim.latency.profile": setting.profile,
        "devices.sim.latency.time_scale": setting.time_scale,
        "rollout.episode_budget_s": 900.0 * setting.time_scale,
        "rollout.step_deadline_s": 300.0 * setting.time_scale,
    }
    return load_config(None, {**SETTINGS, **SCHEMES[name], **chosen})


def measure(config: Config, window_s: float) -> RunFigures:
    """Train until the window has closed, and measure what was collected in it."""
    meter = WindowMeter(warm_episodes=config.learner.round_episodes, window_s=window_s)

    def observe(moment: RunSnapshot) -> None:
        meter.observe(moment, time.time())
        session.interrupted = meter.window is not None

    with tempfile.TemporaryDirectory(prefix="distrl-collection-") as root:
        run = create_run(msgspec.structs.replace(config, run=_rooted(config, root)), now=datetime.now())
        session = Session(run, run.config(), make_runtime(config, run), observe)
        summary = session.train()
        if meter.window is None:
            raise RoleCrashed("the run ended before it was measured", fix=f"read {run.logs}")
        with ExperienceStore(run.experience) as store:
            rows = [row for row in store.after(0, 1_000_000_000) if row.source == "played"]
        collected = summarise_window(meter.window, rows, meter.busy, config.devices.per_worker)
        return RunFigures(
            collected=collected, training_s_per_episode=_training_s(run) / len(rows), restarts=summary.restarts
        )


def _rooted(config: Config, root: str) -> RunConfig:
    return msgspec.structs.replace(config.run, root=root)


def _training_s(run: RunFolder) -> float:
    files = CheckpointFolder(run.checkpoints).newest()
    return from_files(files).state.busy_s if files else 0.0


class WindowMeter:
    """Finds the window of a run and records the device time of its workers."""

    def __init__(self, *, warm_episodes: int, window_s: float) -> None:
        self._warm_episodes, self._window_s = warm_episodes, window_s
        self._weights: WeightsFolder | None = None
        self._opened: PolicyVersion | None = None
        self._began_s: float | None = None
        self.window: Window | None = None
        self.busy: dict[str, Series] = {}
        """Device time by worker."""

    def observe(self, moment: RunSnapshot, now_s: float) -> None:
        """Take the current state of the run."""
        for role in moment.roles:
            beat = role.heartbeat
            if beat is not None and "busy_s" in beat.figures:
                self.busy.setdefault(role.role, []).append((beat.time_s, beat.figures["busy_s"]))
        self._weights = self._weights or WeightsFolder(moment.run.weights)
        if newest := self._weights.latest():
            self.publish(newest)
        self._began_s = self._began_s or now_s
        if now_s > self._began_s + WINDOW_DEADLINE_S:
            raise RoleCrashed(
                f"no version closed the window within {WINDOW_DEADLINE_S:g} s",
                expected="a run that learns",
                fix="measure again on a machine that does nothing else",
            )

    def publish(self, version: PolicyVersion) -> None:
        """Take a published version, which may open the window or close it."""
        if self._opened is None:
            self._opened = version if version.version and version.episodes >= self._warm_episodes else None
        elif self.window is None and version.published_s - self._opened.published_s >= self._window_s:
            self.window = Window(start_s=self._opened.published_s, end_s=version.published_s)


def summarise_window(
    window: Window, rows: Sequence[IndexRow], busy: dict[str, Series], devices_per_worker: int
) -> Collected:
    """What was collected in a window, from the episodes of a run and the device time of its workers."""
    inside = [row for row in rows if window.start_s < row.created_s <= window.end_s]
    used = {worker: counter_increase(window, series) for worker, series in busy.items()}
    played = {worker: sum(row.worker == worker for row in inside) for worker in used}
    paces = [devices_per_worker * played[worker] / used[worker] for worker in used if played[worker]]
    return Collected(
        window_s=window.length_s,
        episodes=len(inside),
        steps=sum(row.steps for row in inside),
        episodes_per_s=len(inside) / window.length_s,
        device_utilisation=sum(used.values()) / (devices_per_worker * len(used) * window.length_s),
        limit_episodes_per_s=sum(paces),
    )


def counter_increase(window: Window, series: Series) -> float:
    """How much a counter rose in a window, interpolated linearly between two readings."""
    times, values = zip(*sorted(series), strict=True)
    start, end = np.interp([window.start_s, window.end_s], times, values)
    return float(end - start)


def combine(
    found: dict[str, list[RunFigures]], tried: dict[int, float], setting: Setting = EMULATORS
) -> CollectionFigures:
    """Combine all runs; a speed-up is the mean ratio of runs with the same seed."""
    ratios = {name: _ratios(found["async"], found[name]) for name in BASELINES}
    ours = found["async"]
    limit = mean(one.collected.limit_episodes_per_s for one in ours)
    config = scheme_config("async", 0, setting=setting)
    return CollectionFigures(
        devices=WORKERS * DEVICES_PER_WORKER,
        workers=WORKERS,
        schemes={name: _mean(runs) for name, runs in found.items()},
        speedup_vs_digirl_sync=mean(ratios["digirl_sync"]),
        speedup_vs_tuned_sync=mean(ratios["tuned_sync"]),
        speedup_spread={name: (min(values), max(values)) for name, values in ratios.items()},
        device_utilisation=mean(one.collected.device_utilisation for one in ours),
        limit_episodes_per_s=limit,
        learner_load=limit * mean(one.training_s_per_episode for one in ours),
        profile=setting.profile,
        time_scale=setting.time_scale,
        round_episodes=ROUND,
        tuned_round_episodes=max(tried, key=lambda length: tried[length]),
        rounds_tried={str(length): round(rate, 3) for length, rate in tried.items()},
        updates_per_episode=config.learner.updates_per_episode,
        restarts=sum(one.restarts for runs in found.values() for one in runs),
        seeds=len(ours),
        config_hash=config_hash(config),
    )


def _ratios(ours: list[RunFigures], theirs: list[RunFigures]) -> list[float]:
    return [
        mine.collected.episodes_per_s / other.collected.episodes_per_s for mine, other in zip(ours, theirs, strict=True)
    ]


def _mean(runs: list[RunFigures]) -> SchemeFigures:
    collected = [one.collected for one in runs]
    rates = [one.episodes_per_s for one in collected]
    episodes, window_s = sum(one.episodes for one in collected), sum(one.window_s for one in collected)
    return SchemeFigures(
        episodes_per_s=mean(rates),
        episodes_per_s_spread=(min(rates), max(rates)),
        device_utilisation=mean(one.device_utilisation for one in collected),
        episodes_per_device_s=mean(rates) / (WORKERS * DEVICES_PER_WORKER),
        share_of_limit=mean(one.episodes_per_s / one.limit_episodes_per_s for one in collected),
        steps_per_s=sum(one.steps for one in collected) / window_s,
        steps_per_episode=sum(one.steps for one in collected) / episodes,
        training_s_per_episode=mean(one.training_s_per_episode for one in runs),
        window_s=window_s,
    )


def draw(figures: CollectionFigures, axes: Axes) -> None:
    """Draw the episodes per second of the three schemes and the physical limit."""
    names = {"async": "asynchronous", "tuned_sync": "well-tuned barrier", "digirl_sync": "DigiRL's scheme"}
    for place, (name, colour) in enumerate(zip(names, (BLUE, GREEN, ORANGE), strict=True)):
        scheme = figures.schemes[name]
        low, high = scheme.episodes_per_s_spread
        around = [[scheme.episodes_per_s - low], [high - scheme.episodes_per_s]]
        axes.bar([place], [scheme.episodes_per_s], 0.6, color=colour, yerr=around, capsize=6)
    axes.axhline(figures.limit_episodes_per_s, color="black", linestyle="--")
    axes.annotate("every device always busy", (1.0, figures.limit_episodes_per_s), ha="center", va="bottom")
    busy = [f"{words}\ndevices {figures.schemes[name].device_utilisation:.0%} busy" for name, words in names.items()]
    axes.set_xticks(range(3), busy)
    axes.set(ylabel="episodes per second")
    fleet = f"{figures.devices} phones, {figures.workers} workers"
    axes.set_title(f"{fleet}, delays of the profile {figures.profile}, time × {figures.time_scale:g}")

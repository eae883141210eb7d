"""What a fleet collects under three schemes: ours, DigiRL's, and a barrier that waits as little as a barrier can.

    async          nobody waits: devices go at their own pace and play on while the learner trains
    digirl_sync    the devices of a worker in lock-step, each worker an equal share of the round, everyone waits for the
                   last worker, and collection stops while training (arXiv 2406.11896, `multimachine` of its code)
    tuned_sync     no lock-step, one queue for all workers, so that the fast ones play more; only the end of a round and
                   the training that follows are waited for. Its rounds are as long as collects most: several lengths
                   are tried first. Long rounds wait less often, and play with older weights

All three are real runs of the same code (`learner.mode`, `rollout.lockstep`) with the same fleet, seeds, tasks, learner
and updates per episode: 4 workers of 8 phones, for DigiRL's scheme rounds of two episodes per phone (both as in its
settings), one worker on a machine half as fast. Phones take as long as emulators do, with their heavy tail and stalls, times `time_scale`, so
that two cores are no bound; the learner's time is not scaled. Its learning rate is next to nothing: updates cost what they
cost, but the policy stays what the warm start made it, so every scheme plays the same kind of episodes.

Figures are of one window of each run, see `system.watching`. The physical limit is the fleet with every device busy all
the time: for each worker its devices divided by the device time that one of its episodes took, summed up. `share_of_limit`
is how much of it was collected. `device_utilisation` is, as everywhere, busy device time by device time; it does not see
that a scheme gives slow machines more to do than they can.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from statistics import mean
from typing import TYPE_CHECKING

import msgspec

from distrl.bench.base import BenchOptions
from distrl.bench.crew import say_on_stderr
from distrl.bench.system.pictures import BLUE, GREEN, ORANGE, check_drawing, picture
from distrl.bench.system.watching import Collected, Watcher, sum_up
from distrl.config.load import config_hash, load_config
from distrl.config.schema import Config, RunConfig
from distrl.errors import RoleCrashed, UsageError
from distrl.experience.store import ExperienceStore
from distrl.learner.checkpoint import CheckpointFolder
from distrl.runtime.run_folder import RunFolder, create_run
from distrl.runtime.train import Moment, Session
from distrl.types import Value

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
    "devices.latency.profile": "emulator",
    "devices.latency.time_scale": TIME_SCALE,
    "devices.latency.slow_machine_share": 0.0,
    "devices.latency.slow_workers": 1,
    "rollout.episode_budget_s": 900.0 * TIME_SCALE,
    "rollout.step_deadline_s": 300.0 * TIME_SCALE,
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
RIVALS = ("digirl_sync", "tuned_sync")
ROUNDS, QUICK_ROUNDS = (ROUND, 2 * ROUND, 4 * ROUND, 8 * ROUND), (ROUND, 4 * ROUND)
"""Lengths of the rounds that are tried for `tuned_sync`."""
SEEDS, QUICK_SEEDS, FEWEST_SEEDS = 3, 1, 2
TRIAL_SEED = 100
WINDOW_S, QUICK_WINDOW_S = 60.0, 30.0


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one scheme."""

    collected: Collected
    training_s_per_episode: float
    restarts: int


class SchemeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One scheme, the mean over its runs."""

    episodes_per_s: float
    episodes_per_s_spread: tuple[float, float]
    """The smallest and the largest of the runs."""
    device_utilisation: float
    episodes_per_device_s: float
    share_of_limit: float
    """Episodes that were played, of those that the fleet could play if every device were always busy."""
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
    """By rival, the smallest and the largest ratio of two runs with the same seed."""
    device_utilisation: float
    """Of `async`."""
    limit_episodes_per_s: float
    """The physical limit, as `async` met it."""
    learner_load: float
    """Share of its time that the learner would train if the fleet played at that limit."""
    time_scale: float
    round_episodes: int
    """Of `digirl_sync`."""
    tuned_round_episodes: int
    """Of `tuned_sync`: the best of `rounds_tried`."""
    rounds_tried: dict[str, float]
    """Episodes a second of the barrier by the length of its rounds."""
    updates_per_episode: float
    restarts: int
    """Of roles, over all runs; 0 where nothing went wrong."""
    seeds: int
    config_hash: str


def run(options: BenchOptions) -> CollectionFigures:
    """The figures, as `distrl bench collection` reports them."""
    seeds = num_seeds(options)
    check_drawing(options)
    window_s = QUICK_WINDOW_S if options.quick else WINDOW_S
    tried = try_rounds(QUICK_ROUNDS if options.quick else ROUNDS, window_s)
    rounds = {"tuned_sync": max(tried, key=lambda length: tried[length])}
    found: dict[str, list[RunFigures]] = {name: [] for name in SCHEMES}
    for seed in range(seeds):
        for name in order(seed):
            say_on_stderr(f"seed {seed + 1} of {seeds}: {name}")
            found[name].append(measure(scheme_config(name, seed, rounds.get(name, ROUND)), window_s))
    figures = combine(found, tried)
    if options.out is not None:
        with picture(options.out, "collection") as axes:
            draw(figures, axes)
    return figures


def num_seeds(options: BenchOptions) -> int:
    """How many repetitions; one is no basis for a spread, and only a quick look may do with it."""
    fewest = QUICK_SEEDS if options.quick else FEWEST_SEEDS
    seeds = options.seeds or (QUICK_SEEDS if options.quick else SEEDS)
    if seeds < fewest:
        raise UsageError(
            f"--seeds {seeds} gives no spread",
            expected=f"{fewest} repetitions or more",
            fix=f"--seeds {SEEDS}, or --quick for a first look",
        )
    return seeds


def order(seed: int) -> list[str]:
    """The schemes, every other time in reverse, so that a machine that drifts favours none."""
    return list(SCHEMES) if seed % 2 == 0 else list(reversed(SCHEMES))


def try_rounds(lengths: Sequence[int], window_s: float) -> dict[int, float]:
    """What the barrier collects in a second with each length of its rounds, with a seed of its own."""
    found = {}
    for number, length in enumerate(lengths):
        say_on_stderr(f"rounds for the barrier, {number + 1} of {len(lengths)}: {length} episodes")
        measured = measure(scheme_config("tuned_sync", TRIAL_SEED, length), window_s)
        found[length] = measured.collected.episodes_per_s
    return found


def scheme_config(name: str, seed: int, round_episodes: int = ROUND) -> Config:
    """The settings of a run."""
    return load_config(None, {**SETTINGS, **SCHEMES[name], "run.seed": seed, "learner.round_episodes": round_episodes})


def measure(config: Config, window_s: float) -> RunFigures:
    """Train until the window has closed; what was collected in it."""
    watcher = Watcher(warm_episodes=config.learner.round_episodes, window_s=window_s)

    def watch(moment: Moment) -> None:
        watcher.see(moment, time.time())
        session.interrupted = watcher.window is not None

    with tempfile.TemporaryDirectory(prefix="distrl-collection-") as root:
        run = create_run(msgspec.structs.replace(config, run=_rooted(config, root)), now=datetime.now())
        session = Session(run, run.config(), watch)
        summary = session.train()
        if watcher.window is None:
            raise RoleCrashed("the run ended before it was measured", fix=f"read {run.logs}")
        with ExperienceStore(run.experience) as store:
            rows = store.after(0, 1_000_000_000)
        collected = sum_up(watcher.window, rows, watcher.busy, config.devices.per_worker)
        return RunFigures(
            collected=collected, training_s_per_episode=_training_s(run) / len(rows), restarts=summary.restarts
        )


def _rooted(config: Config, root: str) -> RunConfig:
    return msgspec.structs.replace(config.run, root=root)


def _training_s(run: RunFolder) -> float:
    checkpoint = CheckpointFolder(run.checkpoints).newest()
    return checkpoint.state.busy_s if checkpoint else 0.0


def combine(found: dict[str, list[RunFigures]], tried: dict[int, float]) -> CollectionFigures:
    """All runs as one set of figures; a speed-up is the mean of the ratios of runs with the same seed."""
    ratios = {rival: _ratios(found["async"], found[rival]) for rival in RIVALS}
    ours = found["async"]
    limit = mean(one.collected.limit_episodes_per_s for one in ours)
    config = scheme_config("async", 0)
    return CollectionFigures(
        devices=WORKERS * DEVICES_PER_WORKER,
        workers=WORKERS,
        schemes={name: _mean(runs) for name, runs in found.items()},
        speedup_vs_digirl_sync=mean(ratios["digirl_sync"]),
        speedup_vs_tuned_sync=mean(ratios["tuned_sync"]),
        speedup_spread={rival: (min(values), max(values)) for rival, values in ratios.items()},
        device_utilisation=mean(one.collected.device_utilisation for one in ours),
        limit_episodes_per_s=limit,
        learner_load=limit * mean(one.training_s_per_episode for one in ours),
        time_scale=TIME_SCALE,
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
    """Episodes per second of the three, with the physical limit above them."""
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
    axes.set_title(f"{figures.devices} phones, {figures.workers} workers, time × {figures.time_scale:g}")
